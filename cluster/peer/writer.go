package peer

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"sync"
	"sync/atomic"
)

const (
	copyBelow  = 4 << 10 // bodies of up to so many bytes are copied into the frame
	writeBatch = 1 << 20 // bytes in a writev
	maxIovecs  = 512     // slices in a writev
)

type frameState uint8

const (
	frameQueued frameState = iota
	frameTaken
)

// An outFrame is a frame to be written.
type outFrame struct {
	small  []byte   // header, head, sum and a small body
	bodies [][]byte // a large body, not copied
	size   int
	state  frameState // guarded by the writer's mutex

	// A frame with wait set belongs to a caller, who receives from written
	// before using the bodies again. Others belong to the writer, which calls
	// done and recycles them.
	wait    bool
	written chan struct{} // capacity 1
	done    func()
}

var framePool = sync.Pool{New: func() any { return &outFrame{written: make(chan struct{}, 1)} }}

// newFrame encodes a frame. It refers to body if that is large.
func newFrame(h *header, head []byte, body [][]byte) *outFrame {
	f := framePool.Get().(*outFrame)
	f.state, f.wait, f.done = frameQueued, false, nil
	n := 0
	for _, b := range body {
		n += len(b)
	}
	h.headLen, h.bodyLen = uint32(len(head)), uint32(n)
	if !h.service.bulk() {
		h.flags |= flagBodySum
	}
	f.small = append(h.append(f.small[:0]), head...)
	if h.payload() > 0 {
		sum := crc32.Checksum(head, castagnoli)
		if h.flags&flagBodySum != 0 {
			for _, b := range body {
				sum = crc32.Update(sum, castagnoli, b)
			}
		}
		f.small = binary.BigEndian.AppendUint32(f.small, sum)
	}
	f.bodies = f.bodies[:0]
	if n <= copyBelow {
		for _, b := range body {
			f.small = append(f.small, b...)
		}
	} else {
		f.bodies = append(f.bodies, body...)
	}
	f.size = headerSize + h.payload()
	return f
}

// recycle gives the frame back to the pool.
func (f *outFrame) recycle() {
	clear(f.bodies)
	if cap(f.small) > MaxHead {
		f.small = nil
	}
	f.done = nil
	framePool.Put(f)
}

// finish ends the writer's use of the frame.
func (f *outFrame) finish() {
	if f.wait {
		f.written <- struct{}{}
		return
	}
	if f.done != nil {
		f.done()
	}
	f.recycle()
}

// A frameWriter writes frames to a connection. A sender that finds it idle
// writes at once, without another goroutine; what gathers meanwhile is
// written by run in few large writes. The connection's limits of calls bound
// the queue.
type frameWriter struct {
	conn net.Conn
	wake chan struct{} // capacity 1: run takes over as the one who writes
	sent atomic.Int64  // bytes

	mu    sync.Mutex
	queue []*outFrame
	busy  bool // someone writes
	err   error

	// Of the one who writes.
	batch []*outFrame
	segs  [][]byte
	iov   net.Buffers
}

func (w *frameWriter) init(conn net.Conn) {
	w.conn = conn
	w.wake = make(chan struct{}, 1)
}

// run writes what others hand over until stop is closed.
func (w *frameWriter) run(stop <-chan struct{}) {
	for {
		select {
		case <-w.wake:
			w.flush(true)
		case <-stop:
			return
		}
	}
}

// send queues a frame and writes it, or leaves that to whoever writes already.
// On an error the frame is finished.
func (w *frameWriter) send(f *outFrame) error {
	w.mu.Lock()
	if err := w.err; err != nil {
		w.mu.Unlock()
		f.finish()
		return err
	}
	w.queue = append(w.queue, f)
	if w.busy {
		w.mu.Unlock()
		return nil
	}
	w.busy = true
	w.mu.Unlock()
	w.flush(false)
	return nil
}

// sendLater queues a frame and leaves the writing to run. It does not block.
func (w *frameWriter) sendLater(f *outFrame) {
	w.mu.Lock()
	if w.err != nil {
		w.mu.Unlock()
		f.finish()
		return
	}
	w.queue = append(w.queue, f)
	if w.busy {
		w.mu.Unlock()
		return
	}
	w.busy = true
	w.mu.Unlock()
	w.wake <- struct{}{}
}

// drop takes a frame back, if no byte of it was written.
func (w *frameWriter) drop(f *outFrame) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.state != frameQueued {
		return false
	}
	for i, q := range w.queue {
		if q == f {
			w.queue = append(w.queue[:i], w.queue[i+1:]...)
			return true
		}
	}
	return false
}

// fail ends the writer: queued and later frames are finished unwritten.
func (w *frameWriter) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	queue := w.queue
	w.queue = nil
	for _, f := range queue {
		f.state = frameTaken
	}
	w.mu.Unlock()
	for _, f := range queue {
		f.finish()
	}
}

// flush writes one batch of the queue, or everything, and then lets busy go or
// hands it to run.
func (w *frameWriter) flush(all bool) {
	for {
		w.mu.Lock()
		size, n := 0, 0
		for n < len(w.queue) && n < maxIovecs/2 && (n == 0 || size+w.queue[n].size <= writeBatch) {
			size += w.queue[n].size
			w.queue[n].state = frameTaken
			n++
		}
		w.batch = append(w.batch[:0], w.queue[:n]...)
		rest := copy(w.queue, w.queue[n:])
		clear(w.queue[rest:])
		w.queue = w.queue[:rest]
		w.mu.Unlock()

		err := w.writeAll(w.batch)
		if err != nil {
			w.fail(err)
			_ = w.conn.Close()
		}
		for _, f := range w.batch {
			f.finish()
		}
		clear(w.batch)

		w.mu.Lock()
		more := len(w.queue) > 0
		if !more {
			w.busy = false
		}
		w.mu.Unlock()
		if !more {
			return
		}
		if !all {
			w.wake <- struct{}{}
			return
		}
	}
}

// writeAll writes frames in writes of at most writeBatch bytes, so that sent
// shows progress.
func (w *frameWriter) writeAll(frames []*outFrame) error {
	w.segs = w.segs[:0]
	size := 0
	for _, f := range frames {
		if err := w.gather(f.small, &size); err != nil {
			return err
		}
		for _, b := range f.bodies {
			for len(b) > 0 {
				n := min(len(b), writeBatch)
				if err := w.gather(b[:n], &size); err != nil {
					return err
				}
				b = b[n:]
			}
		}
	}
	return w.writeOut(&size)
}

// gather adds a segment to the next write, after writing what is full.
func (w *frameWriter) gather(b []byte, size *int) error {
	if len(w.segs) == maxIovecs || len(w.segs) > 0 && *size+len(b) > writeBatch {
		if err := w.writeOut(size); err != nil {
			return err
		}
	}
	w.segs = append(w.segs, b)
	*size += len(b)
	return nil
}

// writeOut writes the gathered segments.
func (w *frameWriter) writeOut(size *int) error {
	if len(w.segs) == 0 {
		return nil
	}
	var err error
	if len(w.segs) == 1 {
		_, err = w.conn.Write(w.segs[0])
	} else {
		w.iov = net.Buffers(w.segs)
		_, err = w.iov.WriteTo(w.conn)
	}
	w.sent.Add(int64(*size))
	clear(w.segs)
	w.segs, *size = w.segs[:0], 0
	return err
}
