package systest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// floating returns the lab's i-th floating address.
func floating(i int) string { return fmt.Sprintf("10.77.0.%d", 50+i) }

// serves returns which node serves a floating address.
func (c *testCluster) serves(address string) (node int, err error) {
	for i, n := range c.nodes {
		if n.process == nil || n.frozen {
			continue
		}
		out, err := c.admin(i+1, "address", "list", "-o", "json")
		if err != nil {
			return 0, err
		}
		var list []struct{ Address, Node string }
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return 0, err
		}
		for _, a := range list {
			if strings.HasPrefix(a.Address, address+"/") && a.Node != "" {
				_, err := fmt.Sscanf(a.Node, "n%d", &node)
				return node, err
			}
		}
		return 0, fmt.Errorf("nobody serves %s: %s", address, out)
	}
	return 0, fmt.Errorf("no node is up")
}

// server waits until somebody serves the address, and returns who.
func (c *testCluster) server(address string) (node int) {
	c.t.Helper()
	c.wait(30*time.Second, "a server of "+address, func() (err error) {
		node, err = c.serves(address)
		return err
	})
	return node
}

// freeze stops node i's process where it is, as a long pause of its machine does.
func (c *testCluster) freeze(i int) {
	c.nodes[i-1].frozen = true
	_ = c.nodes[i-1].process.Process.Signal(syscall.SIGSTOP)
}

// thaw lets it go on.
func (c *testCluster) thaw(i int) {
	_ = c.nodes[i-1].process.Process.Signal(syscall.SIGCONT)
	c.nodes[i-1].frozen = false
}

// A pulse is what the work program says of one workload.
type pulse struct {
	Calls  int     `json:"calls"`
	Max    float64 `json:"max"`
	MaxAt  string  `json:"max_at"`
	Rounds int     `json:"rounds"`
}

// A disruption is what happens to the node that serves a client's address.
type disruption struct {
	name  string
	mount string // options
	// seconds that the work lasts, of which the first 4 are before anything happens.
	seconds int
	stall   float64 // the longest that a call may take, in seconds
	happen  func(c *testCluster, address string)
	soak    bool // only in `make soak`, or with HAWSER_FAILOVER=all
}

// returns is when a node that was killed comes back.
const returns = 6 * time.Second

func killServer(c *testCluster, address string) {
	i := c.server(address)
	c.kill(i)
	time.Sleep(returns)
	c.start(i)
}

func freezeServer(c *testCluster, address string) {
	i := c.server(address)
	c.freeze(i)
	time.Sleep(30 * time.Second)
	c.thaw(i)
}

func cutServer(c *testCluster, address string) {
	i := c.server(address)
	if err := c.lab.Cut(i); err != nil {
		c.t.Error(err)
	}
	time.Sleep(returns)
	if err := c.lab.Heal(i); err != nil {
		c.t.Error(err)
	}
}

func stopServer(c *testCluster, address string) {
	i := c.server(address)
	c.stop(i)
	time.Sleep(returns)
	c.start(i)
}

func moveAddress(c *testCluster, address string) {
	i := c.server(address)
	c.must(i, "address", "move", address, fmt.Sprintf("n%d", i%len(c.nodes)+1))
}

func killTwice(c *testCluster, address string) {
	killServer(c, address)
	c.waitHealthy(time.Minute)
	killServer(c, address)
}

var disruptions = []disruption{
	{"killed", "vers=4.2,nconnect=4", 25, 8, killServer, false},
	{"frozen for 30 s", "vers=4.2", 50, 8, freezeServer, false},
	{"cut off", "vers=4.1", 25, 8, cutServer, false},
	{"stopped in order", "vers=4.2", 25, 3, stopServer, false},
	{"address moved", "vers=4.1,nconnect=4", 15, 3, moveAddress, false},
	{"killed, NFSv4.0", "vers=4.0", 25, 8, killServer, false},
	{"frozen for 30 s, NFSv4.0", "vers=4.0", 50, 8, freezeServer, true},
	{"cut off, NFSv4.0", "vers=4.0", 25, 8, cutServer, true},
	{"stopped in order, NFSv4.0", "vers=4.0", 25, 3, stopServer, true},
	{"address moved, NFSv4.0", "vers=4.0", 15, 3, moveAddress, true},
	{"killed twice in a row", "vers=4.2", 60, 8, killTwice, false},
}

