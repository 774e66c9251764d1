package nfs4

import (
	"encoding/binary"
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// lockRange takes nothing; it makes a range of offset and length (RFC 8881
// §18.10.3): a length of all ones means to the end of the file, however long.
func lockRange(off, length uint64) (start, end uint64, st proto.Status) {
	switch {
	case length == 0:
		return 0, 0, proto.ErrInval
	case length == math.MaxUint64:
		return off, math.MaxUint64, proto.OK
	case length > math.MaxUint64-off:
		return 0, 0, proto.ErrInval
	}
	return off, off + length - 1, proto.OK
}

// exclusive decodes an nfs_lock_type4. Those of clients that will wait (READW_LT,
// WRITEW_LT) are as the others: the client asks again, maybe after it was told that
// it should (see waiters).
func exclusive(t uint32) (bool, proto.Status) {
	switch t {
	case proto.ReadLt, proto.ReadwLt:
		return false, proto.OK
	case proto.WriteLt, proto.WritewLt:
		return true, proto.OK
	}
	return false, proto.ErrBadxdr
}

// wireOwner is a lock owner as other clients are shown it: client id and owner.
func wireOwner(client uint64, owner string) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(owner)), client), owner...)
}

// denied appends a LOCK4denied.
func (c *compound) denied(l *vfs.Lock) proto.Status {
	c.keepBody = true
	length := uint64(math.MaxUint64)
	if l.End != math.MaxUint64 {
		length = l.End - l.Start + 1
	}
	c.e.Uint64(l.Start)
	c.e.Uint64(length)
	if l.Exclusive {
		c.e.Uint32(proto.WriteLt)
	} else {
		c.e.Uint32(proto.ReadLt)
	}
	var client uint64
	var owner []byte
	if len(l.Wire) >= 8 {
		client, owner = binary.BigEndian.Uint64(l.Wire), l.Wire[8:]
	}
	c.e.Uint64(client)
	c.e.Opaque(owner)
	return proto.ErrDenied
}

// lock is LOCK (RFC 8881 §18.10).
func (c *compound) lock() proto.Status {
	kind := c.d.Uint32()
	reclaim := c.d.Bool()
	off, length := c.d.Uint64(), c.d.Uint64()
	fresh := c.d.Bool()
	var sid state.Stateid
	var owner []byte
	if fresh { // open_to_lock_owner4
		c.d.Uint32()
		sid = c.stateid()
		c.d.Uint32()
		c.d.Uint64() // the client id is the session's
		owner = c.d.Opaque(proto.OpaqueLimit)
	} else { // exist_lock_owner4
		sid = c.stateid()
		c.d.Uint32()
	}
	excl, st := exclusive(kind)
	if c.d.Err() != nil || st != proto.OK {
		return proto.ErrBadxdr
	}
	start, end, st := lockRange(off, length)
	if st != proto.OK {
		return st
	}
	la := state.LockArgs{
		Open: c.resolve(sid), File: c.cur, Owner: owner, Write: excl, Salt: c.newSalt(),
	}
	if st := c.holder(sid); st != proto.OK {
		return st
	}
	if reclaim && !c.p.state.MayReclaim(c.client, c.p.cfg.Now()) {
		return proto.ErrNoGrace
	}
	la.Digest = c.p.digest(c.client.LockName(), string(owner))
	l, st := c.lockState(&la, fresh)
	if c.learn(&st, la.Open, c.cur) {
		l, st = c.lockState(&la, fresh)
	}
	if st != proto.OK {
		return c.settle(st)
	}
	if reclaim {
		if st := c.mayReclaim(l, start, end, excl); st != proto.OK {
			c.p.state.Refused(l)
			return st
		}
	}
	sid, st = c.takeLock(l, vfs.Lock{
		Owner: l.Digest(), Client: c.client.ID, Wire: wireOwner(c.client.ID, l.Owner()),
		Start: start, End: end, Exclusive: excl,
	}, kind == proto.ReadwLt || kind == proto.WritewLt)
	if st != proto.OK {
		return st
	}
	c.setStateid(sid)
	sid.Encode(c.e)
	return proto.OK
}

// lockState finds or makes what a LOCK is by.
func (c *compound) lockState(a *state.LockArgs, fresh bool) (*state.Lock, proto.Status) {
	if !fresh {
		return c.p.state.LockMore(c.client, a.Open, a.File, a.Write)
	}
	if c.client.Loaded() && !c.learned {
		// The owner may have locks, of which the open's stateid says nothing.
		c.learned = true
		if st := c.lesson(a.File, a.Open); st != proto.OK {
			return nil, st
		}
	}
	return c.p.state.LockOpen(c.client, a)
}

