package vfs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs"
)

// A replica is a state machine on a disk that can crash.
type replica struct {
	fs *pebblevfs.MemFS
	m  *fsm.Machine
}

func openReplica(fs *pebblevfs.MemFS) (replica, error) {
	m, err := fsm.Open(fsm.Options{Dir: "vol", FS: fs, Core: volume.New(), CacheBytes: 1 << 20, MemTableBytes: 256 << 10})
	return replica{fs, m}, err
}

// A relay stands for a Raft group. Its log survives everything. The node's
// replica applies it command by command, the shadow in batches, later.
type relay struct {
	t   *testing.T
	rng *rand.Rand // used under mu

	mu           sync.Mutex
	log          []cluster.Entry // of index 1 and up
	node, shadow replica
	blobs        *blobs
	checkpoints  int
}

func newRelay(t *testing.T, seed uint64, class cluster.Class) *relay {
	g := &relay{t: t, rng: rand.New(rand.NewPCG(seed, 1))}
	for _, r := range []*replica{&g.node, &g.shadow} {
		var err error
		if *r, err = openReplica(pebblevfs.NewCrashableMem()); err != nil {
			t.Fatal(err)
		}
	}
	g.blobs = &blobs{data: map[cluster.BlobID][]byte{}, group: &group{leader: g.node.m}}
	for _, b := range []fsm.Body{
		volume.Format{HashKey: [16]byte{1, 2, 3}, Class: class, Mode: 0o755},
		volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{1}, Copies: 1}},
	} {
		if _, _, err := g.Propose(context.Background(), fsm.AppendCommand(nil, fsm.Envelope{Time: now()}, b)); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (g *relay) close() {
	for _, r := range []replica{g.node, g.shadow} {
		if err := r.m.Close(); err != nil {
			g.t.Error(err)
		}
	}
}

// serve starts a front-end on the node.
func (g *relay) serve(clock func() cluster.Time) *vfs.System {
	s, err := vfs.New(vfs.Config{
		Key: vfs.HandleKey{1}, Node: "a", Placer: g.blobs, Blobs: g.blobs, Now: clock, Nonce: rand.Uint64,
		CacheBytes: 1 << 20, ReleaseEvery: 5 * time.Millisecond, TouchEvery: 5 * time.Millisecond, HoldFor: 20 * time.Millisecond,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	m := g.node.m
	s.Mount(vfs.Mount{
		Volume: vfs.Volume{ID: 1, Name: "main", FSID: vfs.FSID{Major: 1, Minor: 1}},
		Group:  g, View: volume.View{Reader: m.Reader()}, Subscribe: m.Subscribe, Snapshot: m.Snapshot,
	})
	return s
}

func (g *relay) stop(s *vfs.System) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		g.t.Error(err)
	}
}

func (g *relay) Propose(_ context.Context, cmd []byte) (uint64, []byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := cluster.Entry{Index: uint64(len(g.log)) + 1, Term: 1, Command: slices.Clone(cmd)}
	g.log = append(g.log, e)
	return e.Index, g.node.m.Apply([]cluster.Entry{e})[0], nil
}

func (g *relay) ReadIndex(context.Context) (uint64, error) { return g.Applied(), nil }
func (g *relay) WaitApplied(context.Context, uint64) error { return nil }
func (g *relay) IsLeader() bool                            { return true }
func (g *relay) Applied() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, _ := g.node.m.Applied()
	return i
}

// replay has r apply the log up to index to, in random batches. mu is held.
func (g *relay) replay(r *replica, to uint64) {
	for at, _ := r.m.Applied(); at < to; at, _ = r.m.Applied() {
		n := 1 + g.rng.Uint64N(min(to-at, 40))
		r.m.Apply(g.log[at : at+n])
	}
}

// crashed returns what is left of r after a crash. mu is held.
func (g *relay) crashed(t *rapid.T, r replica) replica {
	fs := r.fs.CrashClone(pebblevfs.CrashCloneCfg{UnsyncedDataPercent: g.rng.IntN(101), RNG: g.rng})
	if err := r.m.Close(); err != nil {
		t.Fatal(err)
	}
	n, err := openReplica(fs)
	if err != nil {
		t.Fatalf("opening after a crash: %v", err)
	}
	return n
}

// crash has the node start from what a crash leaves. It serves nobody.
func (g *relay) crash(t *rapid.T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rng.IntN(2) == 0 {
		if _, _, err := g.node.m.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	g.node = g.crashed(t, g.node)
	g.replay(&g.node, uint64(len(g.log)))
	g.blobs.mu.Lock()
	g.blobs.group = &group{leader: g.node.m}
	g.blobs.mu.Unlock()
}

// checkpoint makes one of the node's state, in to's file system. mu is held.
func (g *relay) checkpoint(t *rapid.T, to *replica) string {
	g.checkpoints++
	dir := fmt.Sprintf("checkpoint-%d", g.checkpoints)
	if _, err := g.node.m.Checkpoint(dir); err != nil {
		t.Fatal(err)
	}
	if to.fs != g.node.fs {
		if ok, err := pebblevfs.Clone(g.node.fs, to.fs, dir, dir); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := g.node.fs.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// restore restores the node's state from its own checkpoint, while it serves.
func (g *relay) restore(t *rapid.T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.node.m.Restore(g.checkpoint(t, &g.node)); err != nil {
		t.Fatal(err)
	}
}

// shadowStep moves the shadow on: by the log, by a crash, or by a snapshot of
// the node's state.
func (g *relay) shadowStep(t *rapid.T) {
	step := rapid.IntRange(0, 5).Draw(t, "shadow")
	g.mu.Lock()
	defer g.mu.Unlock()
	end := uint64(len(g.log))
	switch step {
	case 0:
		if err := g.shadow.m.Restore(g.checkpoint(t, &g.shadow)); err != nil {
			t.Fatal(err)
		}
		if at, _ := g.shadow.m.Applied(); at != end {
			t.Fatalf("a snapshot of index %d restores %d", end, at)
		}
	case 1:
		flushed, _, err := g.shadow.m.Flush()
		if err != nil {
			t.Fatal(err)
		}
		at, _ := g.shadow.m.Applied()
		g.replay(&g.shadow, at+(end-at)/2)
		g.shadow = g.crashed(t, g.shadow)
		if at, _ := g.shadow.m.Applied(); at < flushed {
			t.Fatalf("index %d after a crash, %d was flushed", at, flushed)
		}
	default:
		at, _ := g.shadow.m.Applied()
		g.replay(&g.shadow, at+(end-at)/uint64(step))
	}
}

// compare compares the state that both replicas come to, and verifies it.
func (g *relay) compare(t *rapid.T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replay(&g.shadow, uint64(len(g.log)))
	if fsm.StateHash(g.node.m.Reader()) != fsm.StateHash(g.shadow.m.Reader()) {
		t.Fatalf("the same log of %d commands makes two states", len(g.log))
	}
	volume.Check(volume.View{Reader: g.node.m.Reader()}, func(p volume.Problem) { t.Errorf("check: %v", p) })
}
