package volume

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

func fenceWriter(id cluster.WriterID) fsm.Body { return &fsm.FenceWriter{Writer: id} }

// sparse commits n extents of a byte each, every stride bytes, in a few commands.
func (e *dataEnv) sparse(by string, ino cluster.Ino, n int, stride uint64) {
	e.t.Helper()
	for i := 0; i < n; {
		c := CommitExtents{Ino: ino}
		for ; i < n && len(c.Extents) < 2000; i++ {
			c.Extents = append(c.Extents, inline(uint64(i)*stride, []byte{byte(i) | 1}))
		}
		e.must(by, c)
	}
}

func (e *dataEnv) countExtents(ino cluster.Ino) (n int) {
	e.view.Extents(ino, 0, maxOffset, func(*Extent) bool {
		n++
		return true
	})
	return n
}

// TestPunchBounded: one Punch frees the last extents of its range, a bounded
// number of them, and repeated it gets to the end.
func TestPunchBounded(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	ino := e.create("f")
	const n, stride = 3*MaxPunch + 100, 1 << 20
	e.sparse("a", ino, n, stride)
	size := uint64((n-1)*stride + 1)
	want := e.read1(ino, 0, 2*stride)
	left := n
	for step := range 20 {
		r := e.attr("a", Punch{Ino: ino, Off: 5 * stride, Len: cluster.MaxFileSize})
		now := e.countExtents(ino)
		if freed := left - now; freed > MaxPunch+1 || freed < MaxPunch/8 && r.More {
			t.Fatalf("step %d freed %d extents", step, freed)
		}
		left = now
		if r.Attr.Size != size || r.Attr.Used != uint64(now) {
			t.Fatalf("step %d: size %d, used %d of %d extents", step, r.Attr.Size, r.Attr.Used, now)
		}
		// From the end: what is there is a prefix.
		last := uint64(0)
		e.view.Extents(ino, 0, maxOffset, func(x *Extent) bool {
			last = x.Off
			return true
		})
		if last != uint64(now-1)*stride {
			t.Fatalf("step %d: %d extents, the last at %d", step, now, last)
		}
		if !r.More {
			break
		}
		if step%2 == 0 && r.Done <= 5*stride {
			t.Fatalf("step %d: done from %d on", step, r.Done)
		}
	}
	if left != 5 {
		t.Errorf("%d extents left, want 5", left)
	}
	if got := e.read1(ino, 0, 2*stride); !bytes.Equal(got, want) {
		t.Error("punched outside of its range")
	}
	e.check()
}

// read1 returns [off, off+n) of a file of inline extents.
func (e *dataEnv) read1(ino cluster.Ino, off, n uint64) []byte {
	p := make([]byte, n)
	e.view.Extents(ino, off, off+n, func(x *Extent) bool {
		copy(p[x.Off-off:], x.Bytes)
		return true
	})
	return p
}

// TestTruncateMany: one command truncates a file of very many extents.
func TestTruncateMany(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	ino := e.create("f")
	const n = 3000
	for i := 0; i < n; i += 100 {
		c := CommitExtents{Ino: ino}
		for k := range 100 {
			b := e.blob("a", set, 10)
			c.Blobs = append(c.Blobs, b)
			c.Extents = append(c.Extents, NewExtent{Off: uint64(i+k) * 10, Len: 10, Blob: b.ID})
		}
		e.must("a", c)
	}
	e.check()
	// Overwriting all but the edges, then truncating in the middle of it.
	b := e.blob("a", set, n*10-10)
	e.must("a", CommitExtents{Ino: ino, Blobs: []NewBlob{b}, Extents: []NewExtent{{Off: 5, Len: b.Len, Blob: b.ID}}})
	if got := e.extents(ino); got != fmt.Sprintf("[0,5) blob 1-1+0\n[5,%d) blob %v+0\n[%d,%d) blob 1-%x+5\n", n*10-5, b.ID, n*10-5, n*10, n) {
		t.Errorf("extents\n%s", got)
	}
	e.check()
	e.must("a", SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: 7}})
	e.must("a", SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: 1000}})
	if got := e.extents(ino); got != fmt.Sprintf("[0,5) blob 1-1+0\n[5,7) blob %v+0\n", b.ID) {
		t.Errorf("extents\n%s", got)
	}
	e.check()
}

// TestMerge: small inline extents that touch become one, pages stay apart.
func TestMerge(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	log, pages := e.create("log"), e.create("pages")
	line := bytes.Repeat([]byte("x"), 100)
	for i := range 200 {
		e.must("a", CommitExtents{Ino: log, Extents: []NewExtent{inline(uint64(i*100), line)}})
	}
	if n := e.countExtents(log); n != 5 { // 4100 bytes each
		t.Errorf("a log has %d extents:\n%s", n, e.extents(log))
	}
	page := bytes.Repeat([]byte("p"), 4096)
	for _, i := range []uint64{0, 2, 1, 3, 1, 0} {
		e.must("a", CommitExtents{Ino: pages, Extents: []NewExtent{inline(i*4096, page)}})
	}
	if n := e.countExtents(pages); n != 4 {
		t.Errorf("pages have %d extents:\n%s", n, e.extents(pages))
	}
	// A change within an inline extent does not split it.
	e.must("a", CommitExtents{Ino: pages, Extents: []NewExtent{inline(5000, line)}})
	if n := e.countExtents(pages); n != 4 {
		t.Errorf("pages have %d extents:\n%s", n, e.extents(pages))
	}
	// A gap of a byte is filled, and all is one.
	gap := e.create("gap")
	for _, off := range []uint64{0, 101, 100} {
		p := line
		if off == 100 {
			p = line[:1]
		}
		e.must("a", CommitExtents{Ino: gap, Extents: []NewExtent{inline(off, p)}})
	}
	if got := e.extents(gap); got != "[0,201) inline\n" {
		t.Errorf("gap:\n%s", got)
	}
	e.check()
}

