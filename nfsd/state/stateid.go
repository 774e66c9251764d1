package state

import (
	"sync"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A Stateid is a stateid4: Boot and ID are its opaque "other" (RFC 8881 §8.2).
type Stateid struct {
	Seq  uint32
	Boot uint32
	ID   uint64
}

// The special stateids (RFC 8881 §8.2.3).
var (
	Anonymous = Stateid{}
	Bypass    = Stateid{Seq: ^uint32(0), Boot: ^uint32(0), ID: ^uint64(0)}
	Current   = Stateid{Seq: 1}
	Invalid   = Stateid{Seq: ^uint32(0)}
)

// Special reports whether s stands for no state: Anonymous or Bypass.
func (s Stateid) Special() bool { return s == Anonymous || s == Bypass }

// DecodeStateid takes a stateid4.
func DecodeStateid(d *xdr.Decoder) Stateid {
	return Stateid{Seq: d.Uint32(), Boot: d.Uint32(), ID: d.Uint64()}
}

// Encode appends a stateid4.
func (s Stateid) Encode(e *xdr.Encoder) {
	e.Uint32(s.Seq)
	e.Uint32(s.Boot)
	e.Uint64(s.ID)
}

// A holding is what a stateid stands for: an open, or the locks of an owner.
type holding struct {
	id     uint64
	client *Client
	file   vfs.File
	seq    uint32 // under client.mu
	open   *Open  // the open itself, or that which the locks belong to
	lock   *Lock  // nil for an open
}

const tableShards = 64

// table finds holdings by their number.
type table struct {
	shards [tableShards]struct {
		mu sync.RWMutex
		m  map[uint64]*holding
		_  [24]byte // shards don't share cache lines
	}
}

func (t *table) get(id uint64) *holding {
	s := &t.shards[id%tableShards]
	s.mu.RLock()
	h := s.m[id]
	s.mu.RUnlock()
	return h
}

func (t *table) put(h *holding) {
	s := &t.shards[h.id%tableShards]
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[uint64]*holding)
	}
	s.m[h.id] = h
	s.mu.Unlock()
}

func (t *table) drop(id uint64) {
	s := &t.shards[id%tableShards]
	s.mu.Lock()
	delete(s.m, id)
	s.mu.Unlock()
}

// find returns what c's stateid stands for, with c.mu held. A stateid of
// another client, another incarnation of the server or torn-down state is BAD_STATEID,
// never STALE_STATEID, which NFSv4.1 clients can't recover from.
func (m *Manager) find(c *Client, sid Stateid) (*holding, proto.Status) {
	if sid.Boot != m.cfg.Boot {
		return nil, proto.ErrBadStateid
	}
	h := m.table.get(sid.ID)
	switch {
	case h == nil || h.client != c:
		return nil, proto.ErrBadStateid
	case c.dead:
		return nil, proto.ErrExpired
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

func (m *Manager) stateid(h *holding) Stateid {
	return Stateid{Seq: h.seq, Boot: m.cfg.Boot, ID: h.id}
}

// bump gives h its next seqid; 0 is left out (RFC 8881 §8.2.2).
func (h *holding) bump() {
	if h.seq++; h.seq == 0 {
		h.seq = 1
	}
}

// Test says what TEST_STATEID says of a stateid (RFC 8881 §18.48).
func (m *Manager) Test(c *Client, sid Stateid) proto.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, st := m.find(c, sid)
	return st
}

// CheckIO checks the stateid of a READ, WRITE or other use of a file's data:
// access is proto.ShareAccessRead or proto.ShareAccessWrite. OPENMODE: the open
// does not have that right.
func (m *Manager) CheckIO(c *Client, sid Stateid, f vfs.File, access uint32) proto.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, st := m.findOn(c, sid, f)
	if st != proto.OK {
		return st
	}
	if h.open.access&access == 0 {
		return proto.ErrOpenmode
	}
	return proto.OK
}
