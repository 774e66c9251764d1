package vfs

import (
	"context"
	"log/slog"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/placement"
)

// A Group is a volume's Raft group as System uses it; *group.Group is one.
type Group interface {
	// Propose commits a command and returns its index and result. An error
	// says that its outcome is unknown.
	Propose(ctx context.Context, cmd []byte) (index uint64, result []byte, err error)
	// ReadIndex returns an index at which a read is linearizable.
	ReadIndex(ctx context.Context) (uint64, error)
	// WaitApplied waits until this node has applied index.
	WaitApplied(ctx context.Context, index uint64) error
	// Applied returns the last index that this node has applied.
	Applied() uint64
	// IsLeader reports whether this node leads the group.
	IsLeader() bool
}

// A Mount is a volume that System is to serve.
type Mount struct {
	Volume
	Group Group
	View  volume.View // of what this node has applied
	// Snapshot returns the present state, which the caller closes, or nil if
	// the state is closed; *fsm.Machine has it. Without it, reads of a file
	// that is written all the time may fail with EAGAIN.
	Snapshot func() *fsm.Snapshot
	// Subscribe makes fn be called with the events of each batch that is
	// applied; *fsm.Machine has it.
	Subscribe func(fn func(index uint64, events []any)) (cancel func())
}

// A Placer puts blobs on replica sets; *placement.Placement is one.
type Placer interface {
	Put(ctx context.Context, g cluster.GroupID, copies uint8, alloc func() (cluster.BlobID, error), data [][]byte) (placement.Placed, []cluster.BlobID, error)
	PutOwned(ctx context.Context, g cluster.GroupID, copies uint8, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placement.Placed, []cluster.BlobID, error)
	PutCoded(ctx context.Context, g cluster.GroupID, code cluster.Code, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placement.Placed, []cluster.BlobID, error)
}

// A BlobReader reads blobs from any of their members; *placement.Placement is one.
type BlobReader = placement.Reader

// Config says what a System is made of. Key, Node, Placer, Blobs, Now and
// Nonce must be set.
type Config struct {
	Key    HandleKey
	Node   cluster.NodeID
	Placer Placer
	Blobs  BlobReader
	Now    func() cluster.Time
	Nonce  func() uint64 // a random number, another one each time
	// Space returns the bytes on all disks that a volume can use, copies not
	// divided out. nil: not known.
	Space func(VolumeID) (total, free uint64)
	// Fenced is called when this front-end's writer of a volume was fenced:
	// the locks of its clients there are gone. It must not block. nil: not told.
	Fenced func(VolumeID)
	Logger *slog.Logger

	CacheBytes int64 // blob cache; 0: 256 MiB
	HeldFile   int64 // unstable bytes held of one file; 0: 64 MiB
	HeldTotal  int64 // unstable bytes held in all; 0: 1 GiB
	ReadAhead  int64 // bytes read ahead of a sequential reader; 0: 8 MiB, below 0: none

	HoldFor      time.Duration // how long unstable data is held at most; 0: 5 s
	TouchEvery   time.Duration // how often access times are committed; 0: 10 s
	ReleaseEvery time.Duration // how often unlinked files are let go, and the janitor looks; 0: 1 s
	Stale        time.Duration // how old a relaxed read may be at most; 0: 2 s
}

func (c Config) withDefaults() Config {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.CacheBytes, 256<<20)
	def(&c.HeldFile, 64<<20)
	def(&c.HeldTotal, 1<<30)
	def(&c.ReadAhead, 8<<20)
	dur(&c.HoldFor, 5*time.Second)
	dur(&c.TouchEvery, 10*time.Second)
	dur(&c.ReleaseEvery, time.Second)
	dur(&c.Stale, 2*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
