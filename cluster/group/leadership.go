package group

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
)

// A leadership is what this node knows about the leader.
type leadership struct {
	leader  cluster.NodeID // "" if not known
	self    bool           // this node leads
	changed chan struct{}  // closed when this is no longer so
}

// A service is a term in which this node leads and may answer reads.
type service struct {
	term    uint64
	barrier uint64 // index of the barrier that began it
	floor   uint64 // applied index after the barrier
}

// Leader returns the leader as far as this node knows.
func (g *Group) Leader() (cluster.NodeID, bool) {
	_, id := g.raft.LeaderWithID()
	return cluster.NodeID(id), id != ""
}

// IsLeader reports whether this node leads the group, as far as it knows.
func (g *Group) IsLeader() bool { return g.raft.State() == raft.Leader }

// Watch returns a channel that is closed at the next change of the leader, or
// when the group is closed. Call Watch first, then look at Leader, then wait.
func (g *Group) Watch() <-chan struct{} { return g.lead.Load().changed }

// watchLeadership follows the leader until Close, and opens the service of each
// term in which this node leads.
func (g *Group) watchLeadership() {
	defer g.wg.Done()
	defer func() { close(g.lead.Load().changed) }()
	for {
		select {
		case <-g.notify:
		case <-g.observe:
		case <-g.ctx.Done():
			return
		}
		g.updateLeadership()
	}
}

// stepDownEvery is the pause between attempts to give up leadership.
const stepDownEvery = 10 * time.Millisecond

// watchLog gives up leadership when the log cannot be written. Raft sees it at
// the next entry only, and there need not be one.
func (g *Group) watchLog() {
	defer g.wg.Done()
	reported := false
	for {
		pause := g.ctx.Done()
		select {
		case <-g.log.tail.failing():
		case <-pause:
			return
		}
		err := g.log.tail.failure()
		if err != nil && !reported {
			g.cfg.Logger.Error("cannot write the Raft log: this node leads the group no more until it can", "err", err)
		}
		if reported = err != nil; reported && g.IsLeader() {
			_ = g.raft.Barrier(0).Error() // fails, and so ends leadership
		}
		select {
		case <-time.After(stepDownEvery):
		case <-pause:
			return
		}
	}
}

// commitIndex returns the index up to which entries are known to be committed:
// on a leader, Raft's own may be of entries that its disk does not have yet.
func (g *Group) commitIndex() uint64 {
	return min(g.raft.CommitIndex(), g.log.tail.synced.Load())
}

// updateLeadership records a change of the leader.
func (g *Group) updateLeadership() {
	_, id := g.raft.LeaderWithID()
	self := g.IsLeader()
	old := g.lead.Load()
	if self {
		g.serve(g.raft.CurrentTerm())
	}
	if old.leader == cluster.NodeID(id) && old.self == self {
		return
	}
	g.lead.Store(&leadership{leader: cluster.NodeID(id), self: self, changed: make(chan struct{})})
	close(old.changed)
	if id == "" {
		g.cfg.Logger.Debug("raft group has no leader")
	} else {
		g.cfg.Logger.Info("raft group has a leader", "leader", string(id), "term", g.raft.CurrentTerm())
	}
}

// serve begins the service of a term: with one barrier, so that everything that
// was acknowledged in earlier terms is applied here. It must be the only one:
// no state machine sees barriers, so a read index must not be one's.
func (g *Group) serve(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.served >= term {
		return
	}
	g.served = term
	g.wg.Add(1)
	g.proposals.Add(1)
	go func() {
		defer g.wg.Done()
		defer g.proposals.Done()
		defer g.serveAgain(term)
		for g.leads(term) && g.ctx.Err() == nil {
			f := g.raft.Barrier(0)
			if err := f.Error(); err == nil {
				s := &service{term: term, floor: g.Applied()}
				if i, ok := f.(raft.IndexFuture); ok {
					s.barrier = i.Index()
				}
				if g.leads(term) {
					g.serving.Store(s)
				}
				return
			}
			select { // a leadership transfer is under way
			case <-time.After(10 * time.Millisecond):
			case <-g.ctx.Done():
			}
		}
	}()
}

// serveAgain ends the attempt to serve a term. If it has failed, because this
// node did not lead in that term, it may come to.
func (g *Group) serveAgain(term uint64) {
	if s := g.serving.Load(); s != nil && s.term >= term {
		return
	}
	g.mu.Lock()
	if g.served == term {
		g.served--
	}
	g.mu.Unlock()
	if g.leads(term) {
		g.serve(term)
	}
}

// leads reports whether this node leads in the term. Terms only grow, so that it
// has led from when the term was read until now.
func (g *Group) leads(term uint64) bool {
	return g.raft.State() == raft.Leader && g.raft.CurrentTerm() == term
}

// TransferLeadership hands leadership to another voter. A node that does not
// lead returns EAGAIN.
func (g *Group) TransferLeadership(ctx context.Context) error {
	members, err := g.Members()
	if err != nil {
		return err
	}
	voters := 0
	for _, m := range members {
		if m.Voter {
			voters++
		}
	}
	if voters < 2 {
		return errors.New("there is no other voter to lead the group")
	}
	return await(ctx, &g.wg, func() error { return raftError(g.raft.LeadershipTransfer().Error()) })
}
