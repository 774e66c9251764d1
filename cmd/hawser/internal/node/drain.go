package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

// RepairStatus implements admin.Backend.
func (b *backend) RepairStatus(ctx context.Context) ([]admin.VolumeRepair, error) {
	if !b.n.member.Member() {
		return nil, member.ErrNotMember
	}
	list := []admin.VolumeRepair{}
	for _, v := range b.n.member.Volumes() {
		x := admin.VolumeRepair{Volume: v.Info.Name}
		x.Leader, _ = v.Group.Leader()
		a, err := b.n.repairs.ask(ctx, v, askStatus)
		if err != nil {
			x.Error = err.Error()
		}
		x.Status = a.Status
		list = append(list, x)
	}
	return list, nil
}

// Rebalance implements admin.Backend.
func (b *backend) Rebalance(ctx context.Context, req admin.RebalanceRequest) ([]admin.VolumeMoves, error) {
	if !b.n.member.Member() {
		return nil, member.ErrNotMember
	}
	list := []admin.VolumeMoves{}
	if req.Stop {
		return list, b.n.member.Rebalance(ctx, 0)
	}
	for _, v := range b.n.member.Volumes() {
		a, err := b.n.repairs.ask(ctx, v, askPreview)
		if err != nil {
			return nil, err
		}
		list = append(list, admin.VolumeMoves{Volume: v.Info.Name, Moves: a.Preview})
	}
	if req.DryRun {
		return list, nil
	}
	return list, b.n.member.Rebalance(ctx, rebalanceFor)
}

// rebalanceFor is how long the stores are evened out, at most.
const rebalanceFor = 7 * 24 * time.Hour

// picture looks at the cluster as it is now.
func (b *backend) picture(ctx context.Context) (*picture, error) {
	if _, err := b.n.member.RegistryAt(ctx); err != nil {
		return nil, err
	}
	views, ok := b.n.member.StoreViews(b.n.conf.Repair.After)
	if !ok {
		return nil, fmt.Errorf("this node has not heard yet how the others are: %w", cluster.EAGAIN)
	}
	p := &picture{stores: map[cluster.StoreID]member.StoreView{}}
	for _, v := range views {
		p.stores[v.ID] = v
	}
	for _, v := range b.n.member.Volumes() {
		if err := v.Sync(ctx); err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Info.Name, err)
		}
		view := v.View()
		for _, s := range view.ReplicaSets() {
			if view.HasBlobs(s.ID) {
				p.sets = append(p.sets, usedSet{v.Info.Name, s.ID, s.Members, max(1, int(s.Code.K))})
			}
		}
	}
	p.status = b.n.member.Status()
	return p, nil
}

func (p *picture) node(name string) (member.NodeStatus, error) {
	for _, x := range p.status.Nodes {
		if string(x.ID) == name {
			return x, nil
		}
	}
	return member.NodeStatus{}, fmt.Errorf("there is no node %q: `hawser status` lists them: %w", name, cluster.ENOENT)
}

// SafeToStop implements admin.Backend.
func (b *backend) SafeToStop(ctx context.Context, name string) (admin.Consequences, error) {
	p, err := b.picture(ctx)
	if err != nil {
		return admin.Consequences{}, err
	}
	node, err := p.node(name)
	if err != nil {
		return admin.Consequences{}, err
	}
	return admin.Consequences{Reasons: p.without(node.ID)}, nil
}

// DrainNode implements admin.Backend.
func (b *backend) DrainNode(ctx context.Context, req admin.NodeRequest) error {
	return b.n.member.DrainNode(ctx, cluster.NodeID(req.Node), !req.Undo)
}

// RemoveNode implements admin.Backend.
func (b *backend) RemoveNode(ctx context.Context, req admin.NodeRequest) (c admin.Consequences, err error) {
	p, err := b.picture(ctx)
	if err != nil && !req.Force {
		return c, err
	}
	if err == nil {
		node, err := p.node(req.Node)
		if err != nil {
			return c, err
		}
		c.Reasons = p.without(node.ID)
		if node.State == "up" {
			// A dead one's copies are made anew sooner if it is removed.
			c.Reasons = append(c.Reasons, p.copiesOn(func(id cluster.StoreID) bool { return p.stores[id].Node == node.ID })...)
		}
	}
	if err := refused(c, req.Force, "hawser node drain "+req.Node); err != nil {
		return c, err
	}
	return c, b.n.member.RemoveNode(ctx, cluster.NodeID(req.Node))
}

// DrainDisk implements admin.Backend.
func (b *backend) DrainDisk(ctx context.Context, req admin.DiskRequest) error {
	return b.n.member.DrainStore(ctx, req.Store, !req.Undo)
}

// RemoveDisk implements admin.Backend.
func (b *backend) RemoveDisk(ctx context.Context, req admin.DiskRequest) (c admin.Consequences, err error) {
	p, err := b.picture(ctx)
	if err != nil {
		return c, err
	}
	it := func(id cluster.StoreID) bool { return id == req.Store }
	c.Reasons = p.unreadable(it)
	if p.stores[req.Store].Up {
		c.Reasons = append(c.Reasons, p.copiesOn(it)...)
	}
	if err := refused(c, req.Force, fmt.Sprint("hawser disk drain ", req.Store)); err != nil {
		return c, err
	}
	return c, b.n.member.RemoveStore(ctx, req.Store)
}

// refused is the error for what must not be done, unless it is forced.
func refused(c admin.Consequences, force bool, first string) error {
	if len(c.Reasons) == 0 || force {
		return nil
	}
	return fmt.Errorf("refused: %s. Empty it first (`%s`, then `hawser repair status` until it is done), or accept that with --force: %w",
		strings.Join(c.Reasons, "; "), first, cluster.ENOTEMPTY)
}
