package member

import (
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// A StoreView is a store as it concerns the replica sets.
type StoreView struct {
	ID       cluster.StoreID
	Node     cluster.NodeID
	Rack     string
	Up       bool // it can be reached
	Lost     bool // it, or its node, failed, was removed, or is down for longer than it may
	Draining bool // it is to be emptied
	Full     bool // it has no room for another blob
	Capacity uint64
	Used     uint64
}

// StoreViews returns all stores, as of now. One that is down for longer than
// lostAfter is lost. ok is false while this node has not heard from the leader
// of group 0 how the nodes are.
func (n *Node) StoreViews(lostAfter time.Duration) (views []StoreView, ok bool) {
	r, err := n.Registry()
	if err != nil {
		return nil, false
	}
	n.mu.RLock()
	t := n.table
	n.mu.RUnlock()
	if t.Stores == nil {
		return nil, false
	}
	return storeViews(r.Nodes(), r.Stores(), t, cluster.Time(time.Now().UnixNano()), lostAfter), true
}

func storeViews(nodes []registry.Node, stores []registry.Store, t table, now cluster.Time, lostAfter time.Duration) (views []StoreView) {
	of := map[cluster.NodeID]registry.Node{}
	for _, node := range nodes {
		of[node.ID] = node
	}
	long := func(since cluster.Time) bool { return since != 0 && now-since > cluster.Time(lostAfter) }
	for _, s := range stores {
		node, known := of[s.Node]
		soft, heard := t.Stores[s.ID]
		v := StoreView{
			ID: s.ID, Node: s.Node, Rack: node.Rack, Draining: s.Draining, Full: soft.Full,
			Capacity: max(soft.Capacity, s.Capacity), Used: max(soft.Used, s.Used),
		}
		switch {
		case !known || node.State == registry.NodeRemoved, s.State == registry.StoreFailed, s.State == registry.StoreRemoved:
			v.Lost = true
		case node.State == registry.NodeDown && long(node.Since), s.State == registry.StoreDown && long(s.Since):
			v.Lost = true
		}
		// What is heard now does not make up for what was agreed on.
		v.Up = !v.Lost && (!heard || soft.Up)
		views = append(views, v)
	}
	return views
}
