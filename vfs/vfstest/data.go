package vfstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

var dataTests = map[string]func(*T){
	"sizes":        testSizes,
	"model":        testModel,
	"change":       testChange,
	"verifier":     testVerifier,
	"truncate":     testTruncate,
	"sparse":       testSparse,
	"copy-states":  testCopyState,
	"prefetch":     testPrefetch,
	"allocate":     testAllocate,
	"clone":        testClone,
	"concurrent":   testConcurrent,
	"data-refused": testDataRefused,
	"append":       testAppend,
	"used":         testUsed,
	"write-times":  testWriteTimes,
}

// pattern returns n bytes that differ by position and seed.
func pattern(seed uint64, n int) []byte {
	p := make([]byte, n)
	x := seed*0x9E3779B97F4A7C15 + 1
	for i := range p {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		p[i] = byte(x >> (i % 8 * 8))
	}
	return p
}

func testSizes(t *T) {
	for i, n := range []int{0, 1, 511, 1024, 1025, 4096, 16 << 10, 16<<10 + 1, 100_000, 1 << 20, 4 << 20, 4<<20 + 1, 9_000_000} {
		for _, how := range []vfs.Stability{vfs.Unstable, vfs.DataSync, vfs.FileSync} {
			f := t.file(fmt.Sprintf("%d-%d", i, how))
			want := pattern(uint64(n), n)
			for off := 0; off < n; off += 1 << 20 {
				t.write(f, uint64(off), want[off:min(n, off+1<<20)], how)
			}
			t.content(f, want)
			t.commit(f)
			t.content(f, want)
			if n > 5000 {
				if got := t.read(f, uint64(n-5000), 3000); !bytes.Equal(got, want[n-5000:n-2000]) {
					t.Fatalf("size %d: a part is wrong", n)
				}
			}
		}
	}
}

// testModel does random things to a file and to an array.
func testModel(t *T) {
	const maxSize = 3 << 20
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 7))
		f := t.file(fmt.Sprint("f", seed))
		var want []byte
		grow := func(n int) {
			if n > len(want) {
				want = append(want, make([]byte, n-len(want))...)
			}
		}
		for step := range 150 {
			off := rng.IntN(maxSize)
			if rng.IntN(2) == 0 {
				off = rng.IntN(len(want) + 1)
			}
			n := 1 << rng.IntN(20)
			n += rng.IntN(n)
			n = max(1, min(n, maxSize-off))
			switch op := rng.IntN(20); {
			case op < 12:
				p := pattern(seed<<32+uint64(step), n)
				t.write(f, uint64(off), p, vfs.Stability(rng.IntN(8)/6))
				grow(off + n)
				copy(want[off:], p)
			case op == 12:
				t.commit(f)
			case op == 13:
				t.setSize(f, uint64(off))
				if off < len(want) {
					clear(want[off:])
					want = want[:off]
				}
				grow(off)
			case op == 14:
				t.ok(t.FS.Deallocate(req(Root), f, uint64(off), uint64(n)))
				if off < len(want) {
					clear(want[off:min(len(want), off+n)])
				}
			default:
				got := t.read(f, uint64(off), n)
				from := min(off, len(want))
				if !bytes.Equal(got, want[from:min(off+n, len(want))]) {
					t.Fatalf("seed %d step %d: read of [%d, +%d) is wrong (%d bytes)", seed, step, off, n, len(got))
				}
			}
			if size := t.attr(f).Size; size != uint64(len(want)) {
				t.Fatalf("seed %d step %d: size %d, want %d", seed, step, size, len(want))
			}
		}
		t.content(f, want)
		t.commit(f)
		t.content(f, want)
	}
}

