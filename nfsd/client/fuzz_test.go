package client

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// FuzzResults takes any bytes as the reply to a COMPOUND, and its parts: a
// server can answer what it likes.
func FuzzResults(f *testing.F) {
	reply := func(put ...func(*xdr.Encoder)) []byte {
		var e xdr.Encoder
		e.Uint32(0)
		e.String("")
		e.Uint32(uint32(len(put)))
		for _, p := range put {
			p(&e)
		}
		return e.Bytes()
	}
	f.Add(reply(func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpGetattr))
		e.Uint32(0)
		putBitmap(e, []int{proto.AttrType, proto.AttrSize})
		e.Uint32(12)
		e.Uint32(1)
		e.Uint64(5)
	}))
	f.Add(reply(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpOpen)); e.Uint32(13) }))
	f.Add(reply())
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := parse(&oncrpc.Reply{Results: *xdr.NewDecoder(in)})
		if err == nil {
			for _, op := range []proto.Op{proto.OpGetattr, proto.OpOpen, proto.OpReaddir} {
				d, err := r.OK(op)
				if err != nil {
					break
				}
				var a Attrs
				_ = getAttrs(d, &a)
			}
			r.Release()
		}
		for _, take := range []func(*xdr.Decoder){
			func(d *xdr.Decoder) { _, _ = getOpen(d) },
			func(d *xdr.Decoder) { _ = getDenied(d) },
			func(d *xdr.Decoder) { getBitmap(d) },
			func(d *xdr.Decoder) { getFH(d) },
			func(d *xdr.Decoder) {
				var a Attrs
				if getAttrs(d, &a) == nil && (len(a.Owner) > proto.OpaqueLimit || len(a.Handle) > proto.FHSize) {
					t.Fatalf("%x is %+v", in, a)
				}
			},
		} {
			take(xdr.NewDecoder(in))
		}
	})
}
