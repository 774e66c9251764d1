package vfs

import "context"

// A Request is one compound operation of one user. It is used by one goroutine.
type Request struct {
	ctx   context.Context
	cred  Cred
	fresh bool // nothing older than the request may be read

	origin Origin
	replay bool
	op     uint16
	calls  uint16 // mutating calls of this operation so far

	// What has been agreed for this request so far; kept by the implementation.
	reads []agreed
}

// agreed is a volume's index at which this request reads, and what its own
// changes left behind.
type agreed struct {
	volume VolumeID
	index  uint64
	strict bool   // index is at or above all that was done before the request began
	here   bool   // this node has applied index
	attrs  []Attr // as of index
}

// NewRequest returns a request of cred that ends with ctx.
func NewRequest(ctx context.Context, cred Cred) *Request {
	return &Request{ctx: ctx, cred: cred}
}

// Context returns the request's context.
func (r *Request) Context() context.Context { return r.ctx }

// Cred returns who asks.
func (r *Request) Cred() *Cred { return &r.cred }

// Fresh says that what r reads from now on must not be older than r, also in
// relaxed directories: what was committed before is seen. For opening files
// (close-to-open consistency).
func (r *Request) Fresh() { r.fresh = true }

// Reset makes r a new request, keeping its memory.
func (r *Request) Reset(ctx context.Context, cred Cred) {
	*r = Request{ctx: ctx, cred: cred, reads: r.reads[:0]}
}

// on returns what has been agreed with volume v.
func (r *Request) on(v VolumeID) *agreed {
	for i := range r.reads {
		if r.reads[i].volume == v {
			return &r.reads[i]
		}
	}
	if n := len(r.reads); n < cap(r.reads) {
		r.reads = r.reads[:n+1]
		r.reads[n] = agreed{volume: v, attrs: r.reads[n].attrs[:0]}
	} else {
		r.reads = append(r.reads, agreed{volume: v})
	}
	return &r.reads[len(r.reads)-1]
}

// changed says that the request's own command has index index, so that all
// before it is in the state there, too. What was remembered is old.
func (r *Request) changed(v VolumeID, index uint64) {
	a := r.on(v)
	a.index, a.strict, a.here = max(a.index, index), true, false
	a.attrs = a.attrs[:0]
}

// remember keeps attributes that the last command left behind.
func (r *Request) remember(v VolumeID, attr *Attr) {
	a := r.on(v)
	a.attrs = append(a.attrs, *attr)
}

// forget drops the attributes remembered of volume v: data of a file changed.
func (r *Request) forget(v VolumeID) {
	a := r.on(v)
	a.attrs = a.attrs[:0]
}

// remembered returns attributes that the request's last command left behind.
func (r *Request) remembered(v VolumeID, ino Ino) *Attr {
	for i := range r.reads {
		if a := &r.reads[i]; a.volume == v {
			for j := range a.attrs {
				if a.attrs[j].Ino == ino {
					return &a.attrs[j]
				}
			}
		}
	}
	return nil
}
