package group

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testNode is a node with a member of the test's group.
type testNode struct {
	id      cluster.NodeID
	dir     string
	peer    *peer.Endpoint
	machine *testMachine
	group   *Group
}

// A testCluster is nodes in this process.
type testCluster struct {
	t      testing.TB
	change func(*Config)
	logger *slog.Logger

	mu    sync.Mutex
	addrs map[cluster.NodeID]string
	nodes []*testNode
}

// newCluster starts n nodes, all voters.
func newCluster(t testing.TB, n int, change func(*Config)) *testCluster {
	c := &testCluster{t: t, change: change, addrs: make(map[cluster.NodeID]string), logger: slog.New(slog.DiscardHandler)}
	if os.Getenv("HAWSER_TEST_LOG") != "" {
		c.logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	t.Cleanup(c.close)
	var voters []Member
	for i := range n {
		node := c.addNode(cluster.NodeID(fmt.Sprintf("n%d", i+1)))
		voters = append(voters, Member{ID: node.id, Voter: true})
	}
	for _, node := range c.nodes {
		if err := node.group.Bootstrap(voters); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// addNode starts a node without state.
func (c *testCluster) addNode(id cluster.NodeID) *testNode {
	n := &testNode{id: id, dir: filepath.Join(c.t.TempDir(), string(id))}
	c.nodes = append(c.nodes, n)
	c.start(n)
	return n
}

func (c *testCluster) resolve(id cluster.NodeID) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.addrs[id]
	return a, ok
}

// start starts a node that does not run, on a new address.
func (c *testCluster) start(n *testNode) {
	c.t.Helper()
	if err := c.tryStart(n); err != nil {
		c.t.Fatal(err)
	}
}

func (c *testCluster) tryStart(n *testNode) error {
	var err error
	if err = os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	if n.machine, err = openTestMachine(n.dir); err != nil {
		return err
	}
	logger := c.logger.With("node", string(n.id))
	if n.peer, err = peer.Listen(peer.Config{Self: n.id, ClusterID: "test", Listen: "127.0.0.1:0", Logger: logger}); err != nil {
		return err
	}
	c.mu.Lock()
	c.addrs[n.id] = n.peer.Addr().String()
	c.mu.Unlock()
	cfg := Config{
		ID: 7, Self: n.id, Dir: filepath.Join(n.dir, "raft"), Peer: n.peer, Resolve: c.resolve, Machine: n.machine,
		Logger: logger, HeartbeatTimeout: 200 * time.Millisecond, SegmentSize: 1 << 20,
	}
	if c.change != nil {
		c.change(&cfg)
	}
	if n.group, err = Open(cfg); err != nil {
		_ = n.peer.Close()
		n.peer = nil
		return err
	}
	return nil
}

// kill stops a node without any courtesy, as far as one process can.
func (c *testCluster) kill(n *testNode) {
	if n.group == nil {
		return
	}
	_ = n.peer.Close()
	n.group.mu.Lock()
	n.group.closed = true
	n.group.mu.Unlock()
	_ = n.group.stop()
	n.group, n.peer = nil, nil
}

func (c *testCluster) close() {
	for _, n := range c.nodes {
		c.kill(n)
	}
}

// leader waits for a leader.
func (c *testCluster) leader() *testNode {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, n := range c.nodes {
			if n.group != nil && n.group.IsLeader() {
				return n
			}
		}
	}
	c.t.Fatal("no leader")
	return nil
}

// followers returns the running nodes other than the leader.
func (c *testCluster) followers() []*testNode {
	l := c.leader()
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *testNode) bool { return n == l || n.group == nil })
}

func (c *testCluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

// propose proposes from a node.
func (c *testCluster) propose(n *testNode, cmd string) uint64 {
	c.t.Helper()
	index, result, err := n.group.Propose(c.ctx(), []byte(cmd))
	if err != nil {
		c.t.Fatalf("propose %q at %s: %v", cmd, n.id, err)
	}
	if len(result) == 0 {
		c.t.Fatalf("propose %q at %s: no result", cmd, n.id)
	}
	return index
}

// settle waits until every running node has applied what the leader has, and
// checks that they agree.
func (c *testCluster) settle() {
	c.t.Helper()
	index, err := c.leader().group.ReadIndex(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	var want []string
	for _, n := range c.nodes {
		if n.group == nil {
			continue
		}
		if err := n.group.WaitApplied(c.ctx(), index); err != nil {
			c.t.Fatalf("%s does not reach %d: %v; %+v", n.id, index, err, n.group.Stats())
		}
		got := n.machine.commands()
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			c.t.Fatalf("%s has %d commands, another node %d, or others", n.id, len(got), len(want))
		}
	}
}