// testChange: what can be seen of a file never changes without its change attribute.
func testChange(t *T) {
	f := t.file("f")
	for _, how := range []vfs.Stability{vfs.FileSync, vfs.Unstable, vfs.Unstable} {
		t.moves(fmt.Sprint("write ", how), f, func() { t.write(f, 0, []byte("data"), how) })
	}
	before := t.attr(f)
	t.commit(f)
	if after := t.attr(f); after.Change < before.Change {
		t.Errorf("commit: change went back from %d to %d", before.Change, after.Change)
	}
	t.moves("write after commit", f, func() { t.write(f, 1, []byte("x"), vfs.Unstable) })
	t.moves("truncate", f, func() { t.setSize(f, 2) })
	t.moves("deallocate", f, func() { t.ok(t.FS.Deallocate(req(Root), f, 0, 1)) })
	t.moves("allocate", f, func() { t.ok(t.FS.Allocate(req(Root), f, 0, 100)) })
	t.moves("chmod", f, func() {
		_, err := t.FS.Setattr(req(Root), f, mode(0o600), false)
		t.ok(err)
	})
	t.moves("link", f, func() {
		_, _, err := t.FS.Link(req(Root), f, t.Dir, "g")
		t.ok(err)
	})
	t.moves("rename", f, func() {
		_, _, err := t.FS.Rename(req(Root), t.Dir, "g", t.Dir, "h")
		t.ok(err)
	})
	last := t.attr(f).Change
	for i := range 50 {
		t.write(f, uint64(i), []byte{byte(i)}, vfs.Stability(i%3/2))
		if i%7 == 0 {
			t.commit(f)
		}
		now := t.attr(f).Change
		if now <= last {
			t.Fatalf("write %d: change %d after %d", i, now, last)
		}
		last = now
	}
}

func testVerifier(t *T) {
	f, g := t.file("f"), t.file("g")
	v := t.write(f, 0, []byte("a"), vfs.Unstable)
	if w := t.write(f, 1, []byte("b"), vfs.Unstable); w != v {
		t.Errorf("verifier changed from %x to %x", v, w)
	}
	if w := t.write(g, 1, []byte("b"), vfs.FileSync); w != v {
		t.Errorf("another file's verifier is %x, not %x", w, v)
	}
	if w := t.commit(f); w != v {
		t.Errorf("commit has verifier %x, writes had %x", w, v)
	}
}

func testTruncate(t *T) {
	for _, how := range []vfs.Stability{vfs.Unstable, vfs.FileSync} {
		f := t.file(fmt.Sprint("f", how))
		want := pattern(1, 2<<20)
		t.write(f, 0, want, how)
		for _, size := range []int{1<<20 + 5, 70_000, 12_345, 4096, 100, 1} {
			t.setSize(f, uint64(size))
			want = want[:size]
			t.content(f, want)
		}
		// What was cut off does not come back.
		t.setSize(f, 50_000)
		long := append(bytes.Clone(want), make([]byte, 50_000-1)...)
		t.content(f, long)
		t.write(f, 60_000, []byte("end"), how)
		long = append(append(long, make([]byte, 10_000)...), "end"...)
		t.content(f, long)
		t.commit(f)
		t.setSize(f, 0)
		t.commit(f)
		t.content(f, nil)
	}
}

func testSparse(t *T) {
	f := t.file("f")
	const unit = 1 << 20
	p := pattern(3, unit)
	t.write(f, 2*unit, p, vfs.Unstable)
	t.write(f, 5*unit, p, vfs.FileSync)
	t.setSize(f, 8*unit)
	for _, c := range []struct {
		off  uint64
		what vfs.SeekWhat
		want uint64
		err  vfs.Errno
	}{
		{0, vfs.SeekData, 2 * unit, cluster.OK},
		{0, vfs.SeekHole, 0, cluster.OK},
		{2 * unit, vfs.SeekData, 2 * unit, cluster.OK},
		{2*unit + 5, vfs.SeekData, 2*unit + 5, cluster.OK},
		{2*unit + 5, vfs.SeekHole, 3 * unit, cluster.OK},
		{3 * unit, vfs.SeekData, 5 * unit, cluster.OK},
		{5 * unit, vfs.SeekHole, 6 * unit, cluster.OK},
		{6 * unit, vfs.SeekData, 0, cluster.ENXIO},
		{6 * unit, vfs.SeekHole, 6 * unit, cluster.OK},
		{8 * unit, vfs.SeekHole, 0, cluster.ENXIO},
		{9 * unit, vfs.SeekData, 0, cluster.ENXIO},
	} {
		got, err := t.FS.Seek(req(Root), f, c.off, c.what)
		t.result(fmt.Sprintf("seek %d from %d", c.what, c.off), err, c.err)
		if err == nil && got != c.want {
			t.Errorf("seek %d from %d: %d, want %d", c.what, c.off, got, c.want)
		}
	}
	want := make([]byte, 8*unit)
	copy(want[2*unit:], p)
	copy(want[5*unit:], p)
	t.content(f, want)
	for _, c := range []struct {
		off   uint64
		n     int
		holes []vfs.Hole
	}{
		{0, unit, []vfs.Hole{{Off: 0, Len: unit}}},
		{unit, 2 * unit, []vfs.Hole{{Off: unit, Len: unit}}},
		{2*unit + 1, unit - 1, nil},
		{2*unit + 7, 3 * unit, []vfs.Hole{{Off: 3 * unit, Len: 2 * unit}}},
		{7*unit + 1, 2 * unit, []vfs.Hole{{Off: 7*unit + 1, Len: unit - 1}}},
		{8 * unit, unit, nil},
	} {
		d, err := t.FS.Read(req(Root), f, c.off, c.n)
		t.ok(err)
		if !slices.Equal(d.Holes, c.holes) {
			t.Errorf("read of %d at %d: holes %+v, want %+v", c.n, c.off, d.Holes, c.holes)
		}
		if d.Release != nil {
			d.Release()
		}
	}
	// A file of which next to nothing is there.
	g := t.file("g")
	const far = 1 << 50
	t.write(g, far, []byte("far"), vfs.FileSync)
	if got := t.read(g, far-3, 10); string(got) != "\x00\x00\x00far" {
		t.Errorf("%q", got)
	}
	t.setSize(g, 10)
	t.content(g, make([]byte, 10))
}

