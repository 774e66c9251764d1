package state

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A Lesson is what the file system has recorded of a file.
type Lesson struct {
	File   vfs.File
	States []vfs.State // of all clients
	Locks  []vfs.Lock  // of the client
}

// Learn brings in what a taken-over client holds of a file, and then the open that
// sid, unless it is zero, stands for, if it was one for reading and proves itself.
// It returns how many opens are new: the caller has to hold the file once for each.
func (m *Manager) Learn(c *Client, l *Lesson, sid Stateid) (opens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || !c.loaded {
		return 0
	}
	for i := range l.States {
		s := &l.States[i]
		if s.Client != c.ID || s.Kind != vfs.StateOpen || m.table.get(s.Other) != nil {
			continue
		}
		h, _ := m.opener(c, s.Owner, l.File)
		if len(s.Owner) == 0 { // it was taken over before, and its owner not known either
			h = c.opens[openKey{[3]byte(s.Other[ownerAt:macAt]), l.File}]
		}
		if m.learnOpen(c, h, l.File, s.Other, uint32(s.Access), uint32(s.Deny), s.Owner, true) {
			opens++
		}
	}
	for i := range l.States {
		s := &l.States[i]
		if s.Client != c.ID || s.Kind != vfs.StateLock || len(s.Owner) < len(s.Other) || m.table.get(s.Other) != nil {
			continue
		}
		parent := vfs.StateID(s.Owner)
		h := m.table.get(parent)
		if h == nil { // an open for reading
			if m.revive(c, parent, l.File) {
				opens++
			}
			h = m.table.get(parent)
		}
		if h == nil || h.client != c || h.file != l.File || h.lock != nil {
			continue
		}
		m.learnLock(c, h.open, s, l.Locks)
	}
	if sid != (Stateid{}) && m.table.get(sid.Other) == nil && sid.Kind() == KindOpen && m.genuine(c, sid.Other, l.File) {
		if m.revive(c, sid.Other, l.File) {
			opens++
		}
	}
	return opens
}

// revive makes an open for reading of its stateid: what more it may once have
// had was recorded, and is no more. It reports whether it is a new open, and not an
// earlier name of one. c.mu is held.
func (m *Manager) revive(c *Client, other vfs.StateID, f vfs.File) bool {
	access := otherAccess(other) & proto.ShareAccessRead
	if access == 0 {
		return false
	}
	o := c.opens[openKey{[3]byte(other[ownerAt:macAt]), f}]
	return m.learnOpen(c, o, f, other, access, 0, nil, false)
}

// learnOpen makes an open that another front-end has granted, or gives o one more
// name. c.mu is held.
func (m *Manager) learnOpen(c *Client, o *Open, f vfs.File, other vfs.StateID, access, deny uint32, owner []byte, recorded bool) bool {
	if o != nil {
		m.shares.force(f, o.access, o.deny, o.access|access, o.deny|deny)
		o.access, o.deny = o.access|access, o.deny|deny
		o.before = append(o.before, earlier{other, recorded})
		m.table.put(other, &o.holding)
		return false
	}
	k := openKey{[3]byte(other[ownerAt:macAt]), f}
	if len(owner) > 0 {
		_, k = m.opener(c, owner, f)
	}
	m.shares.force(f, 0, 0, access, deny)
	o = &Open{key: k, owner: string(owner), named: len(owner) > 0, access: access, deny: deny, asked: anyModes}
	o.holding = holding{other: other, client: c, file: f, unknown: true, idle: true, open: o}
	if recorded {
		o.with, o.without = access, deny
	}
	m.enter(o)
	return true
}

func (m *Manager) learnLock(c *Client, o *Open, s *vfs.State, locks []vfs.Lock) {
	l := &Lock{
		key: lockKey{o, s.Digest}, owner: string(s.Owner[len(s.Other):]), digest: s.Digest, recorded: true,
	}
	l.holding = holding{other: s.Other, client: c, file: o.file, unknown: true, idle: true, open: o, lock: l}
	for i := range locks {
		if locks[i].Owner == s.Digest {
			l.add(span{locks[i].Start, locks[i].End})
		}
	}
	if old := c.locks[l.key]; old != nil {
		// It was made anew meanwhile: one lock-owner's locks, and both names are good.
		m.table.put(s.Other, &old.holding)
		old.before = append(old.before, s.Other)
		return
	}
	c.locks[l.key] = l
	m.table.put(l.other, &l.holding)
}
