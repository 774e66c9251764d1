package oncrpc

import (
	"context"
	"sync"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// maxPending is how many calls may wait for a reply on one connection.
const maxPending = 4096

// A Request is a call to the peer.
type Request struct {
	Program, Version, Procedure uint32
	Cred                        Cred
	// XID numbers the call; 0: the connection numbers it. A call that is sent
	// again, on another connection, has the number of the first.
	XID uint32
	// Encode appends the arguments; nil means none. Payload by reference must
	// stay as it is until its release function is called.
	Encode func(*xdr.Encoder)
}

// A Pending is a call that waits for its reply.
type Pending struct {
	c     *Conn
	xid   uint32
	reply chan result
}

// A result is what a Pending waits for.
type result struct {
	buf  *buffer
	size int
	err  error
}

// A Reply is the reply to a call that was accepted with SUCCESS.
type Reply struct {
	Results xdr.Decoder // at the results
	buf     *buffer
}

// Release gives back the memory that Results is in.
func (r *Reply) Release() {
	r.Results.Init(nil)
	r.buf.free()
	r.buf = nil
}

var encoders = sync.Pool{New: func() any { return xdr.NewEncoder(make([]byte, 0, 512)) }}

// putEncoder returns a released encoder to its pool.
func putEncoder(e *xdr.Encoder) {
	if cap(e.Buffer()) <= keepReply {
		e.Init(e.Buffer()[:0])
		encoders.Put(e)
	}
}

// pendings are those that nobody waits for, and nobody will answer.
var pendings = sync.Pool{New: func() any { return &Pending{reply: make(chan result, 1)} }}

// Start sends a call to the peer and returns without waiting for the reply.
// Wait must be called on what it returns, once.
func (c *Conn) Start(r *Request) (*Pending, error) {
	c.mu.Lock()
	switch {
	case c.isClosed:
		c.mu.Unlock()
		return nil, ErrClosed
	case len(c.pending) >= maxPending:
		c.mu.Unlock()
		return nil, ErrTooManyCalls
	}
	xid := r.XID
	if xid == 0 {
		xid = c.nextXID()
	} else if _, used := c.pending[xid]; used {
		c.mu.Unlock()
		return nil, errSameXID
	}
	p := pendings.Get().(*Pending)
	p.c, p.xid = c, xid
	if c.pending == nil {
		c.pending = make(map[uint32]*Pending)
	}
	c.pending[p.xid] = p
	c.mu.Unlock()

	e := encoders.Get().(*xdr.Encoder)
	e.Init(append(e.Buffer()[:0], 0, 0, 0, 0))
	encodeCall(e, p.xid, r)
	if r.Encode != nil {
		r.Encode(e)
	}
	putMark(e)
	c.send(nil, e) // if it is closed, close has answered, or answers, the call
	return p, nil
}

// nextXID returns a number that no call under way has. c.mu is held.
func (c *Conn) nextXID() uint32 {
	for {
		c.xid++
		if _, used := c.pending[c.xid]; !used && c.xid != 0 {
			return c.xid
		}
	}
}

// Wait waits for the reply. Its error is a *CallError if the peer answered
// with anything but SUCCESS, ErrClosed if the connection was closed, or ctx's.
// Whatever it is but a *CallError, the call may have been executed.
func (p *Pending) Wait(ctx context.Context) (*Reply, error) {
	var r result
	select {
	case r = <-p.reply:
	case <-ctx.Done():
		p.c.mu.Lock()
		_, waiting := p.c.pending[p.xid]
		delete(p.c.pending, p.xid)
		p.c.mu.Unlock()
		if waiting {
			p.free()
			return nil, ctx.Err()
		}
		r = <-p.reply
	}
	p.free()
	if r.err != nil {
		return nil, r.err
	}
	reply := &Reply{buf: r.buf}
	reply.Results.Init(r.buf.b[8:r.size])
	if err := decodeReply(&reply.Results); err != nil {
		reply.Release()
		return nil, err
	}
	return reply, nil
}

// free gives p back: its answer was taken, or will not come.
func (p *Pending) free() {
	p.c = nil
	pendings.Put(p)
}

// Call sends a call to the peer and waits for its reply: Start and Wait.
func (c *Conn) Call(ctx context.Context, r *Request) (*Reply, error) {
	p, err := c.Start(r)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// readReply reads a reply whose mark, for n bytes, is at the source, and
// delivers it. A reply that nobody waits for takes no memory.
func (c *Conn) readReply(xid uint32, n int, last bool) error {
	c.mu.Lock()
	p := c.pending[xid]
	delete(c.pending, xid)
	c.mu.Unlock()
	if p == nil {
		if !last {
			return errBadRecord
		}
		c.readSince.Store(c.s.tick.Load())
		c.src.r += markSize
		err := c.src.skip(n)
		c.readSince.Store(0)
		return err
	}
	buf, size, err := c.readBody(n, last)
	if err != nil {
		buf.free()
		p.reply <- result{err: ErrClosed}
		return err
	}
	p.reply <- result{buf: buf, size: size}
	return nil
}
