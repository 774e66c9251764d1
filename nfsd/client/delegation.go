package client

import (
	"context"
	"fmt"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A Delegation is what OPEN's result says of delegations (RFC 8881 §18.16.2).
type Delegation struct {
	Type    uint32  // proto.OpenDelegate…
	Stateid Stateid // if there is one
	Why     uint32  // why there is none: proto.WND…, with OpenDelegateNoneExt
}

// Held reports whether there is one.
func (d Delegation) Held() bool {
	return d.Type == proto.OpenDelegateRead || d.Type == proto.OpenDelegateWrite
}

// getDelegation takes an open_delegation4.
func getDelegation(d *xdr.Decoder) (g Delegation, err error) {
	switch g.Type = d.Uint32(); g.Type {
	case proto.OpenDelegateNone:
	case proto.OpenDelegateNoneExt:
		if g.Why = d.Uint32(); g.Why == proto.WNDContention || g.Why == proto.WNDResource {
			d.Bool()
		}
	case proto.OpenDelegateRead, proto.OpenDelegateWrite:
		g.Stateid = getStateid(d)
		d.Bool() // recall
		if g.Type == proto.OpenDelegateWrite {
			d.Uint32() // nfs_space_limit4: as many bytes, or blocks of a size
			d.Uint64()
		}
		d.Skip(3 * 4) // nfsace4
		d.Opaque(proto.OpaqueLimit)
	default:
		return g, fmt.Errorf("nfs: a delegation of type %d, which was not asked for", g.Type)
	}
	return g, d.Err()
}

// Delegation returns what was said of delegations when the file was opened.
func (f *File) Delegation() Delegation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.delegation
}

// OpenAs opens dir/name, or the file itself, as how.Claim says.
func (c *Client) OpenAs(ctx context.Context, at FH, name string, how *OpenHow) (*File, error) {
	f, _, err := c.open(ctx, at, name, *how)
	return f, err
}

// Delegreturn returns a delegation of a file.
func (c *Client) Delegreturn(ctx context.Context, fh FH, s Stateid) error {
	return c.one(ctx, NewCompound().PutFH(fh).Delegreturn(s), nil, proto.OpPutfh, proto.OpDelegreturn)
}

// Delegreturn appends DELEGRETURN.
func (c *Compound) Delegreturn(s Stateid) *Compound {
	c.cache = true
	putStateid(c.Op(proto.OpDelegreturn), s)
	return c
}

// Recalled reports whether the server has recalled a delegation, which is for the
// caller to return. Options.Callbacks must be set.
func (c *Client) Recalled(s Stateid) bool {
	c.cb.mu.Lock()
	defer c.cb.mu.Unlock()
	_, ok := c.cb.recalled[s]
	return ok
}

// maxRecalled bounds the recalled delegations that are remembered.
const maxRecalled = 4096

// recall is CB_RECALL.
func (s *callbackService) recall(d *xdr.Decoder) proto.Status {
	sid := getStateid(d)
	d.Bool() // truncate
	d.Opaque(proto.FHSize)
	if d.Err() != nil {
		return proto.ErrBadxdr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recalled) < maxRecalled {
		s.recalled[sid] = struct{}{}
	}
	return proto.OK
}
