package cli

import (
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/hawserfs/hawser/nfsd"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/tools/bench"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// memoryServer starts an NFS server in memory, and returns its address.
func memoryServer(t *testing.T) string {
	t.Helper()
	p, err := nfs4.New(nfs4.Config{FS: memfs.New(memfs.Options{}), ServerOwner: "test", Scope: "test"})
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
	return s.Addrs()[0].String()
}

func TestBenchNFS(t *testing.T) {
	a, b := memoryServer(t), memoryServer(t)
	quick := []string{
		"bench", "nfs", a, "--dir", "main", "--workloads", "seq-read,stat", "--size", "1MiB", "--block=64KiB",
		"--files", "20", "--duration", "5ms", "--runs", "2",
	}
	out, progress, err := run(quick...)
	if err != nil || !strings.Contains(out, "seq-read") || !strings.Contains(out, "WORKLOAD") {
		t.Errorf("%v:\n%s", err, out)
	}
	if progress != "" {
		t.Errorf("a progress bar where there is no terminal: %q", progress)
	}
	out, _, err = run(append(quick, "-o", "json", "--compare", b+"/main")...)
	var r bench.Report
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || len(r.Workloads) != 2 || r.Workloads[1].Ratio == nil {
		t.Errorf("%v:\n%s", err, out)
	}
	if r.Config.Block != 64<<10 || r.Config.FileSize != 1<<20 || r.Servers[1].Addr != b {
		t.Errorf("%+v", r)
	}
	_, _, err = run(append(quick, "--drop-caches", `test "$SERVER" = `+a)...)
	if err != nil {
		t.Error("--drop-caches:", err)
	}
}

func TestBenchNFSErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := ln.Addr().String()
	_ = ln.Close()
	for want, args := range map[string][]string{
		"no NFS server listens":       {gone},
		"HOST:PORT/DIR":               {"host:port"},
		"write a size such as":        {gone, "--block", "much"},
		`no workload "sleep"`:         {gone, "--workloads", "sleep"},
		"--depth is 0":                {gone, "--depth", "0"},
		`"false": exit status 1`:      {memoryServer(t) + "/main", "--drop-caches", "false", "--files", "20", "--workloads", "stat", "--duration", "1ms"},
		"accepts 1 arg":               {},
		"output \"xml\" is not known": {gone, "-o", "xml"},
	} {
		if _, _, err := run(append([]string{"bench", "nfs"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
