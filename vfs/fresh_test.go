package vfs_test

import (
	"context"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs"
)

// TestFresh: a request that must be fresh sees what another front-end has
// committed in a relaxed directory, one that need not may not.
func TestFresh(t *testing.T) {
	g := newGroup(t, relaxed, 20*time.Millisecond)
	e := open(t, g, &blobs{group: g, data: map[cluster.BlobID][]byte{}}, nil)
	req := func() *vfs.Request { return vfs.NewRequest(context.Background(), vfs.Cred{}) }
	vol, _, err := e.Lookup(req(), vfs.Root, "main")
	if err != nil {
		t.Fatal(err)
	}
	made, err := e.Create(req(), vol, "f", vfs.CreateArgs{Type: cluster.TypeRegular})
	if err != nil {
		t.Fatal(err)
	}
	old := 0
	for i := range uint64(30) {
		g.do(t, volume.SetAttr{Ino: made.File.Ino, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: i}})
		if a, err := e.Getattr(req(), made.File); err != nil {
			t.Fatal(err)
		} else if a.Size != i {
			old++
		}
		r := req()
		// What was read before does not count.
		if _, err := e.Getattr(r, made.File); err != nil {
			t.Fatal(err)
		}
		r.Fresh()
		if _, a, err := e.Lookup(r, vol, "f"); err != nil || a.Size != i {
			t.Fatalf("a fresh look-up has size %d, %v, want %d", a.Size, err, i)
		}
		if a, err := e.Getattr(r, made.File); err != nil || a.Size != i {
			t.Fatalf("fresh attributes have size %d, %v, want %d", a.Size, err, i)
		}
	}
	if old == 0 {
		t.Error("no read was old: the test tests nothing")
	}
}
