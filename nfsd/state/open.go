package state

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// openKey names an open: an open-owner has one of a file. Owners are named by a
// hash, since that is all that a stateid of before a take-over says of its owner.
type openKey struct {
	owner [3]byte
	file  vfs.File
}

// An Open is what an open-owner has open of a file.
type Open struct {
	holding
	key          openKey
	owner        string // if named
	named        bool
	access, deny uint32 // under client.mu
	asked        modes  // for what each OPEN asked; under client.mu
	// What has been recorded of it with the file: under its own name, if with is
	// not 0, and under names that it had before.
	with, without uint32 // access and deny
	before        []earlier
	unconfirmed   bool // NFSv4.0: OPEN_CONFIRM has not come
	uid           uint32
	user          userKind
	// Its client was taken over, and what it had open only for reading is not
	// known here before it is used: that may be part of this open.
	inherits bool

	next, prev *Open // of the same file, under the shard's lock
}

// A userKind says whether an open's uid is who opened it.
type userKind uint8

const (
	userUnknown userKind = iota // it was opened before a take-over: whoever uses it first
	userOne
	userMany // several have: who, is not remembered
)

// uses notes that a user has opened o. c.mu is held.
func (o *Open) uses(uid uint32) {
	switch {
	case o.user == userUnknown:
		o.uid, o.user = uid, userOne
	case o.uid != uid:
		o.user = userMany
	}
}

// An earlier name of an open.
type earlier struct {
	other    vfs.StateID
	recorded bool
}

// OpenArgs says what is opened.
type OpenArgs struct {
	Owner        []byte
	File         vfs.File
	Access, Deny uint32 // proto.ShareAccess…, proto.ShareDeny…
	UID          uint32 // who opens it
	// Other is the name that it gets unless the owner has the file open already.
	Other vfs.StateID
	// Reclaim says that the owner claims what it has: own opens don't conflict.
	Reclaim bool
	// Recorded says that Other, with Access and Deny, has been recorded already.
	Recorded bool
	// Repeated says that an earlier front-end may have executed the request: what its
	// owner denies himself may have come of it.
	Repeated bool
}

// opener finds the owner's open of a file, or the key that it shall have. c.mu is held.
func (m *Manager) opener(c *Client, owner []byte, f vfs.File) (*Open, openKey) {
	for try := byte(0); ; try++ {
		k := openKey{m.ownerHash(c, owner, try), f}
		o := c.opens[k]
		switch {
		case o == nil:
			return nil, k
		case !o.named: // whoever holds a stateid with this hash is this owner
			o.owner, o.named = string(owner), true
			return o, k
		case o.owner == string(owner):
			return o, k
		}
	}
}

// HasOpen reports whether an owner has a file open, as far as is known here.
func (m *Manager) HasOpen(c *Client, owner []byte, f vfs.File) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, _ := m.opener(c, owner, f)
	return o != nil
}

// Reclaimable reports whether an owner has a file open with at least that access
// and deny mode: CLAIM_PREVIOUS is granted for what is there already.
func (m *Manager) Reclaimable(c *Client, a *OpenArgs) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, _ := m.opener(c, a.Owner, a.File)
	return o != nil && a.Access&^o.access == 0 && a.Deny&^o.deny == 0
}

// PlanOpen says what has to be recorded with the file before Open, if anything. The
// caller sees to it that nothing else opens, downgrades or closes for that
// client and file between the two.
func (m *Manager) PlanOpen(c *Client, a *OpenArgs) (record vfs.State, needed bool, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return record, false, proto.ErrExpired
	}
	o, _ := m.opener(c, a.Owner, a.File)
	var was Open
	if o != nil {
		was = *o
	} else if len(c.opens)+len(c.locks) >= m.cfg.MaxHoldings {
		return record, false, proto.ErrDelay
	}
	// This very request was executed, or may have been: the owner has all of it, so that
	// nothing is granted that he had not.
	again := was.unknown && was.other == a.Other || a.Repeated && o != nil && a.Access&^was.access == 0 && a.Deny&^was.deny == 0
	if (a.Access&was.deny != 0 || a.Deny&was.access != 0) && !again && !a.Reclaim {
		return record, false, proto.ErrShareDenied // also by the same owner (RFC 8881 §18.16.3)
	}
	access, deny := was.access|a.Access, was.deny|a.Deny
	if !m.shares.possible(a.File, was.access, was.deny, access, deny) {
		return record, false, proto.ErrShareDenied
	}
	record = vfs.State{
		Other: a.Other, Kind: vfs.StateOpen, Client: c.ID,
		Access: uint8(access), Deny: uint8(deny), Owner: a.Owner,
	}
	covered := a.Recorded && a.Access == access && a.Deny == deny
	if o != nil && (!o.unknown || o.other == a.Other) {
		record.Other = o.other
		covered = o.other == a.Other && covered || o.covers(access, deny)
	}
	return record, mustRecord(access, deny) && !covered, proto.OK
}

