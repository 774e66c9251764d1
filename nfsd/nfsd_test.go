package nfsd

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/ids"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// groupCount is a program that answers how many groups the caller has.
var groupCount = oncrpc.Program{Number: 1, MaxVersion: 1, Handler: oncrpc.HandlerFunc(
	func(call *oncrpc.Call, reply *xdr.Encoder) oncrpc.AcceptStat {
		reply.Uint32(uint32(len(call.Cred.Sys.GIDs)))
		return oncrpc.Success
	})}

func TestServer(t *testing.T) {
	s, err := Listen(Config{
		Listen:   []string{"127.0.0.1:0", "localhost:0"},
		Programs: []oncrpc.Program{groupCount},
		Groups:   ids.New(ids.Config{Lookup: func(uint32) ([]uint32, error) { return make([]uint32, 50), nil }}),
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve() }()
	cl := oncrpc.NewServer(oncrpc.Config{})
	defer cl.Close()
	for _, addr := range s.Addrs() {
		nc, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := cl.Attach(nc)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Call(context.Background(), &oncrpc.Request{
			Program: 1, Version: 1,
			Cred: oncrpc.Cred{Flavor: oncrpc.AuthSysF, Sys: &oncrpc.AuthSys{UID: 7}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := r.Results.Uint32(); n != 50 {
			t.Errorf("%d groups, want 50", n)
		}
		r.Release()
	}
	if n := s.Stats().Conns; n != 2 {
		t.Errorf("%d connections", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNFS4 checks the whole front-end, from its listener to a file system in memory.
func TestNFS4(t *testing.T) {
	p, err := nfs4.New(nfs4.Config{FS: memfs.New(memfs.Options{}), ServerOwner: "test", Scope: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Listen(Config{
		Listen: []string{"127.0.0.1:0"},
		Programs: []oncrpc.Program{{
			Number: proto.Program, MinVersion: proto.Version, MaxVersion: proto.Version, Handler: p,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Serve() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, s.Addrs()[0].String(), client.Options{Conns: 2})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := c.Walk(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.CreateFile(ctx, dir, "file", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	// A READ and a WRITE of the largest size must fit in the largest message.
	data := make([]byte, 1<<20)
	data[len(data)-1] = 1
	if w, err := f.Write(ctx, 0, data, proto.FileSync); err != nil || w.Count != len(data) {
		t.Errorf("WRITE: %+v, %v", w, err)
	}
	if n, eof, err := f.Read(ctx, 0, data); err != nil || n != len(data) || !eof || data[n-1] != 1 {
		t.Errorf("READ: %d, %v, %v", n, eof, err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestListenErrors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	taken := ln.Addr().String()
	programs := []oncrpc.Program{groupCount}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Programs: programs}, "no address"},
		{Config{Listen: []string{"127.0.0.1:0"}}, "no program"},
		{Config{Programs: programs, Listen: []string{"127.0.0.1:0", taken}}, taken},
		{Config{Programs: programs, Listen: []string{"nonsense"}}, "nonsense"},
	} {
		if _, err := Listen(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

func TestCloseBeforeServe(t *testing.T) {
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, Programs: []oncrpc.Program{groupCount}})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := s.Serve(); err == nil {
		t.Error("Serve after Close succeeded")
	}
}
