package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"golang.org/x/sync/semaphore"
)

const (
	readBuffer = 64 << 10 // bytes of a connection's read buffer
	// windowed is the size from which request bodies count against a
	// connection's bytes under way.
	windowed = 64 << 10
	// stuckAfter is how long a call that ends while its body is being written
	// waits for progress before it gives up the connection.
	stuckAfter = 250 * time.Millisecond
	// silentTicks of PingInterval without a byte make a connection dead.
	silentTicks = 3
)

// A Response is the answer to a call.
type Response struct {
	From cluster.NodeID // who answered: an address can have changed hands
	Head []byte         // valid until Release
	Body []byte         // valid until Release

	buf *Buffer
}

// Release gives the response's memory back. It may be called more than once.
func (r *Response) Release() {
	buf := r.buf
	r.buf, r.Head, r.Body = nil, nil, nil
	buf.Release()
}

// A call is under way on a connection. The connection's mutex guards it until
// done is signalled.
type call struct {
	id        uint32
	weight    int64 // in the connection's window
	abandoned bool  // nobody waits
	done      chan struct{}

	status cluster.Errno
	resp   Response
	err    error
}

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// A clientConn is a connection that this node dialed for calls.
type clientConn struct {
	e      *Endpoint
	slot   *connSlot
	addr   string
	node   cluster.NodeID
	conn   net.Conn
	w      frameWriter
	free   chan uint32 // free slots of calls
	window *semaphore.Weighted
	stop   chan struct{} // closed by fail
	once   sync.Once
	read   atomic.Int64 // bytes

	// Of the keeper.
	lastRead, lastSent int64
	missed             int

	mu    sync.Mutex
	calls []*call
	gen   uint32
	err   error
}

// newClientConn makes a connection of a greeted one and starts its goroutines.
func newClientConn(e *Endpoint, slot *connSlot, addr string, conn net.Conn, a *hello) (*clientConn, bool) {
	calls := min(int(a.calls), e.cfg.MaxCalls)
	c := &clientConn{
		e: e, slot: slot, addr: addr, node: a.node, conn: conn,
		free:   make(chan uint32, calls),
		window: semaphore.NewWeighted(min(int64(a.bytes), e.cfg.MaxBytes)),
		stop:   make(chan struct{}),
		calls:  make([]*call, calls),
	}
	for i := range calls {
		c.free <- uint32(i)
	}
	c.w.init(conn)
	if !e.register(c) {
		_ = conn.Close()
		return nil, false
	}
	ok := e.spawn(func() { c.w.run(c.stop) }) && e.spawn(c.readLoop)
	if !ok {
		c.fail(ErrClosed)
	}
	return c, ok
}

// fail ends the connection and the calls on it.
func (c *clientConn) fail(err error) {
	c.once.Do(func() {
		c.slot.cur.CompareAndSwap(c, nil)
		err = lost(c.addr, err)
		c.mu.Lock()
		c.err = err
		calls := c.calls
		c.calls = nil
		c.mu.Unlock()
		close(c.stop)
		_ = c.conn.Close()
		c.w.fail(err)
		for _, k := range calls {
			if k != nil && !k.abandoned {
				k.err = err
				k.done <- struct{}{}
			}
		}
		c.e.unregister(c)
	})
}

// tick is called each PingInterval.
func (c *clientConn) tick() {
	read, sent := c.read.Load(), c.w.sent.Load()
	idle := read == c.lastRead || sent == c.lastSent
	if read == c.lastRead {
		c.missed++
	} else {
		c.missed = 0
	}
	c.lastRead, c.lastSent = read, sent
	if c.missed > silentTicks {
		c.fail(errSilent)
		return
	}
	if idle {
		c.w.sendLater(newFrame(&header{typ: framePing}, nil, nil))
	}
}

// meter counts the bytes read from a connection.
type meter struct {
	conn net.Conn
	n    *atomic.Int64
}

func (m meter) Read(p []byte) (int, error) {
	n, err := m.conn.Read(p)
	m.n.Add(int64(n))
	return n, err
}

// readFrame reads one frame. buf is nil for a frame without a payload.
func readFrame(r *bufio.Reader, h *header) (head, body []byte, buf *Buffer, err error) {
	var b [headerSize]byte
	if _, err = io.ReadFull(r, b[:]); err != nil {
		return nil, nil, nil, err
	}
	if err = h.parse(&b); err != nil {
		return nil, nil, nil, err
	}
	n := h.payload()
	if n == 0 {
		return nil, nil, nil, nil
	}
	buf = newBuffer(n)
	if _, err = io.ReadFull(r, buf.b[:n]); err == nil {
		head, body, err = h.verify(buf.b[:n])
	}
	if err != nil {
		buf.Release()
		return nil, nil, nil, err
	}
	return head, body, buf, nil
}

