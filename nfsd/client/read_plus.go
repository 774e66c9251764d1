package client

import (
	"context"
	"fmt"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A Content is data or a hole of a file.
type Content struct {
	Off  uint64
	Len  uint64
	Data []byte // nil: a hole
}

// ReadPlus reads up to n bytes at off, in one READ_PLUS (RFC 7862 §15.10).
func (f *File) ReadPlus(ctx context.Context, off uint64, n int) (list []Content, eof bool, err error) {
	err = f.with(func(s Stateid) error {
		list = nil
		ops := NewCompound().PutFH(f.fh)
		e := ops.Op(proto.OpReadPlus)
		putStateid(e, s)
		e.Uint64(off)
		e.Uint32(uint32(n))
		return f.c.one(ctx, ops, func(d *xdr.Decoder) error {
			eof = d.Bool()
			for range d.Count(1<<16, 16) {
				switch what := d.Uint32(); what {
				case proto.ContentData:
					c := Content{Off: d.Uint64()}
					c.Data = append([]byte{}, d.Opaque(d.Remaining())...)
					c.Len = uint64(len(c.Data))
					list = append(list, c)
				case proto.ContentHole:
					list = append(list, Content{Off: d.Uint64(), Len: d.Uint64()})
				default:
					return fmt.Errorf("nfs: READ_PLUS answers with content of type %d", what)
				}
			}
			return nil
		}, proto.OpPutfh, proto.OpReadPlus)
	})
	return list, eof, err
}
