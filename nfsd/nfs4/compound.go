package nfs4

import (
	"context"
	"encoding/binary"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// ServeRPC executes a NULL or COMPOUND call.
func (p *Program) ServeRPC(call *oncrpc.Call, reply *xdr.Encoder) oncrpc.AcceptStat {
	switch call.Procedure {
	case proto.ProcNull:
		if p.Lost() {
			return p.drop(call)
		}
		return oncrpc.Success
	case proto.ProcCompound:
		if !p.door.enter(call.Context()) {
			return p.drop(call)
		}
		defer p.door.leave()
		c := p.pool.Get().(*compound)
		stat, fenced := c.serve(call, reply)
		if fenced {
			p.lose()
		}
		// A request that the server's end has cut short is not answered: what its
		// result says need not be what comes of it, and the client asks whoever is
		// next, as the same request.
		if call.Context().Err() != nil || !p.door.out(call.Context(), p.cfg.Valid) {
			return p.drop(call)
		}
		return stat
	}
	return oncrpc.ProcUnavail
}

// drop leaves a call unanswered: the client sends it again on another connection.
func (p *Program) drop(call *oncrpc.Call) oncrpc.AcceptStat {
	if call.Conn != nil {
		call.Conn.Close()
	}
	return oncrpc.SystemErr
}

// nobody is the user and group of those who do not say who they are.
const nobody = 65534

// A compound is a COMPOUND being executed.
type compound struct {
	p     *Program
	fs    vfs.FS
	call  *oncrpc.Call
	d     *xdr.Decoder
	e     *xdr.Encoder
	req   vfs.Request
	minor uint32
	ops   uint32 // in the request
	index uint32 // of the operation being executed

	cur, saved          vfs.File
	hasCur, hasSaved    bool
	sid, savedSid       state.Stateid // current and saved stateid (RFC 8881 §16.2.3.1.2)
	hasSid, hasSavedSid bool
	attr                vfs.Attr // of cur, if attrOK: what an operation has just returned
	attrOK              bool

	keepBody bool // the operation's result has a body although it failed
	fenced   bool // an operation was refused since another front-end serves the identity
	fresh    bool // a file was opened: its attributes are not withheld
	learned  bool // the operation has brought in what its stateid may stand for

	// origin names the request for the file system; replay: an earlier front-end
	// may have executed it.
	origin vfs.Origin
	replay bool
	salt   [36]byte

	four request40 // of NFSv4.0

	client  *state.Client
	session *state.Session
	slot    uint32
	inSlot  bool // Begin was called, and End was not
	cache   bool // sa_cachethis
	limit   int  // bytes in the reply

	handle [vfs.MaxHandle]byte
	flat   func() []byte
}

func newCompound(p *Program) *compound {
	c := &compound{p: p, fs: p.fs}
	c.flat = c.flatten // once: a method value is an allocation
	return c
}

// flatten returns the whole reply as it goes over the wire.
func (c *compound) flatten() []byte {
	return c.e.AppendTo(nil)[len(c.e.Prefix()):]
}

// maxTag bounds a COMPOUND's tag, in bytes.
const maxTag = 1024

// serve executes a COMPOUND. fenced: another front-end serves the identity.
func (c *compound) serve(call *oncrpc.Call, reply *xdr.Encoder) (stat oncrpc.AcceptStat, fenced bool) {
	defer c.done()
	c.call, c.d, c.e = call, call.Args, reply
	tag := c.d.Opaque(maxTag)
	c.minor = c.d.Uint32()
	c.ops = c.d.Uint32()
	if c.d.Err() != nil {
		return oncrpc.GarbageArgs, false
	}
	final := c.e.Reserve32()
	c.e.Opaque(tag)
	count := c.e.Reserve32()
	if c.minor > 2 || c.minor == 0 && c.p.v40 == nil {
		c.e.PutUint32At(final, uint32(proto.ErrMinorVersMismatch))
		return oncrpc.Success, false
	}
	c.credential()
	c.limit = minReply
	if c.minor == 0 && c.p.v40.begin(c) {
		return oncrpc.Success, false
	}
	st := proto.OK
	for c.index = 0; c.index < c.ops && st == proto.OK; c.index++ {
		op := proto.Op(c.d.Uint32())
		if c.index == 0 && op == proto.OpSequence && c.minor > 0 && c.d.Err() == nil {
			var again bool
			if st, again = c.sequence(); again {
				return oncrpc.Success, false // the reply is there already, whole
			}
			continue
		}
		c.req.SetOrigin(c.origin, c.replay)
		c.req.SetOp(c.index)
		st = c.operation(op)
	}
	if c.fenced {
		return oncrpc.SystemErr, true
	}
	c.e.PutUint32At(final, uint32(st))
	c.e.PutUint32At(count, c.index)
	if c.minor == 0 {
		c.p.v40.end(c)
	}
	c.end()
	return oncrpc.Success, false
}

// minReply is how much a reply outside of a session may have, in bytes.
const minReply = 4096

// credential takes over who asks.
func (c *compound) credential() {
	cred := vfs.Cred{UID: nobody, GID: nobody}
	if a := c.call.Cred.Sys; a != nil {
		cred = vfs.Cred{UID: a.UID, GID: a.GID, GIDs: a.GIDs}
	}
	c.req.Reset(c.call.Context(), cred)
}

// operation executes one operation and encodes its result.
func (c *compound) operation(op proto.Op) proto.Status {
	if c.d.Err() != nil {
		op = proto.OpIllegal // its number could not be decoded
		c.e.Uint32(uint32(op))
		c.e.Uint32(uint32(proto.ErrBadxdr))
		return proto.ErrBadxdr
	}
	o := c.p.lookup(op, c.minor)
	if o == nil {
		c.e.Uint32(uint32(proto.OpIllegal))
		c.e.Uint32(uint32(proto.ErrOpIllegal))
		return proto.ErrOpIllegal
	}
	c.e.Uint32(uint32(op))
	mark := c.e.Reserve32()
	body := c.e.Len()
	c.keepBody, c.learned = false, false
	st := c.allowed(o)
	if st == proto.OK {
		st = o.do(c)
		if st == statusFenced {
			st, c.fenced = proto.ErrDelay, c.p.cfg.Clients != nil
		}
		if c.d.Err() != nil {
			st = proto.ErrBadxdr
		}
		if c.e.Len() > c.limit {
			st, c.keepBody = c.tooBig(), false
		}
	}
	if st != proto.OK && !c.keepBody {
		c.e.Truncate(body)
		if op == proto.OpSetattr {
			encodeBitmap(c.e, bitmap{}) // its result has attrsset, also after an error
		}
	}
	c.e.PutUint32At(mark, uint32(st))
	return st
}

// lookup returns how an operation is executed in a minor version, nil if it is illegal.
func (p *Program) lookup(op proto.Op, minor uint32) *operation {
	if minor == 0 {
		return p.v40.operation(op)
	}
	return lookupOp(op, minor)
}

// plain has the file system execute what comes next in this operation whatever it
// has executed before: for what is as good done twice.
func (c *compound) plain() { c.req.SetOrigin(vfs.Origin{}, false) }

// newSalt returns what names the request and operation, for stateids made by it.
func (c *compound) newSalt() []byte {
	b := append(c.salt[:0], c.origin.Session[:]...)
	for _, v := range [...]uint32{c.origin.Slot, c.origin.Seq, c.origin.Sum, c.index} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// tooBig is the status of an operation whose result does not fit.
func (c *compound) tooBig() proto.Status {
	switch {
	case c.minor == 0:
		return proto.ErrResource
	case c.cache:
		return proto.ErrRepTooBigToCache
	}
	return proto.ErrRepTooBig
}

// allowed says whether the operation may be executed where it is.
func (c *compound) allowed(o *operation) proto.Status {
	switch {
	case o.do == nil:
		return proto.ErrNotsupp
	case c.minor == 0:
		if c.index >= maxOps40 {
			return proto.ErrResource
		}
	case c.index == 0 && o.flags&sessionless == 0:
		return proto.ErrOpNotInSession
	case c.index == 0 && c.ops > 1:
		return proto.ErrNotOnlyOp
	case c.index > 0 && o.flags&first != 0:
		return proto.ErrSequencePos
	case c.index > 0 && o.flags&alone != 0:
		return proto.ErrNotOnlyOp
	}
	switch {
	case o.flags&needCur != 0 && !c.hasCur:
		return proto.ErrNofilehandle
	case o.flags&needSaved != 0 && !c.hasSaved:
		return proto.ErrNofilehandle
	case o.flags&changes != 0:
		c.attrOK = false
		if c.e.Len()+changeReply > c.limit {
			return c.tooBig() // before anything is changed
		}
	}
	return proto.OK
}

// changeReply is more than the result of any operation that changes something has.
const changeReply = 256

// done makes c ready for reuse. If the request ended in a panic, or is not to be
// answered, its slot is given up, so that a retry is not parked for ever.
func (c *compound) done() {
	if c.inSlot {
		c.inSlot = false
		c.session.GiveUp(c.slot)
	}
	c.giveUp()
	p, flat := c.p, c.flat
	req := c.req
	req.Reset(context.Background(), vfs.Cred{}) // nothing of the request is kept
	*c = compound{p: p, fs: p.fs, flat: flat, req: req}
	p.pool.Put(c)
}

// end ends the request's use of its slot, and leaves the reply there for a retry.
func (c *compound) end() {
	if !c.inSlot {
		return
	}
	c.inSlot = false
	var keep []byte
	if !c.e.HasRefs() {
		// Small replies are kept also where the client did not ask for it: a
		// retry of what changed something is then never executed twice.
		if b := c.e.Bytes(); len(b) <= smallReply || c.cache && len(b) <= c.limit {
			keep = b
		}
	}
	c.session.End(c.slot, keep, c.flat)
	c.client.Renew(c.p.cfg.Now())
}

const smallReply = 1024

// setCur makes f the current file handle, and leaves no current stateid.
func (c *compound) setCur(f vfs.File) {
	c.cur, c.hasCur = f, true
	c.hasSid = false
	c.attrOK = false
}

// setCurAttr is setCur of a file whose attributes are known.
func (c *compound) setCurAttr(f vfs.File, a *vfs.Attr) {
	c.setCur(f)
	c.attr, c.attrOK = *a, true
}

// getattr returns the attributes of the current file.
func (c *compound) getattr() (*vfs.Attr, proto.Status) {
	if !c.attrOK {
		a, err := c.fs.Getattr(&c.req, c.cur)
		if err != nil {
			return nil, status(err)
		}
		c.attr, c.attrOK = a, true
	}
	return &c.attr, proto.OK
}

// name takes a component4 that names an entry of a directory.
func (c *compound) name() (string, proto.Status) {
	b := c.d.Opaque(c.d.Remaining())
	switch {
	case c.d.Err() != nil:
		return "", proto.ErrBadxdr
	case len(b) == 0:
		return "", proto.ErrInval
	case len(b) > 255:
		return "", proto.ErrNametoolong
	case len(b) == 1 && b[0] == '.', len(b) == 2 && b[0] == '.' && b[1] == '.':
		return "", proto.ErrBadname
	}
	return string(b), proto.OK
}

// changeInfo appends a change_info4 (RFC 8881 §3.3.5): before and after are of one
// atomic change, in the numbers of the change attribute.
func (c *compound) changeInfo(i vfs.ChangeInfo) {
	c.e.Bool(true)
	c.e.Uint64(i.Before)
	c.e.Uint64(i.After)
}
