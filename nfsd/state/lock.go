package state

import (
	"math"
	"slices"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// lockKey names a lock state: a lock-owner has one for each open that it locks through.
type lockKey struct {
	open  uint64
	owner string
}

// A Lock is the locks that a lock-owner holds through an open.
type Lock struct {
	holding
	key    lockKey
	digest vfs.LockOwner
	held   []span // sorted, apart; under client.mu
}

// A span is a range of bytes, its end included.
type span struct{ start, end uint64 }

// LockOpen starts a LOCK by an owner that may be new to the open (RFC 8881
// §18.10): it returns the owner's lock state, which is made if need be. write: the
// open must allow writing, as a write lock needs.
func (m *Manager) LockOpen(c *Client, sid Stateid, f vfs.File, owner []byte, digest vfs.LockOwner, write bool) (*Lock, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, sid, f)
	if st != proto.OK {
		return nil, st
	}
	if st := o.lockable(write); st != proto.OK {
		return nil, st
	}
	k := lockKey{o.id, string(owner)}
	if l := c.locks[k]; l != nil {
		return l, proto.OK
	}
	if len(c.opens)+len(c.locks) >= m.cfg.MaxHoldings {
		return nil, proto.ErrDelay
	}
	l := &Lock{key: k, digest: digest}
	l.holding = holding{id: m.nextID.Add(1), client: c, file: f, open: o, lock: l}
	c.locks[k] = l
	m.table.put(&l.holding)
	return l, proto.OK
}

func (o *Open) lockable(write bool) proto.Status {
	need := uint32(proto.ShareAccessRead)
	if write {
		need = proto.ShareAccessWrite
	}
	if o.access&need == 0 {
		return proto.ErrOpenmode
	}
	return proto.OK
}

// LockMore finds the lock state of a LOCK by its stateid.
func (m *Manager) LockMore(c *Client, sid Stateid, f vfs.File, write bool) (*Lock, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, st := m.findOn(c, sid, f)
	switch {
	case st != proto.OK:
		return nil, st
	case h.lock == nil:
		return nil, proto.ErrBadStateid
	}
	return h.lock, h.open.lockable(write)
}

// LockFind finds the lock state of a LOCKU.
func (m *Manager) LockFind(c *Client, sid Stateid, f vfs.File) (*Lock, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, st := m.findOn(c, sid, f)
	switch {
	case st != proto.OK:
		return nil, st
	case h.lock == nil:
		return nil, proto.ErrBadStateid
	}
	return h.lock, proto.OK
}

// Owner returns the lock-owner, as the client names it.
func (l *Lock) Owner() string { return l.key.owner }

// Digest returns the lock-owner, as the file system names it.
func (l *Lock) Digest() vfs.LockOwner { return l.digest }

// Locked records that the file system has granted [start, end]. EXPIRED or
// BAD_STATEID: the state was dropped meanwhile, and the caller has to release it again.
func (m *Manager) Locked(l *Lock, start, end uint64) (Stateid, proto.Status) {
	return m.relock(l, span{start, end}, (*Lock).add)
}

// Unlocked records that [start, end] was released.
func (m *Manager) Unlocked(l *Lock, start, end uint64) (Stateid, proto.Status) {
	return m.relock(l, span{start, end}, (*Lock).sub)
}

func (m *Manager) relock(l *Lock, s span, change func(*Lock, span)) (Stateid, proto.Status) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return Stateid{}, proto.ErrExpired
	case c.locks[l.key] != l:
		return Stateid{}, proto.ErrBadStateid
	}
	change(l, s)
	l.bump()
	return m.stateid(&l.holding), proto.OK
}

// Refused ends a LOCK that was refused: a lock state that has never held
// anything and whose stateid was never given out is dropped.
func (m *Manager) Refused(l *Lock) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead && l.seq == 0 && len(l.held) == 0 && c.locks[l.key] == l {
		m.table.drop(l.id)
		delete(c.locks, l.key)
	}
}

// Free is FREE_STATEID (RFC 8881 §18.38): it drops a lock state without locks.
func (m *Manager) Free(c *Client, sid Stateid) proto.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, st := m.find(c, sid)
	switch {
	case st != proto.OK:
		return st
	case h.lock == nil || len(h.lock.held) > 0:
		return proto.ErrLocksHeld
	}
	m.table.drop(h.id)
	delete(c.locks, h.lock.key)
	return proto.OK
}

// add makes s held, as one span with what it touches.
func (l *Lock) add(s span) {
	i := 0
	for i < len(l.held) && l.held[i].end != math.MaxUint64 && l.held[i].end+1 < s.start {
		i++
	}
	j := i
	for j < len(l.held) && (s.end == math.MaxUint64 || l.held[j].start <= s.end+1) {
		s.start = min(s.start, l.held[j].start)
		s.end = max(s.end, l.held[j].end)
		j++
	}
	l.held = slices.Replace(l.held, i, j, s)
}

// sub makes s not held.
func (l *Lock) sub(s span) {
	var left []span
	for _, h := range l.held {
		if h.end < s.start || h.start > s.end {
			left = append(left, h)
			continue
		}
		if h.start < s.start {
			left = append(left, span{h.start, s.start - 1})
		}
		if h.end > s.end {
			left = append(left, span{s.end + 1, h.end})
		}
	}
	l.held = left
}
