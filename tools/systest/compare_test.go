package systest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ganeshaConfig is all that nfs-ganesha is told: what to export, and that no
// client is waited for after its start, and nothing that needs a portmapper. The
// rest is as the package has it.
const ganeshaConfig = `
NFS_CORE_PARAM { Protocols = 4; Enable_UDP = None; Enable_RQUOTA = false; }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = %[1]s/recovery; }
EXPORT {
	Export_Id = 1;
	Path = %[1]s/export;
	Pseudo = /main;
	Access_Type = RW;
	Squash = No_Root_Squash;
	SecType = sys;
	FSAL { Name = VFS; }
}
`

// compareFiles is how many files are in the directory that is listed.
const compareFiles = 50_000

// TestAgainstGanesha measures `ls -l` of a large directory and `find` over a tree
// through a kernel client, of a Hawser cluster of three nodes and of nfs-ganesha on
// one, in turns. It judges the counts, and prints the times.
func TestAgainstGanesha(t *testing.T) {
	if os.Getenv("HAWSER_COMPARE") != "1" {
		t.Skip("a measurement, of ten minutes: run `make compare`, or set HAWSER_COMPARE=1 with nfs-ganesha and nfs-ganesha-vfs installed")
	}
	runs := 7
	if text := os.Getenv("HAWSER_COMPARE_RUNS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("HAWSER_COMPARE_RUNS=%s: want a number of runs", text)
		}
		runs = n
	}
	c := startCluster(t, 3, 1)
	c.asConfiguredByDefault()
	here, _ := c.workProgram()
	tree := goroot(t)

	export := filepath.Join(c.dir, "ganesha", "export")
	ganesha, address := c.startGanesha(func() {
		fill := exec.Command("sh", "-eu", "-c", `mkdir "$1/many"; "$2" many "$1/many" "$3"; cp -a "$4" "$1/tree"`,
			"fill", export, here, strconv.Itoa(compareFiles), tree)
		if out, err := fill.CombinedOutput(); err != nil {
			t.Fatalf("filling nfs-ganesha's folder: %v\n%s", err, out)
		}
	})
	leader := c.leader(1)
	// The same to Hawser, from the bridge, to a strict and to a relaxed volume.
	c.must(1, "volume", "create", "relaxed", "--consistency", "relaxed")
	for _, volume := range []string{"main", "relaxed"} {
		push := c.lab.Command(context.Background(), 0, here, "push", c.lab.HostAddr(leader)+":2049", volume, export)
		if out, err := push.CombinedOutput(); err != nil {
			t.Fatalf("filling Hawser: %v\n%s", err, out)
		}
	}
	k := c.client(1, "2G")
	c.waitHealthy(time.Minute)

	out, err := exec.Command("sh", "-c", `find "$1" | wc -l`, "count", tree).Output()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	nodes := func() (sum float64) {
		for _, n := range c.nodes {
			sum += processor(t, n.process)
		}
		return sum
	}
	servers := []struct {
		name, addr, volume string
		cpu                func() float64
	}{
		{"strict", c.lab.HostAddr(leader), "main", nodes},
		{"relaxed", c.lab.HostAddr(leader), "relaxed", nodes},
		{"ganesha", address, "main", func() float64 { return processor(t, ganesha) }},
	}
	for _, m := range []struct {
		name, command string
		count         int
		target        float64 // Hawser is to be as many times as fast
	}{
		{"ls -l of 50,000 files", "ls -l many | wc -l", compareFiles + 1, 3},
		{"find over the Go tree", "cd tree; find . | wc -l", entries, 1},
	} {
		figures := map[string]*figure{}
		for run := range runs + 1 {
			for _, s := range servers {
				before := s.cpu()
				one := k.measure(s.addr, s.volume, "vers=4.2", m.command, m.count)
				cpu := s.cpu() - before
				t.Logf("%s: %-7s %6.3f s, of which waiting for %d calls %.3f s; the server's processor %.2f s",
					m.name, s.name, one.cold, one.calls, one.waited, cpu)
				if run == 0 {
					figures[s.name] = &figure{} // that one warmed the server
					continue
				}
				f := figures[s.name]
				f.took, f.waited, f.cpu = append(f.took, one.cold), append(f.waited, one.waited), append(f.cpu, cpu)
				f.operations = one.operations
			}
		}
		// What the client takes when it asks nobody: no server can be faster.
		var alone seconds
		for range 3 {
			alone = append(alone, k.measure(servers[0].addr, servers[0].volume, "vers=4.2,actimeo=600", m.command, m.count).warm)
		}
		for _, s := range servers {
			f := figures[s.name]
			t.Logf("%s, %-7s: %s; waiting for replies: %s; the server's processor: %s\n%s",
				m.name, s.name, spread(f.took), spread(f.waited), spread(f.cpu), f.operations)
		}
		t.Logf("%s: the client alone takes %s", m.name, spread(alone))
		g := figures["ganesha"]
		for _, name := range []string{"strict", "relaxed"} {
			h := figures[name]
			verdict := "reached"
			if g.took.median() < m.target*h.took.median() {
				verdict = "NOT REACHED"
			}
			t.Logf("%s: Hawser, %s, is %.2f times as fast as nfs-ganesha (pairs: %s), its replies %.2f times (%s); target %.0f: %s",
				m.name, name, g.took.median()/h.took.median(), pairs(g.took, h.took),
				g.waited.median()/h.waited.median(), pairs(g.waited, h.waited), m.target, verdict)
		}
	}
}

// A figure is what was measured of a server.
type figure struct {
	took       seconds // with empty client caches
	waited     seconds // of that, for replies: the sum over all calls
	cpu        seconds // of the server's processes
	operations string  // of the last run
}

type seconds []float64

func (s seconds) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[len(sorted)/2]
}

