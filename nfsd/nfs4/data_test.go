package nfs4

import (
	"bytes"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs/memfs"
)

func TestReadWrite(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	rep := s.do(putfh(f.fh), writeOp(f.sid, 3, proto.Unstable, data), getattr(proto.AttrSize))
	rep.ok(proto.OpPutfh)
	d := rep.ok(proto.OpWrite)
	// Trap 28: committed is never less than asked for.
	if n, how := d.Uint32(), d.Uint32(); n != 1<<20 || how > proto.FileSync {
		t.Fatal(n, how)
	}
	verifier := d.Uint64()
	rep.ok(proto.OpGetattr)
	decodeBitmap(d)
	if v := xdr.NewDecoder(d.Opaque(8)); v.Uint64() != 1<<20+3 {
		t.Fatal("GETATTR after WRITE does not show its size")
	}
	st, d := s.one(f.fh, proto.OpCommit, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpCommit)); e.Uint64(0); e.Uint32(0) })
	if st != proto.OK || d.Uint64() != verifier {
		t.Fatal(st)
	}
	for _, c := range []struct {
		off, n uint64
		want   []byte
		eof    bool
	}{
		{3, 1 << 20, data, true},
		{0, 1 << 20, append([]byte{0, 0, 0}, data[:1<<20-3]...), false},
		{4, 5, data[1:6], false},
		{0, 1021, append([]byte{0, 0, 0}, data[:1018]...), false},
		{0, 1025, append([]byte{0, 0, 0}, data[:1022]...), false},
		{0, 0, nil, false},
		{1<<20 + 3, 10, nil, true},
		{1 << 60, 10, nil, true},
		{3, 1 << 30, data, true}, // more than MaxIO: as much as there is
	} {
		st, d := s.one(f.fh, proto.OpRead, readOp(f.sid, c.off, uint32(c.n)))
		if eof, p := d.Bool(), d.Opaque(2<<20); st != proto.OK || eof != c.eof || !bytes.Equal(p, c.want) || d.Remaining() != 0 {
			t.Fatalf("%d+%d: %v eof %v, %d bytes", c.off, c.n, st, eof, len(p))
		}
	}
	// Without an open, permissions decide; who has opened for writing may read around.
	s.wire.cred = user(7)
	if st, _ := s.one(f.fh, proto.OpWrite, writeOp(state.Anonymous, 0, 0, []byte("x"))); st != proto.ErrAccess {
		t.Fatal(st)
	}
	if st, _ := s.one(f.fh, proto.OpRead, readOp(state.Bypass, 0, 1)); st != proto.OK {
		t.Fatal(st)
	}
	s.wire.cred = user(0)
	wo := s.mustOpen(root, openHow{name: "f", owner: "wo", access: proto.ShareAccessWrite})
	if st, _ := s.one(f.fh, proto.OpRead, readOp(wo.sid, 0, 1)); st != proto.OK {
		t.Fatal(st)
	}
	other := s.mustOpen(root, openHow{create: true, name: "g"})
	if st, _ := s.one(f.fh, proto.OpRead, readOp(other.sid, 0, 1)); st != proto.ErrBadStateid {
		t.Fatal(st)
	}
	if st, _ := s.one(f.fh, proto.OpWrite, writeOp(f.sid, 1<<63, 0, []byte("x"))); st != proto.ErrFbig {
		t.Fatal(st)
	}
	if st, _ := s.one(root, proto.OpRead, readOp(state.Anonymous, 0, 1)); st != proto.ErrIsdir {
		t.Fatal(st)
	}
}

// Several READs in one reply share it: the payload of all is right.
func TestManyReads(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	f := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	data := bytes.Repeat([]byte("0123456789"), 1000)
	s.do(putfh(f.fh), writeOp(f.sid, 0, proto.FileSync, data)).is(proto.OK)
	rep := s.do(putfh(f.fh), readOp(f.sid, 1, 5001), getattr(proto.AttrSize), readOp(f.sid, 2, 33), readOp(f.sid, 3, 4000))
	rep.ok(proto.OpPutfh)
	check := func(want []byte) {
		t.Helper()
		d := rep.ok(proto.OpRead)
		d.Bool()
		if p := d.Opaque(10000); !bytes.Equal(p, want) {
			t.Fatalf("%d bytes", len(p))
		}
	}
	check(data[1:5002])
	rep.ok(proto.OpGetattr)
	decodeBitmap(rep.d)
	rep.d.Opaque(8)
	check(data[2:35])
	check(data[3:4003])
}

func TestUnstableVerifier(t *testing.T) {
	fs := memfs.New(memfs.Options{Class: cluster.Class{Consistency: cluster.Relaxed, Copies: 1}})
	r := newRig(t, func(c *Config) { c.FS = fs })
	r.fs = fs
	s := r.newSession("a")
	f := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	write := func() (uint32, uint64) {
		st, d := s.one(f.fh, proto.OpWrite, writeOp(f.sid, 0, proto.Unstable, []byte("x")))
		if st != proto.OK {
			t.Fatal(st)
		}
		d.Uint32()
		return d.Uint32(), d.Uint64()
	}
	how, v := write()
	if how != proto.Unstable {
		t.Fatal(how)
	}
	if _, again := write(); again != v {
		t.Fatal("the verifier changes without a loss")
	}
	fs.LoseUnstable()
	if _, again := write(); again == v {
		t.Fatal("the verifier survives a loss")
	}
}

