package member

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/group"
)

// duties opens volumes here and does what falls to the leaders of groups. Each
// duty compares what is with what should be and takes the next step, so that
// it can be interrupted anywhere and taken up by another leader.
func (n *Node) duties() {
	tick := time.NewTicker(dutiesEvery)
	defer tick.Stop()
	for {
		n.openVolumes()
		n.leadCluster()
		for _, v := range n.Volumes() {
			if v.Group.IsLeader() {
				n.leadVolume(v)
			}
		}
		select {
		case <-tick.C:
		case <-n.wake:
			// What woke us comes in bursts; one look serves them all.
			if !sleep(n.ctx, 10*time.Millisecond) {
				return
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// leadCluster is what the leader of group 0 does.
func (n *Node) leadCluster() {
	zero, err := n.group0()
	if err != nil {
		return
	}
	if !zero.group.IsLeader() {
		return
	}
	term := zero.group.Stats().Term
	n.watchMu.Lock()
	begun := n.lead.term == term // keepIdentities begins
	n.watchMu.Unlock()
	if !begun {
		return
	}
	r := registry.View{Reader: zero.machine.Reader()}
	n.judgeNodes(r)
	n.updateRecords(r)
	n.reconcile(zero.group, r)
}

// judgeNodes agrees on which nodes are up.
func (n *Node) judgeNodes(r registry.View) {
	agreed := map[cluster.NodeID]bool{}
	for _, node := range r.Nodes() {
		if node.State != registry.NodeRemoved {
			agreed[node.ID] = node.State == registry.NodeUp
		}
	}
	n.watchMu.Lock()
	verdicts := n.watcher.judge(time.Now(), agreed)
	n.watchMu.Unlock()
	for _, v := range verdicts {
		state := registry.NodeDown
		if v.up {
			state = registry.NodeUp
		}
		n.log.Info("node changes state", "which", v.node, "up", v.up)
		n.step("a node's state", func(ctx context.Context) error {
			_, err := n.propose0(ctx, &registry.SetNodeState{ID: v.node, State: state})
			return err
		})
	}
}

// updateRecords takes over what nodes say of themselves: a new address, a new disk.
func (n *Node) updateRecords(r registry.View) {
	stores := map[string]registry.Store{}
	for _, s := range r.Stores() {
		stores[hex.EncodeToString(s.UUID[:])] = s
	}
	n.watchMu.Lock()
	var beats []heartbeat
	there := map[string]bool{} // stores that are where they are known to be
	now := time.Now()
	for id, w := range n.watcher.nodes {
		if !w.seen {
			continue
		}
		beats = append(beats, w.beat)
		for _, s := range w.beat.Stores {
			there[s.UUID] = there[s.UUID] || stores[s.UUID].Node == id && n.watcher.up(now, id)
		}
	}
	n.watchMu.Unlock()
	for _, b := range beats {
		node, ok := r.Node(b.Node)
		record, err := nodeRecord(b)
		if !ok || err != nil || node.Incarnation != record.Incarnation {
			continue
		}
		if node.PeerAddr != b.PeerAddr || node.NFSAddr != b.NFSAddr || node.Rack != b.Rack || node.Roles != b.Roles {
			n.step("a node's record", func(ctx context.Context) error {
				_, err := n.propose0(ctx, record)
				return err
			})
		}
		reported := map[string]bool{}
		for _, s := range b.Stores {
			reported[s.UUID] = true
			known, ok := stores[s.UUID]
			switch {
			case !ok:
				n.step("a new store", func(ctx context.Context) error { return n.putStore(ctx, b.Node, s) })
			case known.State == registry.StoreRemoved:
			case known.Node != b.Node && there[s.UUID]:
				// A copy of its folder, which its node does not serve.
			case known.Node != b.Node && !s.Failed:
				n.log.Info("a store is on another node now", "store", uint32(known.ID), "was on", known.Node, "is on", b.Node)
				n.step("a store that moved", func(ctx context.Context) error { return n.putStore(ctx, b.Node, s) })
			case !s.Failed && known.State == registry.StoreDown:
				n.setStore(known.ID, registry.StoreUp)
			case s.Failed && known.State != registry.StoreFailed:
				n.log.Error("a store's disk has failed", "store", uint32(known.ID), "of", b.Node)
				n.setStore(known.ID, registry.StoreFailed)
			}
		}
		for uuid, s := range stores {
			if s.Node == b.Node && s.State == registry.StoreUp && !reported[uuid] {
				n.log.Warn("a node is up without one of its stores", "store", uint32(s.ID), "of", b.Node)
				n.setStore(s.ID, registry.StoreDown)
			}
		}
	}
}

// setStore agrees on the state of a store.
func (n *Node) setStore(id cluster.StoreID, state registry.StoreState) {
	n.step("a store's state", func(ctx context.Context) error {
		_, err := n.propose0(ctx, &registry.SetStoreState{ID: id, State: state})
		return err
	})
}

// reconcile takes the next step towards the membership that a group that this
// node leads should have.
func (n *Node) reconcile(g *group.Group, r registry.View) {
	members, err := g.Members()
	if err != nil {
		return
	}
	n.mu.RLock()
	t := n.table
	n.mu.RUnlock()
	step := planMembers(r.Nodes(), members, t, g.ID(), g.Applied())
	if step.what == "" {
		return
	}
	n.log.Info("membership changes", "group", uint32(g.ID()), "what", step.what, "which", step.node)
	n.step("membership", func(ctx context.Context) error {
		if step.what == removeMember {
			return g.RemoveMember(ctx, step.node)
		}
		return g.AddMember(ctx, step.node, step.what == promoteMember)
	})
}

// leadVolume is what the leader of a volume's group does.
func (n *Node) leadVolume(v *Volume) {
	r, err := n.Registry()
	if err != nil {
		return
	}
	if !v.View().Formatted() {
		var key [16]byte
		// crypto/rand.Read never fails.
		_, _ = rand.Read(key[:])
		n.step("formatting a volume", func(ctx context.Context) error {
			_, err := propose(ctx, v.Group, &volume.Format{HashKey: key, Class: v.Info.Class, Mode: 0o755})
			return err
		})
		return
	}
	n.reconcile(v.Group, r)
	n.fence(v, r)
}

// fence takes a lost node's front-end out: its commands fail from now on. What
// its clients have stays theirs: retire releases that of the clients that can't
// reach another node.
func (n *Node) fence(v *Volume, r registry.View) {
	now := cluster.Time(time.Now().UnixNano())
	for _, w := range v.Machine.Writers() {
		if node, ok := r.Node(w.Node); w.Fenced || !ok || !lost(node, now, n.cfg.FenceAfter) {
			continue
		}
		n.log.Warn("a lost node's front-end is fenced", "which", w.Node, "volume", v.Info.Name)
		n.step("fencing a writer", func(ctx context.Context) error {
			_, err := propose(ctx, v.Group, &fsm.FenceWriter{Writer: w.ID})
			return err
		})
	}
}

// step runs one step of a duty; a failure is logged, and the duty looks again.
func (n *Node) step(what string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(n.ctx, proposeTimeout)
	defer cancel()
	if err := do(ctx); err != nil && n.ctx.Err() == nil {
		n.log.Warn("a duty will be tried again", "what", what, "err", err)
	}
}
