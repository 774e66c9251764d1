package oncrpc

import (
	"runtime"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// send writes a message, now or, if another is being written, by whoever
// writes that. The encoder, and the exchange, are no longer the caller's. It
// reports false if the connection is closed.
func (c *Conn) send(x *exchange, enc *xdr.Encoder) bool {
	o := outgoing{x: x, enc: enc, size: enc.Len() + len(enc.Prefix())}
	c.mu.Lock()
	if c.isClosed {
		c.drop(o)
		c.finish()
		c.mu.Unlock()
		return false
	}
	c.queue = append(c.queue, o)
	c.unsent += o.size
	c.s.unsent.Add(int64(o.size))
	if !c.writing {
		c.writing = true
		if c.inflight > 1 {
			// Replies that are about to be ready go out with this one, in one system call.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		c.flush()
		c.writing = false
		c.room.Broadcast() // for drain
		c.finish()
	}
	c.mu.Unlock()
	return true
}

// drop gives up a message. c.mu is held.
func (c *Conn) drop(o outgoing) {
	o.free()
	if o.x != nil {
		c.inflight--
	}
}

// free ends what the message holds.
func (o *outgoing) free() {
	o.enc.Release()
	if o.x != nil {
		o.x.free()
	} else {
		putEncoder(o.enc)
	}
}

// dropQueue gives up all that is queued. c.mu is held.
func (c *Conn) dropQueue() {
	for i, o := range c.queue {
		c.unsent -= o.size
		c.s.unsent.Add(-int64(o.size))
		c.drop(o)
		c.queue[i] = outgoing{}
	}
	c.queue = nil
}

// flush writes until the queue is empty. c.mu is held, but not during writes.
func (c *Conn) flush() {
	for len(c.queue) > 0 && !c.isClosed {
		n, size := 0, 0
		for n < len(c.queue) && (n == 0 || size+c.queue[n].size <= maxBatch) {
			size += c.queue[n].size
			n++
		}
		c.batch = append(c.batch[:0], c.queue[:n]...)
		rest := copy(c.queue, c.queue[n:])
		clear(c.queue[rest:])
		c.queue = c.queue[:rest]
		c.mu.Unlock()

		segs := c.segs[:0]
		for i := range c.batch {
			segs = c.batch[i].enc.AppendSegments(segs)
		}
		whole := segs
		c.segs = segs
		c.writeSince.Store(c.s.tick.Load())
		_, err := c.segs.WriteTo(c.nc)
		c.writeSince.Store(0)
		clear(whole)
		c.segs = whole[:0]
		calls := 0
		for i := range c.batch {
			if c.batch[i].x != nil {
				calls++
			}
			c.batch[i].free()
			c.batch[i] = outgoing{}
		}
		c.s.stats.replies.Add(uint64(calls))
		c.s.unsent.Add(-int64(size))
		if err != nil {
			c.close(err)
		}

		c.mu.Lock()
		c.unsent -= size
		c.inflight -= calls
		c.room.Broadcast()
	}
	if c.isClosed {
		c.dropQueue()
	}
	if cap(c.segs) > 256 {
		c.segs = nil
	}
}
