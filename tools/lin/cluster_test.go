package lin

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hawserfs/hawser/tools/kclient"
)

// A testCluster is three nodes, a process each, on the loopback interface or
// on hosts of a lab, whose bridge the test is at.
type testCluster struct {
	t      *testing.T
	dir    string
	hawser string
	lab    *kclient.Lab // nil: the loopback interface
	net    *network
	nodes  [3]*testNode
}

type testNode struct {
	config, nfs, peer string
	process           *exec.Cmd
}

const nodeConfig = `
node: {name: n%[1]d, data: %[2]s/data, disks: [%[2]s/disk]}
listen: {peer: "%[3]s", advertise: "%[5]s", nfs: ["%[4]s"], admin: %[2]s/s}
raft: {heartbeat_timeout: 300ms, snapshot_threshold: 512, trailing_logs: 256}
store: {segment_size: 16MiB, reserve: 16MiB, free_delay: 1s}
cache: {data: 16MiB, metadata: 16MiB, dirty: 16MiB}
nfs: {lease: 10s}
health: {takeover_after: 1s, down_after: 2s, fence_after: 5s}
log: {level: info}
`

// madeOf has the result of the test depend on what hawser is made of: whoever
// looks at it tells go test so, which would take an old result for good otherwise.
func madeOf(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"cmd", "conf", "nfsd", "vfs", "cluster", "datastore"} {
		if err := filepath.WalkDir(filepath.Join("..", "..", dir), func(string, os.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

func startCluster(t *testing.T, lab *kclient.Lab) *testCluster {
	t.Helper()
	c := &testCluster{t: t, dir: t.TempDir(), lab: lab}
	c.hawser = filepath.Join(c.dir, "hawser")
	madeOf(t)
	if out, err := exec.Command("go", "build", "-o", c.hawser, "github.com/hawserfs/hawser/cmd/hawser").CombinedOutput(); err != nil {
		t.Fatalf("building hawser: %v\n%s", err, out)
	}
	here := "127.0.0.1"
	if lab != nil {
		here = kclient.Subnet + ".1"
	}
	c.net = newNetwork(t, here)
	t.Cleanup(func() {
		for i := range c.nodes {
			c.kill(i)
		}
		c.net.close()
		if t.Failed() {
			c.showLogs()
		}
	})
	var ports []net.Listener
	addr := func(i, port int) string {
		if lab != nil {
			return net.JoinHostPort(lab.HostAddr(i+1), strconv.Itoa(port))
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, ln)
		return ln.Addr().String()
	}
	for i := range c.nodes {
		n := &testNode{nfs: addr(i, 2049), peer: addr(i, 7420), config: c.path(i, "hawser.yaml")}
		c.nodes[i], c.net.targets[i] = n, n.peer
		if err := os.MkdirAll(c.path(i, ""), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.config, fmt.Appendf(nil, nodeConfig, i+1, c.path(i, ""), n.peer, n.nfs, c.net.addr(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, ln := range ports {
		_ = ln.Close()
	}
	c.net.start()
	for i := range c.nodes {
		c.start(i)
	}
	c.must(0, "cluster", "init", "--name", "lin")
	for i := 1; i < len(c.nodes); i++ {
		c.must(i, "cluster", "join", c.net.addr(0))
	}
	c.must(0, "volume", "create", "relaxed", "--consistency", "relaxed")
	c.healthy(time.Minute)
	return c
}

func (c *testCluster) path(i int, name string) string {
	return filepath.Join(c.dir, fmt.Sprint("n", i+1), name)
}

func (c *testCluster) start(i int) {
	log, err := os.OpenFile(c.path(i, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer log.Close()
	p := exec.Command(c.hawser, "server", "--config", c.nodes[i].config)
	if c.lab != nil {
		p = c.lab.Command(context.Background(), i+1, c.hawser, "server", "--config", c.nodes[i].config)
	}
	p.Stdout, p.Stderr = log, log
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		c.t.Error(err)
		return
	}
	c.nodes[i].process = p
}

// kill ends node i at once.
func (c *testCluster) kill(i int) {
	n := c.nodes[i]
	if n == nil || n.process == nil {
		return
	}
	if err := n.process.Process.Kill(); err != nil {
		c.t.Errorf("node %d has ended by itself: %v", i+1, err)
	}
	_ = n.process.Wait() // it says that it was killed
	n.process = nil
}

func (c *testCluster) signal(i int, s syscall.Signal) {
	if err := c.nodes[i].process.Process.Signal(s); err != nil {
		c.t.Errorf("node %d has ended by itself: %v", i+1, err)
	}
}

func (c *testCluster) admin(i int, args ...string) (string, error) {
	out, err := exec.Command(c.hawser, append(args, "--config", c.nodes[i].config)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("hawser %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (c *testCluster) must(i int, args ...string) {
	c.t.Helper()
	c.wait(30*time.Second, args[0], func() error {
		_, err := c.admin(i, args...)
		return err
	})
}

func (c *testCluster) healthy(limit time.Duration) {
	c.t.Helper()
	c.wait(limit, "a healthy cluster", func() error {
		for i := range c.nodes {
			out, err := c.admin(i, "status", "-o", "json")
			if err != nil {
				return err
			}
			var s struct {
				Serving []string `json:"serving"`
				Cluster struct {
					Problems []string `json:"problems"`
				} `json:"cluster"`
			}
			if err := json.Unmarshal([]byte(out), &s); err != nil {
				return err
			}
			if len(s.Cluster.Problems) > 0 || len(s.Serving) == 0 {
				return fmt.Errorf("node %d serves %v, problems %q", i+1, s.Serving, s.Cluster.Problems)
			}
		}
		return nil
	})
}

func (c *testCluster) wait(limit time.Duration, what string, cond func() error) {
	c.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("waited %v for %s: %v", limit, what, err)
		}
	}
}

func (c *testCluster) showLogs() {
	for i := range c.nodes {
		text, err := os.ReadFile(c.path(i, "log"))
		if err != nil {
			continue
		}
		lines := strings.Split(string(text), "\n")
		c.t.Logf("node %d's log ends:\n%s", i+1, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// trouble kills, freezes and cuts off one node after the other until stop is closed,
// and leaves all of them running.
func (c *testCluster) trouble(rng *rand.Rand, stop <-chan struct{}) {
	pause := func(from, to time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(from + time.Duration(rng.Int64N(int64(to-from)))):
			return true
		}
	}
	begin := time.Now()
	for round := 0; pause(500*time.Millisecond, 2*time.Second); round++ {
		i := rng.IntN(len(c.nodes))
		at := time.Since(begin).Round(time.Millisecond)
		// One that lasts long enough for a node to be fenced, the others not.
		long := 2 * time.Second
		if round%4 == 3 {
			long = 8 * time.Second
		}
		switch rng.IntN(4) {
		case 0:
			c.t.Logf("%v: node %d is killed", at, i+1)
			c.kill(i)
			pause(100*time.Millisecond, 1500*time.Millisecond)
			c.start(i)
		case 1:
			c.t.Logf("%v: node %d is frozen for up to %v", at, i+1, long)
			c.signal(i, syscall.SIGSTOP)
			pause(long/4, long)
			c.signal(i, syscall.SIGCONT)
		default:
			way := rng.IntN(4)
			in, out := way != 1, way != 2
			c.t.Logf("%v: node %d is cut off for up to %v (to it %v, from it %v)", at, i+1, long, in, out)
			c.net.cut(i, in, out)
			pause(long/4, long)
			c.net.heal(i)
		}
	}
}
