package member

import (
	"context"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// A ClientStore keeps the client records of an identity in one epoch. It is a
// vfs.ClientStore.
type ClientStore struct {
	node  *Node
	id    cluster.IdentityID
	epoch uint32
}

// ClientStore returns the store of an identity's client records, for the front-end
// that serves it in that epoch.
func (n *Node) ClientStore(id cluster.IdentityID, epoch uint32) *ClientStore {
	return &ClientStore{node: n, id: id, epoch: epoch}
}

// Load returns all records, as of now. EFENCED if the epoch has passed.
func (s *ClientStore) Load(ctx context.Context) ([]cluster.ClientRecord, error) {
	r, err := s.node.RegistryAt(ctx)
	if err != nil {
		return nil, err
	}
	if i, ok := r.Identity(s.id); !ok || i.Epoch != s.epoch {
		return nil, fmt.Errorf("identity %d is served elsewhere: %w", s.id, cluster.EFENCED)
	}
	// Nobody else writes them in this epoch.
	return r.Clients(s.id), nil
}

// Put stores a record durably, and in the same step forgets the one of
// replaces, 0 for none. EFENCED if the epoch has passed, EINVAL for a record
// that is empty or longer than registry.MaxClientRecord, ENOSPC if there are too
// many.
func (s *ClientStore) Put(ctx context.Context, id uint64, record []byte, replaces uint64) error {
	if len(record) > registry.MaxClientRecord {
		return fmt.Errorf("a client record of %d bytes, of at most %d: %w", len(record), registry.MaxClientRecord, cluster.EINVAL)
	}
	_, err := s.node.propose0(ctx, &registry.PutClient{Identity: s.id, Epoch: s.epoch, ID: id, Record: record, Replaces: replaces})
	return err
}

// Delete forgets a client, if it is there. EFENCED if the epoch has passed.
func (s *ClientStore) Delete(ctx context.Context, id uint64) error {
	_, err := s.node.propose0(ctx, &registry.DeleteClient{Identity: s.id, Epoch: s.epoch, ID: id})
	return err
}

// expireRequest asks the node that serves a client to expire it if it can.
type expireRequest struct {
	Client uint64 `json:"client"`
}

// OnExpire sets what ExpireClient calls on this node, until cancel is called:
// fn expires a client of an identity that is served here if its lease has
// lapsed, with all its state, and reports whether it is gone.
func (n *Node) OnExpire(fn func(ctx context.Context, clientID uint64) bool) (cancel func()) {
	return add(&n.hooks.mu, &n.hooks.expire, fn)
}

// ExpireClient asks the node that serves the client's identity to expire the
// client if its lease has lapsed: another one wants what it holds (RFC 8881
// §8.4.2.4, courtesy to clients that were silent). It reports whether the client
// is gone. EAGAIN if nobody serves the identity now, or the node does not answer.
func (n *Node) ExpireClient(ctx context.Context, clientID uint64) (bool, error) {
	r, err := n.Registry()
	if err != nil {
		return false, err
	}
	i, ok := r.Identity(cluster.ClientIdentity(clientID))
	if !ok { // not here yet, or purged, and its clients' state before it
		if r, err = n.RegistryAt(ctx); err != nil {
			return false, err
		}
		if i, ok = r.Identity(cluster.ClientIdentity(clientID)); !ok {
			return true, nil
		}
	}
	if i.Node == "" || !i.Serving {
		return false, fmt.Errorf("identity %d is served by nobody at the moment: %w", i.ID, cluster.EAGAIN)
	}
	if i.Node == n.cfg.Self {
		return n.serveExpire(ctx, expireRequest{Client: clientID})
	}
	addr, ok := n.resolve(i.Node)
	if !ok {
		return false, fmt.Errorf("the address of node %s is not known: %w", i.Node, cluster.EAGAIN)
	}
	a, err := n.ask(ctx, addr, request{Expire: &expireRequest{Client: clientID}})
	if err != nil {
		return false, fmt.Errorf("node %s, which serves client %x, does not answer (%w): %w", i.Node, clientID, err, cluster.EAGAIN)
	}
	return a.Expired, nil
}

// serveExpire answers ExpireClient of another node.
func (n *Node) serveExpire(ctx context.Context, q expireRequest) (bool, error) {
	r, err := n.Registry()
	if err != nil {
		return false, err
	}
	if i, ok := r.Identity(cluster.ClientIdentity(q.Client)); !ok || i.Node != n.cfg.Self {
		return false, fmt.Errorf("identity %d is not served by node %s: %w", cluster.ClientIdentity(q.Client), n.cfg.Self, cluster.EAGAIN)
	}
	fn := latest(&n.hooks.mu, &n.hooks.expire)
	if fn == nil || !n.Valid() {
		return false, fmt.Errorf("node %s has no front-end at the moment: %w", n.cfg.Self, cluster.EAGAIN)
	}
	return (*fn)(ctx, q.Client), nil
}
