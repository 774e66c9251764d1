package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/datastore/segment"
	"github.com/hawserfs/hawser/nfsd/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLog() *slog.Logger {
	if os.Getenv("HAWSER_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// freeAddr returns a loopback address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// config is the configuration of a small node in a folder of its own.
func config(t *testing.T, name string) conf.Config {
	t.Helper()
	c := conf.Default()
	dir := t.TempDir()
	c.Node.Name, c.Node.Data = name, filepath.Join(dir, "data")
	c.Node.Disks = []string{filepath.Join(dir, "disk")}
	c.Listen.Peer = freeAddr(t)
	c.Listen.Advertise = c.Listen.Peer
	c.Listen.NFS = []string{freeAddr(t)}
	c.Listen.Admin = filepath.Join(dir, "s")
	c.Raft.HeartbeatTimeout = 200 * time.Millisecond
	c.Store.SegmentSize, c.Store.Reserve, c.Store.FreeDelay = 16<<20, 16<<20, time.Hour
	c.Cache.Data, c.Cache.Metadata, c.Cache.Dirty = 16<<20, 16<<20, 16<<20
	c.Health.TakeoverAfter = 500 * time.Millisecond
	c.Health.DownAfter = time.Second
	if err := c.CheckFolders(); err != nil {
		t.Fatal(err)
	}
	return c
}

// A testNode is a node in this process.
type testNode struct {
	*Node
	*admin.Client
	t *testing.T
}

func start(t *testing.T, c conf.Config) *testNode {
	t.Helper()
	n, err := Start(c, "test", testLog())
	if err != nil {
		t.Fatal(err)
	}
	x := &testNode{n, admin.Dial(c.Listen.Admin), t}
	t.Cleanup(x.stop)
	return x
}

func (n *testNode) stop() {
	if n.Node == nil {
		return
	}
	if err := n.Close(); err != nil {
		n.t.Error(err)
	}
	n.Node = nil
}

// serving waits until the node serves NFS.
func (n *testNode) serving() {
	n.t.Helper()
	eventually(n.t, "the node serves", func() bool {
		st, err := n.Status(n.t.Context())
		return err == nil && len(st.Serving) > 0
	})
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// mount returns an NFS client of the node.
func (n *testNode) mount() *client.Client {
	n.t.Helper()
	n.serving()
	c, err := client.Dial(within(n.t), n.conf.Listen.NFS[0], client.Options{Minor: 2})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// use mounts the node for fn.
func (n *testNode) use(fn func(c *client.Client)) {
	n.t.Helper()
	c := n.mount()
	fn(c)
	if err := c.Close(within(n.t)); err != nil {
		n.t.Error(err)
	}
}

func content(seed uint64, size int) []byte {
	p := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(p) // it never fails
	return p
}

func put(t *testing.T, c *client.Client, dir client.FH, name string, p []byte) {
	t.Helper()
	ctx := within(t)
	f, err := c.CreateFile(ctx, dir, name, 0o644)
	if err == nil {
		err = f.WriteAll(ctx, 0, p)
	}
	if err == nil {
		_, err = f.Commit(ctx)
	}
	if err == nil {
		err = f.Close(ctx)
	}
	if err != nil {
		t.Fatalf("writing %s: %v", name, err)
	}
}

func get(t *testing.T, c *client.Client, path string) []byte {
	t.Helper()
	ctx := within(t)
	fh, err := c.Walk(ctx, path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	f, _, err := c.OpenFH(ctx, fh, 1)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	p, err := f.ReadAll(ctx)
	if err = errors.Join(err, f.Close(ctx)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return p
}

// files are what the tests write: in the records and in blobs.
var files = map[string]int{"tiny": 10, "small": 10_000, "large": 5<<20 + 123}

func writeFiles(t *testing.T, c *client.Client, dir string) {
	t.Helper()
	fh, err := c.Walk(within(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range files {
		put(t, c, fh, name, content(uint64(size), size))
	}
}

func readFiles(t *testing.T, c *client.Client, dir string) {
	t.Helper()
	for name, size := range files {
		if !bytes.Equal(get(t, c, dir+"/"+name), content(uint64(size), size)) {
			t.Errorf("%s/%s is wrong", dir, name)
		}
	}
}

// found collects a check's problems.
type found []string

func (f *found) report(e admin.CheckEvent) {
	if e.Problem != "" {
		*f = append(*f, e.Problem)
	}
}

func (n *testNode) clean() admin.CheckSummary {
	n.t.Helper()
	var f found
	sum, err := n.Check(within(n.t), admin.CheckRequest{Data: true}, f.report)
	if err != nil || len(f) > 0 || sum.Problems > 0 {
		n.t.Fatalf("check: %v, %+v, %q", err, sum, f)
	}
	return sum
}

// offlineCheck checks a stopped node.
func offlineCheck(t *testing.T, data bool, configs ...conf.Config) (admin.CheckSummary, found) {
	t.Helper()
	var f found
	sum, err := CheckOffline(within(t), configs, admin.CheckRequest{Data: data}, f.report)
	if err != nil {
		t.Fatal(err)
	}
	if int(sum.Problems) != len(f) {
		t.Errorf("%d problems reported, %d counted", len(f), sum.Problems)
	}
	return sum, f
}

// TestOneNode is the life of a node alone: made, used, stopped, damaged.
func TestOneNode(t *testing.T) {
	conf := config(t, "n1")
	n := start(t, conf)
	ctx := within(t)
	if _, err := n.Volumes(ctx); err == nil || err.Error() != member.ErrNotMember.Error() {
		t.Errorf("volumes of a node without a cluster: %v", err)
	}
	if err := n.Init(ctx, admin.InitRequest{Name: "c", Class: admin.Class{Copies: 4}}); err == nil {
		t.Error("four copies were taken")
	}
	if err := n.Init(ctx, admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	if v, err := n.CreateVolume(ctx, admin.Volume{Name: "scratch", Consistency: "relaxed", Copies: 1}); err != nil || v.Consistency != "relaxed" {
		t.Errorf("got %+v, %v", v, err)
	}
	if _, err := n.CreateVolume(ctx, admin.Volume{Name: "scratch"}); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second volume of the name: %v", err)
	}
	for _, x := range []struct {
		class admin.Class
		want  string
	}{
		{admin.Class{Path: "/main", Copies: 2}, "/main strict 2"},
		{admin.Class{Path: "main/", Consistency: "relaxed"}, "main/ relaxed 2"},
		{admin.Class{Path: "/main", Consistency: "strict", Copies: 1}, "/main strict 1"},
		{admin.Class{Path: "/none", Copies: 1}, `there is no volume "none"`},
		{admin.Class{Path: "/main/a/b", Copies: 1}, "there is no /main/a"},
		{admin.Class{Path: "/", Copies: 1}, "begins with a volume's name"},
		{admin.Class{Path: "/main", Consistency: "loose"}, "strict or relaxed"},
	} {
		got, err := n.SetClass(ctx, x.class)
		if s := fmt.Sprint(got.Path, " ", got.Consistency, " ", got.Copies); err == nil && s != x.want || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: got %s, %v, want %s", x.class, s, err, x.want)
		}
	}
	if list, err := n.Volumes(ctx); err != nil || len(list) != 2 || list[0].Copies != 1 {
		t.Errorf("a volume's class is its root's: got %+v, %v", list, err)
	}
	n.use(func(c *client.Client) {
		writeFiles(t, c, "/main")
		writeFiles(t, c, "/scratch")
		readFiles(t, c, "/main")
	})
	if _, err := n.SetClass(ctx, admin.Class{Path: "/main/tiny", Copies: 1}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file's class: %v", err)
	}
	sum := n.clean()
	if sum.Volumes != 2 || sum.Inodes != 8 || sum.Blobs == 0 || sum.Copies != sum.Blobs && len(sum.Skipped) == 0 {
		t.Errorf("the check looked at %+v", sum)
	}

	if _, err := Start(conf, "test", testLog()); err == nil || !strings.Contains(err.Error(), "in use by another hawser process") {
		t.Errorf("a second server in the folder: %v", err)
	}
	if _, err := CheckOffline(ctx, n.configs(), admin.CheckRequest{}, nil); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("an offline check of a running node: %v", err)
	}

	n.stop()
	if sum, f := offlineCheck(t, true, conf); len(f) > 0 || sum.Volumes != 2 {
		t.Errorf("offline: %+v, %q", sum, f)
	}
	n = start(t, conf)
	n.use(func(c *client.Client) {
		readFiles(t, c, "/main")
		readFiles(t, c, "/scratch")
		root, err := c.Walk(within(t), "/scratch")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Remove(within(t), root, "large"); err != nil {
			t.Fatal(err)
		}
	})
	// Freed blobs are kept for an hour: copies that no file uses.
	eventually(t, "copies that no file uses", func() bool { return n.clean().Unused > 0 })
	n.stop()

	t.Run("a damaged copy", func(t *testing.T) {
		undo := flip(t, conf)
		if _, f := offlineCheck(t, false, conf); len(f) > 0 {
			t.Errorf("without --data: %q", f)
		}
		sum, f := offlineCheck(t, true, conf)
		if len(f) != 1 || !strings.Contains(f[0], "volume main: blob ") || !strings.Contains(f[0], "store 1 has a copy that can't be read: ") {
			t.Errorf("got %+v, %q", sum, f)
		}
		n := start(t, conf)
		n.serving()
		var live found
		if sum, err := n.Check(within(t), admin.CheckRequest{Data: true}, live.report); err != nil || sum.Problems != 1 || live[0] != f[0] {
			t.Errorf("online: %v, %+v, %q", err, sum, live)
		}
		n.stop()
		undo()
		if _, f := offlineCheck(t, true, conf); len(f) > 0 {
			t.Errorf("mended: %q", f)
		}
	})

	t.Run("a missing disk", func(t *testing.T) {
		c := conf
		c.Node.Disks = []string{filepath.Join(t.TempDir(), "disk")}
		sum, f := offlineCheck(t, true, c)
		if len(f) > 0 || sum.Copies != 0 || fmt.Sprint(sum.Skipped) != "[1]" {
			t.Errorf("got %+v, %q", sum, f)
		}
		if _, err := os.Stat(c.Node.Disks[0]); err == nil {
			t.Error("the check made a store")
		}
	})

	t.Run("a missing copy", func(t *testing.T) {
		s, err := segment.Open(conf.Node.Disks[0], segment.Options{SegmentSize: int64(conf.Store.SegmentSize), Reserve: uint64(conf.Store.Reserve)})
		if err != nil {
			t.Fatal(err)
		}
		infos, err := s.List(1, cluster.BlobKey{}, 10)
		if err == nil && len(infos) > 0 {
			err = s.Delete(within(t), []cluster.BlobKey{infos[0].Key})
		}
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		_, f := offlineCheck(t, false, conf)
		if len(f) != 1 || !strings.Contains(f[0], infos[0].Key.Blob.String()+" ") || !strings.HasSuffix(f[0], "store 1 has no copy") {
			t.Errorf("got %q", f)
		}
	})
}

func (n *testNode) configs() []conf.Config { return []conf.Config{n.conf} }

// flip changes a byte in the middle of the file "large" of the volume main,
// where the disk has it.
func flip(t *testing.T, c conf.Config) (undo func()) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(c.Node.Disks[0], "seg-*"))
	if err != nil {
		t.Fatal(err)
	}
	size := files["large"]
	want := content(uint64(size), size)[1<<20 : 1<<20+64]
	for _, name := range segments {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(text, want)
		if at < 0 {
			continue
		}
		write := func(b byte) {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte{b}, int64(at))
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		write(text[at] ^ 1)
		return func() { write(text[at]) }
	}
	t.Fatal("no segment has the file")
	return nil
}

// TestPortInUse: a node that can't serve NFS says so, and serves when it can.
func TestPortInUse(t *testing.T) {
	conf := config(t, "n1")
	ln, err := net.Listen("tcp", conf.Listen.NFS[0])
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, conf)
	if err := n.Init(within(t), admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status says why the node does not serve", func() bool {
		st, err := n.Status(within(t))
		return err == nil && len(st.Cluster.Problems) > 0 && strings.Contains(st.Cluster.Problems[0], "address already in use")
	})
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	n.serving()
	if st, err := n.Status(within(t)); err != nil || len(st.Cluster.Problems) > 0 {
		t.Errorf("got %q, %v", st.Cluster.Problems, err)
	}

	other := config(t, "n2")
	other.Listen.Peer = conf.Listen.Peer
	if _, err := Start(other, "test", testLog()); err == nil || !strings.Contains(err.Error(), "listen.peer") {
		t.Errorf("a peer port in use: %v", err)
	}
	other.Listen.Peer, other.Listen.Admin = freeAddr(t), conf.Listen.Admin
	if _, err := Start(other, "test", testLog()); err == nil || !strings.Contains(err.Error(), "admin socket") {
		t.Errorf("an admin socket in use: %v", err)
	}
}

// TestForeignDisk: a disk of another cluster is not written to, and the status
// says so.
func TestForeignDisk(t *testing.T) {
	conf := config(t, "n1")
	s, err := segment.Open(conf.Node.Disks[0], segment.Options{SegmentSize: int64(conf.Store.SegmentSize), Reserve: uint64(conf.Store.Reserve)})
	if err == nil {
		err = errors.Join(s.SetClusterID("another"), s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, conf)
	if err := n.Init(within(t), admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status says that the disk is another cluster's", func() bool {
		st, err := n.Status(within(t))
		return err == nil && len(st.Cluster.Problems) > 0 && strings.Contains(strings.Join(st.Cluster.Problems, "\n"), `belongs to cluster "another"`)
	})
}

// TestThreeNodes: a check looks at the stores of all nodes that are up, and
// says which it has not.
// copiesOn counts the copies that stores should hold. On a busy machine a write
// may have gone to a set of two, so that it is not the same for every blob.
func copiesOn(n *Node, stores ...cluster.StoreID) (copies uint64) {
	for _, v := range n.member.Volumes() {
		for _, set := range v.View().ReplicaSets() {
			v.View().SetBlobs(set.ID, 0, func(cluster.BlobID) bool {
				for _, m := range set.Members {
					if slices.Contains(stores, m) {
						copies++
					}
				}
				return true
			})
		}
	}
	return copies
}

func TestThreeNodes(t *testing.T) {
	var configs []conf.Config
	var nodes []*testNode
	for i := 1; i <= 3; i++ {
		c := config(t, fmt.Sprintf("n%d", i))
		configs, nodes = append(configs, c), append(nodes, start(t, c))
	}
	if err := nodes[0].Init(within(t), admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	if err := nodes[2].Join(within(t), admin.JoinRequest{Address: configs[1].Listen.Peer}); err == nil || !strings.Contains(err.Error(), "not a member of a cluster itself") {
		t.Errorf("joining through a node that is no member: %v", err)
	}
	for i := 1; i < 3; i++ {
		if err := nodes[i].Join(within(t), admin.JoinRequest{Address: configs[i-1].Listen.Peer}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all is well", func() bool {
		st, err := nodes[2].Status(within(t))
		return err == nil && len(st.Cluster.Problems) == 0 && len(st.Cluster.Stores) == 3 && st.Cluster.Volumes[0].Sets.Healthy > 3
	})
	nodes[1].use(func(c *client.Client) { writeFiles(t, c, "/main") })
	nodes[2].use(func(c *client.Client) { readFiles(t, c, "/main") })
	// A slow machine's heartbeats may be late.
	var sum admin.CheckSummary
	eventually(t, "all stores are looked at", func() bool {
		sum = nodes[0].clean()
		return sum.Copies == copiesOn(nodes[0].Node, 1, 2, 3) && sum.Blobs > 0 && len(sum.Skipped) == 0
	})

	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t))
		defer cancel()
		var f found
		_, err := (&backend{nodes[0].Node}).Check(ctx, admin.CheckRequest{Data: true}, func(e admin.CheckEvent) {
			cancel()
			f.report(e)
		})
		if !errors.Is(err, context.Canceled) || len(f) > 0 {
			t.Errorf("got %v, %q", err, f)
		}
	})

	nodes[2].stop()
	eventually(t, "the store of the stopped node alone is not looked at", func() bool {
		sum = nodes[0].clean()
		return fmt.Sprint(sum.Skipped) == "[3]" && sum.Copies == copiesOn(nodes[0].Node, 1, 2)
	})
	nodes[0].use(func(c *client.Client) { readFiles(t, c, "/main") })
	second, all := copiesOn(nodes[0].Node, 2), copiesOn(nodes[0].Node, 1, 2, 3)
	nodes[0].stop()
	nodes[1].stop()
	// One node's data is enough for the state; the copies of the others are not looked at.
	sum, f := offlineCheck(t, true, configs[1])
	if len(f) > 0 || sum.Copies != second || len(sum.Skipped) != 2 {
		t.Errorf("offline, one node: %+v, %q", sum, f)
	}
	if sum, f = offlineCheck(t, true, configs...); len(f) > 0 || sum.Copies != all || len(sum.Skipped) > 0 {
		t.Errorf("offline, all nodes: %+v, %q", sum, f)
	}
}
