package node

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/segment"
)

// walkPage is how many blobs of a set or a store are looked up at a time.
const walkPage = 1000

// expected walks the blobs that a store should have, in the order of their
// ids, over all replica sets that it is a member of.
type expected struct {
	at   volume.View
	sets []*setWalk
}

// A setWalk is one replica set's part of it.
type setWalk struct {
	set   cluster.ReplicaSetID
	ids   []cluster.BlobID // not yet walked
	after cluster.BlobID
	more  bool // there may be some behind ids
}

func newExpected(at volume.View, sets []volume.ReplicaSet) *expected {
	e := &expected{at: at}
	for _, s := range sets {
		e.sets = append(e.sets, &setWalk{set: s.ID, more: true})
	}
	return e
}

// next returns the next blob and its replica set.
func (e *expected) next() (cluster.BlobID, cluster.ReplicaSetID, bool) {
	var least *setWalk
	for _, s := range e.sets {
		if len(s.ids) == 0 && s.more {
			e.fill(s)
		}
		if len(s.ids) > 0 && (least == nil || s.ids[0] < least.ids[0]) {
			least = s
		}
	}
	if least == nil {
		return 0, 0, false
	}
	id := least.ids[0]
	least.ids = least.ids[1:]
	return id, least.set, true
}

func (e *expected) fill(s *setWalk) {
	e.at.SetBlobs(s.set, s.after, func(id cluster.BlobID) bool {
		s.ids = append(s.ids, id)
		return len(s.ids) < walkPage
	})
	s.more = len(s.ids) == walkPage
	if s.more {
		s.after = s.ids[len(s.ids)-1]
	}
}

// heldBlobs walks what a store holds of a volume.
type heldBlobs struct {
	list  func(after cluster.BlobKey, n int) ([]segment.Info, error)
	after cluster.BlobKey
	infos []segment.Info // not yet walked
	done  bool           // there is nothing behind infos
}

// find returns what the store has of a blob, and calls pass for each blob
// before it. Blobs must be asked for in the order of their ids.
func (h *heldBlobs) find(id cluster.BlobID, pass func(cluster.BlobID)) (segment.Info, bool, error) {
	for {
		for len(h.infos) > 0 && h.infos[0].Key.Blob < id {
			pass(h.infos[0].Key.Blob)
			h.infos = h.infos[1:]
		}
		if len(h.infos) > 0 {
			if h.infos[0].Key.Blob != id {
				return segment.Info{}, false, nil
			}
			info := h.infos[0]
			h.infos = h.infos[1:]
			return info, true, nil
		}
		if h.done {
			return segment.Info{}, false, nil
		}
		page, err := h.list(h.after, walkPage)
		if err != nil {
			return segment.Info{}, false, err
		}
		h.infos, h.done = page, len(page) < walkPage
		if len(page) > 0 {
			h.after = page[len(page)-1].Key
		}
	}
}
