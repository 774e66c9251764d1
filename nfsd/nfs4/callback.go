package nfs4

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A callbackOp is an operation of a CB_COMPOUND.
type callbackOp struct {
	Op   proto.CBOp
	Args func(e *xdr.Encoder) // appends the arguments; nil: none
	// Result takes the result after the status, which is OK. nil: there is none.
	Result func(d *xdr.Decoder)
}

// A caller calls a client back.
type caller interface {
	// Call has the client execute ops. Its status is that of the last that was. The
	// error is errNoPath if the client can't be reached now, or ctx's; whether it
	// has executed them is unknown then.
	Call(ctx context.Context, ops ...callbackOp) (proto.Status, error)
}

var (
	errNoPath   = errors.New("nfs4: there is no connection for callbacks to the client")
	errCallback = errors.New("nfs4: the client answers a callback with nonsense")
)

// caller returns what calls a client back, or nil if there is no path to it: then
// nothing may be promised to the client that needs one.
func (p *Program) caller(c *state.Client) caller {
	if c.Minor == 0 {
		if p.v40 == nil {
			return nil
		}
		return p.v40.caller(c)
	}
	for _, s := range p.state.Sessions(c) {
		if b := channelOf(s); b.up.Load() {
			return b
		}
	}
	return nil
}

// channelOf returns a session's back channel.
func channelOf(s *state.Session) *backChannel { return s.Attached.(*backChannel) }

// Limits of back channels.
const (
	maxBackConns = 16               // connections bound to one
	maxBackSlots = 16               // of those that a client offers, in use
	callTimeout  = 10 * time.Second // until a callback that is not answered counts as lost
	retryDelay   = 100 * time.Millisecond
	maxDelays    = 20 // times that a client may answer DELAY
	maxFaults    = 3  // callbacks in a row that fail before the client is left in peace
)

// A backChannel calls the client of a session over the connections that are bound to
// its back channel (RFC 8881 §2.10.3.1).
type backChannel struct {
	p *Program
	s *state.Session

	up    atomic.Bool   // there is a connection
	flags atomic.Uint32 // what SEQUENCE says of it
	free  chan *backSlot

	mu     sync.Mutex
	conns  []*oncrpc.Conn // the last is preferred
	wanted bool           // the client has asked for one
	faults int            // callbacks in a row that have failed
	usable int            // slots that are not given up
}

// A backSlot is a slot of a back channel: the client has its reply cache. Whoever
// took it from backChannel.free uses it alone.
type backSlot struct {
	id   uint32
	seq  uint32 // the last that was answered
	used bool   // the client has answered here, so that seq is right
}

func newBackChannel(p *Program, s *state.Session) *backChannel {
	n := int(min(s.Back.MaxRequests, maxBackSlots))
	if s.Back.MaxOps < 2 || s.Back.MaxRequest < minCallback || s.Back.MaxResponse < minCallback {
		n = 0
	}
	b := &backChannel{p: p, s: s, wanted: s.BackAsked && n > 0, usable: n, free: make(chan *backSlot, n)}
	// What an earlier front-end sent on which slot is not known: each begins with
	// another one.
	for i := range n {
		b.free <- &backSlot{id: uint32((i + int(p.cfg.Epoch)) % n)}
	}
	b.say()
	return b
}

// say sets up and flags. b.mu is held, or b is not shared yet.
func (b *backChannel) say() {
	b.up.Store(len(b.conns) > 0 && b.usable > 0)
	var f uint32
	switch {
	case !b.wanted:
	case b.usable == 0:
		f = proto.Seq4StatusBackchannelFault // the client makes a new session
	case len(b.conns) == 0 && b.faults < maxFaults:
		// A client that binds, and does not answer, is not asked to bind for ever.
		f = proto.Seq4StatusCBPathDownSession
	}
	b.flags.Store(f)
}