// takeLock takes a lock, and records it. A failed one leaves nothing behind, but that
// its owner waits for it.
func (c *compound) takeLock(l *state.Lock, want vfs.Lock, wait bool) (state.Stateid, proto.Status) {
	want.State = l.Record()
	conflict, err := c.fs.Lock(&c.req, c.cur, want)
	if conflict != nil && c.replay { // that may be what it was answered before the take-over
		conflict, err = c.fs.Lock(&c.req, c.cur, want)
	}
	if conflict != nil && c.yield(conflict.Client) {
		conflict, err = c.fs.Lock(&c.req, c.cur, want)
	}
	if err != nil {
		c.p.state.Refused(l)
		if conflict != nil && errno(err) == cluster.ELOCKED {
			if wait {
				c.await(want, l.Owner())
			}
			return state.Stateid{}, c.denied(conflict)
		}
		return state.Stateid{}, c.lockStatus(err)
	}
	c.p.granted(c.cur, &want)
	sid, st := c.p.state.Locked(l, want.Start, want.End)
	if st != proto.OK { // the state went meanwhile, and so must the lock
		c.plain()
		if err := c.fs.Unlock(&c.req, c.cur, want); err != nil {
			c.p.log.Warn("can't release a lock of a client that is gone", "client", c.client.Owner, "err", err)
		}
		if want.State != nil {
			c.dropState(c.cur, want.State.Other, false)
		}
	}
	return sid, st
}

// lockStatus is status, for an operation that changes locks. A file that has as many as it
// may is nothing that such a one can answer with, but for RESOURCE in 4.0 (RFC 7530 §13.2);
// RFC 8881 §15.1.1.9 has SERVERFAULT for what has no error of its own. DELAY would have a
// process wait for what may never be.
func (c *compound) lockStatus(err error) proto.Status {
	if errno(err) != cluster.ENOSPC {
		return status(err)
	}
	if c.minor == 0 {
		return proto.ErrResource
	}
	return proto.ErrServerfault
}

// mayReclaim says whether a lock may be reclaimed: if it is held already, since
// no lock is ever lost.
func (c *compound) mayReclaim(l *state.Lock, start, end uint64, excl bool) proto.Status {
	held, err := c.fs.Locks(&c.req, c.cur, c.client.ID)
	if err != nil {
		return status(err)
	}
	for i := range held {
		h := &held[i]
		if h.Owner == l.Digest() && h.Start <= start && end <= h.End && (h.Exclusive || !excl) {
			return proto.OK
		}
	}
	return proto.ErrNoGrace
}

// lockt is LOCKT (RFC 8881 §18.11).
func (c *compound) lockt() proto.Status {
	kind := c.d.Uint32()
	off, length := c.d.Uint64(), c.d.Uint64()
	c.d.Uint64() // the client id is the session's
	owner := c.d.Opaque(proto.OpaqueLimit)
	excl, st := exclusive(kind)
	if c.d.Err() != nil || st != proto.OK {
		return proto.ErrBadxdr
	}
	start, end, st := lockRange(off, length)
	if st != proto.OK {
		return st
	}
	l := vfs.Lock{
		Owner: c.p.digest(c.client.LockName(), string(owner)), Client: c.client.ID,
		Start: start, End: end, Exclusive: excl,
	}
	conflict, err := c.fs.TestLock(&c.req, c.cur, l)
	if conflict != nil && c.yield(conflict.Client) {
		conflict, err = c.fs.TestLock(&c.req, c.cur, l)
	}
	if err != nil {
		return status(err)
	}
	if conflict != nil {
		return c.denied(conflict)
	}
	return proto.OK
}

// locku is LOCKU (RFC 8881 §18.12).
func (c *compound) locku() proto.Status {
	kind := c.d.Uint32()
	c.d.Uint32() // seqid
	sid := c.stateid()
	off, length := c.d.Uint64(), c.d.Uint64()
	_, st := exclusive(kind)
	if c.d.Err() != nil || st != proto.OK {
		return proto.ErrBadxdr
	}
	start, end, st := lockRange(off, length)
	if st != proto.OK {
		return st
	}
	if st := c.holder(sid); st != proto.OK {
		return st
	}
	sid = c.resolve(sid)
	l, st := c.p.state.LockFind(c.client, sid, c.cur)
	if c.learn(&st, sid, c.cur) {
		l, st = c.p.state.LockFind(c.client, sid, c.cur)
	}
	if st != proto.OK {
		return c.settle(st)
	}
	if err := c.fs.Unlock(&c.req, c.cur, vfs.Lock{Owner: l.Digest(), Client: c.client.ID, Start: start, End: end}); err != nil {
		return c.lockStatus(err)
	}
	if sid, st = c.p.state.Unlocked(l, start, end); st != proto.OK {
		return st
	}
	c.setStateid(sid)
	sid.Encode(c.e)
	return proto.OK
}
