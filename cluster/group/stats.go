package group

import (
	"time"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
)

// A Role is what a member is at the moment.
type Role string

// The roles.
const (
	Follower  Role = "follower"
	Candidate Role = "candidate"
	Leader    Role = "leader"
	Stopped   Role = "stopped"
)

// Stats describe a group's member at a moment.
type Stats struct {
	ID          cluster.GroupID
	Role        Role
	Term        uint64
	Leader      cluster.NodeID // "" if not known
	Applied     uint64         // index of the last entry that the state machine has
	Commit      uint64         // as far as this member knows; at least Applied
	FirstLog    uint64         // 0 if the log is empty
	LastLog     uint64         // or, if that is empty, the last one applied
	Durable     uint64         // index up to which the log may be cut
	LastContact time.Duration  // since the leader was heard of last; 0 on the leader, -1 if never
	Members     []Member
}

// Stats describes the member.
func (g *Group) Stats() Stats {
	s := Stats{
		ID: g.cfg.ID, Term: g.raft.CurrentTerm(), Applied: g.Applied(),
		LastLog: g.raft.LastIndex(), Durable: g.log.durable.Load(),
	}
	s.Commit = max(g.commitIndex(), s.Applied)
	s.Leader, _ = g.Leader()
	s.FirstLog, _ = g.log.FirstIndex()
	s.Members, _ = g.Members()
	switch g.raft.State() {
	case raft.Leader:
		s.Role = Leader
		return s
	case raft.Candidate:
		s.Role = Candidate
	case raft.Follower:
		s.Role = Follower
	default:
		s.Role = Stopped
	}
	s.LastContact = -1
	if t := g.raft.LastContact(); !t.IsZero() {
		s.LastContact = time.Since(t)
	}
	return s
}
