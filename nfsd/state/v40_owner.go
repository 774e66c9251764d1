package state

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// An Owner is an open-owner or lock-owner of an NFSv4.0 client. Its requests are
// numbered, and the reply to the last is kept (RFC 7530 §9.1.7).
//
// Who executes a request of it holds its turn: it takes the token from Turn before,
// and calls Done after.
type Owner struct {
	Client *Client
	Name   string
	Turn   chan struct{} // has the token while no request is executed

	// Under the turn.
	known bool // last is: an owner from before a take-over may go on with any number
	last  numbered

	// Under Client.mu.
	confirmed bool
	used      cluster.Time
	users     int         // requests that hold the turn, or wait for it
	closed    vfs.StateID // of the last CLOSE, by which a retransmission finds its owner
	pending   *Open       // waits for OPEN_CONFIRM
}

// A numbered is a request of an owner, and its reply.
type numbered struct {
	seq   uint32
	op    proto.Op
	reply Reply
}

// A Reply is what an owner's request was answered.
type Reply struct {
	Status proto.Status
	Body   []byte   // the result after its status
	File   vfs.File // OPEN: the current file afterwards
}

func newOwner(c *Client, name string) *Owner {
	o := &Owner{Client: c, Name: name, Turn: make(chan struct{}, 1)}
	o.Turn <- struct{}{}
	return o
}

// A Verdict says what to do with a numbered request.
type Verdict uint8

// The verdicts of Check.
const (
	BadSeqid Verdict = iota // answer BAD_SEQID
	Execute                 // then Record
	Again                   // a retransmission: answer what Last returns
)

// Check says what to do with a request of the owner whose turn the caller has. A
// number that was used for another operation is bad (RFC 7530 §9.1.9).
func (o *Owner) Check(op proto.Op, seq uint32) Verdict {
	confirmed := o.Confirmed()
	switch {
	case !o.known:
		return Execute
	case seq == next(o.last.seq), seq == o.last.seq+1: // Linux does not leave 0 out
		return Execute
	case seq == o.last.seq && op == o.last.op:
		return Again
	case op == proto.OpOpen && !confirmed && seq != o.last.seq:
		// The first OPEN was a stray one: this one is valid (RFC 7530 §16.18.5).
		return Execute
	}
	return BadSeqid
}

// next returns the number after seq: 0 is left out when it wraps (RFC 7530 §9.1.3).
func next(seq uint32) uint32 {
	if seq++; seq == 0 {
		return 1
	}
	return seq
}

// Last returns the reply to the last request.
func (o *Owner) Last() Reply { return o.last.reply }

// Record keeps the reply to a request that was executed, unless it is one of those
// after which the client uses the number again (RFC 7530 §9.1.7).
func (o *Owner) Record(op proto.Op, seq uint32, r Reply) {
	if !Advances(r.Status) {
		return
	}
	o.known = true
	o.last = numbered{seq, op, r}
}

// Advances reports whether a request that was answered so uses its number up (RFC 7530 §9.1.7).
func Advances(st proto.Status) bool {
	switch st {
	case proto.ErrStaleClientid, proto.ErrStaleStateid, proto.ErrBadStateid, proto.ErrBadSeqid,
		proto.ErrBadxdr, proto.ErrResource, proto.ErrNofilehandle, proto.ErrMoved:
		return false
	}
	return true
}

// enter counts a request that is about to wait for the turn, so that the owner
// stays. c.mu is held.
func (o *Owner) enter(now cluster.Time) *Owner {
	o.users++
	o.used = now
	return o
}

// Leave ends what one of the functions that return an Owner has begun.
func (o *Owner) Leave() {
	o.Client.mu.Lock()
	o.users--
	o.Client.mu.Unlock()
}

// full reports whether c may have no more owners. c.mu is held.
func (m *Manager) full(c *Client, x *V40) bool {
	return len(c.opens)+len(c.locks)+len(x.opens)+len(x.locks)+len(x.orphans) >= 2*m.cfg.MaxHoldings
}

// add makes an owner. One of a client that was taken over counts as confirmed: it may
// be older than that. c.mu is held.
func (x *V40) add(c *Client, all map[string]*Owner, name string) *Owner {
	o := newOwner(c, name)
	o.confirmed = c.loaded
	all[name] = o
	return o
}

// OpenOwner returns an open-owner, which is made if need be. Leave ends its use.
// RESOURCE: there are too many.
func (m *Manager) OpenOwner(c *Client, name []byte, now cluster.Time) (*Owner, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.v40()
	if c.dead {
		return nil, proto.ErrExpired
	}
	if o := x.opens[string(name)]; o != nil {
		return o.enter(now), proto.OK
	}
	if m.full(c, x) && x.orphans[m.ownerHash(c, name, 0)] == nil {
		return nil, proto.ErrResource
	}
	return m.named(c, x, string(name)).enter(now), proto.OK
}

