package nfs4

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// learn brings in what a taken-over client's stateid may stand for, if st says that
// it is not known here. It reports whether it has, so that it is worth asking
// again; otherwise st is what to answer.
func (c *compound) learn(st *proto.Status, sid state.Stateid, f vfs.File) bool {
	if *st != state.Unknown || c.learned {
		return false
	}
	c.learned = true
	if got := c.lesson(f, sid); got != proto.OK {
		*st = got
		return false
	}
	return true
}

// settle makes a status of the state that can be sent.
func (c *compound) settle(st proto.Status) proto.Status {
	if st == state.Unknown {
		return proto.ErrBadStateid
	}
	return st
}

// lesson has the Manager learn of f, and of sid unless it is zero.
func (c *compound) lesson(f vfs.File, sid state.Stateid) proto.Status {
	c.req.Fresh() // as of now, not of before the take-over
	states, err := c.fs.States(&c.req, f)
	if err != nil {
		return status(err)
	}
	l := state.Lesson{File: f, States: states}
	for i := range states {
		if states[i].Client == c.client.ID && states[i].Kind == vfs.StateLock {
			if l.Locks, err = c.fs.Locks(&c.req, f, c.client.ID); err != nil {
				return status(err)
			}
			break
		}
	}
	// The file is held before its opens are known, so that it is there if one of
	// them is closed at once.
	if err := c.fs.Open(&c.req, f); err != nil {
		return status(err)
	}
	n := c.p.state.Learn(c.client, &l, sid)
	for ; n > 1; n-- {
		if err := c.fs.Open(&c.req, f); err != nil {
			c.p.log.Warn("can't hold a file that a client has open", "client", c.client.Owner, "err", err)
		}
	}
	if n == 0 {
		c.fs.Close(f)
	}
	return proto.OK
}

// yield has whoever holds what this request needs expire, if its lease has ended. It
// reports whether it is worth trying again.
func (c *compound) yield(holder uint64) bool { return c.p.yield(c.call.Context(), holder) }
