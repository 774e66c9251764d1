package oncrpc

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A Conn is one connection.
type Conn struct {
	id     uint64
	s      *Server
	nc     net.Conn
	src    source // the read loop's
	closed chan struct{}
	done   chan struct{} // closed when nothing of the connection runs any more

	// Coarse times, for Server.expire. 0: not so.
	readSince  atomic.Int64 // a record has begun to arrive
	writeSince atomic.Int64 // a write has begun
	active     atomic.Int64 // the last call
	draining   atomic.Bool

	mu       sync.Mutex
	room     sync.Cond // inflight, unsent or isClosed has changed
	isClosed bool
	readDone bool
	err      error
	onClose  []func()
	inflight int        // calls received and not yet answered
	queue    []outgoing // to be written
	batch    []outgoing // the writer's
	segs     net.Buffers
	unsent   int // bytes in queue and batch
	writing  bool
	xid      uint32
	pending  map[uint32]*Pending
}

// An outgoing is a message to be written.
type outgoing struct {
	x    *exchange // the call that it answers; nil for a call of ours
	enc  *xdr.Encoder
	size int
}

func newConn(s *Server, nc net.Conn) *Conn {
	c := &Conn{
		id:     s.nextID.Add(1),
		s:      s,
		nc:     nc,
		closed: make(chan struct{}),
		done:   make(chan struct{}),
		xid:    rand.Uint32(),
	}
	c.room.L = &c.mu
	c.src.init(nc)
	c.active.Store(s.tick.Load())
	return c
}

// ID numbers the connection among those of its Server, from 1. It is never reused.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr returns our address.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// OnClose has fn called, in a goroutine of this package, once the connection
// is closed; at once if it is already.
func (c *Conn) OnClose(fn func()) {
	c.mu.Lock()
	if !c.readDone {
		c.onClose = append(c.onClose, fn)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	go fn()
}

// Close closes the connection. Calls being served end on their own; their
// replies are dropped.
func (c *Conn) Close() { c.close(ErrClosed) }

// Done is closed when the connection is closed and none of its calls runs.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection was closed, or nil if it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close closes the connection because of err.
func (c *Conn) close(err error) {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return
	}
	c.isClosed = true
	c.err = err
	pending := c.pending
	c.pending = nil
	close(c.closed)
	c.room.Broadcast()
	if !c.writing {
		c.dropQueue()
	}
	c.mu.Unlock()
	_ = c.nc.Close()
	for _, p := range pending {
		p.reply <- result{err: ErrClosed}
	}
	switch err {
	case errBadRecord, errBigRecord, errBadHeader, errSlowRead, errSlowWrite, errOverloaded:
		c.s.stats.closed.Add(1)
		c.s.cfg.Logger.Warn("connection closed for what its peer did", "peer", c.nc.RemoteAddr(), "err", err)
	default:
		c.s.cfg.Logger.Debug("connection closed", "peer", c.nc.RemoteAddr(), "err", err)
	}
}

// finish marks the end of the connection if nothing of it runs. c.mu is held.
func (c *Conn) finish() {
	if c.isClosed && c.readDone && c.inflight == 0 && !c.writing {
		select {
		case <-c.done:
		default:
			close(c.done)
			c.s.forget(c)
		}
	}
}

// drain stops reading calls; the connection is closed when the last reply was written.
func (c *Conn) drain() {
	c.draining.Store(true)
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// isIdle reports whether no call is being served or awaited.
func (c *Conn) isIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inflight == 0 && len(c.pending) == 0
}

// unsentBytes returns how many bytes wait to be written.
func (c *Conn) unsentBytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsent
}

// readLoop reads records and starts the calls in them.
func (c *Conn) readLoop() {
	var err error
	for err == nil && !c.draining.Load() {
		err = c.readRecord()
	}
	c.src.release()
	c.mu.Lock()
	if c.draining.Load() {
		for !c.isClosed && (c.inflight > 0 || len(c.queue) > 0 || c.writing) {
			c.room.Wait()
		}
		err = errDrained
	}
	c.mu.Unlock()
	c.close(err)
	c.mu.Lock()
	c.readDone = true
	fns := c.onClose
	c.onClose = nil
	c.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
	c.mu.Lock()
	c.finish()
	c.mu.Unlock()
}