// named makes an open-owner, or finds out that it is one whose name was not known until
// now. c.mu is held.
func (m *Manager) named(c *Client, x *V40, name string) *Owner {
	h := m.ownerHash(c, []byte(name), 0)
	o := x.orphans[h]
	if o != nil && (o.Name == "" || o.Name == name) {
		o.Name = name
		x.opens[name] = o
		return o
	}
	n := x.add(c, x.opens, name)
	if c.loaded && o == nil {
		x.orphans[h] = n // it may have opens of before
	}
	return n
}

// LockOwner returns a lock-owner, which is made if need be. Leave ends its use.
func (m *Manager) LockOwner(c *Client, name []byte, now cluster.Time) (*Owner, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.v40()
	if c.dead {
		return nil, proto.ErrExpired
	}
	if o := x.locks[string(name)]; o != nil {
		return o.enter(now), proto.OK
	}
	if m.full(c, x) {
		return nil, proto.ErrResource
	}
	return x.add(c, x.locks, string(name)).enter(now), proto.OK
}

// OwnerOf returns the owner of a stateid, of whatever seqid, or of the last one that it
// has closed. Leave ends its use. Unknown: Learn of the file, and ask again.
func (m *Manager) OwnerOf(c *Client, sid Stateid, now cluster.Time) (*Owner, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.v40()
	h := m.table.get(sid.Other)
	switch {
	case c.dead:
		return nil, proto.ErrExpired
	case h == nil && x.closed[sid.Other] != nil:
		return x.closed[sid.Other].enter(now), proto.OK
	case h == nil && c.loaded:
		return nil, Unknown
	case h == nil || h.client != c:
		return nil, proto.ErrBadStateid
	}
	all, name := x.opens, h.open.owner
	switch {
	case h.lock != nil:
		all, name = x.locks, h.lock.owner
	case !h.open.named:
		o := x.orphans[h.open.key.owner]
		if o == nil {
			o = newOwner(c, "")
			o.confirmed = true
			x.orphans[h.open.key.owner] = o
		}
		return o.enter(now), proto.OK
	}
	if o := all[name]; o != nil {
		return o.enter(now), proto.OK
	}
	if h.lock == nil {
		return m.named(c, x, name).enter(now), proto.OK
	}
	return x.add(c, all, name).enter(now), proto.OK
}

// GivenTo returns the owner that a stateid of file f was given to by an earlier
// front-end, if requests of it came since, although what it stood for is not known. Leave
// ends its use.
func (m *Manager) GivenTo(c *Client, sid Stateid, f vfs.File, now cluster.Time) *Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || !c.loaded || !m.genuine(c, sid.Other, f) {
		return nil
	}
	x, h := c.v40(), [3]byte(sid.Other[ownerAt:macAt])
	if sid.Kind() != KindLock {
		if o := x.orphans[h]; o != nil {
			return o.enter(now)
		}
		return nil
	}
	for name, o := range x.locks {
		if m.ownerHash(c, []byte(name), 0) == h {
			return o.enter(now)
		}
	}
	return nil
}

// Closed says that the owner has closed an open: a retransmission of that CLOSE finds
// the owner by its stateid. The turn is held.
func (o *Owner) Closed(sid Stateid) {
	o.Client.mu.Lock()
	defer o.Client.mu.Unlock()
	x := o.Client.v40()
	if x.closed[o.closed] == o {
		delete(x.closed, o.closed)
	}
	if !o.Client.dead {
		o.closed = sid.Other
		x.closed[sid.Other] = o
	}
	o.pending = nil
}

// Confirmed reports whether the owner needs no OPEN_CONFIRM.
func (o *Owner) Confirmed() bool {
	o.Client.mu.Lock()
	defer o.Client.mu.Unlock()
	return o.confirmed
}

// Confirm makes the owner confirmed: it has reclaimed something.
func (o *Owner) Confirm() {
	o.Client.mu.Lock()
	defer o.Client.mu.Unlock()
	o.confirmed = true
}

// Cancelled says that the open that waited for OPEN_CONFIRM was closed.
func (o *Owner) Cancelled() {
	o.Client.mu.Lock()
	defer o.Client.mu.Unlock()
	o.pending = nil
}

// Opened says that an unconfirmed owner has opened something: it waits for OPEN_CONFIRM,
// and its stateid is good for nothing else before (RFC 7530 §16.18.5).
func (m *Manager) Opened(o *Owner, sid Stateid) {
	c := o.Client
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := m.table.get(sid.Other); h != nil && h.client == c && !o.confirmed {
		h.open.unconfirmed = true
		o.pending = h.open
	}
}

