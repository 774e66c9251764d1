package systest

import (
	"fmt"
	"testing"
	"time"
)

// TestWaiters has a client wait for a lock that one of another address holds, while
// its own address goes to another node, where nobody knows that it waits. It gets the
// lock all the same, once that is free: at once after a move in order, and after a
// node's death when it asks by itself, as Linux does every 30 s at the latest.
func TestWaiters(t *testing.T) {
	if !everything() {
		t.Skip("waits for minutes: `make soak`, or HAWSER_FAILOVER=all")
	}
	t.Parallel()
	c := startCluster(t, 3, 2)
	for i := range 2 {
		c.must(1, "address", "add", floating(i)+"/24")
	}
	a, b := c.client(1, "512M"), c.client(2, "512M")
	for n, x := range []struct {
		name, mount string
		happen      func(c *testCluster, address string)
		within      time.Duration
	}{
		{"killed, NFSv4.2", "vers=4.2", killServer, 35 * time.Second},
		{"killed, NFSv4.0", "vers=4.0", killServer, 35 * time.Second},
		{"address moved, NFSv4.2", "vers=4.2", moveAddress, 5 * time.Second},
		{"address moved, NFSv4.0", "vers=4.0", moveAddress, 35 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			defer func(outer *testing.T) { c.t = outer }(c.t)
			c.t = t
			a, b := a.of(t), b.of(t)
			c.waitHealthy(2 * time.Minute)
			file := fmt.Sprintf("/mnt/nfs/main/wait%d", n)
			a.run(time.Minute, fmt.Sprintf("mount -t nfs4 -o %s %s:/ /mnt/nfs; touch %s", x.mount, floating(0), file))
			b.run(time.Minute, fmt.Sprintf("mount -t nfs4 -o vers=4.2 %s:/ /mnt/nfs", c.apart(floating(0))))
			held := b.start(5*time.Minute, fmt.Sprintf(`rm -f /tmp/release; exec 9<>%s; flock 9; touch /tmp/held
				while test ! -e /tmp/release; do sleep 0.05; done; flock -u 9`, file))
			b.run(time.Minute, "while test ! -e /tmp/held; do sleep 0.1; done; rm /tmp/held")
			got := a.start(5*time.Minute, fmt.Sprintf("flock %s true", file))
			time.Sleep(3 * time.Second)
			x.happen(c, floating(0))
			a.run(time.Minute, "touch /mnt/nfs/main/there")
			time.Sleep(2 * time.Second)
			b.run(time.Minute, "touch /tmp/release")
			released := time.Now()
			if _, err := got(); err != nil {
				t.Fatal(err)
			}
			took := time.Since(released)
			t.Logf("the lock came %.1f s after it was free", took.Seconds())
			if took > x.within {
				t.Errorf("the lock came %.1f s after it was free; %v are allowed", took.Seconds(), x.within)
			}
			if _, err := held(); err != nil {
				t.Error(err)
			}
			a.run(time.Minute, "umount /mnt/nfs")
			b.run(time.Minute, "umount /mnt/nfs")
		})
	}
	c.check()
}
