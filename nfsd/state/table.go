package state

import (
	"sync"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A holding is what a stateid stands for: an open, or the locks of an owner.
type holding struct {
	other   vfs.StateID
	client  *Client
	file    vfs.File
	seq     uint32 // under client.mu
	unknown bool   // seq was given by another front-end; under client.mu
	// idle: a record says that there is such a state, and the client has not named it
	// since the take-over. It may have given it up before: see Client.busy. Under client.mu.
	idle bool
	open *Open // the open itself, or that which the locks belong to
	lock *Lock // nil for an open
}

const tableShards = 64

// table finds holdings by what names them.
type table struct {
	shards [tableShards]struct {
		mu sync.RWMutex
		m  map[vfs.StateID]*holding
		_  [24]byte // shards don't share cache lines
	}
}

func shardOf(o vfs.StateID) int { return int(o[nonceAt] % tableShards) }

func (t *table) get(o vfs.StateID) *holding {
	s := &t.shards[shardOf(o)]
	s.mu.RLock()
	h := s.m[o]
	s.mu.RUnlock()
	return h
}

// put enters h under the name o, which is its own or one that it had.
func (t *table) put(o vfs.StateID, h *holding) {
	s := &t.shards[shardOf(o)]
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[vfs.StateID]*holding)
	}
	s.m[o] = h
	s.mu.Unlock()
}

func (t *table) drop(o vfs.StateID) {
	s := &t.shards[shardOf(o)]
	s.mu.Lock()
	delete(s.m, o)
	s.mu.Unlock()
}

// find returns what c's stateid stands for, with c.mu held. A stateid of another
// client, or of torn-down state, is BAD_STATEID, never STALE_STATEID, which NFSv4.1
// clients can't recover from.
func (m *Manager) find(c *Client, sid Stateid) (*holding, proto.Status) {
	h := m.table.get(sid.Other)
	switch {
	case c.dead:
		return nil, proto.ErrExpired
	case h == nil && c.loaded && otherSlot(sid.Other) == c.Slot:
		return nil, Unknown
	case h == nil || h.client != c:
		return nil, proto.ErrBadStateid
	case h.open.unconfirmed: // RFC 7530 §16.18.5
		return nil, proto.ErrBadStateid
	}
	h.idle, h.open.idle = false, false
	switch {
	case sid.Other != h.other: // a name that it had before the take-over
		return h, proto.OK
	case h.unknown && sid.Seq != 0: // the client knows
		h.seq, h.unknown = sid.Seq, false
		return h, proto.OK
	case sid.Seq == 0 || sid.Seq == h.seq: // 0: whatever it is now
		return h, proto.OK
	case int32(sid.Seq-h.seq) < 0:
		return nil, proto.ErrOldStateid
	}
	return nil, proto.ErrBadStateid
}

// findOn is find of a stateid that must be of file f.
func (m *Manager) findOn(c *Client, sid Stateid, f vfs.File) (*holding, proto.Status) {
	h, st := m.find(c, sid)
	if st == proto.OK && h.file != f {
		return nil, proto.ErrBadStateid
	}
	return h, st
}

func (h *holding) stateid() Stateid { return Stateid{Seq: h.seq, Other: h.other} }

// farSeq is a seqid beyond all that an earlier front-end can have given out.
const farSeq = 1 << 28

// bump gives h its next seqid; 0 is left out (RFC 8881 §8.2.2).
func (h *holding) bump() {
	if h.unknown {
		h.seq, h.unknown = farSeq, false
	}
	if h.seq++; h.seq == 0 {
		h.seq = 1
	}
}

// Test says what TEST_STATEID says of a stateid (RFC 8881 §18.48). What a taken-over
// client asks about, and is not known here, is good: it names no file, and
// nothing is lost in a take-over.
func (m *Manager) Test(c *Client, sid Stateid) proto.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sid.Kind() == KindDelegation {
		return m.testDelegation(c, sid)
	}
	_, st := m.find(c, sid)
	if st == Unknown {
		switch sid.Kind() {
		case KindOpen, KindLock, KindCreate:
			return proto.OK
		}
		return proto.ErrBadStateid
	}
	return st
}

// CheckIO checks the stateid of a READ, WRITE or other use of a file's data:
// access is proto.ShareAccessRead or proto.ShareAccessWrite. OPENMODE: the open
// does not have that right. Unknown: see Learn. other: it was opened by another
// user than uid, who must be permitted himself what he does: a stateid is no secret.
func (m *Manager) CheckIO(c *Client, sid Stateid, f vfs.File, access, uid uint32) (other bool, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sid.Kind() == KindDelegation {
		return m.ioByDelegation(c, sid, f, access, uid)
	}
	h, st := m.findOn(c, sid, f)
	if st != proto.OK {
		return false, st
	}
	o := h.open
	if o.access&access == 0 {
		return false, proto.ErrOpenmode
	}
	if o.user == userUnknown {
		o.uses(uid)
	}
	return o.user == userOne && o.uid != uid, proto.OK
}
