package node

import (
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/placement"
)

// A setCache has a volume's replica sets as placement wants them: each blob that
// is put asks for them, and they hardly ever change.
type setCache struct {
	view    func() volume.View
	version atomic.Uint64 // of what is stored: moved on by events
	cached  atomic.Pointer[cachedSets]
}

// cachedSets are the writable sets by what copies they are for. They are not
// changed.
type cachedSets struct {
	version  uint64
	byCopies map[uint8][]placement.SetInfo
	byCode   map[cluster.Code][]placement.SetInfo
}

// event is called in the apply goroutine, once what it tells of can be read.
func (c *setCache) event(_ uint64, events []any) {
	for _, e := range events {
		switch e.(type) {
		case volume.EventReplicaSets, fsm.Restored:
			c.version.Add(1)
		}
	}
}

// writable returns the writable sets for a number of copies. A set that changes
// meanwhile has another epoch, and the commit is refused then.
func (c *setCache) writable(copies uint8) []placement.SetInfo { return c.now().byCopies[copies] }

// coded returns the writable sets for a code.
func (c *setCache) coded(code cluster.Code) []placement.SetInfo { return c.now().byCode[code] }

func (c *setCache) now() *cachedSets {
	// The version from before the read: what changes during it is read again.
	version := c.version.Load()
	s := c.cached.Load()
	if s == nil || s.version != version {
		s = &cachedSets{
			version: version, byCopies: map[uint8][]placement.SetInfo{}, byCode: map[cluster.Code][]placement.SetInfo{},
		}
		for _, r := range c.view().ReplicaSets() {
			if r.State != volume.Writable {
				continue
			}
			set := placement.SetInfo{ID: r.ID, Epoch: r.Epoch, Members: r.Members, Copies: r.Copies, Code: r.Code}
			if r.Code.IsZero() {
				s.byCopies[r.Copies] = append(s.byCopies[r.Copies], set)
			} else {
				s.byCode[r.Code] = append(s.byCode[r.Code], set)
			}
		}
		c.cached.Store(s)
	}
	return s
}
