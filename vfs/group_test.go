package vfs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A group stands for a Raft group: a leader, whose state machine decides the
// results, and this node's, which may lag behind.
type group struct {
	leader, machine *fsm.Machine

	mu    sync.Mutex // of the log
	index uint64
	log   chan cluster.Entry // to a machine that lags
	done  chan struct{}

	reads atomic.Int64 // agreed on
	fault atomic.Pointer[func(cmd []byte) fault]
	strip atomic.Bool // origins are taken out of commands

	tagged atomic.Int64 // commands with an origin
}

// A fault is what becomes of a command.
type fault int

const (
	none   fault = iota
	before       // it is lost
	after        // its result is lost
)

var errLost = errors.New("leadership lost")

func newMachine(t testing.TB) *fsm.Machine {
	m, err := fsm.Open(fsm.Options{Dir: "vol", FS: pebblevfs.NewMem(), Core: volume.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// newGroup returns a formatted volume. lag: this node is a follower, up to lag
// behind the leader.
func newGroup(t testing.TB, class cluster.Class, lag time.Duration) *group {
	g := &group{machine: newMachine(t)}
	g.leader = g.machine
	if lag > 0 {
		g.leader = newMachine(t)
		g.log = make(chan cluster.Entry, 1<<16)
		g.done = make(chan struct{})
		go func() {
			defer close(g.done)
			for e := range g.log {
				time.Sleep(time.Duration(rand.Int64N(int64(lag))))
				g.machine.Apply([]cluster.Entry{e})
			}
		}()
		t.Cleanup(func() {
			close(g.log)
			<-g.done
		})
	}
	g.do(t, volume.Format{HashKey: [16]byte{1, 2, 3}, Class: class, Mode: 0o755})
	g.do(t, volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{1}, Copies: 1}})
	return g
}

// do applies a command without a writer.
func (g *group) do(t testing.TB, b fsm.Body) []byte {
	t.Helper()
	_, result := g.apply(fsm.AppendCommand(nil, fsm.Envelope{Time: now()}, b))
	body, err := fsm.SplitResult(result)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func (g *group) apply(cmd []byte) (uint64, []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.index++
	e := cluster.Entry{Index: g.index, Term: 1, Command: cmd}
	r := g.leader.Apply([]cluster.Entry{e})
	if g.log != nil {
		g.log <- e
	}
	return g.index, r[0]
}

func (g *group) faults(fn func(cmd []byte) fault) { g.fault.Store(&fn) }

func (g *group) Propose(ctx context.Context, cmd []byte) (uint64, []byte, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	f := none
	if fn := g.fault.Load(); fn != nil {
		f = (*fn)(cmd)
	}
	if f == before {
		return 0, nil, errLost
	}
	if env, _, err := fsm.ParseCommand(cmd); err == nil && !env.Origin.IsZero() {
		g.tagged.Add(1)
	}
	if g.strip.Load() {
		cmd = strip(cmd)
	}
	index, result := g.apply(cmd)
	if f == after {
		return 0, nil, errLost
	}
	return index, result, nil
}

func (g *group) ReadIndex(context.Context) (uint64, error) {
	g.reads.Add(1)
	i, _ := g.leader.Applied()
	return i, nil
}

func (g *group) WaitApplied(ctx context.Context, index uint64) error {
	for g.Applied() < index {
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

func (g *group) Applied() uint64 {
	i, _ := g.machine.Applied()
	return i
}

func (g *group) IsLeader() bool { return true }