// Trap 16: change_info4 is in the numbers of the change attribute, and true.
func TestChangeInfo(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	change := func() uint64 { return attrValue(t, s, root, proto.AttrChange).Uint64() }
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	steps := []struct {
		o   proto.Op
		ops []op
	}{
		{proto.OpCreate, []op{mkdir("d")}},
		{proto.OpLink, []op{putfh(f.fh), simple(proto.OpSavefh), putfh(root), named(proto.OpLink, "g")}},
		{proto.OpRename, []op{simple(proto.OpSavefh), named(proto.OpRename, "g", "h")}},
		{proto.OpRemove, []op{named(proto.OpRemove, "h")}},
	}
	for _, step := range steps {
		before := change()
		rep := s.do(append([]op{putfh(root)}, step.ops...)...)
		rep.ok(proto.OpPutfh)
		for _, o := range step.ops[:len(step.ops)-1] {
			var e xdr.Encoder
			o(&e)
			rep.ok(proto.Op(xdr.NewDecoder(e.Bytes()).Uint32()))
		}
		d := rep.ok(step.o)
		if atomic, b, a := d.Bool(), d.Uint64(), d.Uint64(); !atomic || b != before || a != change() || a <= b {
			t.Errorf("%v: atomic %v, %d to %d; the attribute was %d and is %d", step.o, atomic, b, a, before, change())
		}
	}
}

func TestNames(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	s.do(putfh(root), mkdir("d"), simple(proto.OpGetfh), getattr(proto.AttrType)).is(proto.OK)
	s.do(putfh(root), mkdir("d")).is(proto.ErrExist)
	s.do(putfh(root), named(proto.OpLookup, "d"), simple(proto.OpSavefh), putfh(root), named(proto.OpLink, "e")).is(proto.ErrIsdir)
	s.do(putfh(root), simple(proto.OpSavefh), named(proto.OpLookup, "d"), named(proto.OpRename, "d", "x")).is(proto.ErrInval)
	s.do(putfh(root), named(proto.OpLookup, "")).is(proto.ErrInval)
	s.do(putfh(root), named(proto.OpLookup, ".")).is(proto.ErrBadname)
	s.do(putfh(root), named(proto.OpRemove, "\xff")).is(proto.ErrBadchar)
	s.do(putfh(root), named(proto.OpRename, "a", "..")).is(proto.ErrNofilehandle)
	top := r.p.fs.AppendHandle(nil, vfsFile{Ino: 1})
	s.do(putfh(root), simple(proto.OpSavefh), putfh(top), named(proto.OpRename, "d", "d")).is(proto.ErrXdev)
	s.do(putfh(root), func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeReg)
		e.String("reg")
		e.Uint32(0)
		e.Uint32(0)
	}).is(proto.ErrBadtype)
}

