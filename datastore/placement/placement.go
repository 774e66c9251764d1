package placement

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A SetInfo is a replica set that may be written to.
type SetInfo struct {
	ID      cluster.ReplicaSetID
	Epoch   uint32
	Members []cluster.StoreID
	Copies  uint8 // what the class asks for; there may be fewer members
	// Code, if it is one, says that member i gets shard i+1 of a blob.
	Code cluster.Code
}

// A Map says which sets there are and where stores are. Its methods are called
// for each blob: they must be quick, and safe for concurrent use.
type Map interface {
	// Sets returns the writable sets of a group for a number of copies, with
	// those of fewer members, too. The result is not changed afterwards.
	Sets(g cluster.GroupID, copies uint8) []SetInfo
	// CodedSets returns the writable sets of a group for a code. The result is
	// not changed afterwards.
	CodedSets(g cluster.GroupID, code cluster.Code) []SetInfo
	// Addr returns where a store is, and whether it is thought to be up.
	Addr(id cluster.StoreID) (addr string, up bool)
}

// A Client moves one copy; *blob.Client is one.
type Client interface {
	Local(id cluster.StoreID) bool
	Put(ctx context.Context, addr string, id cluster.StoreID, key cluster.BlobKey, meta segment.Meta, sums checksum.Sums, data [][]byte) (segment.Usage, error)
	Get(ctx context.Context, addr string, id cluster.StoreID, key cluster.BlobKey, off, n uint32) (*blob.Buf, error)
}

// Config is what a Placer and a Reader work with.
type Config struct {
	Map    Map
	Client Client
	// Hedge is how long a put or a get may take at least before a second one
	// is started: it is longer where most take long, so that slow disks do
	// not get more to do. 0: 200 ms.
	Hedge time.Duration
	// Suspect is how long a store that failed is only used where there is no
	// other. 0: 3 s.
	Suspect time.Duration
	// Timeout bounds the time that one copy may take. 0: 20 s.
	Timeout time.Duration
	// Attempts is how many sets one put tries at most. 0: 4.
	Attempts int
	// Report is called, if not nil, with each copy that was asked for and was
	// not there or was damaged. It must not block.
	Report func(Problem)
	// Rand returns a number in [0, n). nil: the runtime's generator.
	Rand   func(n int) int
	Logger *slog.Logger
}

// A Problem is a copy that a member should have and could not deliver.
type Problem struct {
	Group cluster.GroupID
	Blob  cluster.BlobID
	Store cluster.StoreID
	Err   error // wraps cluster.ENOBLOB, ECORRUPT or EIO
}

func (c Config) withDefaults() Config {
	if c.Hedge == 0 {
		c.Hedge = 200 * time.Millisecond
	}
	if c.Suspect == 0 {
		c.Suspect = 3 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	if c.Attempts == 0 {
		c.Attempts = 4
	}
	if c.Rand == nil {
		c.Rand = rand.IntN
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// A Placement puts and gets blobs. Its methods may be called concurrently.
// It is both the Placer and the Reader: they learn from each other which stores
// fail and which are near.
type Placement struct {
	cfg    Config
	stores stores
	puts   pace
	gets   pace
}

// New returns a Placement.
func New(cfg Config) *Placement {
	return &Placement{cfg: cfg.withDefaults()}
}

// Placed says where a blob was put.
type Placed struct {
	Blob  cluster.BlobID
	Set   cluster.ReplicaSetID
	Epoch uint32
	Len   uint32
	CRC   uint32 // crc32c of the whole
}