// Undo says what is to be recorded again, if anything, after record was for an OPEN
// that was refused in the end: what the owner has had under that name before.
func (m *Manager) Undo(c *Client, owner []byte, f vfs.File, record vfs.State) (vfs.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, _ := m.opener(c, owner, f)
	if c.dead || o == nil || o.other != record.Other || o.with == 0 {
		return record, false
	}
	record.Access, record.Deny = uint8(o.with), uint8(o.without)
	return record, true
}

// mustRecord says whether an open has to outlive this front-end.
func mustRecord(access, deny uint32) bool { return access&proto.ShareAccessWrite != 0 || deny != 0 }

// covers reports whether the open has been recorded with that much.
func (o *Open) covers(access, deny uint32) bool {
	return o.with != 0 && access&^o.with == 0 && deny&^o.without == 0
}

// Opened is the result of Open.
type Opened struct {
	Stateid
	Fresh bool          // the owner had not had the file open; else the caller's own hold on it is one too many
	Drop  []vfs.StateID // records that are not needed
}

// Open records an OPEN, after what PlanOpen asked for was done: recorded says
// that it was. All opens of one owner and file have one stateid, whose seqid grows.
// The first OPEN after a take-over gives an open another stateid, since the seqid
// of the old one is known to the client only; the old one stays good.
func (m *Manager) Open(c *Client, a *OpenArgs, recorded bool) (r Opened, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return r, proto.ErrExpired
	}
	o, k := m.opener(c, a.Owner, a.File)
	if o == nil {
		if !m.shares.change(a.File, 0, 0, a.Access, a.Deny) {
			return r, proto.ErrShareDenied
		}
		o = &Open{key: k, owner: string(a.Owner), named: true, access: a.Access, deny: a.Deny, asked: mode(a.Access, a.Deny)}
		o.holding = holding{other: a.Other, client: c, file: a.File, seq: 1, open: o}
		o.uses(a.UID)
		if o.inherits = c.loaded; o.inherits {
			o.asked |= mode(proto.ShareAccessRead, 0)
		}
		if recorded || a.Recorded {
			o.with, o.without = a.Access, a.Deny
		}
		m.enter(o)
		return Opened{Stateid: o.stateid(), Fresh: true}, proto.OK
	}
	access, deny := o.access|a.Access, o.deny|a.Deny
	if !m.shares.change(a.File, o.access, o.deny, access, deny) {
		return r, proto.ErrShareDenied
	}
	o.access, o.deny, o.idle = access, deny, false
	o.uses(a.UID)
	o.asked |= mode(a.Access, a.Deny)
	switch {
	case o.unknown:
		if o.other != a.Other {
			o.before = append(o.before, earlier{o.other, o.with != 0})
			o.other, o.with, o.without = a.Other, 0, 0
			m.table.put(o.other, &o.holding)
		}
		o.seq, o.unknown = 1, false
		if a.Recorded && !recorded {
			o.with, o.without = a.Access, a.Deny
		}
	default:
		if a.Recorded && a.Other != o.other {
			r.Drop = []vfs.StateID{a.Other}
		}
		o.bump()
	}
	if recorded {
		o.with, o.without = access, deny
	}
	r.Stateid = o.stateid()
	return r, proto.OK
}

// enter puts a new open into the tables; its share was taken. c.mu is held.
func (m *Manager) enter(o *Open) {
	o.client.opens[o.key] = o
	m.table.put(o.other, &o.holding)
	m.shares.link(o)
}

// forget takes an open out of the tables that are not its client's.
func (m *Manager) forget(o *Open) {
	m.table.drop(o.other)
	for _, e := range o.before {
		m.table.drop(e.other)
	}
	m.shares.unlink(o)
	m.shares.change(o.file, o.access, o.deny, 0, 0)
}

// records returns what has been recorded of o. c.mu is held.
func (o *Open) records() (all []vfs.StateID) {
	if o.with != 0 {
		all = append(all, o.other)
	}
	for _, e := range o.before {
		if e.recorded {
			all = append(all, e.other)
		}
	}
	return all
}

// findOpen returns the open that a stateid stands for. c.mu is held.
func (m *Manager) findOpen(c *Client, sid Stateid, f vfs.File) (*Open, proto.Status) {
	h, st := m.findOn(c, sid, f)
	if st != proto.OK {
		return nil, st
	}
	if h.lock != nil {
		return nil, proto.ErrBadStateid
	}
	return h.open, proto.OK
}

