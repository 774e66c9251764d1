package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd"
	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server is an NFS server in memory.
type server struct {
	addr string
	fs   vfs.FS
}

func newServer(t *testing.T, fs vfs.FS) *server {
	t.Helper()
	p, err := nfs4.New(nfs4.Config{FS: fs, ServerOwner: "test", Scope: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := nfsd.Listen(nfsd.Config{
		Listen:   []string{"127.0.0.1:0"},
		Programs: []oncrpc.Program{{Number: proto.Program, MinVersion: 4, MaxVersion: 4, Handler: p}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve() })
	t.Cleanup(func() {
		s.Close()
		wg.Wait()
	})
	return &server{addr: s.Addrs()[0].String(), fs: fs}
}

func (s *server) server() Server { return Server{Addr: s.addr, Dir: "main"} }

// left returns what there is in the directory that the benchmark worked in.
func (s *server) left(t *testing.T) (names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, s.addr, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := c.Walk(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.ReadAllDir(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name)
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return names
}

// quick is a configuration for tests.
func quick(servers ...Server) Config {
	cfg := Default()
	cfg.Servers = servers
	cfg.Block, cfg.RandomBlock, cfg.SmallSize, cfg.FileSize = 64<<10, 4<<10, 1000, 512<<10
	cfg.Files, cfg.Jobs, cfg.Depth = 90, 3, 2
	cfg.Duration, cfg.Runs, cfg.Warmup = 20*time.Millisecond, 2, 1
	return cfg
}

func TestAllWorkloads(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"unstable": func(*Config) {},
		"sync":     func(cfg *Config) { cfg.Sync = true; cfg.Minor = 1; cfg.Conns = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, memfs.New(memfs.Options{Class: cluster.Class{Consistency: cluster.Relaxed}}))
			cfg := quick(s.server())
			change(&cfg)
			r, err := Run(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, w := range r.Workloads {
				names = append(names, w.Name)
				res := w.Results[0]
				if len(res.Runs) != cfg.Runs || res.OpsRate.Median <= 0 || res.P50.Median <= 0 || res.P999.Max < res.P50.Min {
					t.Errorf("%s: %+v", w.Name, res)
				}
				want := ""
				if strings.HasSuffix(w.Name, "write") {
					want = "at COMMIT"
					if cfg.Sync {
						want = "each WRITE"
					}
				}
				if res.Durability != want {
					t.Errorf("%s is durable %q, want %q", w.Name, res.Durability, want)
				}
			}
			if !slices.Equal(names, Workloads()) {
				t.Errorf("measured %v", names)
			}
			if left := s.left(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Each workload makes for itself what it needs.
func TestEachWorkloadAlone(t *testing.T) {
	s := newServer(t, memfs.New(memfs.Options{}))
	for _, name := range Workloads() {
		cfg := quick(s.server())
		cfg.Workloads, cfg.Warmup, cfg.Runs, cfg.Duration = []string{name}, 0, 1, 5*time.Millisecond
		if _, err := Run(context.Background(), cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A recorder notes the writes and removals that a server is asked for.
type recorder struct {
	*memfs.FS
	mu  sync.Mutex
	log []string
}

func (r *recorder) note(format string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, format)
}

func (r *recorder) Write(q *vfs.Request, f vfs.File, off uint64, p []byte, how vfs.Stability) (vfs.Stability, vfs.Verifier, error) {
	r.note("write " + string(p[:16]) + string(rune(off)))
	return r.FS.Write(q, f, off, p, how)
}

func (r *recorder) Remove(q *vfs.Request, dir vfs.File, name string) (vfs.ChangeInfo, error) {
	if !strings.HasPrefix(name, "hawser-bench-") {
		r.note("remove " + name)
	}
	return r.FS.Remove(q, dir, name)
}

// Two servers get the same bytes in the same order, in turns.
func TestCompareIsFair(t *testing.T) {
	fs := []*recorder{{FS: memfs.New(memfs.Options{})}, {FS: memfs.New(memfs.Options{})}}
	a, b := newServer(t, fs[0]), newServer(t, fs[1])
	cfg := quick(a.server(), b.server())
	cfg.Workloads = []string{"seq-write", "small-write", "unlink"}
	cfg.Jobs, cfg.Depth, cfg.Duration = 1, 1, 30*time.Second // all is done before
	var turns []string
	cfg.Progress = func(p Progress) {
		for name, s := range map[string]*server{"A": a, "B": b} {
			if strings.HasPrefix(p.What, "seq-write") && strings.HasSuffix(p.What, s.server().String()) && (len(turns) == 0 || turns[len(turns)-1] != name) {
				turns = append(turns, name)
			}
		}
	}
	r, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(turns, ""); got != "ABABAB" {
		t.Errorf("turns %s", got)
	}
	// What isn't measured, such as the removal of files, is done in parallel.
	for _, r := range fs {
		r.log = slices.DeleteFunc(r.log, func(l string) bool { return strings.HasPrefix(l, "remove") && !strings.HasPrefix(l, "remove f0-") })
	}
	if !slices.Equal(fs[0].log, fs[1].log) || len(fs[0].log) < 3*(8+90+90) {
		t.Errorf("%d and %d operations, or they differ", len(fs[0].log), len(fs[1].log))
	}
	for _, w := range r.Workloads {
		if w.Ratio == nil || w.Ratio.Rate.Median <= 0 || w.Ratio.Rate.Min > w.Ratio.Rate.Max {
			t.Errorf("%s: ratio %+v", w.Name, w.Ratio)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "A divided by B") {
		t.Errorf("%v\n%s", err, &text)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestStoppedCleansUp(t *testing.T) {
	for _, name := range Workloads() {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, memfs.New(memfs.Options{}))
			cfg := quick(s.server())
			cfg.Workloads, cfg.Warmup, cfg.Duration, cfg.Runs = []string{name}, 0, time.Minute, 1000
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(30*time.Millisecond, cancel)
			if _, err := Run(ctx, cfg); err != context.Canceled {
				t.Errorf("stopped with %v", err)
			}
			if left := s.left(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A full is a file system that has no more room after some writes.
type full struct {
	*memfs.FS
	left atomic.Int64
}

func (f *full) Write(q *vfs.Request, file vfs.File, off uint64, p []byte, how vfs.Stability) (vfs.Stability, vfs.Verifier, error) {
	if f.left.Add(-1) < 0 {
		return 0, 0, cluster.ENOSPC
	}
	return f.FS.Write(q, file, off, p, how)
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	s := newServer(t, memfs.New(memfs.Options{}))
	closed := newServer(t, memfs.New(memfs.Options{RootMode: 0o755}))
	fullFS := &full{FS: memfs.New(memfs.Options{})}
	fullFS.left.Store(10)
	f := newServer(t, fullFS)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := ln.Addr().String()
	defer func() { _ = ln.Close() }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for _, c := range []struct {
		server Server
		change func(*Config)
		want   []string
	}{
		{Server{gone.Addr().String(), ""}, nil, []string{gone.Addr().String(), "no NFS server listens"}},
		{Server{s.addr, "main/none"}, nil, []string{s.addr, "NOENT", "--dir"}},
		{Server{s.addr, ""}, nil, []string{s.addr, "ROFS", "there are: main"}},
		{f.server(), nil, []string{f.addr, "NOSPC", "--size"}},
		{closed.server(), func(cfg *Config) { cfg.UID = 1000 }, []string{closed.addr, "ACCESS", "--uid"}},
		{s.server(), func(cfg *Config) { cfg.Block, cfg.FileSize = 4<<20, 4<<20 }, []string{s.addr, "--block"}},
		{s.server(), func(cfg *Config) { cfg.Workloads = []string{"sleep"} }, []string{`"sleep"`, "seq-write"}},
		{s.server(), func(cfg *Config) { cfg.Jobs = 0 }, []string{"--jobs is 0"}},
		{s.server(), func(cfg *Config) { cfg.Minor = 3 }, []string{"--minor is 3"}},
		{s.server(), func(cfg *Config) { cfg.Servers = append(cfg.Servers, cfg.Servers[0]) }, []string{"both servers"}},
	} {
		cfg := quick(c.server)
		if c.change != nil {
			c.change(&cfg)
		}
		_, err := Run(context.Background(), cfg)
		if err == nil {
			t.Errorf("%v: no error, want %v", c.server, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: %q does not say %q", c.server, err, w)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, quick(Server{silent, ""})); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that is silent: %v", err)
	}
	if left := append(s.left(t), f.left(t)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A stuck is a file system that answers no READ.
type stuck struct {
	*memfs.FS
	free chan struct{}
}

func (s *stuck) Read(q *vfs.Request, f vfs.File, off uint64, n int) (vfs.Data, error) {
	<-s.free
	return s.FS.Read(q, f, off, n)
}

func TestSilentServer(t *testing.T) {
	fs := &stuck{FS: memfs.New(memfs.Options{}), free: make(chan struct{})}
	s := newServer(t, fs)
	cfg := quick(s.server())
	cfg.Workloads, cfg.Timeout = []string{"rand-read"}, 300*time.Millisecond
	time.AfterFunc(5*time.Second, func() { close(fs.free) })
	_, err := Run(context.Background(), cfg)
	if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), s.addr) {
		t.Error(err)
	}
}

// What is read in the warm-up is compared with what was written.
type flipper struct{ *memfs.FS }

func (f *flipper) Write(q *vfs.Request, file vfs.File, off uint64, p []byte, how vfs.Stability) (vfs.Stability, vfs.Verifier, error) {
	p = slices.Clone(p)
	p[len(p)-1] ^= 1
	return f.FS.Write(q, file, off, p, how)
}

func TestWrongDataIsFound(t *testing.T) {
	s := newServer(t, &flipper{memfs.New(memfs.Options{})})
	for _, name := range []string{"seq-read", "rand-read", "small-read"} {
		cfg := quick(s.server())
		cfg.Workloads, cfg.RandomBlock = []string{name}, cfg.Block
		if _, err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "WRONG DATA") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestColdRuns(t *testing.T) {
	s := newServer(t, memfs.New(memfs.Options{}))
	cfg := quick(s.server())
	cfg.Workloads = []string{"seq-write", "seq-read"}
	calls := 0
	cfg.DropCaches = func(_ context.Context, at Server) error {
		calls++
		if at != cfg.Servers[0] {
			t.Errorf("caches of %v", at)
		}
		return nil
	}
	r, err := Run(context.Background(), cfg)
	if err != nil || calls != cfg.Runs || !strings.HasPrefix(r.Caches, "cold") {
		t.Errorf("%v, %d calls", err, calls)
	}
	cfg.DropCaches = func(context.Context, Server) error { return errors.New("no way") }
	if _, err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "no way") {
		t.Error(err)
	}
}

func TestParseServer(t *testing.T) {
	for text, want := range map[string]Server{
		"host":                 {"host:2049", "d"},
		"host:12049":           {"host:12049", "d"},
		"host/":                {"host:2049", ""},
		"host:12049/main/x/":   {"host:12049", "main/x"},
		"host:/main":           {"host:2049", "main"},
		"[::1]:12049/main":     {"[::1]:12049", "main"},
		"[fe80::1]/main":       {"[fe80::1]:2049", "main"},
		"10.0.0.1:2049//main/": {"10.0.0.1:2049", "main"},
	} {
		if got, err := ParseServer(text, "/d/"); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/main", "host:port", ":2049", "host:0", "host:99999"} {
		if got, err := ParseServer(text, ""); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
