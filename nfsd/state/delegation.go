package state

import (
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// KindDelegation is a delegation. What an earlier front-end has granted is not known
// here, and has ended with it: see Client.lost.
const KindDelegation Kind = 5

// A Delegation is a promise to a client that it hears of it before it has to when
// others change a file (RFC 8881 §10.2, §10.4): to read only, so that a file can have
// several.
type Delegation struct {
	other  vfs.StateID
	client *Client
	file   vfs.File
	uid    uint32        // who opened the file
	attr   vfs.Attr      // what the client was shown of it
	phase  phase         // under client.mu
	own    bool          // the client itself has changed the file; under client.mu
	ended  chan struct{} // closed when it is in nobody's way any more

	// Under recalls.mu, if it is being recalled.
	until    cluster.Time // when it is revoked
	next     cluster.Time // when the client is told (again)
	telling  bool         // it is being told
	heard    bool         // it knows, and will return it
	refusals int          // times that the client said that it does not have it
}

// A phase is how far a delegation has come.
type phase uint8

const (
	offered  phase = iota // the client has not been told of it
	granted               //
	recalled              // the client has, or will be, asked to return it
	revoked               // it has not: the client has to hear that it has ended
)

// File returns the file.
func (d *Delegation) File() vfs.File { return d.file }

// Client returns whose it is.
func (d *Delegation) Client() *Client { return d.client }

// Stateid returns the delegation stateid: its seqid never grows.
func (d *Delegation) Stateid() Stateid { return Stateid{Seq: 1, Other: d.other} }

const (
	// contended is how long after a recall a file is not delegated again.
	contended = cluster.Time(30e9)
	// maxContended bounds the files of a shard that are remembered for that.
	maxContended = 256
)

// delegations has the delegations of all files by file. They are entered in the table
// of their client, too.
type delegations struct {
	n      atomic.Int64 // in shards
	shards [tableShards]delegShard
}

type delegShard struct {
	mu       sync.Mutex
	m        map[vfs.File][]*Delegation
	recalled map[vfs.File]cluster.Time // when, last
	_        [24]byte
}

func (t *delegations) shard(f vfs.File) *delegShard {
	h := uint64(f.Ino)*0x9e3779b97f4a7c15 + uint64(f.Volume)
	return &t.shards[h>>58%tableShards]
}

// enter enters a delegation, unless its client has one of the file, or others wanted
// to change it a moment ago.
func (t *delegations) enter(d *Delegation, now cluster.Time) bool {
	sh := t.shard(d.file)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if at, ok := sh.recalled[d.file]; ok && now-at < contended {
		return false
	}
	for _, o := range sh.m[d.file] {
		if o.client == d.client {
			return false
		}
	}
	if sh.m == nil {
		sh.m = make(map[vfs.File][]*Delegation)
	}
	sh.m[d.file] = append(sh.m[d.file], d)
	t.n.Add(1)
	return true
}

// leave takes a delegation out, if it is in.
func (t *delegations) leave(d *Delegation) {
	sh := t.shard(d.file)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	list := sh.m[d.file]
	for i, o := range list {
		if o == d {
			t.n.Add(-1)
			if len(list) == 1 {
				delete(sh.m, d.file)
				return
			}
			left := make([]*Delegation, 0, len(list)-1) // others may be reading the old one
			sh.m[d.file] = append(append(left, list[:i]...), list[i+1:]...)
			return
		}
	}
}

// of returns the delegations of a file. It must not be changed.
func (t *delegations) of(f vfs.File) []*Delegation {
	if t.n.Load() == 0 {
		return nil
	}
	sh := t.shard(f)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.m[f]
}

// contend remembers that a file's delegations were recalled.
func (t *delegations) contend(f vfs.File, now cluster.Time) {
	sh := t.shard(f)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.recalled == nil {
		sh.recalled = make(map[vfs.File]cluster.Time)
	}
	if len(sh.recalled) >= maxContended {
		for f, at := range sh.recalled {
			if now-at >= contended {
				delete(sh.recalled, f)
			}
		}
		if len(sh.recalled) >= maxContended {
			clear(sh.recalled) // what is forgotten may be delegated once too often
		}
	}
	sh.recalled[f] = now
}

// Delegated reports whether any file is delegated.
func (m *Manager) Delegated() bool { return m.delegations.n.Load() > 0 }

// Offer begins to delegate f to c, for reading; attr is what c is shown of it. From then on the delegation is found
// by Recall; the caller then looks whether anything speaks against it that is not
// known here, and calls Grant, or Withdraw. Without a delegation, why is the
// why_no_delegation4: proto.WNDContention or WNDResource.
func (m *Manager) Offer(c *Client, f vfs.File, attr *vfs.Attr, uid uint32, other vfs.StateID, now cluster.Time) (d *Delegation, why uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead, c.lost.Load(), len(c.delegations) >= m.cfg.MaxDelegations, c.delegations[other] != nil:
		return nil, proto.WNDResource
	case !m.shares.quiet(f):
		return nil, proto.WNDContention
	}
	d = &Delegation{other: other, client: c, file: f, attr: *attr, uid: uid, ended: make(chan struct{})}
	if !m.delegations.enter(d, now) {
		return nil, proto.WNDContention
	}
	c.delegations[other] = d
	return d, 0
}

