package member

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// fails checks that an error tells what it should.
func fails(t *testing.T, what string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want an error with %q", what, err, text)
	}
}

func TestJoinRefused(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	idle := startNode(t, "n2", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 20*time.Second)
	begin := time.Now()
	fails(t, "no address", n.Join(ctx, "n2"), "HOST:PORT")
	fails(t, "itself", n.Join(ctx, n.addr), "this node itself")
	fails(t, "nobody there", n.Join(ctx, "127.0.0.1:1"), "listen.peer of a running member")
	fails(t, "no member", n.Join(ctx, idle.addr), "not a member of a cluster itself")
	fails(t, "no name", n.Init(ctx, "", cluster.Class{Copies: 3}), "needs a name")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("that took %v: a wrong address must be told at once", took)
	}
	if n.Member() {
		t.Error("a refused node became a member")
	}
	if err := n.Init(ctx, "c", cluster.Class{Copies: 3}); err != nil {
		t.Fatal(err)
	}
	fails(t, "a member", n.Join(ctx, idle.addr), `member of cluster "c" already`)
	if err := idle.Join(ctx, n.addr); err != nil {
		t.Fatal(err)
	}
	fails(t, "init of a member", idle.Init(ctx, "d", cluster.Class{Copies: 3}), "has joined a cluster already")
}

// TestInitResumes: Init goes on after a crash at each of its steps.
func TestInitResumes(t *testing.T) {
	crashes := map[string]func(ctx context.Context, n *testNode) error{
		"identity saved": func(context.Context, *testNode) error { return nil },
		"group 0 there":  func(_ context.Context, n *testNode) error { return n.openZero() },
		"cluster recorded": func(ctx context.Context, n *testNode) error {
			if err := n.openZero(); err != nil {
				return err
			}
			uuid, _ := parseUUID(n.id.Cluster)
			_, err := n.propose0(ctx, &registry.InitCluster{UUID: uuid, Name: "c", Key: [32]byte{1}})
			return err
		},
		"node recorded": func(ctx context.Context, n *testNode) error {
			if err := n.openZero(); err != nil {
				return err
			}
			uuid, _ := parseUUID(n.id.Cluster)
			if _, err := n.propose0(ctx, &registry.InitCluster{UUID: uuid, Name: "c", Key: [32]byte{1}}); err != nil {
				return err
			}
			return n.admit(ctx, n.beat())
		},
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
			ctx := within(t, 30*time.Second)
			n.mu.RLock()
			id := n.id
			n.mu.RUnlock()
			id.Cluster, id.Founder = newUUID(), true
			if err := errors.Join(n.become(id), crash(ctx, n)); err != nil {
				t.Fatal(err)
			}
			dir, addr := n.dir, n.addr
			n.stop(t)
			n = startNode(t, "n1", dir, addr)
			if name == "identity saved" {
				fails(t, "joining instead", n.Join(ctx, "127.0.0.1:1"), "begun a cluster of its own")
			}
			if err := n.Init(ctx, "c", cluster.Class{Copies: 3}); err != nil {
				t.Fatal(err)
			}
			if s := n.Status(); s.Name != "c" || s.UUID == "" || len(s.Nodes) != 1 || len(s.Volumes) != 1 {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// TestJoinResumes: Join goes on after a crash at each of its steps, and a node
// whose data folder was emptied in the middle is not taken for the old one.
func TestJoinResumes(t *testing.T) {
	for name, saved := range map[string]bool{"taken in": false, "identity saved": true} {
		t.Run(name, func(t *testing.T) {
			// A cluster of its own: of two nodes one votes, so that the first
			// can answer while the other is away; of three all vote.
			first := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
			ctx := within(t, 60*time.Second)
			if err := first.Init(ctx, "c", cluster.Class{Copies: 3}); err != nil {
				t.Fatal(err)
			}
			self := cluster.NodeID("n-" + name[:5])
			n := startNode(t, self, t.TempDir(), "127.0.0.1:0")
			answer, err := n.applyFor(ctx, first.addr)
			if err != nil {
				t.Fatal(err)
			}
			if saved {
				n.mu.RLock()
				id := n.id
				n.mu.RUnlock()
				id.Cluster, id.Peers = answer.Cluster, answer.Peers
				if err := n.become(id); err != nil {
					t.Fatal(err)
				}
			}
			dir, addr := n.dir, n.addr
			n.stop(t)
			n = startNode(t, self, dir, addr)
			if err := n.Join(ctx, first.addr); err != nil {
				t.Fatal(err)
			}
			if err := n.Ready(ctx); err != nil {
				t.Error(err)
			}
			n.stop(t)
			// The data folder is lost: the name stays the old node's.
			if err := os.Remove(filepath.Join(dir, "node.json")); err != nil {
				t.Fatal(err)
			}
			n = startNode(t, self, t.TempDir(), addr)
			err = n.Join(ctx, first.addr)
			if !errors.Is(err, cluster.EEXIST) {
				t.Errorf("an emptied node: got %v", err)
			}
			fails(t, "an emptied node", err, "another name")
		})
	}
}

// TestFullStore: a store that says that it is full is a problem until it says
// that it is not.
func TestFullStore(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	told := func() bool {
		return slices.ContainsFunc(n.Status().Problems, func(p string) bool {
			return strings.HasPrefix(p, "store 1 on node n1 is full: ")
		})
	}
	n.full.Store(true)
	eventually(t, "the full store is a problem", told)
	n.full.Store(false)
	eventually(t, "the store is not full any more", func() bool { return !told() })
}