// status returns the flags of SEQUENCE that are about callbacks (RFC 8881 §18.46.3).
func (b *backChannel) status() uint32 {
	f := b.flags.Load()
	if f != 0 && b.p.caller(b.s.Client) == nil {
		f |= proto.Seq4StatusCBPathDown
	}
	return f
}

// bind binds a connection to the back channel.
func (b *backChannel) bind(conn *oncrpc.Conn) {
	if conn == nil {
		return
	}
	b.mu.Lock()
	b.wanted = b.wanted || cap(b.free) > 0
	known := slices.Contains(b.conns, conn)
	if !known {
		if len(b.conns) >= maxBackConns {
			b.conns = slices.Delete(b.conns, 0, 1)
		}
		b.conns = append(b.conns, conn)
		b.say()
	}
	b.mu.Unlock()
	if !known {
		conn.OnClose(func() { b.unbind(conn) })
	}
}

// unbind says that a connection is of no use for callbacks.
func (b *backChannel) unbind(conn *oncrpc.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = slices.DeleteFunc(b.conns, func(c *oncrpc.Conn) bool { return c == conn })
	b.say()
}

// conn returns the connection to use, or nil.
func (b *backChannel) conn() *oncrpc.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.conns); n > 0 {
		return b.conns[n-1]
	}
	return nil
}

// close closes the connections.
func (b *backChannel) close() {
	b.mu.Lock()
	conns := slices.Clone(b.conns)
	b.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// outcome counts a failure, or a success.
func (b *backChannel) outcome(ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok {
		b.faults = 0
	} else {
		b.faults++
	}
	b.say()
}

// giveUp gives a slot up.
func (b *backChannel) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usable--
	b.say()
}

