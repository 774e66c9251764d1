package vfs_test

import (
	"context"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func now() cluster.Time { return cluster.Time(time.Now().UnixNano()) }

// blobs keeps blobs in memory.
type blobs struct {
	group *group
	mu    sync.Mutex
	data  map[cluster.BlobID][]byte
	fail  func() error
	puts  int
	gets  int
	coded int // gets of coded blobs
}

func (b *blobs) Put(_ context.Context, _ cluster.GroupID, _ uint8, alloc func() (cluster.BlobID, error), data [][]byte) (placement.Placed, []cluster.BlobID, error) {
	id, err := alloc()
	if err != nil {
		return placement.Placed{}, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		if err := b.fail(); err != nil {
			return placement.Placed{}, []cluster.BlobID{id}, err
		}
	}
	var all []byte
	for _, p := range data {
		all = append(all, p...)
	}
	if b.data[id] != nil {
		panic("a blob id is used twice")
	}
	b.data[id] = all
	b.puts++
	set, _ := volume.View{Reader: b.group.leader.Reader()}.ReplicaSet(1)
	return placement.Placed{
		Blob: id, Set: 1, Epoch: set.Epoch, Len: uint32(len(all)),
		CRC: crc32.Checksum(all, crc32.MakeTable(crc32.Castagnoli)),
	}, nil, nil
}

func (b *blobs) PutOwned(ctx context.Context, g cluster.GroupID, copies uint8, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placement.Placed, []cluster.BlobID, error) {
	defer release()
	return b.Put(ctx, g, copies, alloc, data)
}

// PutCoded puts a blob on a set of the code, if there is one.
func (b *blobs) PutCoded(ctx context.Context, g cluster.GroupID, code cluster.Code, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placement.Placed, []cluster.BlobID, error) {
	defer release()
	for _, s := range (volume.View{Reader: b.group.leader.Reader()}).ReplicaSets() {
		if s.Code == code && s.State == volume.Writable {
			placed, ids, err := b.Put(ctx, g, 1, alloc, data)
			placed.Set, placed.Epoch = s.ID, s.Epoch
			return placed, ids, err
		}
	}
	return placement.Placed{}, nil, cluster.ENOSPC
}

func (b *blobs) GetCoded(_ context.Context, _ cluster.GroupID, c placement.Coded, off uint32, dst []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coded++
	p, ok := b.data[c.Blob]
	if !ok || len(c.Members) != c.Code.Shards() {
		return cluster.ENOBLOB
	}
	if int(c.Len) != len(p) || int(off)+len(dst) > len(p) {
		return cluster.EINVAL
	}
	copy(dst, p[off:])
	return nil
}

func (b *blobs) Get(_ context.Context, _ cluster.GroupID, id cluster.BlobID, members []cluster.StoreID, off, n uint32) (*blob.Buf, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gets++
	p, ok := b.data[id]
	if !ok || len(members) != 1 {
		return nil, cluster.ENOBLOB
	}
	if int(off+n) > len(p) {
		return nil, cluster.EINVAL
	}
	return &blob.Buf{Bytes: p[off : off+n]}, nil
}

// An env is a System over one group.
type env struct {
	*testing.T
	*vfs.System
	group   *group
	blobs   *blobs
	stopped sync.Once
}

func newEnv(t *testing.T, class cluster.Class, change func(*vfs.Config)) *env {
	g := newGroup(t, class, 0)
	return open(t, g, &blobs{group: g, data: map[cluster.BlobID][]byte{}}, change)
}

// open starts a front-end of node a.
func open(t *testing.T, g *group, b *blobs, change func(*vfs.Config)) *env {
	cfg := vfs.Config{
		Key: vfs.HandleKey{1}, Node: "a", Placer: b, Blobs: b, Now: now, Nonce: rand.Uint64,
		CacheBytes: 16 << 20, ReleaseEvery: 10 * time.Millisecond, TouchEvery: 20 * time.Millisecond, HoldFor: time.Minute,
	}
	if os.Getenv("VFS_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&cfg)
	}
	s, err := vfs.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Mount(vfs.Mount{
		Volume: vfs.Volume{ID: 1, Name: "main", FSID: vfs.FSID{Major: 1, Minor: 1}},
		Group:  g, View: volume.View{Reader: g.machine.Reader()}, Subscribe: g.machine.Subscribe, Snapshot: g.machine.Snapshot,
	})
	e := &env{T: t, System: s, group: g, blobs: b}
	t.Cleanup(e.close)
	return e
}

// stop ends the front-end.
func (e *env) stop() {
	e.stopped.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			e.Log(err)
		}
	})
}

func (e *env) close() {
	e.stop()
	e.check()
}

// check verifies the invariants of the volume.
func (e *env) check() {
	v := volume.View{Reader: e.group.leader.Reader()}
	volume.Check(v, func(p volume.Problem) { e.Errorf("check: %v", p) })
}

var (
	strict  = cluster.Class{Consistency: cluster.Strict, Copies: 1}
	relaxed = cluster.Class{Consistency: cluster.Relaxed, Copies: 1}
)

func TestSuite(t *testing.T) {
	for name, class := range map[string]cluster.Class{"strict": strict, "relaxed": relaxed} {
		t.Run(name, func(t *testing.T) { vfstest.Run(t, newEnv(t, class, nil)) })
	}
}

// TestSuiteUnknownOutcomes: every third command is lost, or its result is.
func TestSuiteUnknownOutcomes(t *testing.T) {
	for name, class := range map[string]cluster.Class{"strict": strict, "relaxed": relaxed} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, class, nil)
			var n atomic.Int64
			e.group.faults(func([]byte) fault {
				switch n.Add(1) % 29 {
				case 7:
					return before
				case 19:
					return after
				}
				return none
			})
			vfstest.Run(t, e)
		})
	}
}

// TestSuiteSmallBounds: hardly any room, so that everything is flushed and
// loaded again all the time.
func TestSuiteSmallBounds(t *testing.T) {
	vfstest.Run(t, newEnv(t, relaxed, func(c *vfs.Config) {
		c.CacheBytes, c.HeldFile, c.HeldTotal, c.HoldFor = 1, 2<<20, 8<<20, time.Millisecond
	}))
}

// TestSuiteFollower: this node is behind the leader.
func TestSuiteFollower(t *testing.T) {
	for name, class := range map[string]cluster.Class{"strict": strict, "relaxed": relaxed} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, class, 200*time.Microsecond)
			vfstest.Run(t, open(t, g, &blobs{group: g, data: map[cluster.BlobID][]byte{}}, nil))
		})
	}
}
