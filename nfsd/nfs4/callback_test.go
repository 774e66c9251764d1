package nfs4

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A cbClient is the callback service of a client, as Linux has it: it checks the
// credential and the slots' sequences, and keeps no replies.
type cbClient struct {
	mu    sync.Mutex
	slots map[uint32]uint32
	ops   []proto.CBOp // executed
	lose  int          // replies that are lost, the connection with them
	delay int          // DELAYs to come
	mute  bool

	recalls []state.Stateid // delegations that were recalled
	answer  proto.Status    // to CB_RECALL
}

func (c *cbClient) program() oncrpc.Program {
	return oncrpc.Program{Number: proto.CBProgram, MinVersion: 1, MaxVersion: 1, Handler: oncrpc.HandlerFunc(c.serve)}
}

func (c *cbClient) serve(call *oncrpc.Call, e *xdr.Encoder) oncrpc.AcceptStat {
	if call.Procedure == proto.ProcCBNull {
		return oncrpc.Success
	}
	d := call.Args
	d.Opaque(100)
	d.Uint32()
	d.Uint32()
	n := d.Uint32()
	e.Uint32(0)
	e.Opaque(nil)
	if call.Cred.Sys == nil || d.Uint32() != uint32(proto.CBSequence) {
		return oncrpc.SystemErr
	}
	id := d.FixedOpaque(16)
	seq, slot := d.Uint32(), d.Uint32()
	d.FixedOpaque(4 + 4 + 4)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute {
		return oncrpc.ProcUnavail
	}
	st := proto.OK
	switch {
	case c.delay > 0:
		c.delay--
		st = proto.ErrDelay
	case seq == c.slots[slot] && seq != 0:
		st = proto.ErrRetryUncachedRep
	case seq != c.slots[slot]+1:
		st = proto.ErrSeqMisordered
	}
	if st != proto.OK {
		e.Uint32(1)
		e.Uint32(uint32(proto.CBSequence))
		e.Uint32(uint32(st))
		return oncrpc.Success
	}
	c.slots[slot] = seq
	e.Uint32(n)
	e.Uint32(uint32(proto.CBSequence))
	e.Uint32(0)
	e.FixedOpaque(id)
	e.Uint32(seq)
	e.Uint32(slot)
	e.Uint32(15)
	e.Uint32(15)
	for range n - 1 {
		op := proto.CBOp(d.Uint32())
		c.ops = append(c.ops, op)
		e.Uint32(uint32(op))
		if op == proto.CBRecall && d.Remaining() > 16 {
			c.recalls = append(c.recalls, state.DecodeStateid(d))
			e.Uint32(uint32(c.answer))
			continue
		}
		e.Uint32(0)
	}
	if c.lose > 0 {
		c.lose--
		call.Conn.Close()
	}
	return oncrpc.Success
}

// executed returns how many operations were executed.
func (c *cbClient) executed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ops)
}

func bindOp(id state.SessionID, dir uint32) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpBindConnToSession))
		e.FixedOpaque(id[:])
		e.Uint32(dir)
		e.Bool(false)
	}
}

// cbRig is a client with a callback service and a session.
func cbRig(t *testing.T, change func(*Config)) (*rig, *sess, *cbClient) {
	r := newRig(t, change)
	cb := &cbClient{slots: map[uint32]uint32{}}
	r.callbacks = []oncrpc.Program{cb.program()}
	return r, r.newSession("a"), cb
}

func (s *sess) call(ops ...proto.CBOp) (proto.Status, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	c := s.r.p.caller(s.r.p.state.Client(s.clientID))
	if c == nil {
		return 0, errNoPath
	}
	var list []callbackOp
	for _, o := range ops {
		list = append(list, callbackOp{Op: o})
	}
	return c.Call(ctx, list...)
}

// flags returns what SEQUENCE says.
func (s *sess) flags() uint32 {
	s.t.Helper()
	rep := s.wait(s.start())
	d := rep.ok(proto.OpSequence)
	d.FixedOpaque(16 + 4*4)
	return d.Uint32()
}

const pathDown = proto.Seq4StatusCBPathDown | proto.Seq4StatusCBPathDownSession

// A callback goes over the connection that made the session, with the credential that
// the client has offered (traps 8 and 9).
func TestTrap09CallbackCredential(t *testing.T) {
	_, s, cb := cbRig(t, nil)
	for range 40 { // more than there are slots
		if st, err := s.call(proto.CBNotifyLock); st != proto.OK || err != nil {
			t.Fatal(st, err)
		}
	}
	if n := cb.executed(); n != 40 {
		t.Fatalf("%d callbacks were executed", n)
	}
}