// everything reports whether what takes too long for each time is to be tested.
func everything() bool {
	return os.Getenv("HAWSER_SOAK") != "" || os.Getenv("HAWSER_FAILOVER") == "all"
}

// TestFailover disrupts the node that serves a client's floating address while
// the client does all kinds of work. No call fails, nothing is executed twice
// or not at all, no lock is held by two, and another client on another
// address is not disturbed. HAWSER_SOAK has it list a larger directory, and do
// what takes too long for each time; HAWSER_FAILOVER=all the latter alone.
func TestFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	_, work := c.workProgram()
	for i := range 3 {
		c.must(1, "address", "add", floating(i)+"/24")
	}
	a, b := c.client(1, "1G"), c.client(2, "512M")
	entries := 5_000
	if os.Getenv("HAWSER_SOAK") != "" {
		entries = 100_000
	}
	for n, d := range disruptions {
		if d.soak && !everything() {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			defer func(outer *testing.T) { c.t = outer }(c.t)
			c.t = t
			a, b := a.of(t), b.of(t)
			dir := fmt.Sprintf("/mnt/nfs/main/survive%d", n)
			c.waitHealthy(2 * time.Minute)
			apart := c.apart(floating(0))
			a.run(time.Minute, fmt.Sprintf("mount -t nfs4 -o %s %s:/ /mnt/nfs; mkdir %s", d.mount, floating(0), dir))
			b.run(time.Minute, fmt.Sprintf("mount -t nfs4 -o vers=4.2 %s:/ /mnt/nfs", apart))
			// With NFSv4.0, an owner opens one file after the other.
			b.run(3*time.Minute, fmt.Sprintf("%s prepare %s %d", work, dir, entries))
			limit := time.Duration(d.seconds+120) * time.Second
			main := a.start(limit, fmt.Sprintf("%s survive %s %d", work, dir, d.seconds))
			time.Sleep(3 * time.Second)
			other := b.start(limit, fmt.Sprintf("%s contend %s %d", work, dir, d.seconds-8))
			time.Sleep(time.Second)
			d.happen(c, floating(0))
			out, err := main()
			if err != nil {
				t.Errorf("the client saw an error: %v", err)
			}
			rounds, err := other()
			if err != nil {
				t.Errorf("the client of another address saw an error: %v", err)
			}
			if t.Failed() {
				t.FailNow() // the mounts may hang
			}
			var pulses map[string]pulse
			if err := json.Unmarshal([]byte(out), &pulses); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for name, p := range pulses {
				t.Logf("%-9s %5d rounds, longest call %6.2f s: %s", name, p.Rounds, p.Max, p.MaxAt)
				if p.Rounds == 0 {
					t.Errorf("%s did nothing", name)
				}
				// A client that waits for a lock asks again when it likes.
				if name != "count" && p.Max > d.stall {
					t.Errorf("%s stood still for %.1f s; %.0f s are allowed", name, p.Max, d.stall)
				}
			}
			var more int
			if _, err := fmt.Sscan(rounds, &more); err != nil || more == 0 {
				t.Errorf("the other client made %q additions", rounds)
			}
			b.run(time.Minute, fmt.Sprintf("%s counted %s %d", work, dir, pulses["count"].Rounds+more))
			a.run(time.Minute, "umount /mnt/nfs")
			b.run(time.Minute, "umount /mnt/nfs")
		})
	}
	c.waitHealthy(2 * time.Minute)
	c.check()
}

// apart returns a floating address that another node serves.
func (c *testCluster) apart(address string) string {
	c.t.Helper()
	own, other := c.server(address), floating(1)
	if c.server(other) == own {
		c.must(own, "address", "move", other, fmt.Sprintf("n%d", own%len(c.nodes)+1))
		c.wait(30*time.Second, other+" to move", func() error {
			if c.server(other) == own {
				return fmt.Errorf("it is still on node %d", own)
			}
			return nil
		})
	}
	return other
}