func spread(s seconds) string {
	return fmt.Sprintf("%.3f s (%.3f to %.3f)", s.median(), slices.Min(s), slices.Max(s))
}

// pairs are the ratios of the runs that followed each other.
func pairs(a, b seconds) string {
	var r []string
	for i := range a {
		r = append(r, fmt.Sprintf("%.2f", a[i]/b[i]))
	}
	return strings.Join(r, " ")
}

type measured struct {
	cold, warm float64 // seconds: with empty caches, and with full ones if asked for
	calls      int     // in cold
	waited     float64 // seconds, for their replies
	operations string
}

// measure times a command in a new mount of a server's volume; and a second
// time at once, if options keep the client from asking again. The command
// prints a number, which must be count.
func (k *client) measure(addr, volume, options, command string, count int) measured {
	k.t.Helper()
	rounds := "1"
	if strings.Contains(options, "actimeo") {
		rounds = "1 2"
	}
	out, err := k.try(10*time.Minute, fmt.Sprintf(`
		mount -t nfs4 -o %s %s:/ /mnt/nfs
		cd /mnt/nfs/%s
		sync; echo 3 >/proc/sys/vm/drop_caches
		# The programs, but not what they are to list, are read before.
		ls -l /run >/dev/null; find /run -maxdepth 1 | wc -l >/dev/null
		bash -c '
			for i in %s; do
				a=$EPOCHREALTIME; n=$(%s); b=$EPOCHREALTIME
				echo "ran $n $(( (${b/./} - ${a/./}) ))"
				if [ $i = 1 ]; then grep -A100 "mounted on /mnt/nfs/%s " /proc/self/mountstats; fi
			done'
		cd /; umount /mnt/nfs`, options, addr, volume, rounds, command, volume))
	if err != nil {
		k.t.Fatal(err)
	}
	var m measured
	var took []float64
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == "ran":
			n, err1 := strconv.Atoi(f[1])
			us, err2 := strconv.Atoi(f[2])
			if err1 != nil || err2 != nil || n != count {
				k.t.Fatalf("%q through %s: %s, want %d", command, addr, line, count)
			}
			took = append(took, float64(us)/1e6)
		case len(f) >= 9 && strings.HasSuffix(f[0], ":") && f[1] != "0" && strings.ToUpper(f[0]) == f[0]:
			// Calls, transmissions, time-outs, bytes sent, received, and ms: queued, under way, in all.
			n, err1 := strconv.Atoi(f[1])
			ms, err2 := strconv.Atoi(f[7])
			if err := errors.Join(err1, err2); err != nil {
				k.t.Fatalf("%s: %v", line, err)
			}
			m.calls += n
			m.waited += float64(ms) / 1000
			m.operations += fmt.Sprintf("        %-18s %6d calls, %9s bytes received, %7d ms under way\n", f[0], n, f[5], ms)
		}
	}
	if len(took) == 0 || m.calls == 0 {
		k.t.Fatalf("no figures in\n%s", out)
	}
	m.cold, m.warm = took[0], took[len(took)-1]
	return m
}

// processor returns the processor time that a process has had, in seconds.
func processor(t *testing.T, p *exec.Cmd) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// After the name, which may have spaces: utime and stime, in hundredths.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return float64(user+system) / 100
}

// asConfiguredByDefault starts the nodes again with the caches and the log level
// that nodes have unless they are told otherwise.
func (c *testCluster) asConfiguredByDefault() {
	c.t.Helper()
	for _, n := range c.nodes {
		c.stop(n.i)
	}
	for _, n := range c.nodes {
		path := c.path(n.i, "hawser.yaml")
		text, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool {
			for _, own := range []string{"raft:", "cache:", "log:", "nfs:"} {
				if strings.HasPrefix(line, own) {
					return true
				}
			}
			return false
		})
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, n := range c.nodes {
		c.start(n.i)
	}
	c.waitHealthy(time.Minute)
}

// startGanesha starts nfs-ganesha on a host of its own, after fill has filled
// the folder ganesha/export, and returns its process and address.
func (c *testCluster) startGanesha(fill func()) (p *exec.Cmd, addr string) {
	c.t.Helper()
	const program = "ganesha.nfsd"
	if _, err := exec.LookPath(program); err != nil {
		c.t.Fatalf("%v: install nfs-ganesha and nfs-ganesha-vfs, or run `make compare`, which does", err)
	}
	host, err := c.lab.AddHost()
	if err != nil {
		c.t.Fatal(err)
	}
	dir := filepath.Join(c.dir, "ganesha")
	for _, sub := range []string{"export", "recovery"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			c.t.Fatal(err)
		}
	}
	fill()
	conf := filepath.Join(dir, "ganesha.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, ganeshaConfig, dir), 0o644); err != nil {
		c.t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	p = c.lab.Command(context.Background(), host, program, "-F", "-L", log, "-N", "NIV_EVENT", "-f", conf, "-p", filepath.Join(dir, "pid"))
	var console bytes.Buffer
	p.Stdout, p.Stderr = &console, &console
	if err := p.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Wait() // it is killed in the end
	}()
	c.t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGKILL) // ESRCH: it has ended
		<-ended
		if c.t.Failed() {
			text, err := os.ReadFile(log)
			c.t.Logf("nfs-ganesha's log (%v):\n%.4000s\n%s", err, text, console.String())
		}
	})
	addr = c.lab.HostAddr(host)
	c.wait(time.Minute, "nfs-ganesha to answer", func() error {
		select {
		case <-ended:
			return fmt.Errorf("it has ended")
		default:
		}
		return c.lab.Command(context.Background(), 0, "bash", "-c", "exec 3<>/dev/tcp/"+addr+"/2049").Run()
	})
	return p, addr
}