// Pending returns the open of an owner that waits for OPEN_CONFIRM, if there is one:
// another OPEN cancels it.
func (o *Owner) Pending() (sid Stateid, f vfs.File, ok bool) {
	o.Client.mu.Lock()
	defer o.Client.mu.Unlock()
	if o.pending == nil {
		return sid, f, false
	}
	o.pending.unconfirmed = false // it can be closed
	return o.pending.stateid(), o.pending.file, true
}

// ConfirmOpen is OPEN_CONFIRM (RFC 7530 §16.18) by the owner whose turn the caller has.
func (m *Manager) ConfirmOpen(o *Owner, sid Stateid, f vfs.File) (Stateid, proto.Status) {
	c := o.Client
	c.mu.Lock()
	defer c.mu.Unlock()
	h := m.table.get(sid.Other)
	switch {
	case c.dead:
		return sid, proto.ErrExpired
	case h == nil || h.client != c || h.file != f || h.open != o.pending || h.lock != nil || o.confirmed:
		return sid, proto.ErrBadStateid
	case sid.Seq != 0 && sid.Seq != h.seq:
		if int32(sid.Seq-h.seq) < 0 {
			return sid, proto.ErrOldStateid
		}
		return sid, proto.ErrBadStateid
	}
	o.confirmed, o.pending = true, nil
	h.open.unconfirmed = false
	h.bump()
	return h.stateid(), proto.OK
}

// Holds reports whether the lock-owner has locking state: of one that has none, nothing
// needs to be known (RFC 7530 §9.1.10).
func (o *Owner) Holds() bool {
	o.Client.mu.Lock()
	defer o.Client.mu.Unlock()
	for _, l := range o.Client.locks {
		if l.owner == o.Name {
			return true
		}
	}
	return false
}

// ReleaseOwner is RELEASE_LOCKOWNER (RFC 7530 §16.37). It returns which of its lock
// states, by file, are recorded: they are to be deleted.
func (m *Manager) ReleaseOwner(c *Client, name []byte) (drop map[vfs.File][]vfs.StateID, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.locks {
		if l.owner == string(name) && len(l.held) > 0 {
			return nil, proto.ErrLocksHeld
		}
	}
	drop = make(map[vfs.File][]vfs.StateID)
	for k, l := range c.locks {
		if l.owner != string(name) {
			continue
		}
		all := append(drop[l.file], l.before...)
		if l.recorded {
			all = append(all, l.other)
		}
		if len(all) > 0 {
			drop[l.file] = all
		}
		m.forgetLock(l)
		delete(c.locks, k)
	}
	if o := c.v40().locks[string(name)]; o != nil && o.users == 0 {
		delete(c.v40().locks, string(name))
	}
	return drop, proto.OK
}

// An Unconfirmed is an open that was not confirmed within a lease: it is to be
// closed (RFC 7530 §16.18.5).
type Unconfirmed struct {
	Owner *Owner
	Stateid
	File vfs.File
}

// SweepOwners drops the owners that have nothing open and were not heard of for two
// leases (RFC 7530 §16.18.5), and returns the opens that were not confirmed within
// one. The caller calls it about once a lease.
func (m *Manager) SweepOwners(now cluster.Time) (stray []Unconfirmed) {
	m.mu.Lock()
	all := make([]*Client, 0, len(m.clients))
	for _, c := range m.clients {
		if c.v40() != nil {
			all = append(all, c)
		}
	}
	m.mu.Unlock()
	for _, c := range all {
		stray = append(stray, m.sweep(c, now)...)
	}
	return stray
}

func (m *Manager) sweep(c *Client, now cluster.Time) (stray []Unconfirmed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.v40()
	if c.dead {
		return nil
	}
	opens, locks := make(map[string]bool), make(map[string]bool)
	hashes := make(map[[3]byte]bool)
	for _, o := range c.opens {
		if o.named {
			opens[o.owner] = true
		} else {
			hashes[o.key.owner] = true
		}
	}
	for _, l := range c.locks {
		locks[l.owner] = true
	}
	idle := func(o *Owner) bool { return o.users == 0 && now-o.used > 2*m.cfg.Lease }
	for n, o := range x.opens {
		switch {
		case o.pending != nil && o.users == 0 && now-o.used > m.cfg.Lease:
			stray = append(stray, Unconfirmed{o.enter(o.used), o.pending.stateid(), o.pending.file})
		case idle(o) && !opens[n]:
			delete(x.closed, o.closed)
			delete(x.opens, n)
		}
	}
	for n, o := range x.locks {
		if idle(o) && !locks[n] {
			delete(x.locks, n)
		}
	}
	for h, o := range x.orphans {
		if idle(o) && !hashes[h] && x.opens[o.Name] != o {
			delete(x.closed, o.closed)
			delete(x.orphans, h)
		}
	}
	return stray
}
