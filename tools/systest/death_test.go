package systest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNodeDeath kills and cuts nodes that the client is not on, while it
// works. No call may fail, and what was closed without error is right on all
// nodes.
func TestNodeDeath(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	_, work := c.workProgram()
	k := c.client(1, "1G")
	on := 1
	k.run(time.Minute, c.mountCommand(on, "vers=4.2"))
	ledgers := 0
	// during runs do while the client works, and then audits what it wrote on every node.
	during := func(name string, seconds int, do func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			k := k.of(t)
			ledgers++
			dir := fmt.Sprintf("/mnt/nfs/main/ledger%d", ledgers)
			k.run(time.Minute, "mkdir "+dir)
			wait := k.start(4*time.Minute, fmt.Sprintf("%s ledger %s %d 6", work, dir, seconds))
			time.Sleep(2 * time.Second)
			do(t)
			out, err := wait()
			if err != nil {
				t.Fatalf("the client saw an error: %v", err)
			}
			c.waitHealthy(2 * time.Minute)
			c.audit(k, out, dir, work, on)
		})
	}
	other := func(leads bool) int {
		leader := c.leader(on)
		for i := 1; i <= 3; i++ {
			if i != on && (i == leader) == leads {
				return i
			}
		}
		return 0
	}
	restart := func(i int) {
		time.Sleep(3 * time.Second)
		c.start(i)
	}
	during("a follower is killed", 15, func(t *testing.T) {
		i := other(false)
		c.kill(i)
		restart(i)
	})
	during("the leader is killed", 18, func(t *testing.T) {
		i := other(true)
		if i == 0 {
			// The client's own node leads: make it lose the lead first.
			c.stop(on)
			c.start(on)
			c.wait(30*time.Second, "another leader", func() error {
				if i = other(true); i == 0 {
					return fmt.Errorf("node %d leads", on)
				}
				return nil
			})
		}
		c.kill(i)
		restart(i)
	})
	during("a node is killed in the middle of a snapshot", 25, func(t *testing.T) {
		i := other(false)
		c.awaitSnapshot(i)
		c.kill(i)
		restart(i)
	})
	during("a node that was away so long that it needs a snapshot is killed while it gets it", 25, func(t *testing.T) {
		i := other(false)
		c.kill(i)
		time.Sleep(12 * time.Second)
		c.start(i)
		time.Sleep(100 * time.Millisecond)
		c.kill(i)
		restart(i)
	})
	during("a follower is cut off", 18, func(t *testing.T) {
		i := other(false)
		if err := c.lab.Cut(i); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if err := c.lab.Heal(i); err != nil {
			t.Fatal(err)
		}
	})
	during("the leader is cut off", 20, func(t *testing.T) {
		i := other(true)
		if i == 0 {
			i = other(false)
		}
		if err := c.lab.Cut(i); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if err := c.lab.Heal(i); err != nil {
			t.Fatal(err)
		}
	})
	c.check()
}

// TestPowerCut kills all nodes at once under load and starts them: everything
// that was acknowledged as stable is there, and the client goes on.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 1)
	_, work := c.workProgram()
	k := c.client(1, "1G")
	k.run(time.Minute, c.mountCommand(2, "vers=4.1,nconnect=2")+"; mkdir /mnt/nfs/main/ledger")
	wait := k.start(5*time.Minute, work+" ledger /mnt/nfs/main/ledger 30 8")
	lock := k.start(5*time.Minute, "flock /mnt/nfs/main/lock sleep 45")
	time.Sleep(8 * time.Second)
	for i := 1; i <= 3; i++ {
		// All at once: the processes are signalled before any is waited for.
		_ = c.nodes[i-1].process.Process.Kill()
	}
	for i := 1; i <= 3; i++ {
		c.kill(i)
	}
	c.checkOffline(t)
	for i := 1; i <= 3; i++ {
		c.start(i)
	}
	out, err := wait()
	if err != nil {
		t.Fatalf("the client saw an error: %v", err)
	}
	if _, err := lock(); err != nil {
		t.Errorf("the lock was lost: %v", err)
	}
	c.waitHealthy(2 * time.Minute)
	c.audit(k, out, "/mnt/nfs/main/ledger", work, 2)
	c.check()
	for i := 1; i <= 3; i++ {
		c.stop(i)
	}
	c.checkOffline(t)
}

// audit verifies a ledger through each node, with cold caches, and returns to
// the client's own.
func (c *testCluster) audit(k *client, ledger, dir, work string, own int) {
	k.t.Helper()
	file := filepath.Join(c.dir, strings.ReplaceAll(k.t.Name(), "/", "-"))
	if err := os.WriteFile(file, []byte(ledger), 0o644); err != nil {
		k.t.Fatal(err)
	}
	for i := 1; i <= 3; i++ {
		k.run(3*time.Minute, fmt.Sprintf(`
			sync; echo 3 >/proc/sys/vm/drop_caches; mkdir -p /mnt/audit
			mount -t nfs4 -o vers=4.2 %s:/ /mnt/audit
			%s audit /mnt/audit%s /mnt/host%s
			umount /mnt/audit`, c.lab.HostAddr(i), work, strings.TrimPrefix(dir, "/mnt/nfs"), file))
	}
}

// awaitSnapshot waits until node i says that it makes a snapshot.
func (c *testCluster) awaitSnapshot(i int) {
	c.t.Helper()
	before, err := os.ReadFile(c.path(i, "log"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.wait(time.Minute, fmt.Sprintf("node %d to make a snapshot", i), func() error {
		now, err := os.ReadFile(c.path(i, "log"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(now[len(before):]), "starting snapshot") {
			return fmt.Errorf("no snapshot yet")
		}
		return nil
	})
}

// checkOffline runs the verifier over the stopped nodes' folders.
func (c *testCluster) checkOffline(t *testing.T) {
	t.Helper()
	args := []string{"check", "--offline", "--data"}
	for i := range c.nodes {
		args = append(args, c.path(i+1, "hawser.yaml"))
	}
	t.Log(strings.TrimSpace(c.must(1, args...)))
}
