package client

import (
	"fmt"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// An FH is a file handle.
type FH []byte

// A Stateid is a stateid4. The zero Stateid is the anonymous one.
type Stateid struct {
	Seqid uint32
	Other [proto.OtherSize]byte
}

// CurrentStateid stands for the stateid that the operations before left behind
// (RFC 8881 §16.2.3.1.2).
var CurrentStateid = Stateid{Seqid: 1}

// A Compound is a request under construction. Its methods append operations
// (without SEQUENCE, which Do adds). It can be sent several times.
type Compound struct {
	enc   xdr.Encoder
	n     int
	cache bool // it changes something: the server is asked to keep its reply
	// sequenced: an operation has a sequence number of an NFSv4.0 owner, so that
	// the compound can't be sent anew.
	sequenced bool
	room      [256]byte // for enc: most compounds need no more
}

// NewCompound returns an empty Compound.
func NewCompound() *Compound {
	c := &Compound{}
	c.enc.Init(c.room[:0])
	return c
}

// Op appends an operation and returns the encoder for its arguments.
func (c *Compound) Op(op proto.Op) *xdr.Encoder {
	c.n++
	c.enc.Uint32(uint32(op))
	return &c.enc
}

// Cached asks the server to keep the reply for a retry, or not to. Operations
// that change something, but for WRITE, ask for it themselves.
func (c *Compound) Cached(cache bool) *Compound {
	c.cache = cache
	return c
}

// Len returns the number of operations.
func (c *Compound) Len() int { return c.n }

// keepInline is the size from which parts of a request are sent from where they are.
const keepInline = 4 << 10

// appendTo appends the compound, with sequence's operation first if it is not nil.
func (c *Compound) appendTo(e *xdr.Encoder, minor uint32, sequence func(*xdr.Encoder)) {
	e.String("")
	e.Uint32(minor)
	n := c.n
	if sequence != nil {
		n++
	}
	e.Uint32(uint32(n))
	if sequence != nil {
		sequence(e)
	}
	var room [4][]byte
	for _, s := range c.enc.AppendSegments(room[:0]) {
		if len(s) < keepInline {
			e.Raw(s)
		} else {
			e.Ref(s, nil)
		}
	}
}

// An OpError is an operation that did not succeed.
type OpError struct {
	Op     proto.Op
	Status proto.Status
}

// Error names the operation and its status.
func (e *OpError) Error() string { return fmt.Sprintf("nfs: %v: %v", e.Op, e.Status) }

// Unwrap returns the status, for errors.Is.
func (e *OpError) Unwrap() error { return e.Status }

// Results are the results of a compound, taken one after the other.
type Results struct {
	Status proto.Status // of the compound: that of the last operation executed
	N      int          // results there are, without SEQUENCE's

	reply *oncrpc.Reply
	taken int
}

// parse takes the head of a COMPOUND's reply.
func parse(reply *oncrpc.Reply) (*Results, error) {
	d := &reply.Results
	r := &Results{reply: reply, Status: proto.Status(d.Uint32())}
	_ = d.String(proto.OpaqueLimit)
	r.N = d.Count(1<<16, 8)
	if err := d.Err(); err != nil {
		reply.Release()
		return nil, fmt.Errorf("nfs: malformed reply: %w", err)
	}
	return r, nil
}

// Next takes the head of the next result, which must be op's, and returns the
// decoder at the rest of it and its status. If there is none, the compound
// ended before it; the error says how.
func (r *Results) Next(op proto.Op) (*xdr.Decoder, proto.Status, error) {
	d := &r.reply.Results
	if r.taken == r.N {
		return nil, 0, fmt.Errorf("nfs: no result for %v: the compound ended with %w", op, r.Status)
	}
	r.taken++
	got, status := proto.Op(d.Uint32()), proto.Status(d.Uint32())
	if d.Err() != nil {
		return nil, 0, fmt.Errorf("nfs: malformed reply at %v: %w", op, d.Err())
	}
	if got != op {
		return nil, 0, fmt.Errorf("nfs: the result of %v where that of %v belongs", got, op)
	}
	return d, status, nil
}

// OK takes the heads of the next results, which must be those of ops and
// successful, and returns the decoder at the rest of the last one; those before
// must have no more than a status. Otherwise the error is an *OpError, or says
// what is malformed.
func (r *Results) OK(ops ...proto.Op) (*xdr.Decoder, error) {
	var d *xdr.Decoder
	for _, op := range ops {
		var status proto.Status
		var err error
		if d, status, err = r.Next(op); err != nil {
			return nil, err
		}
		if status != proto.OK {
			return nil, &OpError{Op: op, Status: status}
		}
	}
	return d, nil
}

// Err returns the error of the compound's failed operation if it is the next
// one's, whatever that is, and nil if all before succeeded.
func (r *Results) Err() error {
	if r.Status == proto.OK {
		return nil
	}
	return r.Status
}

// Release gives back the memory of the results and of all that aliases them.
func (r *Results) Release() {
	if r != nil && r.reply != nil {
		r.reply.Release()
	}
}