func testAllocate(t *T) {
	f := t.file("f")
	t.write(f, 0, []byte("abc"), vfs.Unstable)
	t.ok(t.FS.Allocate(req(Root), f, 0, 2))
	t.content(f, []byte("abc"))
	t.ok(t.FS.Allocate(req(Root), f, 4, 6))
	t.content(f, append([]byte("abc"), make([]byte, 7)...))
	p := pattern(1, 3<<20)
	t.write(f, 0, p, vfs.Unstable)
	t.ok(t.FS.Deallocate(req(Root), f, 1000, 2<<20))
	clear(p[1000 : 1000+2<<20])
	t.content(f, p)
	t.ok(t.FS.Deallocate(req(Root), f, 3<<20, 1<<40)) // behind the end
	t.content(f, p)
	t.fails(t.FS.Allocate(req(Root), f, 1<<63-1, 10), cluster.EFBIG)
}

func testClone(t *T) {
	a, b := t.file("a"), t.file("b")
	p := pattern(1, 2<<20)
	t.write(a, 0, p, vfs.Unstable)
	t.write(b, 0, []byte("old"), vfs.Unstable)
	t.ok(t.FS.Clone(req(Root), a, 0, b, 0, 0))
	t.content(b, p)
	// Each has its own from here on.
	t.write(a, 100, []byte("changed in a"), vfs.FileSync)
	t.content(b, p)
	t.write(b, 1<<20, []byte("changed in b"), vfs.FileSync)
	copy(p[100:], "changed in a")
	t.content(a, p)
	t.ok(t.FS.Clone(req(Root), a, 1<<20, a, 3<<20, 1<<20))
	t.content(a, append(append(bytes.Clone(p), make([]byte, 1<<20)...), p[1<<20:]...))
	t.fails(t.FS.Clone(req(Root), a, 0, b, 0, 1<<30), cluster.EINVAL)
	t.fails(t.FS.Clone(req(Root), a, 0, a, 10, 100), cluster.EINVAL)
	t.fails(t.FS.Clone(req(Root), a, 0, t.Dir, 0, 0), cluster.EISDIR)
	_, err := t.FS.Remove(req(Root), t.Dir, "a")
	t.ok(err)
	if got := t.read(b, 0, 50); !bytes.Equal(got, pattern(1, 2<<20)[:50]) {
		t.Error("a clone lost its data with the original")
	}
}

