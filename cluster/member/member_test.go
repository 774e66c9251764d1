package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testNode is a node of a cluster in this process.
type testNode struct {
	*Node
	dir, addr, store string
	full             atomic.Bool // the store
	endpoint         *peer.Endpoint
}

func startNode(t *testing.T, name cluster.NodeID, dir, addr string) *testNode {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("HAWSER_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	ep, err := peer.Listen(peer.Config{Self: name, Listen: addr, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	n := &testNode{dir: dir, addr: ep.Addr().String(), endpoint: ep, store: fmt.Sprintf("%032x", name)}
	n.Node, err = Start(Config{
		Self: name, Dir: dir, Peer: ep, PeerAddr: n.addr, Roles: registry.AllRoles,
		Stores:           func() []StoreReport { return []StoreReport{{UUID: n.store, Capacity: 1 << 30, Full: n.full.Load()}} },
		HeartbeatTimeout: 200 * time.Millisecond, CacheBytes: 8 << 20,
		TakeoverAfter: 600 * time.Millisecond, DownAfter: time.Second, FenceAfter: 2 * time.Second, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t) })
	return n
}

func (n *testNode) stop(t *testing.T) {
	if n.Node == nil {
		return
	}
	if err := errors.Join(n.Close(), n.endpoint.Close()); err != nil {
		t.Error(err)
	}
	n.Node = nil
}

// within returns a context for a step of a test.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func TestSingleNode(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	if err := n.Ready(within(t, time.Second)); !errors.Is(err, ErrNotMember) {
		t.Fatalf("a new node is ready: %v", err)
	}
	if err := n.Init(within(t, 20*time.Second), "test", cluster.Class{Copies: 3}); err != nil {
		t.Fatal(err)
	}
	if err := n.Init(within(t, 20*time.Second), "test", cluster.Class{Copies: 3}); err == nil {
		t.Error("a second Init did not fail")
	}
	v, err := n.Volume(1)
	if err != nil || v.Info.Name != VolumeMain {
		t.Fatalf("got %+v, %v", v, err)
	}
	if _, err := n.CreateVolume(within(t, 10*time.Second), "scratch", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CreateVolume(within(t, 10*time.Second), "scratch", cluster.Class{Copies: 1}); !errors.Is(err, cluster.EEXIST) {
		t.Errorf("the same volume again: %v", err)
	}
	dir, addr := n.dir, n.addr
	n.stop(t)
	n = startNode(t, "n1", dir, addr)
	if err := n.Ready(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := len(n.Volumes()); got != 2 {
		t.Errorf("after a restart there are %d volumes, want 2", got)
	}
}

func TestThreeNodes(t *testing.T) {
	var nodes []*testNode
	for i := 1; i <= 3; i++ {
		nodes = append(nodes, startNode(t, cluster.NodeID(fmt.Sprintf("n%d", i)), t.TempDir(), "127.0.0.1:0"))
	}
	if err := nodes[0].Init(within(t, 20*time.Second), "test", cluster.Class{Copies: 3}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		// Through a node that may not lead.
		if err := nodes[i].Join(within(t, 20*time.Second), nodes[i-1].addr); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three voters in both groups, no problems", func() bool {
		for _, n := range nodes {
			s := n.Status()
			if len(s.Problems) > 0 || len(s.Nodes) != 3 || len(s.Stores) != 3 || len(s.Groups) != 2 {
				return false
			}
			for _, g := range s.Groups {
				voters := 0
				for _, m := range g.Members {
					if m.Voter {
						voters++
					}
				}
				if voters != 3 {
					return false
				}
			}
			v, err := n.Volume(1)
			if err != nil {
				return false
			}
			if !v.View().Formatted() {
				return false
			}
		}
		return true
	})

	t.Run("another node of the same name is refused", func(t *testing.T) {
		other := startNode(t, "n2", t.TempDir(), "127.0.0.1:0")
		if err := other.Join(within(t, 10*time.Second), nodes[0].addr); !errors.Is(err, cluster.EEXIST) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("a lost node is noticed, and its front-end is fenced", func(t *testing.T) {
		v, err := nodes[0].Volume(1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := propose(within(t, 10*time.Second), v.Group, &fsm.OpenWriter{Node: "n3", Nonce: 7}); err != nil {
			t.Fatal(err)
		}
		dir, addr := nodes[2].dir, nodes[2].addr
		nodes[2].stop(t)
		eventually(t, "its store is not written to", func() bool { _, up := nodes[0].Addr(3); return !up })
		eventually(t, "it is down", func() bool {
			r, err := nodes[0].Registry()
			n, ok := r.Node("n3")
			return err == nil && ok && n.State == registry.NodeDown
		})
		eventually(t, "its writer is fenced", func() bool {
			for _, w := range v.Machine.Writers() {
				if w.Node == "n3" && !w.Fenced {
					return false
				}
			}
			return true
		})
		nodes[2] = startNode(t, "n3", dir, addr)
		eventually(t, "it is up again", func() bool {
			r, err := nodes[0].Registry()
			n, ok := r.Node("n3")
			_, up := nodes[0].Addr(3)
			return err == nil && ok && n.State == registry.NodeUp && up
		})
	})
}