// waitForRoom waits until another call may be begun. It reports false if the
// connection is closed.
func (c *Conn) waitForRoom() bool {
	s := c.s
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.isClosed && (c.inflight >= s.cfg.MaxInFlight || c.unsent > maxBatch ||
		c.unsent > 0 && s.unsent.Load() > int64(s.cfg.ReplyMemory)) {
		c.room.Wait()
	}
	if c.isClosed {
		return false
	}
	c.inflight++
	return true
}

// readRecord reads one record (RFC 5531 §11) and starts serving the call, or
// delivers the reply, in it.
func (c *Conn) readRecord() error {
	src := &c.src
	if err := src.fill(markSize); err != nil {
		return err
	}
	mark := binary.BigEndian.Uint32(src.peek(markSize))
	n, last := int(mark&^lastFrag), mark&lastFrag != 0
	if n > c.s.cfg.MaxRecord {
		return errBigRecord
	}
	if n >= 8 {
		// The XID and the type say what to do before there is a buffer for the rest.
		if src.buffered() < markSize+8 {
			c.readSince.Store(c.s.tick.Load())
			if err := src.fill(markSize + 8); err != nil {
				return err
			}
		}
		head := src.peek(markSize + 8)
		if binary.BigEndian.Uint32(head[8:]) == msgReply {
			return c.readReply(binary.BigEndian.Uint32(head[4:]), n, last)
		}
	}
	c.readSince.Store(0)
	if !c.waitForRoom() {
		return ErrClosed
	}
	cost := n + callCost
	if !last {
		// It may grow to the limit. All of it is taken now, since two that
		// wait for more while they hold some could wait for ever.
		cost = c.s.cfg.MaxRecord + callCost
	}
	cost, ok := c.s.requests.acquire(cost, c.closed)
	var buf *buffer
	size, err := 0, error(ErrClosed)
	if ok {
		buf, size, err = c.readBody(n, last)
	}
	if err == nil && size < 8 {
		err = errBadRecord
	}
	if err != nil {
		buf.free()
		if ok {
			c.s.requests.release(cost)
		}
		c.mu.Lock()
		c.inflight--
		c.mu.Unlock()
		return err
	}
	now := c.s.tick.Load()
	if c.active.Load() != now {
		c.active.Store(now)
	}
	c.s.stats.calls.Add(1)
	x := getExchange()
	x.conn, x.buf, x.cost = c, buf, cost
	x.args.Init(buf.b[:size])
	c.s.workers.serve(x)
	return nil
}

// readBody reads a record whose first mark is at the source, for n bytes.
func (c *Conn) readBody(n int, last bool) (*buffer, int, error) {
	src := &c.src
	src.r += markSize
	buf := getBuffer(n)
	size := 0
	for {
		if src.buffered() < n {
			c.readSince.Store(c.s.tick.Load())
		}
		if n > 0 {
			if src.buf == nil {
				if err := src.fill(1); err != nil {
					return buf, 0, err
				}
			}
			if err := src.read(buf.b[size : size+n]); err != nil {
				return buf, 0, err
			}
		}
		size += n
		if last {
			c.readSince.Store(0)
			return buf, size, nil
		}
		if src.buffered() < markSize {
			c.readSince.CompareAndSwap(0, c.s.tick.Load())
			if err := src.fill(markSize); err != nil {
				return buf, 0, err
			}
		}
		mark := binary.BigEndian.Uint32(src.peek(markSize))
		src.r += markSize
		n, last = int(mark&^lastFrag), mark&lastFrag != 0
		if n == 0 && !last {
			return buf, 0, errBadRecord // would go on for ever without getting anywhere
		}
		if size+n > c.s.cfg.MaxRecord {
			return buf, 0, errBigRecord
		}
		if size+n > len(buf.b) {
			bigger := getBuffer(max(size+n, min(2*len(buf.b), c.s.cfg.MaxRecord)))
			copy(bigger.b, buf.b[:size])
			buf.free()
			buf = bigger
		}
	}
}
