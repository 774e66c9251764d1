package state

import (
	"math"
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
)

// The phases of CREATE_SESSION (RFC 8881 §18.36.4), one request after the other.
func TestCreateSessionPhases(t *testing.T) {
	small, none := asks, asks
	small.MaxResponse = 100
	none.MaxRequests = 0
	m := newManager()
	x, _, _ := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a"), Verifier: 1, Principal: alice})
	cases := []struct {
		name      string
		id        uint64 // added to the client's
		seq       uint32
		principal Principal
		flags     uint32
		fore      ChannelAttrs
		want      proto.Status
		records   bool // the client has to be recorded before
		again     bool // answered like the request before
	}{
		{"1 unknown client", 1, 1, alice, 0, asks, proto.ErrStaleClientid, false, false},
		{"2 the contrived reply", 0, 0, alice, 0, asks, proto.ErrSeqMisordered, false, false},
		{"2 ahead", 0, 2, alice, 0, asks, proto.ErrSeqMisordered, false, false},
		{"2 behind", 0, math.MaxUint32, alice, 0, asks, proto.ErrSeqMisordered, false, false},
		{"3 another principal", 0, 1, bob, 0, asks, proto.ErrClidInuse, false, false},
		{"4 too small", 0, 1, alice, 0, small, proto.ErrToosmall, false, false},
		{"2 a failure is replayed", 0, 1, alice, 0, small, proto.ErrToosmall, false, true},
		{"4 no slots", 0, 2, alice, 0, none, proto.ErrInval, false, false},
		{"2 another failure is replayed", 0, 2, alice, 0, asks, proto.ErrInval, false, true},
		{"4 unknown flag", 0, 3, alice, 8, asks, proto.ErrInval, false, false},
		{"3 confirmed", 0, 4, alice, 0, asks, proto.OK, true, false},
		{"2 replayed", 0, 4, alice, 0, asks, proto.OK, false, true},
		{"2 replayed for anybody", 0, 4, bob, 0, small, proto.OK, false, true},
		{"2 no longer", 0, 3, alice, 0, asks, proto.ErrSeqMisordered, false, false},
		{"3 confirmed already, another principal", 0, 5, bob, 0, asks, proto.OK, true, false},
		{"4 too many sessions", 0, 6, alice, 0, asks, proto.ErrNospc, true, false},
		{"2 the failure is replayed", 0, 6, alice, 0, asks, proto.ErrNospc, false, true},
	}
	var before CreateSessionResult
	for _, k := range cases {
		a := CreateSessionArgs{
			ClientID: x.ClientID + k.id, Sequence: k.seq, Flags: k.flags, Fore: k.fore, Back: asks, Principal: k.principal,
		}
		r, _ := m.CreateSession(0, a)
		// Who is confirmed is recorded, and again whenever its sequence goes on.
		rec, ok := m.Record(x.ClientID)
		if ok != k.records {
			t.Errorf("%s: to be recorded: %v", k.name, ok)
		}
		if ok {
			m.Recorded(rec)
		}
		if r.Status != k.want {
			t.Fatalf("%s: %v, want %v", k.name, r.Status, k.want)
		}
		if r.Status == proto.OK && (r.Sequence != k.seq || m.Session(&r.ID) == nil) {
			t.Errorf("%s: %+v", k.name, r)
		}
		if (r == before) != k.again {
			t.Errorf("%s: %+v after %+v", k.name, r, before)
		}
		if r.Status != proto.ErrStaleClientid && r.Status != proto.ErrSeqMisordered {
			before = r
		}
	}
}

// csa_sequence goes round.
func TestCreateSessionWraps(t *testing.T) {
	m := newManager()
	c, s := confirm(t, m, 0, "a")
	m.DestroySession(&s.ID)
	c.seq = math.MaxUint32
	a := CreateSessionArgs{ClientID: c.ID, Sequence: 0, Fore: asks}
	r, _ := m.CreateSession(0, a)
	again, _ := m.CreateSession(0, a)
	if r.Status != proto.OK || again != r {
		t.Fatal(r, again)
	}
	a.Sequence = 1
	if next, _ := m.CreateSession(0, a); next.Status != proto.OK || next.ID == r.ID {
		t.Fatal(next)
	}
}

