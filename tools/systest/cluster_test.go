package systest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hawserfs/hawser/tools/kclient"
)

// A testCluster is three nodes, a process each on a host of its own.
type testCluster struct {
	t     *testing.T
	lab   *kclient.Lab
	dir   string
	nodes []*testNode
}

type testNode struct {
	i       int
	process *exec.Cmd
	ended   chan struct{}
	frozen  bool // its process is stopped where it is
}

// hawser is the program under test, built once by TestMain.
var hawser string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if why := kclient.Available(); why != nil {
		fmt.Fprintln(os.Stderr, "=== KERNEL-CLIENT TESTS SKIPPED:", why, "===")
		if os.Getenv("CI") == "true" {
			fmt.Fprintln(os.Stderr, "CI must run them: a skip is a failure")
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "hawser-systest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	hawser = filepath.Join(dir, "hawser")
	if out, err := exec.Command("go", "build", "-o", hawser, "github.com/hawserfs/hawser/cmd/hawser").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building hawser: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// nodeConfig is what the nodes are told. The lease is short so that tests of
// what happens after it don't take minutes.
const nodeConfig = `
node: {name: n%[1]d, data: %[2]s/data, disks: [%[2]s/disk]}
listen: {peer: "%[3]s:7420", nfs: ["%[3]s:2049"], admin: %[2]s/admin.sock}
raft: {snapshot_threshold: 1024, trailing_logs: 512}
store: {segment_size: 64MiB, reserve: 64MiB, free_delay: 5s}
cache: {data: 128MiB, metadata: 64MiB, dirty: 64MiB}
nfs: {lease: 15s}
log: {level: debug}
`

// startCluster makes a lab and a cluster of n nodes in it, and waits until it
// is healthy. Each node's folder is shown to prepare before it starts.
func startCluster(t *testing.T, n, clients int, prepare ...func(folder string)) *testCluster {
	t.Helper()
	lab, err := kclient.NewLab(fmt.Sprintf("hs%05d", rand.IntN(100_000)), n, clients)
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{t: t, lab: lab, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
		for i := range c.nodes {
			c.kill(i + 1)
		}
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := 1; i <= n; i++ {
		c.nodes = append(c.nodes, &testNode{i: i})
		if err := os.MkdirAll(c.path(i, ""), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, do := range prepare {
			do(c.path(i, ""))
		}
		text := fmt.Sprintf(nodeConfig, i, c.path(i, ""), lab.HostAddr(i))
		if err := os.WriteFile(c.path(i, "hawser.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		c.start(i)
	}
	c.must(1, "cluster", "init", "--name", t.Name())
	for i := 2; i <= n; i++ {
		c.must(i, "cluster", "join", lab.HostAddr(1)+":7420")
	}
	c.waitHealthy(time.Minute)
	return c
}

func (c *testCluster) path(i int, name string) string {
	return filepath.Join(c.dir, fmt.Sprintf("n%d", i), name)
}

// start starts node i's process and waits until it answers.
func (c *testCluster) start(i int) {
	c.t.Helper()
	log, err := os.OpenFile(c.path(i, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	p := c.lab.Command(context.Background(), i, hawser, "server", "--config", c.path(i, "hawser.yaml"))
	p.Stdout, p.Stderr = log, log
	if err := p.Start(); err != nil {
		c.t.Fatal(err)
	}
	node := c.nodes[i-1]
	node.process, node.ended = p, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		_ = p.Wait() // how it ends is the test's doing
	}(node.ended)
	c.wait(30*time.Second, fmt.Sprintf("node %d to answer", i), func() error {
		_, err := c.admin(i, "status", "-o", "json")
		return err
	})
}

// kill ends node i at once, as a power cut does to a process.
func (c *testCluster) kill(i int) { c.end(i, syscall.SIGKILL) }

// stop ends node i in order.
func (c *testCluster) stop(i int) { c.end(i, syscall.SIGTERM) }

func (c *testCluster) end(i int, signal syscall.Signal) {
	node := c.nodes[i-1]
	if node.process == nil {
		return
	}
	// ESRCH: it has ended already.
	_ = node.process.Process.Signal(signal)
	select {
	case <-node.ended:
	case <-time.After(30 * time.Second):
		c.t.Errorf("node %d did not end within 30 s", i)
		_ = node.process.Process.Kill()
		<-node.ended
	}
	node.process = nil
}

// alive fails the test if a node that should run has ended by itself.
func (c *testCluster) alive() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.process == nil {
			continue
		}
		select {
		case <-n.ended:
			c.t.Fatalf("node %d ended by itself", n.i)
		default:
		}
	}
}

// admin runs a hawser verb against node i.
func (c *testCluster) admin(i int, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	out, err := c.lab.Command(ctx, i, hawser, append(args, "--config", c.path(i, "hawser.yaml"))...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("hawser %s on node %d: %w: %s", strings.Join(args, " "), i, err, out)
	}
	return string(out), err
}

func (c *testCluster) must(i int, args ...string) string {
	c.t.Helper()
	out, err := c.admin(i, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// status is what the tests read of `hawser status -o json`.
type status struct {
	Serving []string `json:"serving"`
	Cluster struct {
		Problems []string `json:"problems"`
		Stores   []struct {
			ID    uint32 `json:"id"`
			Node  string `json:"node"`
			State string `json:"state"`
			Used  uint64 `json:"used"`
		} `json:"stores"`
		Groups []struct {
			ID      uint32 `json:"id"`
			Leader  string `json:"leader"`
			Applied uint64 `json:"applied"`
			Members []struct {
				Voter bool `json:"voter"`
			} `json:"members"`
		} `json:"groups"`
	} `json:"cluster"`
}

func (c *testCluster) status(i int) (s status, err error) {
	out, err := c.admin(i, "status", "-o", "json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(out), &s)
}

// waitHealthy waits until every running node serves, sees no problem, and all
// have applied the same.
func (c *testCluster) waitHealthy(limit time.Duration) {
	c.t.Helper()
	c.wait(limit, "the cluster to be healthy", func() error {
		c.alive()
		applied := map[uint32]uint64{}
		for _, n := range c.nodes {
			s, err := c.status(n.i)
			if err != nil {
				return err
			}
			if len(s.Cluster.Problems) > 0 {
				return fmt.Errorf("node %d: %s", n.i, s.Cluster.Problems[0])
			}
			if len(s.Serving) == 0 {
				return fmt.Errorf("node %d does not serve", n.i)
			}
			for _, g := range s.Cluster.Groups {
				voters := 0
				for _, m := range g.Members {
					if m.Voter {
						voters++
					}
				}
				if voters != len(c.nodes) {
					return fmt.Errorf("group %d has %d voters", g.ID, voters)
				}
				if a, ok := applied[g.ID]; ok && g.Applied+64 < a {
					return fmt.Errorf("node %d is behind in group %d: %d of %d", n.i, g.ID, g.Applied, a)
				}
				applied[g.ID] = max(applied[g.ID], g.Applied)
			}
		}
		return nil
	})
}

// leader returns which node leads the volume main, as node i sees it.
func (c *testCluster) leader(i int) int {
	c.t.Helper()
	leader := 0
	c.wait(30*time.Second, "a leader", func() error {
		s, err := c.status(i)
		if err != nil {
			return err
		}
		for _, g := range s.Cluster.Groups {
			if g.ID == 1 && g.Leader != "" {
				_, err := fmt.Sscanf(g.Leader, "n%d", &leader)
				return err
			}
		}
		return fmt.Errorf("no leader of group 1")
	})
	return leader
}

// wait polls cond until it returns nil.
func (c *testCluster) wait(limit time.Duration, what string, cond func() error) {
	c.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waited %v for %s: %v", limit, what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// showLogs prints the end of each node's log, and leaves all of them in the folder
// that HAWSER_LOGS names.
func (c *testCluster) showLogs() {
	for i := range c.nodes {
		text, err := os.ReadFile(c.path(i+1, "log"))
		if err != nil {
			continue
		}
		if dir := os.Getenv("HAWSER_LOGS"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%d.log", i+1)), text, 0o600); err != nil {
				c.t.Error(err)
			}
		}
		lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return strings.Contains(line, "level=DEBUG")
		})
		c.t.Logf("node %d's log ends:\n%s", i+1, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}
