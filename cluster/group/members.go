package group

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
)

// A Member is a node's part in a group.
type Member struct {
	ID    cluster.NodeID
	Voter bool
}

// Members returns the members of the latest configuration.
func (g *Group) Members() ([]Member, error) {
	f := g.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, err
	}
	var members []Member
	for _, s := range f.Configuration().Servers {
		members = append(members, Member{ID: cluster.NodeID(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	return members, nil
}

// changeTimeout bounds how long a change of members waits for the one before.
func changeTimeout(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return max(time.Until(d), time.Millisecond)
	}
	return 10 * time.Second
}

// AddMember makes id a voter or a non-voter, whatever it was before. A node that
// does not lead returns EAGAIN.
func (g *Group) AddMember(ctx context.Context, id cluster.NodeID, voter bool) error {
	members, err := g.Members()
	if err != nil {
		return err
	}
	was := (*Member)(nil)
	for i, m := range members {
		if m.ID == id {
			was = &members[i]
		}
	}
	return g.change(ctx, func(timeout time.Duration) raft.IndexFuture {
		name, addr := raft.ServerID(id), raft.ServerAddress(id)
		switch {
		case voter:
			return g.raft.AddVoter(name, addr, 0, timeout)
		case was != nil && was.Voter:
			return g.raft.DemoteVoter(name, 0, timeout)
		}
		return g.raft.AddNonvoter(name, addr, 0, timeout)
	})
}

// RemoveMember takes id out of the group. A node that does not lead returns
// EAGAIN.
func (g *Group) RemoveMember(ctx context.Context, id cluster.NodeID) error {
	return g.change(ctx, func(timeout time.Duration) raft.IndexFuture {
		return g.raft.RemoveServer(raft.ServerID(id), 0, timeout)
	})
}

// change commits a change of the configuration.
func (g *Group) change(ctx context.Context, request func(time.Duration) raft.IndexFuture) error {
	if !g.IsLeader() {
		return cluster.EAGAIN
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ErrClosed
	}
	g.proposals.Add(1)
	g.mu.Unlock()
	timeout := changeTimeout(ctx)
	return await(ctx, &g.proposals, func() error {
		defer g.proposals.Done()
		return raftError(request(timeout).Error())
	})
}
