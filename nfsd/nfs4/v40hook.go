package nfs4

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
)

// newV40 makes what serves NFSv4.0 in a Program; nil: minor version 0 is refused.
var newV40 func(*Program) v40Handler

// A v40Handler is what NFSv4.0 (RFC 7530) does otherwise than later minor versions:
// it has no sessions, so each operation finds its client by what is in its
// arguments, and owners count their requests.
type v40Handler interface {
	// operation returns how an operation is executed, or nil if 4.0 has none of
	// that number.
	operation(op proto.Op) *operation
	// begin takes up a request, and sets its limits and origin. again: it is a
	// retry, and the reply to it has been encoded, whole.
	begin(c *compound) (again bool)
	// end ends a request that begin took up, whose reply is in c.e.
	end(c *compound)
	// holder sets c.client to whom a stateid belongs.
	holder(c *compound, sid state.Stateid) proto.Status
	// extend decodes what a client's Extension put into its record.
	extend(c *state.Client, record []byte) (state.Extension, error)
	// caller returns what calls a 4.0 client back, or nil if there is no path to it.
	caller(c *state.Client) caller
	// tick does what is due at the time now.
	tick(ctx context.Context, now cluster.Time)
}

// holder makes the client that a stateid belongs to the request's, in NFSv4.0. Later
// on it is the session's.
func (c *compound) holder(sid state.Stateid) proto.Status {
	if c.minor != 0 {
		return proto.OK
	}
	return c.p.v40.holder(c, sid)
}
