package state

import (
	"math"
	"slices"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// lockKey names a lock state: a lock-owner has one for each open that it locks through.
type lockKey struct {
	open   *Open
	digest vfs.LockOwner
}

// A Lock is the locks that a lock-owner holds through an open.
type Lock struct {
	holding
	key      lockKey
	owner    string
	digest   vfs.LockOwner
	recorded bool          // with the file; under client.mu
	before   []vfs.StateID // recorded names that it had; under client.mu
	held     []span        // sorted, apart; under client.mu
	taking   int           // LOCKs that are under way; under client.mu
}

// A span is a range of bytes, its end included.
type span struct{ start, end uint64 }

// A LockArgs says who locks through an open.
type LockArgs struct {
	Open   Stateid
	File   vfs.File
	Owner  []byte
	Digest vfs.LockOwner // the owner as the file system names it
	Write  bool          // the open must allow writing, as a write lock needs
	Salt   []byte        // as for NewOther
}

// LockOpen starts a LOCK by an owner that may be new to the open (RFC 8881
// §18.10): it returns the owner's lock state, which is made if need be. Locked or
// Refused ends the LOCK; until then the state can't be freed.
func (m *Manager) LockOpen(c *Client, a *LockArgs) (*Lock, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, a.Open, a.File)
	if st != proto.OK {
		return nil, st
	}
	if st := o.lockable(a.Write); st != proto.OK {
		return nil, st
	}
	k := lockKey{o, a.Digest}
	other := m.NewOther(c, KindLock, o.access, a.Owner, a.File, a.Salt)
	if l := c.locks[k]; l != nil {
		l.idle = false
		if l.unknown && l.other == other { // this very request made it, and was not answered
			l.seq, l.unknown = 0, false
		}
		l.taking++
		return l, proto.OK
	}
	if len(c.opens)+len(c.locks) >= m.cfg.MaxHoldings {
		return nil, proto.ErrDelay
	}
	l := &Lock{key: k, owner: string(a.Owner), digest: a.Digest, taking: 1}
	l.holding = holding{other: other, client: c, file: a.File, open: o, lock: l}
	c.locks[k] = l
	m.table.put(l.other, &l.holding)
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

// LockMore starts a LOCK as LockOpen does, by the stateid of the lock state.
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
	if st := h.open.lockable(write); st != proto.OK {
		return nil, st
	}
	h.lock.taking++
	return h.lock, proto.OK
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
func (l *Lock) Owner() string { return l.owner }

// Digest returns the lock-owner, as the file system names it.
func (l *Lock) Digest() vfs.LockOwner { return l.digest }

// maxStateOwner is the longest Owner of a vfs.State, in bytes.
const maxStateOwner = 1024

// Record returns the lock state as it is to be recorded with its first lock, or nil
// if it is recorded. Its Owner is the open's "other" and the lock-owner.
func (l *Lock) Record() *vfs.State {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.recorded {
		return nil
	}
	owner := append(append(make([]byte, 0, len(l.open.other)+len(l.owner)), l.open.other[:]...), l.owner...)
	return &vfs.State{
		Other: l.other, Kind: vfs.StateLock, Client: c.ID, Access: uint8(l.open.access),
		Owner: owner[:min(len(owner), maxStateOwner)], Digest: l.digest,
	}
}

// Locked records that the file system has granted [start, end], and recorded what
// Record returned. EXPIRED or BAD_STATEID: the state was dropped meanwhile, and
// the caller has to release it again.
func (m *Manager) Locked(l *Lock, start, end uint64) (Stateid, proto.Status) {
	return m.relock(l, span{start, end}, 1, (*Lock).add)
}

// Unlocked records that [start, end] was released.
func (m *Manager) Unlocked(l *Lock, start, end uint64) (Stateid, proto.Status) {
	return m.relock(l, span{start, end}, 0, (*Lock).sub)
}

func (m *Manager) relock(l *Lock, s span, took int, change func(*Lock, span)) (Stateid, proto.Status) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	l.taking -= took
	switch {
	case c.dead:
		return Stateid{}, proto.ErrExpired
	case c.locks[l.key] != l:
		return Stateid{}, proto.ErrBadStateid
	}
	change(l, s)
	l.recorded = true
	l.bump()
	return l.stateid(), proto.OK
}

// Refused ends a LOCK that was refused: a lock state that has never held
// anything and whose stateid was never given out is dropped.
func (m *Manager) Refused(l *Lock) {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	l.taking--
	if !c.dead && l.taking == 0 && l.seq == 0 && !l.unknown && len(l.held) == 0 && c.locks[l.key] == l {
		m.table.drop(l.other)
		delete(c.locks, l.key)
	}
}

// Free is FREE_STATEID (RFC 8881 §18.38): it drops a lock state without locks, or a
// delegation that was revoked. The caller deletes what is recorded of it with the file.
// LOCKS_HELD also if a LOCK is under way: Linux frees a lock-owner's stateid after its
// last unlock without waiting, and has the owner lock again meanwhile. A LOCK that is
// answered BAD_STATEID for that makes Linux look for what it has lost.
func (m *Manager) Free(c *Client, sid Stateid) (f vfs.File, drop []vfs.StateID, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sid.Kind() == KindDelegation {
		return f, nil, m.freeDelegation(c, sid)
	}
	h, st := m.find(c, sid)
	switch {
	case st != proto.OK:
		return f, nil, st
	case h.lock == nil || len(h.lock.held) > 0 || h.lock.taking > 0:
		return f, nil, proto.ErrLocksHeld
	}
	l := h.lock
	drop = l.before
	if l.recorded {
		drop = append(drop, l.other)
	}
	m.forgetLock(l)
	delete(c.locks, l.key)
	return l.file, drop, proto.OK
}

// forgetLock takes a lock state out of the table.
func (m *Manager) forgetLock(l *Lock) {
	m.table.drop(l.other)
	for _, id := range l.before {
		m.table.drop(id)
	}
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
