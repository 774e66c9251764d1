package member

import (
	"context"
	"errors"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// releaseRequest asks the node that serves an identity to hand it over.
type releaseRequest struct {
	ID cluster.IdentityID `json:"id"`
	To cluster.NodeID     `json:"to"` // "": nobody
}

// OnRelease says that this node has a front-end from now on, so that it may be
// given identities, until cancel is called, when it serves none any more. fn
// makes one that it serves fit to be handed over: requests under way have
// ended, what was held is committed, and no new one begins (new ones wait
// without an answer). If handing over fails after that, resume goes on
// serving; if it succeeds, OnIdentity tells of the new epoch.
func (n *Node) OnRelease(fn func(context.Context, registry.Identity) (resume func(), err error)) (cancel func()) {
	remove := add(&n.hooks.mu, &n.hooks.release, fn)
	n.beatSoon()
	return func() {
		remove()
		n.beatSoon()
	}
}

// beatSoon makes the next heartbeat come at once.
func (n *Node) beatSoon() {
	select {
	case n.beatNow <- struct{}{}:
	default:
	}
}

// Handover moves a floating address in order: the node that serves it stops
// first, with everything done that it began, so that nothing of it needs
// fencing. to is the node that serves it then; "" is the one that has the
// fewest addresses. It returns when it is assigned; that node takes it over by
// itself. ENOENT if there is no such identity or node; EINVAL for a node's own
// identity, or a node that can't serve; EAGAIN if there is no other node that
// can, or the one that serves it does not answer: if it is lost, the address
// moves without it soon.
func (n *Node) Handover(ctx context.Context, id cluster.IdentityID, to cluster.NodeID) error {
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return err
	}
	i, ok := r.Identity(id)
	switch {
	case !ok:
		return fmt.Errorf("there is no identity %d: %w", id, cluster.ENOENT)
	case !i.Floating():
		return fmt.Errorf("identity %d is that of node %s's own addresses, which don't move: %w", id, i.Home, cluster.EINVAL)
	case i.Retired:
		return fmt.Errorf("address %s is being removed: %w", i.Addr, cluster.EINVAL)
	}
	if to == "" {
		if to, err = n.bestPlace(r, i); err != nil {
			return err
		}
	} else if err := n.canServe(r, to); err != nil {
		return err
	}
	if to == i.Node {
		return nil
	}
	return n.give(ctx, i, to)
}

// canServe returns why a node can't be given an address, if so.
func (n *Node) canServe(r registry.View, to cluster.NodeID) error {
	node, ok := r.Node(to)
	n.mu.RLock()
	t := n.table
	n.mu.RUnlock()
	switch {
	case !ok || node.State == registry.NodeRemoved:
		return fmt.Errorf("there is no node %q: `hawser status` lists them: %w", to, cluster.ENOENT)
	case !node.Roles.Has(registry.RoleNFS):
		return fmt.Errorf("node %s does not serve NFS: give it the role nfs, or name another node: %w", to, cluster.EINVAL)
	case node.Draining:
		return fmt.Errorf("node %s is being drained: name another node, or end its draining first: %w", to, cluster.EINVAL)
	case !t.FrontEnds[to]:
		return fmt.Errorf("node %s is not up, or its front-end is not: %w", to, cluster.EAGAIN)
	}
	return nil
}

// bestPlace returns the node, other than the one that has it, that an identity
// should be given to.
func (n *Node) bestPlace(r registry.View, i registry.Identity) (cluster.NodeID, error) {
	n.mu.RLock()
	t := n.table
	n.mu.RUnlock()
	var places []place
	for _, node := range r.Nodes() { // by name
		if node.State != registry.NodeRemoved && node.Roles.Has(registry.RoleNFS) {
			places = append(places, place{id: node.ID, ready: t.FrontEnds[node.ID], draining: node.Draining})
		}
	}
	for _, p := range places {
		if p.id == i.Home && p.id != i.Node && p.ready && !p.draining {
			return p.id, nil
		}
	}
	to := newLoad(r.Identities()).best(i.Group, places, i.Node)
	if to == "" {
		return "", fmt.Errorf("no other node can serve address %s now: another node with the role nfs must be up and not be drained: %w", i.Addr, cluster.EAGAIN)
	}
	return to, nil
}

// give has an identity handed over by the node that serves it.
func (n *Node) give(ctx context.Context, i registry.Identity, to cluster.NodeID) error {
	switch i.Node {
	case "":
		_, err := n.propose0(ctx, &registry.AssignIdentity{ID: i.ID, Node: to, Epoch: i.Epoch, Clean: true})
		return err
	case n.cfg.Self:
		return n.serveRelease(ctx, releaseRequest{ID: i.ID, To: to})
	}
	addr, ok := n.resolve(i.Node)
	if !ok {
		return fmt.Errorf("the address of node %s is not known: %w", i.Node, cluster.EAGAIN)
	}
	if _, err := n.ask(ctx, addr, request{Release: &releaseRequest{ID: i.ID, To: to}}); err != nil {
		return fmt.Errorf("node %s was asked to hand over address %s: %w", i.Node, i.Addr, err)
	}
	return nil
}

// serveRelease hands over an identity that this node serves.
func (n *Node) serveRelease(ctx context.Context, q releaseRequest) error {
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return err
	}
	i, ok := r.Identity(q.ID)
	if !ok || i.Node != n.cfg.Self {
		return fmt.Errorf("identity %d is not served by node %s: %w", q.ID, n.cfg.Self, cluster.EAGAIN)
	}
	if !n.hooks.beginRelease(i.ID) {
		return fmt.Errorf("node %s is handing over identity %d already: %w", n.cfg.Self, q.ID, cluster.EAGAIN)
	}
	defer n.hooks.endRelease(i.ID)
	resume := func() {}
	if fn := latest(&n.hooks.mu, &n.hooks.release); fn != nil {
		var err error
		if resume, err = (*fn)(ctx, i); err != nil {
			return fmt.Errorf("node %s can't hand over identity %d now: %w", n.cfg.Self, q.ID, err)
		}
	}
	// What an earlier epoch left to be fenced still is: Clean is of this epoch.
	body, err := n.propose0(ctx, &registry.AssignIdentity{ID: i.ID, Node: q.To, Epoch: i.Epoch, Clean: true})
	if err == nil {
		return nil
	}
	if now, malformed := registry.DecodeIdentity(body); errors.Is(err, cluster.EFENCED) && malformed == nil {
		if now.Epoch == i.Epoch+1 && now.Node == q.To {
			return nil // the command was repeated
		}
		return err // it is another's already
	}
	if resume != nil {
		resume()
	}
	return err
}
