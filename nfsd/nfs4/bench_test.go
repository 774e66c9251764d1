package nfs4

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// direct executes a request without a connection. It returns what it was asked.
type direct struct {
	s    *sess
	buf  xdr.Encoder
	dec  xdr.Decoder
	rep  xdr.Encoder
	call oncrpc.Call
}

func (d *direct) run(b testing.TB, ops ...op) {
	d.s.seq[0]++
	d.buf.Reset()
	d.buf.Opaque(nil)
	d.buf.Uint32(2)
	d.buf.Uint32(uint32(len(ops) + 1))
	d.buf.Uint32(uint32(proto.OpSequence))
	d.buf.FixedOpaque(d.s.id[:])
	d.buf.Uint32(d.s.seq[0])
	d.buf.Uint32(0)
	d.buf.Uint32(0)
	d.buf.Bool(false)
	for _, o := range ops {
		o(&d.buf)
	}
	d.dec.Init(d.buf.Bytes())
	d.rep.Reset()
	d.call = oncrpc.Call{Procedure: proto.ProcCompound, Cred: d.s.cred, Args: &d.dec}
	if st := d.s.r.p.ServeRPC(&d.call, &d.rep); st != oncrpc.Success {
		b.Fatal(st)
	}
	segs := d.rep.Segments()
	d.dec.Init(segs[0])
	if st := proto.Status(d.dec.Uint32()); st != proto.OK {
		b.Fatal(st)
	}
}

func newDirect(b testing.TB) (*direct, opened, []byte) {
	r := newRig(b, nil)
	s := r.newSession("a")
	root := s.root()
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	s.do(putfh(f.fh), writeOp(f.sid, 0, proto.FileSync, make([]byte, 64<<10))).is(proto.OK)
	return &direct{s: s}, f, root
}

func benchmarkOps(b *testing.B, ops func(f opened, root []byte) []op) {
	d, f, root := newDirect(b)
	list := ops(f, root)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		d.run(b, list...)
	}
}

func BenchmarkSequence(b *testing.B) {
	benchmarkOps(b, func(opened, []byte) []op { return nil })
}

var linuxAttrs = []int{
	proto.AttrType, proto.AttrChange, proto.AttrSize, proto.AttrFsid, proto.AttrFileid, proto.AttrMode,
	proto.AttrNumlinks, proto.AttrOwner, proto.AttrOwnerGroup, proto.AttrRawdev, proto.AttrSpaceUsed,
	proto.AttrTimeAccess, proto.AttrTimeMetadata, proto.AttrTimeModify, proto.AttrMountedOnFileid,
}

func BenchmarkGetattr(b *testing.B) {
	benchmarkOps(b, func(f opened, _ []byte) []op { return []op{putfh(f.fh), getattr(linuxAttrs...)} })
}

func BenchmarkLookup(b *testing.B) {
	benchmarkOps(b, func(_ opened, root []byte) []op {
		return []op{putfh(root), named(proto.OpLookup, "f"), simple(proto.OpGetfh), getattr(linuxAttrs...)}
	})
}

func BenchmarkRead4K(b *testing.B) {
	benchmarkOps(b, func(f opened, _ []byte) []op { return []op{putfh(f.fh), readOp(f.sid, 0, 4096)} })
}

func BenchmarkWrite4K(b *testing.B) {
	p := make([]byte, 4096)
	benchmarkOps(b, func(f opened, _ []byte) []op {
		return []op{putfh(f.fh), writeOp(f.sid, 0, proto.Unstable, p), getattr(linuxAttrs...)}
	})
}

// The protocol itself does not allocate on the hot paths.
func TestAllocations(t *testing.T) {
	d, f, _ := newDirect(t)
	getattr := []op{putfh(f.fh), getattr(linuxAttrs...)}
	if n := testing.AllocsPerRun(100, func() { d.run(t, getattr...) }); n > 0 {
		t.Errorf("SEQUENCE PUTFH GETATTR: %v allocations", n)
	}
	// memfs makes a buffer and a slice of one for each read.
	read := []op{putfh(f.fh), readOp(f.sid, 0, 4096)}
	if n := testing.AllocsPerRun(100, func() { d.run(t, read...) }); n > 2 {
		t.Errorf("SEQUENCE PUTFH READ: %v allocations", n)
	}
}
