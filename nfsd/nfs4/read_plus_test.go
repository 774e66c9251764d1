package nfs4

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

func readPlusOp(sid state.Stateid, off uint64, n uint32) op {
	return stateidOp(proto.OpReadPlus, nil, sid, func(e *xdr.Encoder) { e.Uint64(off); e.Uint32(n) })
}

// A content is one of rpr_contents.
type content struct {
	hole bool
	off  uint64
	n    uint64
	data []byte
}

func decodeContents(d *xdr.Decoder) (eof bool, list []content) {
	eof = d.Bool()
	for range d.Count(1<<16, 8) {
		var c content
		switch d.Uint32() {
		case proto.ContentData:
			c.off = d.Uint64()
			c.data = d.Opaque(d.Remaining())
			c.n = uint64(len(c.data))
		case proto.ContentHole:
			c.hole, c.off, c.n = true, d.Uint64(), d.Uint64()
		}
		list = append(list, c)
	}
	return eof, list
}

const kib = 1 << 10

// READ_PLUS answers with data and holes, in order and without gaps.
func TestReadPlus(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	data := bytes.Repeat([]byte("0123456789abcdef"), 4*kib)[:64*kib]
	// Data in [64 KiB, 128 KiB) and from 192 KiB on, where there is a hole of 4 KiB.
	s.do(putfh(f.fh), writeOp(f.sid, 64*kib, proto.FileSync, data), writeOp(f.sid, 192*kib, proto.FileSync, data[:20*kib]),
		writeOp(f.sid, 216*kib, proto.FileSync, data[:40*kib])).is(proto.OK)
	s.do(putfh(f.fh), setSize(f.sid, 512*kib)).is(proto.OK)
	hole := func(off, end uint64) content { return content{hole: true, off: off, n: end - off} }
	some := func(off, end uint64) content { return content{off: off, n: end - off} }
	whole := readAll(t, s, f)
	for _, c := range []struct {
		off  uint64
		n    uint32
		eof  bool
		want []content
	}{
		{0, 1 << 20, true, []content{hole(0, 64*kib), some(64*kib, 128*kib), hole(128*kib, 192*kib), some(192*kib, 256*kib), hole(256*kib, 512*kib)}},
		{0, 32 * kib, false, []content{hole(0, 32*kib)}},
		{10, 10, false, []content{hole(10, 20)}}, // a hole alone, however short
		{60 * kib, 8 * kib, false, []content{some(60*kib, 68*kib)}},
		{100*kib + 1, 100, false, []content{some(100*kib+1, 100*kib+101)}},
		{100*kib + 1, 100 * kib, false, []content{some(100*kib+1, 128*kib), hole(128*kib, 192*kib), some(192*kib, 200*kib+1)}},
		{300 * kib, 1 << 20, true, []content{hole(300*kib, 512*kib)}},
		{511 * kib, kib, true, []content{hole(511*kib, 512*kib)}},
		{0, 0, false, nil},
		{512 * kib, 10, true, nil},
		{1 << 63, 10, true, nil},
	} {
		st, d := s.one(f.fh, proto.OpReadPlus, readPlusOp(f.sid, c.off, c.n))
		eof, got := decodeContents(d)
		if st != proto.OK || d.Err() != nil || d.Remaining() != 0 || eof != c.eof || len(got) != len(c.want) {
			t.Fatalf("%d+%d: %v, %v, %d left, eof %v, %d contents", c.off, c.n, st, d.Err(), d.Remaining(), eof, len(got))
		}
		for i, g := range got {
			w := c.want[i]
			if g.hole != w.hole || g.off != w.off || g.n != w.n || !g.hole && !bytes.Equal(g.data, whole[g.off:g.off+g.n]) {
				t.Errorf("%d+%d: content %d: hole %v, %d bytes at %d", c.off, c.n, i, g.hole, g.n, g.off)
			}
		}
	}
	fifo, err := r.fs.Create(rootRequest(t), mainRoot(t, r), "fifo", vfs.CreateArgs{Type: cluster.TypeFIFO, How: vfs.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fh   []byte
		sid  state.Stateid
		want proto.Status
	}{
		{root, state.Anonymous, proto.ErrIsdir},
		{r.fs.AppendHandle(nil, fifo.File), state.Anonymous, proto.ErrWrongType},
		{f.fh, state.Stateid{Seq: 1, Other: [12]byte{1, 2, 3}}, proto.ErrBadStateid},
	} {
		if st, _ := s.one(c.fh, proto.OpReadPlus, readPlusOp(c.sid, 0, 10)); st != c.want {
			t.Errorf("%v, want %v", st, c.want)
		}
	}
	s.wire.minor = 1
	s.do(putfh(f.fh), readPlusOp(f.sid, 0, 10)).is(proto.ErrOpIllegal)
}

func readAll(t *testing.T, s *sess, f opened) []byte {
	t.Helper()
	_, d := s.one(f.fh, proto.OpRead, readOp(f.sid, 0, 1<<20))
	d.Bool()
	return bytes.Clone(d.Opaque(1 << 20))
}

// READ_PLUS shows what READ does, whatever is data and whatever is not.
func TestReadPlusIsRead(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	f := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		off, n := rnd.Uint64N(900*kib), 1+rnd.Uint64N(100*kib)
		if rnd.IntN(2) == 0 {
			s.do(putfh(f.fh), writeOp(f.sid, off, proto.FileSync, bytes.Repeat([]byte{byte(1 + rnd.IntN(255))}, int(n)))).is(proto.OK)
		} else {
			s.do(putfh(f.fh), stateidOp(proto.OpDeallocate, nil, f.sid, func(e *xdr.Encoder) { e.Uint64(off); e.Uint64(n) })).is(proto.OK)
		}
		want := readAll(t, s, f)
		from, max := rnd.Uint64N(900*kib), rnd.Uint32N(1<<20)
		st, d := s.one(f.fh, proto.OpReadPlus, readPlusOp(f.sid, from, max))
		eof, list := decodeContents(d)
		want = want[min(int(from), len(want)):]
		if st != proto.OK || d.Remaining() != 0 || eof != (uint64(max) >= uint64(len(want))) {
			t.Fatal(st, d.Remaining(), eof)
		}
		want = want[:min(int(max), len(want))]
		got := make([]byte, 0, len(want))
		for _, c := range list {
			if c.off != from+uint64(len(got)) {
				t.Fatalf("a content at %d, not at %d", c.off, from+uint64(len(got)))
			}
			if c.hole {
				c.data = make([]byte, c.n)
			}
			got = append(got, c.data...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes at %d differ from READ's %d", len(got), from, len(want))
		}
	}
}

// Data goes from where it is to the connection, and is released once.
func TestReadPlusCopiesNothing(t *testing.T) {
	a, b := bytes.Repeat([]byte{1}, 70*kib), make([]byte, 100*kib)
	released := 0
	d := vfs.Data{
		Bufs: [][]byte{a, b}, N: len(a) + len(b), Holes: []vfs.Hole{{Off: 1000 + 72*kib, Len: 40 * kib}},
		Release: func() { released++ },
	}
	var e xdr.Encoder
	encodeContents(&e, 1000, &d)
	if released != 0 {
		t.Fatal("released before it was sent")
	}
	at := map[*byte]int{}
	for _, s := range e.AppendSegments(nil) {
		if len(s) > 0 {
			at[&s[0]] = len(s)
		}
	}
	for p, n := range map[*byte]int{&a[0]: 70 * kib, &b[0]: 2 * kib, &b[42*kib]: 58 * kib} {
		if at[p] != n {
			t.Errorf("%d bytes go out from where they are, not %d", at[p], n)
		}
	}
	e.Release()
	if released != 1 {
		t.Fatalf("released %d times", released)
	}
	// A hole alone refers to nothing.
	d = vfs.Data{Bufs: [][]byte{b}, N: len(b), Holes: []vfs.Hole{{Off: 0, Len: uint64(len(b))}}, Release: d.Release}
	e = xdr.Encoder{}
	if encodeContents(&e, 0, &d); released != 2 || e.HasRefs() {
		t.Fatal("data of a hole is kept")
	}
}
