package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/nfsd/client"
)

// three starts a cluster of three nodes with some files.
func three(t *testing.T, change func(*conf.Config)) (nodes []*testNode) {
	t.Helper()
	for i := 1; i <= 3; i++ {
		c := config(t, fmt.Sprintf("n%d", i))
		change(&c)
		nodes = append(nodes, start(t, c))
	}
	if err := nodes[0].Init(within(t), admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		if err := nodes[i].Join(within(t), admin.JoinRequest{Address: nodes[0].conf.Listen.Peer}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all is well", func() bool {
		st, err := nodes[2].Status(within(t))
		return err == nil && len(st.Cluster.Problems) == 0 && len(st.Cluster.Stores) == 3 && st.Cluster.Volumes[0].Sets.Healthy > 3
	})
	nodes[1].use(func(c *client.Client) { writeFiles(t, c, "/main") })
	return nodes
}

// storeOf returns the number of a node's store.
func (n *testNode) storeOf() cluster.StoreID {
	n.t.Helper()
	ids := n.disks.server.Stores()
	if len(ids) != 1 {
		n.t.Fatalf("the node has the stores %v", ids)
	}
	return ids[0]
}

func (n *testNode) scrubNow(req admin.ScrubRequest) (admin.ScrubSummary, []string) {
	n.t.Helper()
	var problems []string
	sum, err := n.Client.Scrub(within(n.t), req, func(e admin.ScrubEvent) {
		if e.Problem != "" {
			problems = append(problems, e.Problem)
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return sum, problems
}

// lose deletes the copies that a node's store has of a file.
func (n *testNode) lose(path string) (lost int) {
	n.t.Helper()
	f, err := n.File(within(n.t), path, false)
	if err != nil {
		n.t.Fatal(err)
	}
	v := n.member.Volumes()[0]
	for _, id := range blobIDs(n, path) {
		if err := n.disks.stores[0].Delete(within(n.t), []cluster.BlobKey{{Group: v.Info.ID, Blob: id}}); err != nil {
			n.t.Fatal(err)
		}
		lost++
	}
	if lost != len(f.Blobs) || lost == 0 {
		n.t.Fatalf("%s has %d blobs, %d were lost", path, len(f.Blobs), lost)
	}
	return lost
}

func blobIDs(n *testNode, path string) []cluster.BlobID {
	n.t.Helper()
	v, a, err := (&backend{n.Node}).find(within(n.t), path)
	if err != nil {
		n.t.Fatal(err)
	}
	return blobsOf(v.View(), a.Ino)
}

// TestScrub damages and loses copies of a cluster of three, and has them made
// whole: by the read that met them, and on demand.
func TestScrub(t *testing.T) {
	nodes := three(t, func(c *conf.Config) {
		if c.Node.Name == "n3" {
			c.Scrub.MaxErrors = 3
		}
	})
	blobs := len(blobIDs(nodes[1], "/main/large"))
	// A slow machine's heartbeats may be late: then a node is down for a moment.
	whole := func(n *testNode) {
		t.Helper()
		eventually(t, "every copy is verified", func() bool {
			f, err := n.File(within(t), "/main/large", true)
			if err != nil || f.Health.Whole != blobs || f.Health.Degraded+f.Health.Lost > 0 {
				return false
			}
			for _, b := range f.Blobs {
				for _, c := range b.Copies {
					if c.Health != "verified" || c.Node == "" {
						t.Errorf("a copy of %s: %+v", b.Blob, c)
					}
				}
			}
			return true
		})
	}

	t.Run("a read that meets a damaged copy", func(t *testing.T) {
		whole(nodes[0])
		flip(t, nodes[1].conf)
		f, err := nodes[0].File(within(t), "/main/large", true)
		if err != nil || f.Health.Degraded != 1 {
			t.Errorf("%+v, %v", f.Health, err)
		}
		// That was a read: it is repaired by now, or soon.
		eventually(t, "the copy is whole", func() bool {
			f, err := nodes[2].File(within(t), "/main/large", true)
			return err == nil && f.Health.Whole == blobs
		})
		nodes[0].clean()
	})

	t.Run("a read that meets a missing copy", func(t *testing.T) {
		nodes[0].lose("/main/large")
		nodes[0].use(func(c *client.Client) { readFiles(t, c, "/main") })
		eventually(t, "the copies are there", func() bool {
			f, err := nodes[0].File(within(t), "/main/large", true)
			return err == nil && f.Health.Whole == blobs
		})
	})

	t.Run("another node's missing copy, met by a read", func(t *testing.T) {
		lost := nodes[1].lose("/main/large")
		for _, b := range blobIDs(nodes[0], "/main/large") {
			nodes[0].scrubs.report(problem(b, nodes[1].storeOf()))
		}
		eventually(t, "the copies are there", func() bool {
			f, err := nodes[0].File(within(t), "/main/large", true)
			return err == nil && f.Health.Whole == lost
		})
	})

	t.Run("on demand", func(t *testing.T) {
		for _, req := range []admin.ScrubRequest{
			{}, {Path: "/main"}, {Path: "/main/large"}, {Node: "n2"}, {Store: nodes[1].storeOf()},
		} {
			lost := nodes[1].lose("/main/large")
			var sum admin.ScrubSummary
			var problems []string
			eventually(t, "no node is taken for down", func() bool { // a slow machine's heartbeats may be late
				var again admin.ScrubSummary
				again, problems = nodes[2].scrubNow(req)
				sum.Add(again.Counts)
				sum.Skipped = again.Skipped
				return len(again.Skipped) == 0
			})
			if sum.Missing == 0 || sum.Missing > uint64(lost) || sum.Bad != 0 || sum.Repaired != sum.Missing || sum.Failed != 0 || len(problems) > 0 || len(sum.Skipped) > 0 {
				t.Errorf("%+v: %+v, %q", req, sum, problems)
			}
			eventually(t, "all is whole", func() bool {
				f, err := nodes[2].File(within(t), "/main/large", true)
				return err == nil && f.Health.Whole == lost
			})
		}
		// Where nobody reads: on the store that has not lost anything yet. A put that
		// was slow may have gone to the two others.
		if _, err := nodes[2].disks.stores[0].Stat(cluster.BlobKey{Group: 1, Blob: blobIDs(nodes[2], "/main/large")[1]}); err == nil {
			flip(t, nodes[2].conf)
			if sum, problems := nodes[1].scrubNow(admin.ScrubRequest{}); sum.Bad != 1 || sum.Repaired != 1 || len(problems) > 0 {
				t.Errorf("%+v, %q", sum, problems)
			}
		}
		whole(nodes[0])
		for _, req := range []admin.ScrubRequest{{Node: "n9"}, {Store: 99}, {Path: "/main/none"}, {Path: "/main", Node: "n1"}} {
			if _, err := nodes[0].Client.Scrub(within(t), req, func(admin.ScrubEvent) {}); err == nil {
				t.Errorf("%+v: no error", req)
			}
		}
	})

	t.Run("stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t))
		cancel()
		if _, err := (&backend{nodes[0].Node}).Scrub(ctx, admin.ScrubRequest{}, func(admin.ScrubEvent) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})

	t.Run("status", func(t *testing.T) {
		eventually(t, "every store has had a pass", func() bool {
			list, err := nodes[0].ScrubStatus(within(t))
			if err != nil || len(list) != 3 {
				t.Fatalf("%+v, %v", list, err)
			}
			for _, n := range list {
				if n.Error != "" || len(n.Stores) != 1 || n.Stores[0].State.Ended.IsZero() {
					return false
				}
			}
			return true
		})
	})

	t.Run("what can't be repaired is told of", func(t *testing.T) {
		copies := 0
		f, err := nodes[0].File(within(t), "/main/large", false)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range f.Blobs {
			copies += len(b.Copies)
		}
		for _, n := range nodes {
			n.lose("/main/large")
		}
		sum, problems := nodes[0].scrubNow(admin.ScrubRequest{Path: "/main/large"})
		if int(sum.Failed) != copies || len(problems) != copies || !strings.Contains(problems[0], "is missing, and could not be repaired") {
			t.Errorf("%+v, %q", sum, problems)
		}
		st, err := nodes[1].Status(within(t))
		if err != nil || !strings.Contains(strings.Join(st.Cluster.Problems, "\n"), "could not be repaired") {
			t.Errorf("status: %q, %v", st.Cluster.Problems, err)
		}
		f, err = nodes[0].File(within(t), "/main/large", false)
		if err != nil || f.Health.Lost != blobs || f.Blobs[0].Copies[0].Health != "missing" {
			t.Errorf("%+v, %v", f, err)
		}
	})

	t.Run("a disk with too many damaged copies is retired", func(t *testing.T) {
		w := nodes[2].disks.wear[0]
		if nodes[2].disks.stores[0].Failed() != nil {
			t.Fatal("it is retired already")
		}
		for n := range uint32(3) {
			w.damaged(cluster.BlobKey{Group: 1, Blob: cluster.MakeBlobID(1, 1000+n)}, cluster.ECORRUPT)
		}
		if nodes[2].disks.stores[0].Failed() == nil {
			t.Error("it is not retired")
		}
		eventually(t, "the cluster knows", func() bool {
			st, err := nodes[0].Status(within(t))
			return err == nil && strings.Contains(strings.Join(st.Cluster.Problems, "\n"), "has failed: its disk must be replaced")
		})
	})
}

// A pass goes on where it was when its node was stopped; a node that is down is
// named.
func TestScrubOfStoppedNodes(t *testing.T) {
	nodes := three(t, func(c *conf.Config) {})
	eventually(t, "the first pass is over", func() bool {
		st := nodes[2].scrubs.status()
		return len(st) == 1 && !st[0].State.Ended.IsZero()
	})
	began := nodes[2].scrubs.status()[0].State.Began
	c := nodes[2].conf
	nodes[2].stop()
	eventually(t, "the node is down", func() bool {
		_, up := nodes[0].member.Addr(3)
		return !up
	})
	sum, _ := nodes[0].scrubNow(admin.ScrubRequest{})
	if fmt.Sprint(sum.Skipped) != "[3]" || len(sum.Stores) != 2 {
		t.Errorf("%+v", sum)
	}
	list, err := nodes[0].ScrubStatus(within(t))
	if err != nil || list[2].Node != "n3" || list[2].Error == "" {
		t.Errorf("%+v, %v", list, err)
	}
	n := start(t, c)
	eventually(t, "its scrub is known again", func() bool { return len(n.scrubs.status()) == 1 })
	if st := n.scrubs.status()[0]; !st.State.Began.Equal(began) || st.Running {
		t.Errorf("after a restart the pass begins anew: %+v, it began at %v", st, began.Format(time.RFC3339Nano))
	}
}

func problem(b cluster.BlobID, id cluster.StoreID) placement.Problem {
	return placement.Problem{Group: 1, Blob: b, Store: id, Err: cluster.ENOBLOB}
}
