package vfs

import "context"

// A Request is one compound operation of one user. It is used by one goroutine.
type Request struct {
	ctx  context.Context
	cred Cred

	// What has been agreed for this request so far; kept by the implementation.
	reads []agreed
}

// agreed is a volume's index at which this request reads, and what its own
// changes left behind.
type agreed struct {
	volume VolumeID
	index  uint64
	attrs  []Attr
}

// NewRequest returns a request of cred that ends with ctx.
func NewRequest(ctx context.Context, cred Cred) *Request {
	return &Request{ctx: ctx, cred: cred}
}

// Context returns the request's context.
func (r *Request) Context() context.Context { return r.ctx }

// Cred returns who asks.
func (r *Request) Cred() *Cred { return &r.cred }

// Reset makes r a new request, keeping its memory.
func (r *Request) Reset(ctx context.Context, cred Cred) {
	*r = Request{ctx: ctx, cred: cred, reads: r.reads[:0]}
}