// What is granted is never more than was asked for, and the number of
// operations and slots of the back channel is exactly that (RFC 8881 §18.36.3).
func TestCreateSessionGrants(t *testing.T) {
	const persist, back, rdma = proto.CreateSessionFlagPersist, proto.CreateSessionFlagConnBackChan, proto.CreateSessionFlagConnRDMA
	huge := ChannelAttrs{MaxRequest: 1 << 30, MaxResponse: 1 << 30, MaxCached: 1 << 30, MaxOps: 1 << 20, MaxRequests: 1 << 20}
	little := ChannelAttrs{MaxRequest: 2048, MaxResponse: 3000, MaxCached: 500, MaxOps: 2, MaxRequests: 1}
	for _, k := range []struct {
		name       string
		flags      uint32
		fore, back ChannelAttrs
		wantFlags  uint32
		wantFore   ChannelAttrs
		wantBack   ChannelAttrs
	}{
		{
			"much", persist | back | rdma, huge, huge, back, newManager().cfg.Fore,
			ChannelAttrs{MaxRequest: 1 << 30, MaxResponse: 1 << 30, MaxOps: 1 << 20, MaxRequests: 1 << 20},
		},
		{
			"little", 0, little, little, 0, little,
			ChannelAttrs{MaxRequest: 2048, MaxResponse: 3000, MaxOps: 2, MaxRequests: 1},
		},
		{"no back channel", persist, asks, ChannelAttrs{}, 0, ChannelAttrs{MaxRequest: 4096, MaxResponse: 4096, MaxCached: 1024, MaxOps: 8, MaxRequests: 8}, ChannelAttrs{}},
	} {
		m := newManager()
		x, _, _ := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a")})
		r, _ := m.CreateSession(0, CreateSessionArgs{ClientID: x.ClientID, Sequence: 1, Flags: k.flags, Fore: k.fore, Back: k.back})
		if r.Status != proto.OK || r.Flags != k.wantFlags || r.Fore != k.wantFore || r.Back != k.wantBack {
			t.Errorf("%s: %+v", k.name, r)
		}
	}
}

// A channel on which nothing could be sent is refused; a back channel that is not
// asked for needs no size (RFC 8881 §18.36.3).
func TestCreateSessionTooSmall(t *testing.T) {
	const back = proto.CreateSessionFlagConnBackChan
	with := func(request, response, ops uint32) ChannelAttrs {
		return ChannelAttrs{MaxRequest: request, MaxResponse: response, MaxOps: ops, MaxRequests: 1}
	}
	for _, k := range []struct {
		name       string
		flags      uint32
		fore, back ChannelAttrs
		want       proto.Status
	}{
		{"small", back, with(400, 400, 2), with(400, 400, 2), proto.OK},
		{"request", 0, with(100, 400, 2), ChannelAttrs{}, proto.ErrToosmall},
		{"reply", 0, with(400, 100, 2), ChannelAttrs{}, proto.ErrToosmall},
		{"no callbacks", 0, with(400, 400, 2), ChannelAttrs{}, proto.OK},
		{"callbacks without a size", back, with(400, 400, 2), ChannelAttrs{}, proto.ErrToosmall},
		{"callback", 0, with(400, 400, 2), with(10, 400, 2), proto.ErrToosmall},
		{"callback's reply", 0, with(400, 400, 2), with(400, 10, 2), proto.ErrToosmall},
		{"CB_SEQUENCE and nothing more", back, with(400, 400, 2), with(400, 400, 1), proto.ErrToosmall},
	} {
		m := newManager()
		x, _, _ := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a")})
		a := CreateSessionArgs{ClientID: x.ClientID, Sequence: 1, Flags: k.flags, Fore: k.fore, Back: k.back}
		if r, _ := m.CreateSession(0, a); r.Status != k.want {
			t.Errorf("%s: %v, want %v", k.name, r.Status, k.want)
		}
	}
}

// A CREATE_SESSION that was too small has used its sequence up (RFC 8881 §18.36.4,
// phase 2), and yet another may come with the same: some clients do not count it.
func TestCreateSessionAfterTooSmall(t *testing.T) {
	tiny := asks
	tiny.MaxRequest = 10
	for _, seq := range []uint32{1, 2} {
		m := newManager()
		x, _, _ := m.ExchangeID(0, ExchangeArgs{Owner: []byte("a"), Principal: alice})
		for range 3 {
			if r, _ := m.CreateSession(0, CreateSessionArgs{ClientID: x.ClientID, Sequence: 1, Fore: tiny, Principal: alice}); r.Status != proto.ErrToosmall {
				t.Fatal(r.Status)
			}
		}
		a := CreateSessionArgs{ClientID: x.ClientID, Sequence: seq, Fore: asks, Principal: bob}
		if r, _ := m.CreateSession(0, a); r.Status != proto.ErrClidInuse {
			t.Errorf("%d: another principal: %v", seq, r.Status)
		}
		a.Principal = alice
		r, _ := m.CreateSession(0, a)
		if again, _ := m.CreateSession(0, a); r.Status != proto.OK || again != r {
			t.Errorf("%d: %+v, and again %+v", seq, r, again)
		}
	}
}