func TestRanges(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	g := s.mustOpen(root, openHow{create: true, name: "g"})
	data := bytes.Repeat([]byte("abcd"), 3*1024)
	s.do(putfh(f.fh), writeOp(f.sid, 8192, proto.FileSync, data)).is(proto.OK)
	seek := func(off uint64, what uint32) (proto.Status, bool, uint64) {
		st, d := s.one(f.fh, proto.OpSeek, stateidOp(proto.OpSeek, nil, f.sid, func(e *xdr.Encoder) { e.Uint64(off); e.Uint32(what) }))
		if st != proto.OK {
			return st, false, 0
		}
		return st, d.Bool(), d.Uint64()
	}
	for _, c := range []struct {
		off  uint64
		what uint32
		want proto.Status
		eof  bool
		pos  uint64
	}{
		{0, proto.ContentData, 0, false, 8192},
		{0, proto.ContentHole, 0, false, 0},
		{9000, proto.ContentHole, 0, true, 20480},
		{20480, proto.ContentData, proto.ErrNxio, false, 0}, // trap 31
		{99999, proto.ContentHole, proto.ErrNxio, false, 0},
		{0, 7, proto.ErrUnionNotsupp, false, 0},
	} {
		if st, eof, pos := seek(c.off, c.what); st != c.want || eof != c.eof || pos != c.pos {
			t.Errorf("%+v: %v %v %d", c, st, eof, pos)
		}
	}
	rangeOp := func(o proto.Op, sid state.Stateid, off, n uint64) op {
		return stateidOp(o, nil, sid, func(e *xdr.Encoder) { e.Uint64(off); e.Uint64(n) })
	}
	s.do(putfh(f.fh), rangeOp(proto.OpDeallocate, f.sid, 8192, 4096), rangeOp(proto.OpAllocate, f.sid, 0, 30000)).is(proto.OK)
	s.do(putfh(f.fh), rangeOp(proto.OpAllocate, f.sid, 0, 0)).is(proto.ErrInval)
	if _, _, pos := seek(0, proto.ContentData); pos != 12288 {
		t.Fatal(pos)
	}
	pairOp := func(o proto.Op, from, to, n uint64) []op {
		return []op{putfh(f.fh), simple(proto.OpSavefh), putfh(g.fh), func(e *xdr.Encoder) {
			e.Uint32(uint32(o))
			f.sid.Encode(e)
			g.sid.Encode(e)
			e.Uint64(from)
			e.Uint64(to)
			e.Uint64(n)
			if o == proto.OpCopy {
				e.Bool(true)
				e.Bool(false)
				e.Uint32(0)
			}
		}}
	}
	content := func(fh []byte, sid state.Stateid) []byte {
		_, d := s.one(fh, proto.OpRead, readOp(sid, 0, 1<<20))
		d.Bool()
		return d.Opaque(1 << 20)
	}
	s.do(pairOp(proto.OpClone, 0, 0, 0)...).is(proto.OK)
	if !bytes.Equal(content(f.fh, f.sid), content(g.fh, g.sid)) {
		t.Fatal("CLONE")
	}
	for _, c := range []struct{ from, to, n uint64 }{{12288, 0, 4096}, {13, 29999, 10000}, {20000, 1, 0}, {20000, 5, 9999}} {
		want := content(g.fh, g.sid)
		src := content(f.fh, f.sid)[c.from:]
		if c.n != 0 && c.n < uint64(len(src)) {
			src = src[:c.n]
		}
		want = append(want, make([]byte, max(0, int(c.to)+len(src)-len(want)))...)
		copy(want[c.to:], src)
		rep := s.do(pairOp(proto.OpCopy, c.from, c.to, c.n)...)
		rep.is(proto.OK)
		for _, o := range []proto.Op{proto.OpPutfh, proto.OpSavefh, proto.OpPutfh} {
			rep.ok(o)
		}
		d := rep.ok(proto.OpCopy)
		if ids, n, how := d.Uint32(), d.Uint64(), d.Uint32(); ids != 0 || n != uint64(len(src)) || how != proto.FileSync {
			t.Fatal(ids, n, how)
		}
		if !bytes.Equal(content(g.fh, g.sid), want) {
			t.Fatalf("COPY %+v", c)
		}
	}
	s.do(pairOp(proto.OpCopy, 1<<40, 0, 1)...).is(proto.ErrInval)
	s.do(pairOp(proto.OpCopy, 20000, 5, 99999)...).is(proto.ErrInval)
}

func TestXattrs(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	f := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	set := func(how uint32, name string, value []byte) op {
		return func(e *xdr.Encoder) {
			e.Uint32(uint32(proto.OpSetxattr))
			e.Uint32(how)
			e.String(name)
			e.Opaque(value)
		}
	}
	get := named(proto.OpGetxattr, "k")
	steps := []struct {
		o    op
		want proto.Status
	}{
		{get, proto.ErrNoxattr},
		{set(proto.SetxattrReplace, "k", nil), proto.ErrNoxattr},
		{set(proto.SetxattrCreate, "k", []byte("v")), proto.OK},
		{set(proto.SetxattrCreate, "k", []byte("v")), proto.ErrExist},
		{set(proto.SetxattrReplace, "k", []byte("w")), proto.OK},
		{set(proto.SetxattrEither, "l", make([]byte, 64<<10+1)), proto.ErrXattr2big},
		{set(3, "l", nil), proto.ErrBadxdr},
		{get, proto.OK},
	}
	for i, step := range steps {
		if rep := s.do(putfh(f.fh), step.o); rep.status != step.want {
			t.Fatalf("%d: %v, want %v", i, rep.status, step.want)
		}
	}
	for _, n := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
		s.do(putfh(f.fh), set(proto.SetxattrEither, n, nil)).is(proto.OK)
	}
	for _, size := range []uint32{40, 60, 4096} {
		var all []string
		var cookie uint64
		for eof := false; !eof; {
			st, d := s.one(f.fh, proto.OpListxattrs, func(e *xdr.Encoder) {
				e.Uint32(uint32(proto.OpListxattrs))
				e.Uint64(cookie)
				e.Uint32(size)
			})
			if st != proto.OK || d.Remaining() > int(size) {
				t.Fatal(st, d.Remaining())
			}
			cookie = d.Uint64()
			for range d.Count(100, 4) {
				all = append(all, d.String(255))
			}
			eof = d.Bool()
		}
		if len(all) != 6 {
			t.Fatal(all)
		}
	}
	s.do(putfh(f.fh), func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpListxattrs)); e.Uint64(0); e.Uint32(18) }).is(proto.ErrToosmall)
	s.do(putfh(f.fh), named(proto.OpRemovexattr, "k"), named(proto.OpRemovexattr, "k")).is(proto.ErrNoxattr)
}
