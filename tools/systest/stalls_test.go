package systest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A fault is what happens to the node that serves a client's address, over and
// over.
type fault struct {
	name  string
	limit time.Duration // of what a client may see, at the 99th percentile
	do    func(c *testCluster, address string)
}

var faults = []fault{
	{"address moved", time.Second, moveAddress},
	{"stopped in order", time.Second, func(c *testCluster, address string) {
		i := c.server(address)
		c.stop(i)
		c.start(i)
	}},
	{"killed", 5 * time.Second, func(c *testCluster, address string) {
		i := c.server(address)
		c.kill(i)
		time.Sleep(4 * time.Second)
		c.start(i)
	}},
	{"cut off", 5 * time.Second, func(c *testCluster, address string) {
		i := c.server(address)
		if err := c.lab.Cut(i); err != nil {
			c.t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if err := c.lab.Heal(i); err != nil {
			c.t.Error(err)
		}
	}},
	{"frozen for 5 s", 5 * time.Second, func(c *testCluster, address string) {
		i := c.server(address)
		c.freeze(i)
		time.Sleep(5 * time.Second)
		c.thaw(i)
	}},
}

// TestStalls does each fault HAWSER_FAULTS times and says how long a client's
// calls stood still, while HAWSER_SESSIONS other clients (0) have sessions, open
// files and locks at the same address. It takes hours for the hundred of each
// that `make soak` does.
func TestStalls(t *testing.T) {
	times, _ := strconv.Atoi(os.Getenv("HAWSER_FAULTS"))
	if times == 0 {
		t.Skip("HAWSER_FAULTS says how often each fault is done")
	}
	others, _ := strconv.Atoi(os.Getenv("HAWSER_SESSIONS"))
	only := os.Getenv("HAWSER_FAULT")
	c := startCluster(t, 3, 2)
	here, work := c.workProgram()
	for i := range 2 {
		c.must(1, "address", "add", floating(i)+"/24")
	}
	a, b := c.client(1, "1G"), c.client(2, "512M")
	c.server(floating(0))
	a.run(time.Minute, fmt.Sprintf("mount -t nfs4 -o vers=4.2 %s:/ /mnt/nfs", floating(0)))
	b.run(time.Minute, fmt.Sprintf("mount -t nfs4 -o vers=4.2 %s:/ /mnt/nfs; mkdir /mnt/nfs/main/sessions", floating(1)))
	if others > 0 {
		p := c.lab.Command(context.Background(), 0, here, "sessions", floating(0)+":2049", "main/sessions", strconv.Itoa(others))
		out, err := p.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.Stderr = os.Stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = p.Process.Signal(syscall.SIGTERM)
			_ = p.Wait() // the signal is how it ends
		}()
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("the sessions did not begin: %q, %v", line, err)
		}
	}
	for n, f := range faults {
		if only != "" && only != f.name {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			defer func(outer *testing.T) { c.t = outer }(c.t)
			c.t = t
			dir := fmt.Sprintf("/mnt/nfs/main/stalls%d", n)
			a.of(t).run(time.Minute, "mkdir "+dir)
			calls := a.of(t).start(time.Duration(times+10)*2*time.Minute, fmt.Sprintf("%s stalls %s", work, dir))
			var began []time.Time
			for range times {
				c.waitHealthy(2 * time.Minute)
				time.Sleep(time.Second)
				began = append(began, time.Now())
				f.do(c, floating(0))
				time.Sleep(2 * time.Second)
			}
			b.of(t).run(time.Minute, "touch "+dir+"/end")
			out, err := calls()
			if err != nil {
				t.Fatal(err)
			}
			longest := stallsOf(t, out, began)
			for i, s := range longest {
				t.Logf("%s  %s", began[i].Format("15:04:05.000"), s)
			}
			slices.SortFunc(longest, func(a, b call) int { return int(a.took - b.took) })
			p99 := longest[min(len(longest)*99/100, len(longest)-1)]
			t.Logf("%s, %d times, %d other sessions: p50 %.2f s, p99 %.2f s, longest %.2f s", f.name, times, others,
				longest[len(longest)/2].took.Seconds(), p99.took.Seconds(), longest[len(longest)-1].took.Seconds())
			if p99.took > f.limit {
				t.Errorf("at the 99th percentile a client stands still for %v; %v are allowed: %s", p99.took, f.limit, p99)
			}
		})
	}
}

// A call is one that took long.
type call struct {
	began time.Time
	took  time.Duration
	what  string
}

func (c call) String() string {
	if c.took == 0 {
		return "nothing stood still"
	}
	return fmt.Sprintf("%.2f s, from %s: %s", c.took.Seconds(), c.began.Format("15:04:05.000"), c.what)
}

// stallsOf returns the longest call that was under way at or after each of the
// times and before the next.
func stallsOf(t *testing.T, out string, times []time.Time) []call {
	longest := make([]call, len(times))
	for line := range strings.Lines(out) {
		var began, took int64
		if _, err := fmt.Sscan(line, &began, &took); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		s := call{began: time.Unix(0, began), took: time.Duration(took), what: fields[2]}
		i, _ := slices.BinarySearchFunc(times, s.began.Add(s.took), time.Time.Compare)
		if i--; i >= 0 && s.took > longest[i].took {
			longest[i] = s
		}
	}
	return longest
}
