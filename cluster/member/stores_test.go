package member

import (
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// TestStoreViews: when a store's copies are not counted on any more.
func TestStoreViews(t *testing.T) {
	const minute = cluster.Time(time.Minute)
	now := 100 * minute
	for name, x := range map[string]struct {
		node     registry.Node
		store    registry.Store
		soft     *storeUp
		up, lost bool
	}{
		"well":                             {soft: &storeUp{Up: true}, up: true},
		"not heard of yet":                 {up: true},
		"away for a moment":                {soft: &storeUp{}},
		"its node is down, for a while":    {node: registry.Node{State: registry.NodeDown, Since: now - 9*minute}, soft: &storeUp{}},
		"its node is down, for long":       {node: registry.Node{State: registry.NodeDown, Since: now - 11*minute}, soft: &storeUp{}, lost: true},
		"its node was up for long":         {node: registry.Node{State: registry.NodeUp, Since: now - 50*minute}, soft: &storeUp{}},
		"its node was removed":             {node: registry.Node{State: registry.NodeRemoved, Since: now}, soft: &storeUp{Up: true}, lost: true},
		"missing on its node, for a while": {store: registry.Store{State: registry.StoreDown, Since: now - 9*minute}, soft: &storeUp{}},
		"missing on its node, for long":    {store: registry.Store{State: registry.StoreDown, Since: now - 11*minute}, soft: &storeUp{}, lost: true},
		"missing, nobody knows since when": {store: registry.Store{State: registry.StoreDown}, soft: &storeUp{}},
		"its disk failed":                  {store: registry.Store{State: registry.StoreFailed, Since: now}, soft: &storeUp{Up: true}, lost: true},
		"it was removed":                   {store: registry.Store{State: registry.StoreRemoved, Since: now}, soft: &storeUp{Up: true}, lost: true},
	} {
		x.node.ID, x.store.Node, x.store.ID = "n1", "n1", 4
		soft := map[cluster.StoreID]storeUp{}
		if x.soft != nil {
			soft[4] = *x.soft
		}
		v := storeViews([]registry.Node{x.node}, []registry.Store{x.store}, table{Stores: soft}, now, 10*time.Minute)
		if len(v) != 1 || v[0].Up != x.up || v[0].Lost != x.lost {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v := storeViews(nil, []registry.Store{{ID: 1, Node: "gone"}}, table{}, now, time.Minute); !v[0].Lost {
		t.Error("a store of a node that nobody knows is not lost")
	}
}