// testConcurrent: writes by many at once to one file; each block is whole, and
// of the last write to it that any later write saw finished.
func testConcurrent(t *T) {
	f := t.file("f")
	const writers, rounds, block = 8, 12, 20_000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				p := bytes.Repeat([]byte{byte(w*rounds + i + 1)}, block)
				how := vfs.Stability(i % 2 * 2)
				// Every writer has a block of its own, and all share one.
				for _, off := range []uint64{uint64(w+1) * block, 0} {
					if _, _, err := t.FS.Write(req(Root), f, off, p, how); err != nil {
						t.Error(err)
						return
					}
				}
				d, err := t.FS.Read(req(Root), f, uint64(w+1)*block, block)
				if err != nil {
					t.Error(err)
					return
				}
				for _, b := range d.Bufs {
					if bytes.Count(b, p[:1]) != len(b) {
						t.Errorf("writer %d does not see what it wrote in round %d", w, i)
					}
				}
				if d.Release != nil {
					d.Release()
				}
				if i%5 == 4 {
					if _, err := t.FS.Commit(req(Root), f); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	t.commit(f)
	got := t.read(f, 0, (writers+1)*block)
	for i := 0; i < len(got); i += block {
		b := got[i : i+block]
		if bytes.Count(b, b[:1]) != block {
			t.Errorf("block %d is torn", i/block)
		}
		if w := i/block - 1; w >= 0 && b[0] != byte(w*rounds+rounds) {
			t.Errorf("block of writer %d has an old write", w)
		}
	}
}

func testDataRefused(t *T) {
	l := t.make(Root, t.Dir, "l", cluster.TypeSymlink, 0o777).File
	p := t.make(Root, t.Dir, "p", cluster.TypeFIFO, 0o666).File
	for _, c := range []struct {
		f    vfs.File
		want vfs.Errno
	}{{t.Dir, cluster.EISDIR}, {vfs.Root, cluster.EISDIR}, {l, cluster.ESYMLINK}, {p, cluster.EINVAL}} {
		_, err := t.FS.Read(req(Root), c.f, 0, 10)
		t.result("read", err, c.want)
		_, _, err = t.FS.Write(req(Root), c.f, 0, []byte("x"), vfs.Unstable)
		t.result("write", err, c.want)
		_, err = t.FS.Commit(req(Root), c.f)
		t.result("commit", err, c.want)
		t.result("open", t.FS.Open(req(Root), c.f), c.want)
	}
	f := t.file("f")
	_, _, err := t.FS.Write(req(Root), f, 1<<63-2, []byte("xyz"), vfs.Unstable)
	t.fails(err, cluster.EFBIG)
	_, _, err = t.FS.Write(req(Root), f, 1<<63+5, []byte("x"), vfs.Unstable)
	t.fails(err, cluster.EFBIG)
	if _, _, err := t.FS.Write(req(Root), f, 5, nil, vfs.FileSync); err != nil {
		t.Error(err)
	}
	t.content(f, nil)
}

func testAppend(t *T) {
	f := t.file("log")
	var want []byte
	for i := range 300 {
		line := fmt.Appendf(nil, "line %d of a log\n", i)
		t.write(f, uint64(len(want)), line, vfs.Stability(i%2*2))
		want = append(want, line...)
	}
	t.content(f, want)
}

func testUsed(t *T) {
	f := t.file("f")
	t.write(f, 1<<20, pattern(1, 1<<20), vfs.Unstable)
	t.commit(f)
	if used := t.attr(f).Used; used != 1<<20 {
		t.Errorf("%d bytes used", used)
	}
	t.setSize(f, 0)
	if used := t.attr(f).Used; used != 0 {
		t.Errorf("%d bytes used by an empty file", used)
	}
}

func testWriteTimes(t *T) {
	f := t.file("f")
	_, err := t.FS.Setattr(req(Root), f, vfs.SetAttr{Mask: cluster.SetMtime, Mtime: 1000}, false)
	t.ok(err)
	for _, how := range []vfs.Stability{vfs.FileSync, vfs.Unstable} {
		t.write(f, 0, []byte("x"), how)
		if m := t.attr(f).Mtime; m == 1000 {
			t.Errorf("write %d: mtime stays", how)
		}
		// A time that is set stays set, whatever was written before.
		_, err := t.FS.Setattr(req(Root), f, vfs.SetAttr{Mask: cluster.SetMtime, Mtime: 1000}, false)
		t.ok(err)
		t.commit(f)
		if m := t.attr(f).Mtime; m != 1000 {
			t.Errorf("write %d: mtime %d after it was set", how, m)
		}
	}
}
