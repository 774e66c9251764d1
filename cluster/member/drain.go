package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// DrainNode empties a node: its floating addresses go to others, and its stores'
// data does. With drain false it may have them again; what was moved stays where
// it is. ENOENT if there is no such node.
func (n *Node) DrainNode(ctx context.Context, id cluster.NodeID, drain bool) error {
	if err := n.DrainFrontEnd(ctx, id, drain); err != nil {
		return err
	}
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return err
	}
	for _, s := range r.Stores() {
		if s.Node == id && s.State != registry.StoreRemoved {
			if err := n.DrainStore(ctx, s.ID, drain); err != nil {
				return err
			}
		}
	}
	return nil
}

// DrainStore empties a store, or ends that. ENOENT if there is no such store.
func (n *Node) DrainStore(ctx context.Context, id cluster.StoreID, drain bool) error {
	_, err := n.propose0(ctx, &registry.DrainStore{ID: id, Drain: drain})
	return noStore(id, err)
}

// RemoveStore takes a store out for good. ENOENT if there is no such store.
func (n *Node) RemoveStore(ctx context.Context, id cluster.StoreID) error {
	_, err := n.propose0(ctx, &registry.SetStoreState{ID: id, State: registry.StoreRemoved})
	return noStore(id, err)
}

func noStore(id cluster.StoreID, err error) error {
	if errors.Is(err, cluster.ENOENT) || errors.Is(err, cluster.EPERM) {
		return fmt.Errorf("there is no store %d, or it was removed: `hawser status` lists them: %w", id, cluster.ENOENT)
	}
	return err
}

// RemoveNode takes a node out for good: the groups go on without it. ENOENT if
// there is no such node.
func (n *Node) RemoveNode(ctx context.Context, id cluster.NodeID) error {
	_, err := n.propose0(ctx, &registry.RemoveNode{ID: id})
	if errors.Is(err, cluster.ENOENT) {
		return fmt.Errorf("there is no node %q: `hawser status` lists them: %w", id, err)
	}
	n.poke()
	return err
}

// Rebalance has the stores evened out for as long as d; 0 ends that.
func (n *Node) Rebalance(ctx context.Context, d time.Duration) error {
	until := cluster.Time(0)
	if d > 0 {
		until = cluster.Time(time.Now().Add(d).UnixNano())
	}
	_, err := n.propose0(ctx, &registry.Rebalance{Until: until})
	return err
}
