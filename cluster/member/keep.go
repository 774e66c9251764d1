package member

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// lead is what this node does as the leader of group 0 in one term. It is
// guarded by Node.watchMu.
type lead struct {
	term  uint64 // 0: not begun
	nonce uint64 // of TakeLead
	// withheld counts, for each node, the identities that are being taken from
	// it: its heartbeats are not acknowledged until the outcome is known.
	withheld map[cluster.NodeID]int
	looked   time.Time // when the nodes were looked at last
}

// steadyAfter is how long a node's front-end is up before an address goes home
// to it.
const steadyAfter = 30 * time.Second

// beginLead begins a term as the leader. First a majority says that it is, and
// when an earlier leader was confirmed last, which bounds what that one can
// have acknowledged. Then TakeLead voids what earlier ones have decided. From
// then on heartbeats are acknowledged and identities taken.
func (n *Node) beginLead(ctx context.Context, zero *groupMember) error {
	round, err := n.confirm(ctx, zero)
	if err != nil {
		return err
	}
	n.watchMu.Lock()
	begun := n.lead.term == round.term
	n.watchMu.Unlock()
	if begun {
		return nil
	}
	nonce, err := n.takeLead(ctx)
	if err != nil {
		return err
	}
	n.watchMu.Lock()
	defer n.watchMu.Unlock()
	n.watcher.reset()
	n.lead = lead{term: round.term, nonce: nonce, withheld: map[cluster.NodeID]int{}}
	// Most often the earlier leader is gone. Nobody has acknowledged a heartbeat
	// of it since a majority confirmed it last, so that is when it was heard.
	// The others had nobody who could hear them, and get the whole time.
	if round.leader != "" && round.leader != n.cfg.Self {
		n.watcher.missed(time.Now(), round.leader, round.before)
	}
	return nil
}

// takeLead voids what leaders have decided before.
func (n *Node) takeLead(ctx context.Context) (nonce uint64, err error) {
	var b [8]byte
	// crypto/rand.Read never fails.
	_, _ = rand.Read(b[:])
	nonce = max(binary.BigEndian.Uint64(b[:]), 1)
	_, err = n.propose0(ctx, &registry.TakeLead{Nonce: nonce})
	return nonce, err
}

// keeper keeps every floating address served, where this node leads group 0.
// It has a goroutine of its own: the other duties may wait for a group that has
// no leader, and this one is quick.
func (n *Node) keeper() {
	tick := time.NewTicker(max(n.cfg.TakeoverAfter/20, 10*time.Millisecond))
	defer tick.Stop()
	for {
		var led <-chan struct{}
		if zero, err := n.group0(); err == nil {
			led = zero.group.Watch()
			n.keepIdentities(zero)
		}
		select {
		case <-tick.C:
		case <-led:
		case <-n.ctx.Done():
			return
		}
	}
}

// keepIdentities is what the leader of group 0 does for identities.
func (n *Node) keepIdentities(zero *groupMember) {
	if !zero.group.IsLeader() {
		return
	}
	r := registry.View{Reader: zero.machine.Reader()}
	if _, founded := r.Cluster(); !founded {
		return
	}
	term := zero.group.Stats().Term
	n.watchMu.Lock()
	begun := n.lead.term == term
	n.watchMu.Unlock()
	if !begun {
		ctx, cancel := context.WithTimeout(n.ctx, proposeTimeout)
		defer cancel()
		if err := n.beginLead(ctx, zero); err != nil {
			n.log.Debug("this node does not lead group 0 yet", "err", err)
		}
		n.beatSoon()
		return
	}
	if n.pending(r) {
		// Before anything is taken from anyone: if nobody is heard it may be this
		// node that can't hear.
		if _, err := n.confirm(n.ctx, zero); err != nil {
			return
		}
	}
	for _, m := range n.decide(r) {
		i, ok := r.Identity(m.identity)
		if !ok {
			continue
		}
		if m.force {
			n.force(i, m.to)
		} else {
			n.releasing.start(n, i, m.to)
		}
	}
	n.retire(r)
}

// pending reports whether an identity is about to be taken from a node. Time in
// which this node itself did not run is not held against the others.
func (n *Node) pending(r registry.View) bool {
	identities := r.Identities()
	n.watchMu.Lock()
	defer n.watchMu.Unlock()
	now := time.Now()
	if gap := now.Sub(n.lead.looked); !n.lead.looked.IsZero() && gap > n.cfg.TakeoverAfter/4 {
		n.watcher.slept(now, gap)
	}
	n.lead.looked = now
	for _, m := range planIdentities(identities, n.places(r), n.cfg.Failback) {
		if i, ok := r.Identity(m.identity); ok && m.force && i.Node != "" {
			return true
		}
	}
	return false
}

