package member

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// heartbeats tells the leader of group 0 how this node is, and takes its view
// of the others. On the leader itself both are at hand.
func (n *Node) heartbeats() {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		if zero, err := n.group0(); err == nil {
			b := n.beat()
			if zero.group.IsLeader() {
				if t, known := n.hear(b); known {
					n.take(t)
				}
			} else if id, ok := zero.group.Leader(); ok {
				if addr, ok := n.resolve(id); ok {
					ctx, cancel := context.WithTimeout(n.ctx, suspectAfter)
					if a, err := n.ask(ctx, addr, request{Heartbeat: &b}); err == nil && a.Table != nil {
						n.take(a.Table)
					}
					cancel()
				}
			}
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// take adopts the leader's view.
func (n *Node) take(t *table) {
	n.mu.Lock()
	n.table = *t
	n.mu.Unlock()
}

// hear takes a heartbeat on the leader and returns the view of all nodes.
// known is false for a node that is no member.
func (n *Node) hear(b heartbeat) (t *table, known bool) {
	r, err := n.Registry()
	if err != nil {
		return nil, false
	}
	record, err := nodeRecord(b)
	if err != nil {
		return nil, false
	}
	node, known := r.Node(b.Node)
	if !known || node.Incarnation != record.Incarnation {
		return nil, false
	}
	now := time.Now()
	n.watchMu.Lock()
	defer n.watchMu.Unlock()
	n.watcher.heard(now, b)
	t = &table{
		Up: map[cluster.NodeID]bool{}, Stores: map[cluster.StoreID]storeUp{},
		Applied: map[cluster.NodeID]map[cluster.GroupID]uint64{},
	}
	reports := map[string]StoreReport{}
	for _, node := range r.Nodes() {
		t.Up[node.ID] = n.watcher.up(now, node.ID)
		if w := n.watcher.nodes[node.ID]; w != nil && w.seen {
			t.Applied[node.ID] = w.beat.Applied
			for _, s := range w.beat.Stores {
				reports[s.UUID] = s
			}
		}
	}
	for _, s := range r.Stores() {
		report, reported := reports[hex.EncodeToString(s.UUID[:])]
		t.Stores[s.ID] = storeUp{
			Up:       t.Up[s.Node] && !report.Failed && (reported || n.watcher.nodes[s.Node] == nil || !n.watcher.nodes[s.Node].seen),
			Capacity: report.Capacity, Used: report.Used, Full: report.Full,
		}
	}
	return t, true
}
