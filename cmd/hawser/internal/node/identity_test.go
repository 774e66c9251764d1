package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// A worker is a client that has something of each kind of state, and goes on.
type worker struct {
	*client.Client
	t    *testing.T
	dir  client.FH
	file *client.File // open for writing, locked
	n    int          // files made
}

func work(t *testing.T, c *client.Client) *worker {
	t.Helper()
	ctx := within(t)
	w := &worker{Client: c, t: t}
	root, err := c.Walk(ctx, "main")
	if err == nil {
		w.dir, err = c.Mkdir(ctx, root, "work", 0o755)
	}
	if err == nil {
		w.file, err = c.CreateFile(ctx, w.dir, "held", 0o644)
	}
	if err == nil {
		err = w.file.Lock(ctx, "owner", client.Range{Type: proto.WriteLt, Length: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// step does things that can't be done twice, or with state that was lost.
func (w *worker) step() {
	w.t.Helper()
	ctx := within(w.t)
	name := fmt.Sprintf("f%d", w.n)
	w.n++
	f, _, err := w.Open(ctx, w.dir, name, &client.OpenHow{Access: proto.ShareAccessBoth, Create: true, Mode: proto.Guarded})
	if err == nil {
		err = errors.Join(f.WriteAll(ctx, 0, []byte(name)), f.Close(ctx))
	}
	if err == nil {
		_, _, err = w.Rename(ctx, w.dir, name, w.dir, "g"+name)
	}
	if err == nil {
		_, err = w.file.Write(ctx, uint64(w.n), []byte{'x'}, proto.FileSync)
	}
	if err != nil {
		w.t.Fatalf("step %d: %v", w.n, err)
	}
}

// finish checks that everything was done once, and that nothing was reclaimed.
func (w *worker) finish() {
	w.t.Helper()
	ctx := within(w.t)
	list, err := w.ReadAllDir(ctx, w.dir)
	if err != nil || len(list) != w.n+1 {
		w.t.Errorf("%d names, %v: want %d", len(list), err, w.n+1)
	}
	if _, sessions, reboots := w.Stats(); sessions != 1 || reboots != 0 {
		w.t.Errorf("%d sessions were made, and the server was found restarted %d times", sessions, reboots)
	}
	if err := errors.Join(w.file.Unlock(ctx, "owner", client.Range{Type: proto.WriteLt, Length: 100}), w.file.Close(ctx), w.Close(ctx)); err != nil {
		w.t.Error(err)
	}
}

// TestRestart: the clients of a node's own addresses go on after a restart of
// it, with their sessions, opens and locks, and without a grace period.
func TestRestart(t *testing.T) {
	conf := config(t, "n1")
	n := start(t, conf)
	if err := n.Init(within(t), admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	w := work(t, n.mount())
	for range 2 {
		w.step()
		n.stop()
		n = start(t, conf)
		n.serving()
		w.step()
		n.use(func(c *client.Client) {
			ctx := within(t)
			f, _, err := c.OpenFH(ctx, w.file.FH(), proto.ShareAccessBoth)
			if err != nil {
				t.Fatal(err)
			}
			var held *client.Denied
			if err := f.Lock(ctx, "other", client.Range{Type: proto.WriteLt, Length: 1}); !errors.As(err, &held) {
				t.Errorf("the lock of before the restart is not held: %v", err)
			}
			// What is free is to be had at once.
			began := time.Now()
			if err := f.Lock(ctx, "other", client.Range{Type: proto.WriteLt, Offset: 1000, Length: 1}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a new lock took %v", took)
			}
			if err := f.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	w.finish()
}

// inNamespace runs the test in a network namespace of its own, with eth0 at
// 10.9.0.1/24 and more addresses of that subnet. It reports whether this is
// the process in there.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "HAWSER_TEST_NETNS"
	if os.Getenv(inside) != "" {
		for _, args := range []string{
			"link set lo up", "link add eth0 type veth peer name peer0", "link set eth0 up", "link set peer0 up",
			"addr add 10.9.0.1/24 dev eth0", "addr add 10.9.0.11/24 dev eth0", "addr add 10.9.0.12/24 dev eth0", "addr add 10.9.0.13/24 dev eth0",
		} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", args, err, out)
			}
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: floating addresses need root")
	}
	for _, program := range []string{"unshare", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT TESTED: the program %s is missing", program)
		}
	}
	cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in the namespace: %v\n%s", err, out)
	} else if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in the namespace nothing was tested:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "stall") {
			t.Log(strings.TrimSpace(line))
		}
	}
	return false
}

// floatingCluster starts three nodes on addresses of their own.
func floatingCluster(t *testing.T, change func(i int, c *conf.Config)) (nodes []*testNode) {
	t.Helper()
	for i := 1; i <= 3; i++ {
		c := config(t, fmt.Sprintf("n%d", i))
		c.Listen.NFS = []string{fmt.Sprintf("10.9.0.%d:2049", 10+i)}
		c.Health.TakeoverAfter, c.Health.DownAfter = time.Second, 3*time.Second
		change(i, &c)
		nodes = append(nodes, start(t, c))
	}
	if err := nodes[0].Init(within(t), admin.InitRequest{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes[1:] {
		if err := n.Join(within(t), admin.JoinRequest{Address: nodes[0].conf.Listen.Peer}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all nodes know that all can serve addresses", func() bool {
		for _, n := range nodes {
			st, err := n.Status(t.Context())
			if err != nil || len(st.Cluster.Nodes) != len(nodes) {
				return false
			}
			for _, x := range st.Cluster.Nodes {
				if !x.FrontEnd {
					return false
				}
			}
		}
		return true
	})
	return nodes
}

// holderOf waits until an address is served by one of the nodes, other than
// not, and returns that.
func holderOf(t *testing.T, addr netip.Addr, nodes []*testNode, not *testNode) (holder *testNode) {
	t.Helper()
	eventually(t, addr.String()+" is served", func() bool {
		for _, n := range nodes {
			if n.Node == nil || n == not {
				continue
			}
			n.mu.Lock()
			front := n.front
			n.mu.Unlock()
			if front == nil {
				continue
			}
			if x := front.floaterOf(addr); x != nil && x.current() != nil && len(front.holder.Held()) > 0 {
				holder = n
			}
		}
		return holder != nil
	})
	return holder
}

// hasAddr says whether the kernel has an address.
func hasAddr(t *testing.T, addr netip.Addr) bool {
	t.Helper()
	out, err := exec.Command("ip", "-o", "addr", "show", "dev", "eth0").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(out), addr.String()+"/")
}

// TestFloatingAddress: a client of a floating address goes on while that moves
// from node to node, is drained, and its node stops.
func TestFloatingAddress(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	addr := netip.MustParseAddr("10.9.0.50")
	nodes := floatingCluster(t, func(_ int, c *conf.Config) { c.Addresses.Floating = []string{"10.9.0.50/24@fast"} })
	first := holderOf(t, addr, nodes, nil)
	ctx := within(t)
	c, err := client.Dial(ctx, "10.9.0.50:2049", client.Options{Minor: 2, Conns: 2})
	if err != nil {
		t.Fatal(err)
	}
	w := work(t, c)
	w.step()
	eventually(t, "the other nodes know the client's connections", func() bool {
		for _, n := range nodes {
			list, err := n.Addresses(ctx)
			if err != nil || len(list) != 1 || list[0].Group != "fast" {
				t.Fatalf("%+v, %v", list, err)
			}
			if conns := n.member.Conns(list[0].ID); len(conns) != 2 {
				return false
			}
		}
		return true
	})
	// act makes the address go elsewhere, while the client works.
	act := func(what string, from *testNode, do func(other *testNode) error) *testNode {
		t.Helper()
		other := nodes[0]
		if other == from || other.Node == nil {
			other = nodes[1]
		}
		failed := make(chan error, 1)
		go func() { failed <- do(other) }()
		var longest time.Duration
		done := false
		for end := time.Now().Add(2 * time.Second); !done || time.Now().Before(end); {
			began := time.Now()
			w.step()
			longest = max(longest, time.Since(began))
			select {
			case err := <-failed:
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				done = true
			default:
			}
		}
		t.Logf("%s: the longest stall is %v, with %d steps", what, longest, w.n)
		if longest > 10*time.Second {
			t.Errorf("%s: a stall of %v", what, longest)
		}
		return holderOf(t, addr, nodes, from)
	}
	second := act("move", first, func(*testNode) error { return first.MoveAddress(ctx, admin.AddressRequest{Address: "10.9.0.50"}) })
	third := act("drain", second, func(other *testNode) error {
		return other.Drain(ctx, admin.DrainRequest{Node: second.conf.Node.Name, Drain: true})
	})
	if err := third.MoveAddress(ctx, admin.AddressRequest{Address: "10.9.0.50/24", Node: second.conf.Node.Name}); err == nil || !strings.Contains(err.Error(), "drained") {
		t.Errorf("moved to a drained node: %v", err)
	}
	last := act("stop", third, func(*testNode) error {
		third.stop()
		return nil
	})
	w.finish()
	if err := last.RemoveAddress(ctx, admin.AddressRequest{Address: "10.9.0.50"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a removed address is off", func() bool { return !hasAddr(t, addr) })
	if list, err := last.Addresses(ctx); err != nil || len(list) != 0 {
		t.Errorf("addresses: %+v, %v", list, err)
	}
}

// TestTold: what a front-end does about an identity that goes elsewhere.
func TestTold(t *testing.T) {
	addr := netip.MustParsePrefix("10.9.0.50/24")
	for _, x := range []struct {
		what                  string
		id                    registry.Identity
		released              bool
		wantCurrent, wantAnew bool
	}{
		{"it is told what it knows", registry.Identity{ID: 2, Addr: addr, Node: "n1", Epoch: 5, Serving: true}, false, true, false},
		{"handed over", registry.Identity{ID: 2, Addr: addr, Node: "n2", Epoch: 6}, true, false, false},
		{"taken by force", registry.Identity{ID: 2, Addr: addr, Node: "n2", Epoch: 6}, false, false, true},
		{"taken, and given back", registry.Identity{ID: 2, Addr: addr, Node: "n1", Epoch: 7}, false, false, true},
		{"its own identity is as it was", registry.Identity{ID: 1, Node: "n1", Epoch: 3, Serving: true}, false, true, false},
		{"its own identity is late", registry.Identity{ID: 1, Node: "n1", Epoch: 2}, false, true, false},
		{"its own identity was taken", registry.Identity{ID: 1, Epoch: 4}, false, false, true},
	} {
		t.Run(x.what, func(t *testing.T) {
			own := &served{id: registry.Identity{ID: 1, Node: "n1", Epoch: 3}}
			now := &served{id: registry.Identity{ID: 2, Addr: addr, Node: "n1", Epoch: 5}}
			own.current.Store(true)
			now.current.Store(true)
			now.released.Store(x.released)
			f := &frontEnd{over: make(chan struct{}), floaters: map[cluster.IdentityID]*floater{}}
			f.floaters[2] = &floater{f: f, prefix: addr, wake: make(chan struct{}, 1), now: now}
			f.own.Store(own)
			f.told(x.id)
			if got := own.current.Load() && now.current.Load(); got != x.wantCurrent {
				t.Errorf("it may answer: %v", got)
			}
			anew := false
			select {
			case <-f.over:
				anew = f.why != ""
			default:
			}
			if anew != x.wantAnew {
				t.Errorf("it starts anew: %v", anew)
			}
			if woken := len(f.floaters[2].wake) == 1; woken != (x.id.ID == 2) {
				t.Errorf("woken: %v", woken)
			}
		})
	}
}
