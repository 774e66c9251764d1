package nfs4

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

type vfsFile = vfs.File

// A gate stops reads while it is closed.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{}
	arrived chan struct{}
	reads   atomic.Int32
	panics  atomic.Bool
}

func newGate() *gate { return &gate{arrived: make(chan struct{}, 16)} }

func (g *gate) close() {
	g.mu.Lock()
	g.shut = make(chan struct{})
	g.mu.Unlock()
}

func (g *gate) open() { close(g.shut) }

func (g *gate) await() { <-g.arrived }

type gateFS struct {
	vfs.FS
	g *gate
}

func (f gateFS) Access(r *vfs.Request, file vfs.File, want uint32) (uint32, error) {
	if f.g.panics.Load() {
		panic("asked for")
	}
	return f.FS.Access(r, file, want)
}

func (f gateFS) Read(r *vfs.Request, file vfs.File, off uint64, n int) (vfs.Data, error) {
	f.g.reads.Add(1)
	f.g.mu.Lock()
	shut := f.g.shut
	f.g.mu.Unlock()
	if shut != nil {
		f.g.arrived <- struct{}{}
		<-shut
	}
	return f.FS.Read(r, file, off, n)
}

func rootRequest(t interface{ Context() context.Context }) *vfs.Request {
	return vfs.NewRequest(t.Context(), vfs.Cred{})
}

func mainRoot(t *testing.T, r *rig) vfs.File {
	t.Helper()
	f, _, err := r.fs.Lookup(rootRequest(t), vfs.Root, "main")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func regular() vfs.CreateArgs { return vfs.CreateArgs{Type: cluster.TypeRegular, How: vfs.Guarded} }
