package vfstest

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// testPrefetch: it is a hint, and changes nothing.
func testPrefetch(t *T) {
	f := t.file("f")
	p := pattern(3, 3<<20)
	t.write(f, 0, p, vfs.FileSync)
	before := t.attr(f)
	for _, c := range [][2]uint64{{0, 1 << 20}, {1000, 0}, {3 << 20, 10}, {1 << 40, 0}, {5, 1<<64 - 1}} {
		t.ok(t.FS.Prefetch(req(Root), f, c[0], c[1]))
	}
	if after := t.attr(f); after.Change != before.Change || after.Mtime != before.Mtime {
		t.Errorf("%+v after %+v", after, before)
	}
	t.content(f, p)
	t.fails(t.FS.Prefetch(req(Root), t.Dir, 0, 1), cluster.EISDIR)
}