// TestCloneBounded: one Clone goes so far, and the next one on from there.
func TestCloneBounded(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	src, dst := e.create("src"), e.create("dst")
	const n = MaxClone + 10
	e.sparse("a", src, n, 100)
	r := e.attr("a", Clone{Src: src, Dst: dst, DstOff: 7})
	if !r.More || r.Done != MaxClone*100 || r.Attr.Size != 7+r.Done {
		t.Fatalf("first: %+v", r)
	}
	r = e.attr("a", Clone{Src: src, Dst: dst, SrcOff: r.Done, DstOff: 7 + r.Done})
	if size := uint64(n-1)*100 + 1; r.More || r.Done != size-MaxClone*100 || r.Attr.Size != 7+size {
		t.Fatalf("second: %+v", r)
	}
	if !bytes.Equal(e.read(dst)[7:], e.read(src)) {
		t.Error("not the same bytes")
	}
	e.check()

	for _, c := range []struct {
		name string
		c    Clone
		want error
	}{
		{"beyond the source", Clone{Src: src, Dst: dst, SrcOff: 1, Len: n * 100}, cluster.EINVAL},
		{"off the source", Clone{Src: src, Dst: dst, SrcOff: n * 100}, cluster.EINVAL},
		{"onto itself", Clone{Src: src, Dst: src, DstOff: 10, Len: 11}, cluster.EINVAL},
		{"too far", Clone{Src: src, Dst: dst, DstOff: cluster.MaxFileSize, Len: 11}, cluster.EFBIG},
		{"from a directory", Clone{Src: 1, Dst: dst}, cluster.EISDIR},
		{"to nothing", Clone{Src: src, Dst: 99}, cluster.ESTALE},
	} {
		if _, err := e.apply("a", c.c); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestCloneShares: a clone's blobs live until the last reference goes.
func TestCloneShares(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	src, dst := e.create("src"), e.create("dst")
	b := e.blob("a", set, 100)
	e.must("a", commitOf(src, b))
	e.must("a", Clone{Src: src, Dst: dst, SrcOff: 10, DstOff: 1000, Len: 50})
	if got := e.extents(dst); got != "[1000,1050) blob "+b.ID.String()+"+10\n" || e.refs(b.ID) != 2 {
		t.Errorf("%s, %d references", got, e.refs(b.ID))
	}
	e.must("a", Punch{Ino: src, Len: 100})
	if e.refs(b.ID) != 1 || e.inGarbage(set.ID, b.ID) {
		t.Errorf("%d references", e.refs(b.ID))
	}
	e.must("a", SetAttr{Ino: dst, Attr: cluster.SetAttr{Mask: cluster.SetSize}})
	if e.refs(b.ID) != 0 || !e.inGarbage(set.ID, b.ID) {
		t.Errorf("%d references", e.refs(b.ID))
	}
	e.check()
}

// TestWrittenAttributes: what a write does to size, times, change and mode.
func TestWrittenAttributes(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	ino := e.create("f")
	e.must("", SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetMode, Mode: 0o6755}})
	r := e.attr("a", CommitExtents{Ino: ino, Mtime: 5, Extents: []NewExtent{inline(10, []byte("abc"))}})
	a := r.Attr
	if a.Size != 13 || a.Used != 3 || a.Mtime != 5 || a.Ctime != cluster.Time(e.index) || a.Change != e.index || a.Mode != 0o6755 {
		t.Errorf("%+v", a)
	}
	r = e.attr("a", CommitExtents{Ino: ino, KillPriv: true, Extents: []NewExtent{inline(0, []byte("abc"))}})
	a = r.Attr
	if a.Size != 13 || a.Used != 6 || a.Mtime != cluster.Time(e.index) || a.Mode != 0o755 {
		t.Errorf("%+v", a)
	}
	r = e.attr("a", Punch{Ino: ino, Off: 100, Len: 50, Extend: true})
	if r.Attr.Size != 150 || r.Attr.Used != 6 {
		t.Errorf("%+v", r.Attr)
	}
	r = e.attr("a", Punch{Ino: ino, Off: 20, Len: 5, Extend: true})
	if r.Attr.Size != 150 {
		t.Errorf("%+v", r.Attr)
	}
	if _, err := e.apply("a", Punch{Ino: ino, Off: cluster.MaxFileSize, Len: 5, Extend: true}); !errors.Is(err, cluster.EFBIG) {
		t.Errorf("allocate: %v", err)
	}
	if _, err := e.apply("a", Punch{Ino: ino}); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("punch of nothing: %v", err)
	}
	e.check()
}
