package member

import (
	"context"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// retire releases what nobody will serve again: the clients of addresses that
// are being removed, and those of a lost node's own addresses, which can't be
// reached elsewhere. Clients of floating addresses keep what they have however
// long a node is gone.
func (n *Node) retire(r registry.View) {
	for _, i := range r.Identities() {
		switch {
		case i.Retired:
			n.releasing.run(n, i.ID, "removing an identity", func(ctx context.Context) error { return n.purge(ctx, i) })
		case !i.Floating() && n.lost(r, i.Home) && (i.Node != "" || r.HasClients(i.ID)):
			n.releasing.run(n, i.ID, "releasing a lost node's clients", func(ctx context.Context) error { return n.releaseLost(ctx, i) })
		}
	}
}

// lost reports whether a node was down for so long that it is fenced.
func (n *Node) lost(r registry.View, id cluster.NodeID) bool {
	node, ok := r.Node(id)
	return ok && lost(node, cluster.Time(time.Now().UnixNano()), n.cfg.FenceAfter)
}

// lost reports whether a node is removed, or was down for fenceAfter.
func lost(node registry.Node, now cluster.Time, fenceAfter time.Duration) bool {
	return node.State == registry.NodeRemoved || node.State == registry.NodeDown && now-node.Since > cluster.Time(fenceAfter)
}

// purge removes a retired identity: its node stops, its clients' state is
// released, and then it is forgotten.
func (n *Node) purge(ctx context.Context, i registry.Identity) error {
	if i.Node != "" {
		err := n.stopServing(ctx, i)
		if err != nil {
			return err
		}
		r, err := n.RegistryAt(ctx)
		if err != nil {
			return err
		}
		var ok bool
		if i, ok = r.Identity(i.ID); !ok {
			return nil
		}
		if i.Node != "" {
			return fmt.Errorf("node %s serves it still: %w", i.Node, cluster.EAGAIN)
		}
	}
	if err := n.fenceNodes(ctx, i.Fence...); err != nil {
		return err
	}
	if err := n.releaseClients(ctx, i); err != nil {
		return err
	}
	_, err := n.propose0(ctx, &registry.PurgeIdentity{ID: i.ID, Epoch: i.Epoch})
	return err
}

// stopServing makes a retired identity nobody's: in order if its node answers,
// by force if it is lost.
func (n *Node) stopServing(ctx context.Context, i registry.Identity) error {
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	if !n.withholdIfLost(i.Node) {
		return n.give(ctx, i, "")
	}
	n.force(i, "")
	return nil
}

// withholdIfLost begins to take something from a node, if it is lost.
func (n *Node) withholdIfLost(id cluster.NodeID) bool {
	r, err := n.Registry()
	if err != nil {
		return false
	}
	node, ok := r.Node(id)
	n.watchMu.Lock()
	defer n.watchMu.Unlock()
	if n.lead.term == 0 {
		return false
	}
	if ok && node.State != registry.NodeRemoved && !n.watcher.place(time.Now(), id, n.cfg.TakeoverAfter, steadyAfter).lost {
		return false
	}
	n.lead.withheld[id]++
	return true
}

// releaseLost releases what the clients of a lost node's own addresses have.
// The node, should it return, can do nothing in the present epoch's name any
// more, and its writers are fenced.
func (n *Node) releaseLost(ctx context.Context, i registry.Identity) error {
	if i.Node != "" {
		if !n.withholdIfLost(i.Node) {
			return nil // it is heard again
		}
		n.log.Warn("the clients of a lost node's own addresses are released", "which", i.Home)
		n.force(i, "")
		r, err := n.RegistryAt(ctx)
		if err != nil {
			return err
		}
		now, ok := r.Identity(i.ID)
		if !ok || now.Node != "" {
			return nil // it claimed it
		}
		i = now
	}
	if err := n.fenceNodes(ctx, i.Home); err != nil {
		return err
	}
	return n.releaseClients(ctx, i)
}

// releaseClients releases the locks and opens of an identity's clients in every
// volume, and forgets each after that. It stops with EFENCED if the identity is
// assigned to somebody.
func (n *Node) releaseClients(ctx context.Context, i registry.Identity) error {
	for {
		r, err := n.RegistryAt(ctx)
		if err != nil {
			return err
		}
		clients := r.Clients(i.ID)
		if len(clients) == 0 {
			return nil
		}
		ids := make([]uint64, 0, releaseAtOnce)
		for _, c := range clients[:min(len(clients), releaseAtOnce)] {
			ids = append(ids, c.ID)
		}
		err = n.eachVolume(ctx, r, func(ctx context.Context, v *Volume) error { return v.releaseClients(ctx, ids) })
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := n.propose0(ctx, &registry.DeleteClient{Identity: i.ID, Epoch: i.Epoch, ID: id}); err != nil {
				return err
			}
		}
	}
}

// releaseAtOnce is how many clients are released before their records go.
const releaseAtOnce = 64