// decide returns the moves that are due. The nodes that lose an identity by
// force are withheld from then on.
func (n *Node) decide(r registry.View) []move {
	identities := r.Identities()
	n.watchMu.Lock()
	defer n.watchMu.Unlock()
	moves := planIdentities(identities, n.places(r), n.cfg.Failback)
	for _, m := range moves {
		if i, ok := r.Identity(m.identity); ok && m.force && i.Node != "" {
			n.lead.withheld[i.Node]++
		}
	}
	return moves
}

// places returns the nodes that may serve floating addresses, with watchMu held.
func (n *Node) places(r registry.View) []place {
	now := time.Now()
	var places []place
	for _, node := range r.Nodes() {
		if node.State == registry.NodeRemoved || !node.Roles.Has(registry.RoleNFS) {
			continue
		}
		p := n.watcher.place(now, node.ID, n.cfg.TakeoverAfter, steadyAfter)
		p.draining = node.Draining
		places = append(places, p)
	}
	return places
}

// force assigns an identity, which nobody serves or a lost node does, to a node.
// decide has withheld the old one.
func (n *Node) force(i registry.Identity, to cluster.NodeID) {
	n.watchMu.Lock()
	nonce := n.lead.nonce
	n.watchMu.Unlock()
	n.log.Warn("an address is taken over", "address", i.Addr, "identity", uint16(i.ID), "from", i.Node, "to", to)
	ctx, cancel := context.WithTimeout(n.ctx, proposeTimeout)
	defer cancel()
	_, err := n.propose0(ctx, &registry.AssignIdentity{ID: i.ID, Node: to, Epoch: i.Epoch, Lead: nonce})
	n.decided(i.Node, nonce, err)
}

// decided ends the withholding of a node that was to lose an identity. An
// outcome that is not known is made known: what may still be on its way is void.
func (n *Node) decided(node cluster.NodeID, nonce uint64, err error) {
	var refused cluster.Errno
	if err != nil && !errors.As(err, &refused) {
		ctx, cancel := context.WithTimeout(n.ctx, proposeTimeout)
		defer cancel()
		again, lost := n.takeLead(ctx)
		n.watchMu.Lock()
		defer n.watchMu.Unlock()
		if n.lead.nonce != nonce {
			return // another term, which knows nothing of it
		}
		if lost != nil {
			n.lead = lead{} // begins anew, with another TakeLead
			return
		}
		n.lead.nonce = again
	} else {
		n.watchMu.Lock()
		defer n.watchMu.Unlock()
		if n.lead.nonce != nonce {
			return
		}
	}
	if node == "" {
		return
	}
	if n.lead.withheld[node]--; n.lead.withheld[node] <= 0 {
		delete(n.lead.withheld, node)
	}
	if err != nil && n.ctx.Err() == nil {
		n.log.Warn("an identity was not assigned; it will be tried again", "from", node, "err", err)
	}
}

// releasing are the identities that something slow is done for in the
// background: handed over, or the state of their clients released.
type releasing struct {
	mu   sync.Mutex
	busy map[cluster.IdentityID]time.Time // until when: the zero Time is until it is done
}

// pauseAfter is how long a background step that failed is not tried again.
const pauseAfter = 2 * time.Second

// begin reports whether something is to be done now for an identity.
func (b *releasing) begin(id cluster.IdentityID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	until, busy := b.busy[id]
	if busy && (until.IsZero() || time.Now().Before(until)) {
		return false
	}
	if b.busy == nil {
		b.busy = map[cluster.IdentityID]time.Time{}
	}
	b.busy[id] = time.Time{}
	return true
}

// run does something for an identity in the background, unless something is
// being done for it.
func (b *releasing) run(n *Node, id cluster.IdentityID, what string, do func(context.Context) error) {
	if !b.begin(id) {
		return
	}
	n.wg.Go(func() {
		err := do(n.ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.busy, id)
		if err != nil {
			b.busy[id] = time.Now().Add(pauseAfter)
			if n.ctx.Err() == nil {
				n.log.Warn("a duty will be tried again", "what", what, "identity", uint16(id), "err", err)
			}
		}
	})
}

// handoverTimeout bounds how long a node may take to stop serving an identity.
const handoverTimeout = 15 * time.Second

// start asks the node that serves an identity to hand it over.
func (b *releasing) start(n *Node, i registry.Identity, to cluster.NodeID) {
	b.run(n, i.ID, "handing over an address", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
		defer cancel()
		n.log.Info("an address is handed over", "address", i.Addr, "from", i.Node, "to", to)
		return n.give(ctx, i, to)
	})
}
