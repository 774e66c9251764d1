package nfs4

import (
	"context"
	"strconv"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A naming finds the numbers of users and groups that clients name.
type naming struct {
	ctx  context.Context
	find func(ctx context.Context, owner string, group bool) (uint32, bool) // nil: none
}

// decode takes an owner or owner_group (RFC 8881 §5.9): a decimal number without
// leading zeros, "nobody", or name@domain.
func (n *naming) decode(d *xdr.Decoder, id *uint32, group bool) proto.Status {
	b := d.Opaque(proto.OpaqueLimit)
	switch {
	case d.Err() != nil:
		return proto.ErrBadxdr
	case len(b) == 0:
		return proto.ErrInval
	case string(b) == "nobody":
		*id = nobody
		return proto.OK
	}
	v, err := strconv.ParseUint(string(b), 10, 32)
	if err == nil && (b[0] != '0' || len(b) == 1) {
		*id = uint32(v)
		return proto.OK
	}
	if n.find != nil {
		if got, ok := n.find(n.ctx, string(b), group); ok {
			*id = got
			return proto.OK
		}
	}
	return proto.ErrBadowner
}
