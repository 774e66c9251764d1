package vfs

import "github.com/hawserfs/hawser/cluster/fsm"

// An Origin names the request of a client that a command is part of, the same
// for every attempt at the request and on whatever node it is made: what a
// command with an origin did is done once, and told again.
type Origin struct {
	Session   [16]byte // sessionid4; NFSv4.0: made of the client's address or id
	Slot, Seq uint32
	// Sum is a checksum of the request, if there is one: another Sum is
	// another request.
	Sum uint32
	// Ordered says that Seq counts up, as in a session (RFC 8881 §2.10.6.1): an
	// older one is refused with EREPLAY. Otherwise (NFSv4.0: Slot is xid%1024,
	// Seq the xid) another Seq is another request.
	Ordered bool
}

// SetOrigin says which request r is. replay: an earlier front-end may have
// executed it, in whole or in part; each mutating call then asks first for what
// it had for a result, before anything that could be different by now.
func (r *Request) SetOrigin(o Origin, replay bool) {
	r.origin, r.replay = o, replay
	r.SetOp(0)
}

// SetOp says that operation i of the request comes next (below fsm.MaxOps). A
// replay must make the same mutating calls in each operation as the first
// execution did, in the same order, whatever it finds otherwise: they are
// told apart by their number.
func (r *Request) SetOp(i uint32) { r.op, r.calls = uint16(min(i, fsm.MaxOps)), 0 }

// A Call is one mutating call on behalf of a request, for implementations of FS.
type Call struct {
	Origin
	Op, Number uint16
	Replay     bool // it may have been executed
}

// NextCall numbers a mutating call of r. The Call has the zero Origin if r has none.
func (r *Request) NextCall() Call {
	c := Call{Origin: r.origin, Op: r.op, Number: r.calls, Replay: r.replay}
	r.calls++
	return c
}