// readLoop reads answers until the connection ends.
func (c *clientConn) readLoop() {
	r := bufio.NewReaderSize(meter{c.conn, &c.read}, readBuffer)
	for {
		var h header
		head, body, buf, err := readFrame(r, &h)
		if err != nil {
			c.fail(err)
			return
		}
		switch h.typ {
		case framePong:
			buf.Release()
		case frameResponse:
			k, ok := c.take(h.id)
			if !ok {
				buf.Release()
				c.fail(fmt.Errorf("%w: an answer to no call", errProtocol))
				return
			}
			if k == nil {
				buf.Release()
				continue
			}
			k.status = cluster.Errno(h.status)
			k.resp = Response{From: c.node, Head: head, Body: body, buf: buf}
			k.done <- struct{}{}
		default:
			buf.Release()
			c.fail(fmt.Errorf("%w: a frame of type %d", errProtocol, h.typ))
			return
		}
	}
}

// take ends the call of an answer, and returns it unless it was abandoned.
func (c *clientConn) take(id uint32) (k *call, ok bool) {
	slot := id & (1<<slotBits - 1)
	c.mu.Lock()
	if int(slot) >= len(c.calls) || c.calls[slot] == nil || c.calls[slot].id != id {
		failed := c.err != nil
		c.mu.Unlock()
		return nil, failed
	}
	k = c.calls[slot]
	c.calls[slot] = nil
	abandoned, weight := k.abandoned, k.weight
	c.mu.Unlock()
	c.release(slot, weight)
	if abandoned {
		return nil, true
	}
	return k, true
}

// release gives a call's slot and weight back.
func (c *clientConn) release(slot uint32, weight int64) {
	if weight > 0 {
		c.window.Release(weight)
	}
	c.free <- slot
}

// call sends a request and waits for the answer.
func (c *clientConn) call(ctx context.Context, stop <-chan struct{}, h *header, head []byte, body [][]byte, size int) (*Response, error) {
	var slot uint32
	select {
	case slot = <-c.free:
	default:
		select {
		case slot = <-c.free:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-stop:
			return nil, ErrStopped
		case <-c.stop:
			return nil, c.failure()
		}
	}
	k := callPool.Get().(*call)
	k.abandoned, k.weight, k.err, k.resp = false, 0, nil, Response{}
	if size >= windowed {
		if err := c.acquire(ctx, int64(size)); err != nil {
			c.free <- slot
			callPool.Put(k)
			return nil, err
		}
		k.weight = int64(size)
	}

	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		callPool.Put(k)
		return nil, c.err
	}
	c.gen++
	k.id = c.gen<<slotBits | slot
	c.calls[slot] = k
	c.mu.Unlock()

	h.id = k.id
	f := newFrame(h, head, body)
	refers := len(f.bodies) > 0
	f.wait = refers
	// An error means that the connection failed, which ends the call as well.
	_ = c.w.send(f)

	var err error
	select {
	case <-k.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-stop:
		err = ErrStopped
	}
	if err != nil && c.abandon(k, slot, f, refers) {
		return nil, err
	}
	if refers {
		<-f.written
		f.recycle()
	}
	resp, status, err := k.resp, k.status, k.err
	k.resp = Response{}
	callPool.Put(k)
	if err != nil {
		return nil, err
	}
	if status != cluster.OK {
		err = statusError(status, resp.Body)
		resp.Release()
		return nil, err
	}
	return &resp, nil
}

// acquire takes n bytes of the window.
func (c *clientConn) acquire(ctx context.Context, n int64) error {
	if c.window.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-c.stop:
			cancel()
		case <-done:
		}
	}()
	if err := c.window.Acquire(ctx, n); err != nil {
		if failed := c.failure(); failed != nil {
			return failed
		}
		return err
	}
	return nil
}

// failure returns why the connection ended, or nil.
func (c *clientConn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// abandon ends a call whose caller gave up. It reports false if the answer came
// first. Afterwards the request's body is not used any more.
func (c *clientConn) abandon(k *call, slot uint32, f *outFrame, refers bool) bool {
	c.mu.Lock()
	if c.calls == nil || c.calls[slot] != k {
		c.mu.Unlock()
		<-k.done
		return false
	}
	if refers && c.w.drop(f) {
		c.calls[slot] = nil
		c.mu.Unlock()
		c.release(slot, k.weight)
		f.recycle()
		callPool.Put(k)
		return true
	}
	k.abandoned = true
	id := k.id
	c.mu.Unlock()
	c.w.sendLater(newFrame(&header{typ: frameCancel, id: id}, nil, nil))
	if refers {
		c.awaitWritten(f)
	}
	return true
}

// awaitWritten waits until a frame is written. A connection that makes no
// progress is given up, so that this takes stuckAfter, not for ever.
func (c *clientConn) awaitWritten(f *outFrame) {
	select {
	case <-f.written:
		f.recycle()
		return
	default:
	}
	t := time.NewTicker(stuckAfter)
	defer t.Stop()
	sent := c.w.sent.Load()
	for {
		select {
		case <-f.written:
			f.recycle()
			return
		case <-t.C:
			if now := c.w.sent.Load(); now == sent {
				c.fail(errSilent)
			} else {
				sent = now
			}
		}
	}
}