// Call is as in caller. It uses one slot, and another connection if one is lost.
func (b *backChannel) Call(ctx context.Context, ops ...callbackOp) (proto.Status, error) {
	for {
		if !b.up.Load() {
			return 0, errNoPath
		}
		var slot *backSlot
		select {
		case slot = <-b.free:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		st, err := b.callOn(ctx, slot, ops)
		if err == errBadSlot {
			b.giveUp()
			continue
		}
		b.free <- slot
		if err == nil {
			b.outcome(true)
		}
		return st, err
	}
}

// errBadSlot says that the client and we do not agree on a slot.
var errBadSlot = errors.New("nfs4: a slot of the back channel is out of step")

// callOn calls on a slot until the client has answered.
func (b *backChannel) callOn(ctx context.Context, slot *backSlot, ops []callbackOp) (proto.Status, error) {
	for delays := 0; ; {
		conn := b.conn()
		if conn == nil {
			return 0, errNoPath
		}
		head, st, err := b.send(ctx, conn, slot, ops)
		switch {
		case err != nil && ctx.Err() != nil:
			// The client may still execute it: the next call on the slot finds out.
			return 0, ctx.Err()
		case err != nil:
			b.unbind(conn)
			if !errors.Is(err, oncrpc.ErrClosed) { // it is there, and does not do what it should
				b.outcome(false)
			}
			continue
		}
		switch head {
		case proto.OK:
			slot.seq++
			slot.used = true
			return st, nil
		case proto.ErrDelay:
			if delays++; delays > maxDelays {
				return 0, errNoPath
			}
			select {
			case <-time.After(retryDelay):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		case proto.ErrRetryUncachedRep, proto.ErrSeqFalseRetry:
			// The client has executed what was sent before, whose answer was lost, and
			// has not kept it. Callbacks may be executed twice.
			slot.seq++
			slot.used = true
		case proto.ErrSeqMisordered, proto.ErrBadslot:
			return 0, errBadSlot
		default: // BADSESSION and others: nothing can be said to this session
			b.unbind(conn)
			b.outcome(false)
			return 0, errNoPath
		}
	}
}

// send sends a CB_COMPOUND once. head is the status of CB_SEQUENCE, st that of the
// last operation executed.
func (b *backChannel) send(ctx context.Context, conn *oncrpc.Conn, slot *backSlot, ops []callbackOp) (head, st proto.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	program, cred := b.p.state.Callback(b.s)
	rep, err := conn.Call(ctx, &oncrpc.Request{
		Program: program, Version: proto.CBVersion, Procedure: proto.ProcCBCompound, Cred: callbackCred(&cred),
		Encode: func(e *xdr.Encoder) {
			e.Opaque(nil) // tag
			e.Uint32(b.s.Client.Minor)
			e.Uint32(0) // callback_ident: of 4.0
			e.Uint32(uint32(len(ops)) + 1)
			e.Uint32(uint32(proto.CBSequence))
			e.FixedOpaque(b.s.ID[:])
			e.Uint32(slot.seq + 1)
			e.Uint32(slot.id)
			e.Uint32(uint32(cap(b.free)) - 1) // csa_highest_slotid
			e.Bool(false)                     // csa_cachethis: Linux refuses others
			e.Uint32(0)                       // no referring calls
			encodeCallbacks(e, ops)
		},
	})
	if err != nil {
		return 0, 0, err
	}
	defer rep.Release()
	return b.decode(&rep.Results, slot, ops)
}

// decode takes the reply to a CB_COMPOUND: the status of its CB_SEQUENCE, and that of the
// last operation behind it.
func (b *backChannel) decode(d *xdr.Decoder, slot *backSlot, ops []callbackOp) (head, st proto.Status, err error) {
	whole := proto.Status(d.Uint32())
	d.Opaque(maxTag)
	n := d.Uint32()
	if n == 0 && whole != proto.OK && d.Err() == nil {
		return whole, whole, nil // MINOR_VERS_MISMATCH or the like
	}
	if op := proto.CBOp(d.Uint32()); op != proto.CBSequence || n > uint32(len(ops))+1 {
		return 0, 0, errCallback
	}
	if head = proto.Status(d.Uint32()); head != proto.OK {
		return head, head, d.Err()
	}
	var id state.SessionID
	copy(id[:], d.FixedOpaque(len(id)))
	seq, at := d.Uint32(), d.Uint32()
	d.Uint32()
	d.Uint32()
	if d.Err() != nil || id != b.s.ID || seq != slot.seq+1 || at != slot.id {
		return 0, 0, errCallback
	}
	st, err = decodeCallbacks(d, ops, int(n)-1)
	return head, st, err
}

// minCallback is the least that a usable back channel has for a message, in bytes.
const minCallback = 512

// callbackCred is the credential of callbacks: a Linux client obeys none but the one
// that it has offered.
func callbackCred(c *state.CallbackCred) oncrpc.Cred {
	if !c.Sys {
		return oncrpc.Cred{Flavor: oncrpc.AuthNone}
	}
	return oncrpc.Cred{Flavor: oncrpc.AuthSysF, Sys: &oncrpc.AuthSys{
		Machine: []byte(c.Machine), UID: c.UID, GID: c.GID,
	}}
}

// encodeCallbacks appends operations.
func encodeCallbacks(e *xdr.Encoder, ops []callbackOp) {
	for i := range ops {
		e.Uint32(uint32(ops[i].Op))
		if ops[i].Args != nil {
			ops[i].Args(e)
		}
	}
}

// decodeCallbacks takes the results of the first n operations, of which only the
// last can have failed. It returns the status of the last.
func decodeCallbacks(d *xdr.Decoder, ops []callbackOp, n int) (st proto.Status, err error) {
	for i := range n {
		if i >= len(ops) || st != proto.OK {
			return st, errCallback
		}
		op := proto.CBOp(d.Uint32())
		st = proto.Status(d.Uint32())
		if d.Err() != nil || op != ops[i].Op && (op != proto.CBIllegal || st == proto.OK) {
			return st, errCallback
		}
		if st == proto.OK && ops[i].Result != nil {
			ops[i].Result(d)
		}
		if d.Err() != nil {
			return st, errCallback
		}
	}
	if st == proto.OK && n < len(ops) {
		return st, errCallback
	}
	return st, nil
}
