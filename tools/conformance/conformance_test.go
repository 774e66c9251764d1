package conformance

import (
	"context"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a file system in memory, and returns where.
func serve(t *testing.T) string {
	t.Helper()
	p, err := nfs4.New(nfs4.Config{
		FS:       memfs.New(memfs.Options{Class: cluster.Class{Consistency: cluster.Relaxed, Copies: 1}}),
		Delegate: func(vfs.Volume) bool { return true }, ServerOwner: "test", Scope: "test", Lease: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	srv := oncrpc.NewServer(oncrpc.Config{
		Programs:  []oncrpc.Program{{Number: proto.Program, MinVersion: 4, MaxVersion: 4, Handler: p}},
		MaxRecord: 2 << 20,
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 2)
	go func() { _ = srv.Serve(ln); done <- struct{}{} }()
	go func() { p.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() {
		srv.Close()
		cancel()
		<-done
		<-done
	})
	return ln.Addr().String()
}

// TestConformance holds this project's server to every rule. CONFORMANCE_RUN selects some.
func TestConformance(t *testing.T) {
	addr := serve(t)
	for minor := range uint32(3) {
		cfg := Config{Addr: addr, Dir: "main", Minors: []uint32{minor}}
		if e := os.Getenv("CONFORMANCE_RUN"); e != "" {
			cfg.Run = regexp.MustCompile(e)
		}
		cfg.Report = func(r Result) {
			switch r.Outcome {
			case Failed:
				t.Error(r.String())
			case Skipped:
				t.Log(r.String())
			}
		}
		rep, err := Run(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("NFSv4.%d: %d passed, %d failed, %d skipped", minor, rep.Passed, rep.Failed, rep.Skipped)
	}
}
