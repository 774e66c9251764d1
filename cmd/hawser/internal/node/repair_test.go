package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/datastore/collect"
	"github.com/hawserfs/hawser/nfsd/client"
)

// A testCluster is nodes in this process, that make copies anew after two
// seconds.
type testCluster struct {
	t     *testing.T
	confs []conf.Config
	nodes []*testNode // nil: stopped
}

func startCluster(t *testing.T, n int, change func(i int, c *conf.Config)) *testCluster {
	t.Helper()
	x := &testCluster{t: t}
	for i := range n {
		c := config(t, fmt.Sprintf("n%d", i+1))
		c.Store.FreeDelay = time.Second
		c.Repair.After = 2 * time.Second
		if change != nil {
			change(i, &c)
		}
		x.confs = append(x.confs, c)
		x.nodes = append(x.nodes, start(t, c))
	}
	if err := x.nodes[0].Init(within(t), admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	for _, m := range x.nodes[1:] {
		if err := m.Join(within(t), admin.JoinRequest{Address: x.confs[0].Listen.Peer}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all stores are in sets", func() bool {
		seen := map[cluster.StoreID]bool{}
		for _, s := range x.sets(x.nodes[0]) {
			if s.State == volume.Writable && len(s.Members) == min(3, n) {
				for _, m := range s.Members {
					seen[m] = true
				}
			}
		}
		return len(seen) == n
	})
	return x
}

func (x *testCluster) sets(n *testNode) []volume.ReplicaSet {
	v, err := n.member.Volume(1)
	if err != nil {
		return nil
	}
	return v.View().ReplicaSets()
}

// storeOf returns the number of a node's store.
func (x *testCluster) storeOf(name string) cluster.StoreID {
	x.t.Helper()
	for _, n := range x.nodes {
		if n == nil {
			continue
		}
		r, err := n.member.Registry()
		if err != nil {
			x.t.Fatal(err)
		}
		for _, s := range r.Stores() {
			if string(s.Node) == name {
				return s.ID
			}
		}
	}
	x.t.Fatalf("no store of %s", name)
	return 0
}

// whole waits until every set with blobs has three members, none of those that
// it must not have, is writable, and every copy is right.
func (x *testCluster) whole(n *testNode, not ...cluster.StoreID) {
	x.t.Helper()
	why := ""
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if why = x.lacks(n, not...); why == "" {
			break
		}
		if time.Now().After(end) {
			st, err := n.RepairStatus(within(x.t))
			x.t.Fatalf("%s: not within 60 s; repair: %+v, %v", why, st, err)
		}
	}
	if sum := n.clean(); sum.Blobs == 0 || sum.Copies < 3*sum.Blobs {
		x.t.Errorf("checked: %+v", sum)
	}
}

func (x *testCluster) lacks(n *testNode, not ...cluster.StoreID) string {
	v, err := n.member.Volume(1)
	if err != nil {
		return err.Error()
	}
	for _, s := range (repaired{v}).Sets() {
		if !s.Used {
			continue
		}
		if len(s.Members) != 3 || s.State != 0 {
			return fmt.Sprintf("set %+v", s)
		}
		for _, m := range s.Members {
			for _, id := range not {
				if m == id {
					return fmt.Sprintf("set %+v has member %d", s, id)
				}
			}
		}
	}
	return ""
}

// load writes files until it is stopped, and reads each back.
func (x *testCluster) load(n *testNode) (stop func()) {
	c := n.mount()
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		dir, err := c.Walk(within(x.t), "/main")
		if err != nil {
			x.t.Error(err)
			return
		}
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			name := fmt.Sprintf("load%d", i%20)
			_, _ = c.Remove(within(x.t), dir, name)
			p := content(uint64(i), 300_000)
			put(x.t, c, dir, name, p)
			if got := get(x.t, c, "/main/"+name); string(got) != string(p) {
				x.t.Errorf("%s is wrong", name)
			}
		}
	}()
	return func() {
		close(end)
		<-done
		if err := c.Close(within(x.t)); err != nil {
			x.t.Error(err)
		}
	}
}

