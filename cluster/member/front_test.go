package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// A fakeFront is the part of a front-end that deals with identities: it takes
// over what is assigned to its node, and hands over what it is asked for.
type fakeFront struct {
	node   *testNode
	ctx    context.Context
	undo   []func()
	wg     sync.WaitGroup
	refuse atomic.Bool // to hand anything over
	before atomic.Pointer[func(registry.Identity)]

	mu       sync.Mutex
	serving  map[cluster.IdentityID]uint32 // epoch
	released []cluster.IdentityID
	resumed  int
}

func attach(t *testing.T, n *testNode) *fakeFront {
	t.Helper()
	f := &fakeFront{node: n, serving: map[cluster.IdentityID]uint32{}}
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	own, err := n.ClaimOwnIdentity(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if own.Floating() || own.Home != n.Self() || own.Node != n.Self() {
		t.Fatalf("its own identity is %+v", own)
	}
	f.undo = append(f.undo, n.OnRelease(f.release), n.OnIdentity(f.told), cancel)
	t.Cleanup(f.detach)
	return f
}

func (f *fakeFront) told(i registry.Identity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch, ok := f.serving[i.ID]; ok && epoch != i.Epoch {
		delete(f.serving, i.ID)
	}
	if i.Node != f.node.Self() || i.Retired || f.serving[i.ID] == i.Epoch {
		return
	}
	f.serving[i.ID] = i.Epoch
	f.wg.Go(func() {
		if before := f.before.Load(); before != nil {
			(*before)(i)
		}
		_ = f.node.Takeover(f.ctx, i) // it may be assigned anew meanwhile
	})
}

func (f *fakeFront) release(_ context.Context, i registry.Identity) (func(), error) {
	if f.refuse.Load() {
		return nil, errors.New("busy")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, i.ID)
	return func() { f.mu.Lock(); f.resumed++; f.mu.Unlock() }, nil
}

func (f *fakeFront) detach() {
	for _, undo := range f.undo {
		undo()
	}
	f.undo = nil
	f.wg.Wait()
}

// cluster3 is a cluster of three nodes, all of which vote.
func cluster3(t *testing.T) []*testNode {
	t.Helper()
	var nodes []*testNode
	for i := 1; i <= 3; i++ {
		nodes = append(nodes, startNode(t, cluster.NodeID(fmt.Sprintf("n%d", i)), t.TempDir(), "127.0.0.1:0"))
	}
	ctx := within(t, 60*time.Second)
	if err := nodes[0].Init(ctx, "test", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		if err := nodes[i].Join(ctx, nodes[0].addr); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three voters in every group", func() bool {
		for _, n := range nodes {
			for _, g := range n.Status().Groups {
				voters := 0
				for _, m := range g.Members {
					if m.Voter {
						voters++
					}
				}
				if voters != 3 || g.Leader == "" {
					return false
				}
			}
		}
		return true
	})
	return nodes
}

// identity returns an identity as a node has it.
func (n *testNode) identity(t *testing.T, id cluster.IdentityID) registry.Identity {
	t.Helper()
	r, err := n.Registry()
	if err != nil {
		t.Fatal(err)
	}
	i, _ := r.Identity(id)
	return i
}

func byName(nodes []*testNode, id cluster.NodeID) *testNode {
	for _, n := range nodes {
		if n.Node != nil && n.Self() == id {
			return n
		}
	}
	return nil
}

// leader0 returns the node that leads group 0, which every other one knows.
func leader0(t *testing.T, nodes []*testNode) (leader *testNode) {
	t.Helper()
	eventually(t, "group 0 has a leader", func() bool {
		leader = nil
		for _, n := range nodes {
			if n.Node == nil {
				continue
			}
			zero, err := n.group0()
			if err != nil {
				return false
			}
			id, ok := zero.group.Leader()
			l := byName(nodes, id)
			if !ok || l == nil || leader != nil && l != leader {
				return false
			}
			leader = l
		}
		return leader != nil
	})
	return leader
}

// cut takes a node off the others, as if its cable was: what it is told and what it
// asks is lost. It goes on running.
func (n *testNode) cut(t *testing.T) {
	t.Helper()
	if err := n.endpoint.Close(); err != nil {
		t.Fatal(err)
	}
}
