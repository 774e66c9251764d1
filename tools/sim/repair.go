package sim

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/collect"
)

// copies returns what the store has above after.
func (s *store) copies(after cluster.BlobID, n int) (list []collect.Copy) {
	for _, id := range s.disk.list(after, n) {
		meta := s.disk.meta(id)
		x := collect.Copy{Key: keyOf(id), Set: meta.Set, Epoch: meta.Epoch}
		if p, err := s.disk.get(id); err == nil {
			x.Len, x.CRC = uint32(len(p)), checksum.Sum(p)
		}
		list = append(list, x)
	}
	return list
}

// Home implements collect.Volume.
func (v collected) Home(cluster.BlobID) (h collect.Home, ok bool) { return h, false }

// Has implements collect.Stores.
func (r reached) Has(context.Context, cluster.StoreID, cluster.BlobKey, uint32, uint32) bool {
	return false
}

// DeleteMoved implements collect.Stores.
func (r reached) DeleteMoved(context.Context, cluster.StoreID, cluster.GroupID, []collect.Copy) error {
	return nil
}