// TestRepairNode: nodes that are gone for good, one after the other, leave three
// copies behind, made anew by themselves while clients work; a node that comes
// back keeps what is right and gives the rest up.
func TestRepairNode(t *testing.T) {
	x := startCluster(t, 5, nil)
	n := x.nodes[0]
	n.use(func(c *client.Client) {
		dir, err := c.Walk(within(t), "/main")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 12 {
			put(t, c, dir, fmt.Sprint("f", i), content(uint64(i), 1<<20))
		}
		// Chance says where blobs go: the node that will come back must have some.
		back := x.storeOf(x.confs[4].Node.Name)
		for i := 0; ; i++ {
			copies, err := n.data.List(within(t), back, 1, cluster.BlobKey{Group: 1}, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(copies) > 0 {
				break
			}
			put(t, c, dir, fmt.Sprint("more", i), content(uint64(100+i), 1<<20))
		}
	})
	x.whole(n)
	stop := x.load(n)
	var gone []cluster.StoreID
	for _, i := range []int{4, 3} {
		gone = append(gone, x.storeOf(x.confs[i].Node.Name))
		x.nodes[i].stop()
		x.nodes[i] = nil
		eventually(t, "it is taken for lost", func() bool {
			views, _ := n.member.StoreViews(x.confs[0].Repair.After)
			for _, v := range views {
				if v.ID == gone[len(gone)-1] {
					return v.Lost
				}
			}
			return false
		})
		x.whole(n, gone...)
	}
	stop()
	list, err := n.RepairStatus(within(t))
	if err != nil || len(list) != 1 || list[0].Error != "" {
		t.Errorf("%+v, %v", list, err)
	}

	// One comes back: what it has of sets that it is no member of any more goes.
	x.nodes[4] = start(t, x.confs[4])
	back := x.nodes[4]
	eventually(t, "it is up", func() bool { _, up := n.member.Addr(gone[0]); return up })
	v, err := n.member.Volume(1)
	if err != nil {
		t.Fatal(err)
	}
	back.serving()
	// The search for such copies begins after a minute; this one does now.
	o := collect.New(collect.Config{Group: 1, Volume: collected{v}, Stores: n.data})
	eventually(t, "what it has too much goes", func() bool { // once its sets are settled
		for done := false; !done; {
			if done, err = o.StepOrphans(t.Context(), gone[0]); err != nil {
				t.Fatal(err)
			}
		}
		return o.Counters().Moved > 0
	})
	eventually(t, "what it has is what it is to have", func() bool {
		infos, err := n.data.List(t.Context(), gone[0], 1, cluster.BlobKey{Group: 1}, 4000)
		if err != nil {
			return false
		}
		for _, c := range infos {
			if h, ok := (collected{v}).Home(c.Key.Blob); ok {
				member := false
				for _, id := range h.Members {
					member = member || id == gone[0]
				}
				if !member && h.Settled {
					return false
				}
			}
		}
		return true
	})
	x.whole(n, gone[1])
	n.use(func(c *client.Client) {
		for i := range 12 {
			if string(get(t, c, fmt.Sprint("/main/f", i))) != string(content(uint64(i), 1<<20)) {
				t.Errorf("f%d is wrong", i)
			}
		}
	})
}

// TestDrainNode: a node is emptied while it works, is not needed any more then,
// and is taken out; before, that is refused.
func TestDrainNode(t *testing.T) {
	x := startCluster(t, 4, nil)
	n := x.nodes[0]
	n.use(func(c *client.Client) { writeFiles(t, c, "/main") })
	id := x.storeOf("n4")
	stop := x.load(n)
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	eventually(t, "it has data", func() bool {
		for _, s := range x.sets(n) {
			for _, m := range s.Members {
				if m == id {
					return true
				}
			}
		}
		return false
	})
	if _, err := n.RemoveNode(within(t), admin.NodeRequest{Node: "n4"}); err == nil || !strings.Contains(err.Error(), "have a copy there") {
		t.Errorf("a node with data was removed: %v", err)
	}
	if err := n.DrainNode(within(t), admin.NodeRequest{Node: "n4"}); err != nil {
		t.Fatal(err)
	}
	x.whole(n, id)
	stop()
	stop = nil
	eventually(t, "nothing is put there", func() bool {
		for _, s := range x.sets(n) {
			if s.State == volume.Writable {
				for _, m := range s.Members {
					if m == id {
						return false
					}
				}
			}
		}
		return true
	})
	if c, err := n.SafeToStop(within(t), "n4"); err != nil || len(c.Reasons) > 0 {
		t.Errorf("an empty node is needed: %v, %v", c, err)
	}
	if _, err := n.RemoveNode(within(t), admin.NodeRequest{Node: "n4"}); err != nil {
		t.Fatal(err)
	}
	x.nodes[3].stop()
	x.nodes[3] = nil
	eventually(t, "the groups go on without it", func() bool {
		for _, g := range n.member.Status().Groups {
			voters := 0
			for _, m := range g.Members {
				if m.Node == "n4" {
					return false
				}
				if m.Voter {
					voters++
				}
			}
			if voters != 3 {
				return false
			}
		}
		return true
	})
	n.use(func(c *client.Client) { readFiles(t, c, "/main") })

	// Of three nodes one may stop, and not a second one.
	if c, err := n.SafeToStop(within(t), "n2"); err != nil || len(c.Reasons) > 0 {
		t.Errorf("one of three: %v, %v", c, err)
	}
	x.nodes[1].stop()
	x.nodes[1] = nil
	eventually(t, "a second one is needed", func() bool {
		c, err := n.SafeToStop(within(t), "n3")
		return err == nil && strings.Contains(strings.Join(c.Reasons, ";"), "lose its majority")
	})
	if _, err := n.SafeToStop(within(t), "n9"); err == nil {
		t.Error("a node that there is not")
	}
	if _, err := n.RemoveNode(within(t), admin.NodeRequest{Node: "n3"}); err == nil {
		t.Error("the majority was removed")
	}
}

// TestMoveDisk: a disk of two is emptied and taken out; new ones get their
// share; a rack that is set moves what must move.
func TestMoveDisks(t *testing.T) {
	x := startCluster(t, 4, func(i int, c *conf.Config) {
		if i == 3 {
			c.Node.Rack = "b"
		} else {
			c.Node.Rack = fmt.Sprint("a", i)
		}
	})
	n := x.nodes[0]
	n.use(func(c *client.Client) {
		dir, err := c.Walk(within(t), "/main")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			put(t, c, dir, fmt.Sprint("f", i), content(uint64(i), 3<<20))
		}
	})
	x.whole(n)
	moved := x.storeOf("n2")
	if _, err := n.RemoveDisk(within(t), admin.DiskRequest{Store: moved}); err == nil {
		t.Error("a disk with data was removed")
	}
	if err := n.DrainDisk(within(t), admin.DiskRequest{Store: moved}); err != nil {
		t.Fatal(err)
	}
	x.whole(n, moved)
	if err := n.DrainDisk(within(t), admin.DiskRequest{Store: moved, Undo: true}); err != nil {
		t.Fatal(err)
	}
	before, err := n.Rebalance(within(t), admin.RebalanceRequest{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("to be moved: %+v", before)
	if err := n.DrainDisk(within(t), admin.DiskRequest{Store: moved}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it can be removed", func() bool {
		_, err := n.RemoveDisk(within(t), admin.DiskRequest{Store: moved})
		return err == nil
	})
	if err := n.DrainDisk(within(t), admin.DiskRequest{Store: moved, Undo: true}); err == nil {
		t.Error("a disk that was removed is drained")
	}
	if _, err := n.RemoveDisk(within(t), admin.DiskRequest{Store: 99}); err == nil || errors.Is(err, cluster.EAGAIN) {
		t.Errorf("a disk that there is not: %v", err)
	}
	x.whole(n, moved)
}