// A Change is what a downgrade or a close does to what is recorded with the file.
type Change struct {
	Put    *vfs.State    // to be recorded
	Unlock []vfs.Lock    // to be released
	Drop   []vfs.StateID // to be deleted
	Wait   bool          // before the answer, for others are kept out by it
	// Regain: a right to read that the client says it has had before it was
	// taken over. The user must be permitted to.
	Regain bool
}

// PlanDowngrade says what an OPEN_DOWNGRADE does to what is recorded (RFC 8881
// §18.18): to less than there is. As with PlanOpen, Downgrade follows.
func (m *Manager) PlanDowngrade(c *Client, sid Stateid, f vfs.File, access, deny uint32) (ch Change, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, sid, f)
	if st != proto.OK {
		return ch, st
	}
	had := o.access
	if o.inherits {
		had |= proto.ShareAccessRead
	}
	if access == 0 || access&^had != 0 || deny&^o.deny != 0 || !o.asked.make(access, deny) {
		return ch, proto.ErrInval
	}
	ch.Regain = access&^o.access != 0
	all := o.records()
	if len(all) == 0 || access == o.access && deny == o.deny && o.covers(access, deny) && len(all) == 1 {
		return ch, proto.OK
	}
	ch.Wait = deny != o.deny
	// Without a record, the open is made again of its stateid after a take-over,
	// which a name of before its file was known can't be.
	if mustRecord(access, deny) || o.stateid().Kind() == KindCreate {
		ch.Put = &vfs.State{
			Other: o.other, Kind: vfs.StateOpen, Client: c.ID,
			Access: uint8(access), Deny: uint8(deny), Owner: []byte(o.owner),
		}
	}
	for _, id := range all {
		if id != o.other || ch.Put == nil {
			ch.Drop = append(ch.Drop, id)
		}
	}
	return ch, proto.OK
}

// Downgrade records an OPEN_DOWNGRADE, after what PlanDowngrade asked for was done.
func (m *Manager) Downgrade(c *Client, sid Stateid, f vfs.File, access, deny uint32, put bool) (Stateid, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, sid, f)
	if st != proto.OK {
		return Stateid{}, st
	}
	if !m.shares.change(f, o.access, o.deny, access, deny) {
		return Stateid{}, proto.ErrInval // another one denies what it would regain
	}
	o.access, o.deny = access, deny
	o.asked = o.asked.within(access, deny)
	switch {
	case put:
		o.with, o.without = access, deny
	case !o.covers(access, deny) || !mustRecord(access, deny):
		o.with, o.without = 0, 0
	}
	for i := range o.before {
		o.before[i].recorded = false
	}
	o.bump()
	return o.stateid(), proto.OK
}

// PlanClose says what a CLOSE does to what is recorded (RFC 8881 §18.2): the locks
// held through the open go with it. As with PlanOpen, Close follows.
func (m *Manager) PlanClose(c *Client, sid Stateid, f vfs.File) (ch Change, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, sid, f)
	if st != proto.OK {
		return ch, st
	}
	for _, l := range c.locks {
		if l.open != o {
			continue
		}
		for _, r := range l.held {
			ch.Unlock = append(ch.Unlock, vfs.Lock{Owner: l.digest, Client: c.ID, Start: r.start, End: r.end})
		}
		ch.Drop = append(ch.Drop, l.before...)
		if l.recorded {
			ch.Drop = append(ch.Drop, l.other)
		}
	}
	ch.Drop = append(ch.Drop, o.records()...)
	ch.Wait = o.deny != 0
	return ch, proto.OK
}

// Close records a CLOSE.
func (m *Manager) Close(c *Client, sid Stateid, f vfs.File) proto.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, sid, f)
	if st != proto.OK {
		return st
	}
	for k, l := range c.locks {
		if l.open == o {
			m.forgetLock(l)
			delete(c.locks, k)
		}
	}
	m.forget(o)
	delete(c.opens, o.key)
	return proto.OK
}

// Unrecorded returns the opens of a file that are recorded nowhere, as they are to be
// recorded now: the file has lost its last name, and has to live while they do.
func (m *Manager) Unrecorded(f vfs.File) (all []vfs.State) {
	var opens []*Open
	m.shares.each(f, func(o *Open) { opens = append(opens, o) })
	for _, o := range opens {
		c := o.client
		c.mu.Lock()
		if !c.dead && c.opens[o.key] == o && o.with == 0 {
			o.with, o.without = o.access, o.deny
			all = append(all, vfs.State{
				Other: o.other, Kind: vfs.StateOpen, Client: c.ID,
				Access: uint8(o.access), Deny: uint8(o.deny), Owner: []byte(o.owner),
			})
		}
		c.mu.Unlock()
	}
	return all
}
