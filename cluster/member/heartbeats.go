package member

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// heartbeatEvery is how often a node is heard: some six times before it is
// thought to be lost.
func (n *Node) heartbeatEvery() time.Duration {
	return min(max(n.cfg.TakeoverAfter/6, 20*time.Millisecond), 300*time.Millisecond)
}

// heartbeats tells the leader of group 0 how this node is, and takes its view
// of the others. On the leader itself both are at hand.
func (n *Node) heartbeats() {
	tick := time.NewTicker(n.heartbeatEvery())
	defer tick.Stop()
	for {
		var led <-chan struct{}
		if zero, err := n.group0(); err == nil {
			led = zero.group.Watch()
			n.heartbeat(zero, led)
		}
		select {
		case <-tick.C:
		case <-n.beatNow:
		case <-led: // another leader must hear of this node soon
		case <-n.ctx.Done():
			return
		}
	}
}

// heartbeat sends one heartbeat, and gives up when there is another leader.
func (n *Node) heartbeat(zero *groupMember, led <-chan struct{}) {
	ctx, cancel := context.WithTimeout(n.ctx, max(n.cfg.TakeoverAfter/3, 200*time.Millisecond))
	defer cancel()
	b := n.beat()
	sent := time.Now()
	if zero.group.IsLeader() {
		if t, known := n.hear(b); known {
			n.take(t)
			if a := n.acknowledge(ctx, zero, &b); a != nil {
				n.acknowledged(zero, sent, a)
			}
		}
		return
	}
	id, ok := zero.group.Leader()
	addr, known := n.resolve(id)
	if !ok || !known {
		return
	}
	a, err := n.askUntil(ctx, led, addr, request{Heartbeat: &b})
	if err != nil {
		return
	}
	if a.Table != nil {
		n.take(a.Table)
	}
	if a.Ack != nil {
		// This node may be behind; the next heartbeat does not wait for that.
		n.wg.Go(func() { n.acknowledged(zero, sent, a.Ack) })
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
	if !known || node.Incarnation != record.Incarnation || node.State == registry.NodeRemoved {
		return nil, false
	}
	now := time.Now()
	n.watchMu.Lock()
	defer n.watchMu.Unlock()
	n.watcher.heard(now, b)
	t = &table{
		Up: map[cluster.NodeID]bool{}, FrontEnds: map[cluster.NodeID]bool{}, Stores: map[cluster.StoreID]storeUp{},
		Applied: map[cluster.NodeID]map[cluster.GroupID]uint64{},
	}
	reports := map[string]StoreReport{}
	for _, node := range r.Nodes() {
		t.Up[node.ID] = n.watcher.up(now, node.ID)
		if w := n.watcher.nodes[node.ID]; w != nil && w.seen {
			t.FrontEnds[node.ID] = t.Up[node.ID] && w.beat.FrontEnd
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
