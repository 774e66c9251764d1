package oncrpc

import (
	"context"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A Handler serves the calls of a program.
type Handler interface {
	// ServeRPC executes the call and appends its results to reply; the header
	// is not its business. Results are dropped unless it returns Success.
	//
	// It runs in a goroutine of its own, concurrently with others of the same
	// connection. The call, its arguments and everything that aliases them
	// are valid until it returns; payload of the reply (Encoder.Ref) until
	// its release function is called, which happens exactly once, after the
	// reply was written or given up. A release function must not call the Conn.
	ServeRPC(call *Call, reply *xdr.Encoder) AcceptStat
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(call *Call, reply *xdr.Encoder) AcceptStat

// ServeRPC calls f.
func (f HandlerFunc) ServeRPC(call *Call, reply *xdr.Encoder) AcceptStat { return f(call, reply) }

// A Program is what a Server serves under a program number.
type Program struct {
	Number                 uint32
	MinVersion, MaxVersion uint32 // others get PROG_MISMATCH
	Handler                Handler
}

// A Call is a call being served.
type Call struct {
	XID       uint32
	Program   uint32
	Version   uint32
	Procedure uint32
	Cred      Cred
	Args      *xdr.Decoder
	Conn      *Conn

	ctx context.Context
}

// Context ends when the server is closed. It does not end with the
// connection: an operation once begun is completed, since its result may be
// asked for on another connection.
func (c *Call) Context() context.Context {
	if c.ctx == nil {
		return context.Background() // a call made by hand
	}
	return c.ctx
}

// WithContext has a call that is made by hand end with ctx, and returns it.
func (c *Call) WithContext(ctx context.Context) *Call {
	c.ctx = ctx
	return c
}

// A Cred is a credential.
type Cred struct {
	Flavor Flavor
	Sys    *AuthSys // not nil if and only if Flavor is AuthSysF
}

// Limits of AUTH_SYS (RFC 5531 appendix A).
const (
	maxMachine = 255
	// MaxGroups is how many supplementary groups a credential can name.
	MaxGroups = 16
)

// An AuthSys is the body of an AUTH_SYS credential (RFC 5531 appendix A).
type AuthSys struct {
	Stamp   uint32
	Machine []byte // aliases the request
	UID     uint32
	GID     uint32
	GIDs    []uint32 // at most MaxGroups

	groups [MaxGroups]uint32 // behind GIDs when decoded
}

// decode takes the body of a credential. It reports whether it is well-formed.
func (a *AuthSys) decode(body []byte) bool {
	var d xdr.Decoder
	d.Init(body)
	a.Stamp = d.Uint32()
	a.Machine = d.Opaque(maxMachine)
	a.UID = d.Uint32()
	a.GID = d.Uint32()
	n := d.Count(MaxGroups, 4)
	for i := range n {
		a.groups[i] = d.Uint32()
	}
	a.GIDs = a.groups[:n]
	return d.Err() == nil && d.Remaining() == 0
}

// append appends the credential, flavor and length included.
func (c *Cred) append(e *xdr.Encoder) {
	e.Uint32(uint32(c.Flavor))
	m := e.Reserve32()
	if a := c.Sys; c.Flavor == AuthSysF && a != nil {
		e.Uint32(a.Stamp)
		e.Opaque(a.Machine)
		e.Uint32(a.UID)
		e.Uint32(a.GID)
		e.Uint32(uint32(len(a.GIDs)))
		for _, g := range a.GIDs {
			e.Uint32(g)
		}
	}
	e.PutUint32At(m, uint32(e.Since(m)))
}