// quiet reports whether no open here writes f or denies reading.
func (s *shares) quiet(f vfs.File) bool {
	sh := &s.shards[s.shard(f)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c := sh.m[f]
	return c.write == 0 && c.denyRead == 0
}

// Grant makes an offer a delegation. If it was recalled meanwhile, or its client has
// gone, there is none: Grant has withdrawn it.
func (m *Manager) Grant(d *Delegation) bool {
	c := d.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delegations[d.other] != d {
		return false
	}
	if d.phase != offered {
		m.forgetDelegation(d)
		return false
	}
	d.phase = granted
	return true
}

// Shown returns what c is to be shown of f while f is delegated to it, also if it has
// been changed: nil if that is how it is. A Linux client that holds a delegation takes new
// attributes for its own doing, and would go on to believe the data that it has cached.
func (m *Manager) Shown(c *Client, f vfs.File) *vfs.Attr {
	for _, d := range m.delegations.of(f) {
		if d.client != c {
			continue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if d.own || d.phase != granted && d.phase != recalled {
			return nil
		}
		return &d.attr
	}
	return nil
}

// Withdraw ends an offer.
func (m *Manager) Withdraw(d *Delegation) {
	c := d.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delegations[d.other] == d {
		m.forgetDelegation(d)
	}
}

// forgetDelegation takes d out of all tables. c.mu is held.
func (m *Manager) forgetDelegation(d *Delegation) {
	delete(d.client.delegations, d.other)
	if d.phase == revoked {
		d.client.revoked.Add(-1)
		return
	}
	m.delegations.leave(d)
	m.recalls.leave(d)
	close(d.ended)
}

// delegation finds what c's delegation stateid stands for. Unknown: an earlier
// front-end may have granted it. c.mu is held.
func (m *Manager) delegation(c *Client, sid Stateid) (*Delegation, proto.Status) {
	d := c.delegations[sid.Other]
	switch {
	case c.dead:
		return nil, proto.ErrExpired
	case d == nil && c.loaded && otherSlot(sid.Other) == c.Slot:
		return nil, Unknown
	case d == nil || sid.Seq > 1:
		return nil, proto.ErrBadStateid
	case d.phase == revoked:
		return d, proto.ErrDelegRevoked
	}
	return d, proto.OK
}

// delegationOf is delegation of file f. What an earlier front-end has granted is
// revoked.
func (m *Manager) delegationOf(c *Client, sid Stateid, f vfs.File) (*Delegation, proto.Status) {
	d, st := m.delegation(c, sid)
	switch {
	case st == Unknown && m.genuine(c, sid.Other, f):
		return nil, proto.ErrDelegRevoked
	case st == Unknown, d != nil && d.file != f:
		return nil, proto.ErrBadStateid
	}
	return d, st
}

// Return is DELEGRETURN (RFC 8881 §18.6). held: the file is not needed for it any more.
func (m *Manager) Return(c *Client, sid Stateid, f vfs.File) (held bool, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sid.Kind() != KindDelegation {
		return false, proto.ErrBadStateid
	}
	d, st := m.delegationOf(c, sid, f)
	switch {
	case st == proto.OK:
		m.forgetDelegation(d)
		return true, proto.OK
	case d == nil && st == proto.ErrDelegRevoked:
		return false, proto.OK // it has ended with the front-end that granted it
	}
	return false, st
}

// Claim says whether c may open f with the share access because of a delegation, as
// it does before it returns that (CLAIM_DELEGATE_CUR, RFC 8881 §18.16.3). It may also
// because of one that has ended with an earlier front-end. other: the file was
// delegated to another user than uid, as far as is known, who must be permitted himself.
func (m *Manager) Claim(c *Client, sid Stateid, f vfs.File, access, uid uint32) (other bool, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sid.Kind() != KindDelegation {
		return false, proto.ErrBadStateid
	}
	d, st := m.delegationOf(c, sid, f)
	switch {
	case st != proto.OK && (d != nil || st != proto.ErrDelegRevoked):
		return false, st
	case access&proto.ShareAccessWrite != 0:
		return false, proto.ErrOpenmode
	}
	return d == nil || d.uid != uid, proto.OK
}

// ioByDelegation is CheckIO of a delegation stateid. c.mu is held.
func (m *Manager) ioByDelegation(c *Client, sid Stateid, f vfs.File, access, uid uint32) (other bool, st proto.Status) {
	d, st := m.delegationOf(c, sid, f)
	switch {
	case st != proto.OK:
		return false, st
	case access&proto.ShareAccessWrite != 0:
		return false, proto.ErrOpenmode
	}
	return d.uid != uid, proto.OK
}

// testDelegation is Test of one. c.mu is held.
func (m *Manager) testDelegation(c *Client, sid Stateid) proto.Status {
	_, st := m.delegation(c, sid)
	if st == Unknown {
		return proto.ErrDelegRevoked
	}
	return st
}

// freeDelegation is Free of one: the client knows that it was revoked. c.mu is held.
func (m *Manager) freeDelegation(c *Client, sid Stateid) proto.Status {
	d, st := m.delegation(c, sid)
	switch st {
	case proto.OK:
		return proto.ErrLocksHeld
	case proto.ErrDelegRevoked:
		m.forgetDelegation(d)
		return proto.OK
	case Unknown:
		return proto.OK
	}
	return st
}