// Callbacks go on over whatever connection is bound, and the client is told as long
// as none is (RFC 8881 §2.10.3.1): a SEQUENCE on a connection does not bind it.
func TestCallbackPath(t *testing.T) {
	r, s, cb := cbRig(t, nil)
	if f := s.flags(); f != 0 {
		t.Fatalf("%#x", f)
	}
	second := r.dial()
	second.compound(bindOp(s.id, proto.CDFCForeOrBoth)).is(proto.OK)
	s.c.Close()
	s.wire = second
	for range 5 {
		if st, err := s.call(proto.CBRecall); st != proto.OK || err != nil {
			t.Fatal(st, err)
		}
	}
	s.c.Close()
	s.wire = r.dial()
	deadline := time.Now().Add(10 * time.Second)
	for s.flags() != pathDown {
		if time.Now().After(deadline) {
			t.Fatal("the client is not told that callbacks can't reach it")
		}
	}
	if _, err := s.call(proto.CBRecall); !errors.Is(err, errNoPath) {
		t.Fatal(err)
	}
	s.compound(bindOp(s.id, proto.CDFCFore)).is(proto.OK)
	if f := s.flags(); f != pathDown {
		t.Fatalf("bound to the fore channel only: %#x", f)
	}
	s.compound(bindOp(s.id, proto.CDFCBackOrBoth)).is(proto.OK)
	if f := s.flags(); f != 0 {
		t.Fatalf("bound: %#x", f)
	}
	if st, err := s.call(proto.CBRecall); st != proto.OK || err != nil {
		t.Fatal(st, err)
	}
	if n := cb.executed(); n != 6 {
		t.Fatalf("%d callbacks", n)
	}
}

// A callback whose answer is lost is sent again, and its slot is not stuck with
// RETRY_UNCACHED_REP; DELAY is waited out.
func TestTrap10LostCallback(t *testing.T) {
	r, s, cb := cbRig(t, nil)
	second := r.dial()
	second.compound(bindOp(s.id, proto.CDFCBack)).is(proto.OK)
	cb.mu.Lock()
	cb.lose, cb.delay = 1, 0
	cb.mu.Unlock()
	if st, err := s.call(proto.CBRecall); st != proto.OK || err != nil {
		t.Fatal(st, err)
	}
	cb.mu.Lock()
	n := len(cb.ops)
	cb.delay = 2
	cb.mu.Unlock()
	if n != 2 {
		t.Fatalf("executed %d times", n)
	}
	for range 20 {
		if st, err := s.call(proto.CBRecall, proto.CBNotifyLock); st != proto.OK || err != nil {
			t.Fatal(st, err)
		}
	}
}

// A client that binds and does not answer callbacks is told a few times, and then left
// in peace: otherwise it would drain its slots and bind for ever.
func TestTrap11NeverStuck(t *testing.T) {
	_, s, cb := cbRig(t, nil)
	cb.mu.Lock()
	cb.mute = true
	cb.mu.Unlock()
	told := 0
	for range 10 {
		if _, err := s.call(proto.CBRecall); !errors.Is(err, errNoPath) {
			t.Fatal(err)
		}
		if s.flags() == pathDown {
			told++
		}
		s.compound(bindOp(s.id, proto.CDFCForeOrBoth)).is(proto.OK)
		if f := s.flags(); f != 0 {
			t.Fatalf("%#x", f)
		}
	}
	if told == 0 || told > maxFaults {
		t.Fatalf("told %d times", told)
	}
}

// After a take-over the slots that were used before are found out and left; when none
// is left, the client is asked for a new session.
func TestCallbackSlotsAfterTakeover(t *testing.T) {
	reg := newRegistry()
	r, s, cb := cbRig(t, reg.with)
	cb.mu.Lock()
	for i := range uint32(16) {
		cb.slots[i] = 3
	}
	cb.slots[7] = 0
	cb.mu.Unlock()
	if st, err := s.call(proto.CBRecall); st != proto.OK || err != nil {
		t.Fatal(st, err)
	}
	if f := s.flags(); f != 0 {
		t.Fatalf("%#x", f)
	}
	cb.mu.Lock()
	cb.slots[7] = 9
	cb.mu.Unlock()
	if _, err := s.call(proto.CBRecall); !errors.Is(err, errNoPath) {
		t.Fatal(err)
	}
	if f := s.flags(); f != proto.Seq4StatusBackchannelFault|proto.Seq4StatusCBPathDown {
		t.Fatalf("%#x", f)
	}
	s.create(2) // as it then does
	s.seq = [64]uint32{}
	cb.mu.Lock()
	clear(cb.slots)
	cb.mu.Unlock()
	if st, err := s.call(proto.CBRecall); st != proto.OK || err != nil {
		t.Fatal(st, err)
	}
	_ = r
}

// FuzzCallbackReply decodes what a client may answer to a callback.
func FuzzCallbackReply(f *testing.F) {
	var e xdr.Encoder
	for _, v := range []uint32{4, 0, 13, 0} {
		e.Uint32(v)
	}
	f.Add(e.Bytes(), uint8(2))
	e.Uint32(10044)
	e.Uint32(10044)
	f.Add(e.Bytes(), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		got := 0
		ops := slices.Repeat([]callbackOp{{Op: proto.CBRecall, Result: func(d *xdr.Decoder) { got++ }}, {Op: proto.CBNotifyLock}}, 2)
		st, err := decodeCallbacks(xdr.NewDecoder(b), ops, int(n))
		if err == nil && st == proto.OK && (int(n) != len(ops) || got != 2 || len(b) < 8*len(ops)) {
			t.Fatalf("%d results in %d bytes are a success", n, len(b))
		}
	})
}
