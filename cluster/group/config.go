package group

import (
	"errors"
	"fmt"
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
	CommitTimeout     time.Duration // an idle leader tells followers what is committed after so long; default 2 ms
	SnapshotInterval  time.Duration // how often the log's length is looked at; default 30 s
	SnapshotThreshold uint64        // log entries since the last snapshot that make a new one; default 20,000
	TrailingLogs      uint64        // log entries kept for lagging members; default 50,000
	SegmentSize       int           // bytes in a segment of the wal; default 64 MiB
	MaxProposalBytes  int64         // bytes of commands under way on a leader; default 64 MiB

	openDisk func() (diskLog, error) // a test's disk; nil: the log is in Dir
}

// maxAppendEntries is the most log entries in one append, on disk and to a
// follower.
const maxAppendEntries = 512

// withDefaults returns the configuration with its zero members filled in.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Self == "":
		return c, errors.New("group: set Config.Self to the node's name")
	case c.Dir == "":
		return c, errors.New("group: set Config.Dir to a folder for the log")
	case c.Peer == nil || c.Machine == nil || c.Resolve == nil:
		return c, errors.New("group: set Config.Peer, Config.Machine and Config.Resolve")
	}
	switch c.Log {
	case "":
		c.Log = LogWAL
	case LogWAL, LogBoltDB:
	default:
		return c, fmt.Errorf("group: no log store %q: use %q or %q", c.Log, LogWAL, LogBoltDB)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("group", uint32(c.ID))
	if c.HeartbeatTimeout <= 0 {
		c.HeartbeatTimeout = time.Second
	}
	c.ElectionTimeout = max(c.ElectionTimeout, c.HeartbeatTimeout)
	if c.CommitTimeout <= 0 {
		c.CommitTimeout = 2 * time.Millisecond
	}
	if c.SnapshotInterval <= 0 {
		c.SnapshotInterval = 30 * time.Second
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 20_000
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = 50_000
	}
	if c.SegmentSize <= 0 {
		c.SegmentSize = 64 << 20
	}
	if c.MaxProposalBytes <= 0 {
		c.MaxProposalBytes = 64 << 20
	}
	c.MaxProposalBytes = max(c.MaxProposalBytes, 2*cluster.MaxCommand)
	return c, nil
}
