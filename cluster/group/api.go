// Package group is a Raft group: it puts a cluster.StateMachine under
// hashicorp/raft and hides that behind Propose, ReadIndex and WaitApplied.
package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
)

// LogStore names a kind of Raft log store.
type LogStore string

// The log stores.
const (
	LogWAL    LogStore = "wal"    // raft-wal: one sync an append
	LogBoltDB LogStore = "boltdb" // raft-boltdb: two syncs an append
)

// ErrClosed is returned by operations on a closed group.
var ErrClosed = errors.New("raft group is closed")

// Config says what a group's member on this node is.
type Config struct {
	ID      cluster.GroupID
	Self    cluster.NodeID
	Dir     string   // the log and snapshots under way; on the state machine's file system
	Log     LogStore // "" is LogWAL
	Peer    *peer.Endpoint
	Resolve func(cluster.NodeID) (addr string, ok bool) // where a node's peer endpoint is
	Machine cluster.StateMachine                        // stays the caller's: Close does not close it
	Logger  *slog.Logger

	HeartbeatTimeout  time.Duration // silence after which a follower stands for election; default 1 s
	ElectionTimeout   time.Duration // default HeartbeatTimeout
	CommitTimeout     time.Duration // default 2 ms
	SnapshotInterval  time.Duration // how often the log's length is looked at; default 30 s
	SnapshotThreshold uint64        // log entries since the last snapshot that make a new one; default 20,000
	TrailingLogs      uint64        // log entries kept for lagging members; default 50,000
	SegmentSize       int           // bytes in a segment of the wal; default 64 MiB
	MaxProposalBytes  int64         // bytes of commands under way here; default 64 MiB
}

// A Member is a node's part in a group.
type Member struct {
	ID    cluster.NodeID
	Voter bool
}

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
	Commit      uint64
	FirstLog    uint64
	LastLog     uint64
	Snapshot    uint64        // index up to which the log may have been cut
	LastContact time.Duration // since the leader was heard of last; 0 on the leader, -1 if never
	Members     []Member
}

// A Group is this node's member of a Raft group.
type Group struct{}

// Open starts the member from what is on disk. It does not bootstrap.
func Open(cfg Config) (*Group, error) { panic("being written") }

// ID returns the group's number.
func (g *Group) ID() cluster.GroupID { panic("being written") }

// Bootstrap starts a new group with the given voters, this node among them. It
// does nothing if the group has state already.
func (g *Group) Bootstrap(voters []Member) error { panic("being written") }

// Propose commits a command, from any member, and returns its index and result.
func (g *Group) Propose(ctx context.Context, cmd []byte) (index uint64, result []byte, err error) {
	panic("being written")
}

// ReadIndex returns an index such that a read of a state machine that has
// applied it is linearizable.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) { panic("being written") }

// WaitApplied waits until this node's state machine has applied index.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error { panic("being written") }

// Applied returns the index of the last entry that the state machine has.
func (g *Group) Applied() uint64 { panic("being written") }

// Leader returns the leader as far as this node knows.
func (g *Group) Leader() (cluster.NodeID, bool) { panic("being written") }

// IsLeader reports whether this node leads the group.
func (g *Group) IsLeader() bool { panic("being written") }

// Watch returns a channel that is closed at the next change of the leader, or
// when the group is closed. Call Watch first, then look at Leader, then wait.
func (g *Group) Watch() <-chan struct{} { panic("being written") }

// Members returns the members of the latest configuration.
func (g *Group) Members() ([]Member, error) { panic("being written") }

// AddMember makes id a voter or non-voter. On the leader only (EAGAIN elsewhere).
func (g *Group) AddMember(ctx context.Context, id cluster.NodeID, voter bool) error {
	panic("being written")
}

// RemoveMember takes id out of the group. On the leader only (EAGAIN elsewhere).
func (g *Group) RemoveMember(ctx context.Context, id cluster.NodeID) error { panic("being written") }

// TransferLeadership hands leadership to another voter.
func (g *Group) TransferLeadership(ctx context.Context) error { panic("being written") }

// Snapshot makes the state durable and cuts the log.
func (g *Group) Snapshot() error { panic("being written") }

// Stats describes the member.
func (g *Group) Stats() Stats { panic("being written") }

// Close hands leadership over if this node has it, and stops the member.
func (g *Group) Close() error { panic("being written") }
