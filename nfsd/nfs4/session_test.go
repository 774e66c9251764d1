package nfs4

import (
	"bytes"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

func TestExchangeID(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	// A Linux client asks twice before it confirms: no CONFIRMED_R in either.
	_, st := w.exchange("a", 1, proto.ExchgIDFlagSuppMovedRefer|proto.ExchgIDFlagBindPrincStateid)
	x, st2 := w.exchange("a", 1, proto.ExchgIDFlagSuppMovedRefer|proto.ExchgIDFlagBindPrincStateid)
	if st != proto.OK || st2 != proto.OK || x.flags != proto.ExchgIDFlagUseNonPNFS || x.seq != 1 {
		t.Fatal(st, st2, x)
	}
	s := &sess{wire: w, r: r, clientID: x.id}
	s.create(x.seq)
	again, _ := w.exchange("a", 1, 0)
	if again.id != x.id || again.flags != proto.ExchgIDFlagUseNonPNFS|proto.ExchgIDFlagConfirmedR || again.seq != 2 {
		t.Fatalf("the same incarnation again: %+v", again)
	}
	if u, st := w.exchange("a", 1, proto.ExchgIDFlagUpdConfirmedRecA); st != proto.OK || u.id != x.id {
		t.Fatal(st, u)
	}
	if _, st := w.exchange("a", 2, proto.ExchgIDFlagUpdConfirmedRecA); st != proto.ErrNotSame {
		t.Fatal(st)
	}
	if _, st := w.exchange("b", 2, proto.ExchgIDFlagUpdConfirmedRecA); st != proto.ErrNoent {
		t.Fatal(st)
	}
	if _, st := w.exchange("b", 2, 0x8); st != proto.ErrInval {
		t.Fatal(st)
	}
	// Another user with the same name, while the first holds a session.
	other := r.dial()
	other.cred = user(5)
	if _, st := other.exchange("a", 1, 0); st != proto.ErrClidInuse {
		t.Fatal(st)
	}
	if _, st := other.exchange("a", 1, proto.ExchgIDFlagUpdConfirmedRecA); st != proto.ErrPerm {
		t.Fatal(st)
	}
	r.advance(time.Minute) // its lease has ended: the name is free
	if x, st := other.exchange("a", 1, 0); st != proto.OK || x.id == s.clientID {
		t.Fatal(st)
	}
}

// A client that has restarted keeps its old state until it confirms the new record.
func TestClientRestart(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	fh := s.root()
	o := s.mustOpen(fh, openHow{create: true, name: "f"})
	if n := r.fs.Opens(mustFile(t, r, o.fh)); n != 1 {
		t.Fatal(n)
	}
	x, st := s.exchange("a", 2, 0)
	if st != proto.OK || x.flags&proto.ExchgIDFlagConfirmedR != 0 {
		t.Fatal(st, x.flags)
	}
	s.do(putfh(fh)).is(proto.OK)
	s2 := &sess{wire: s.wire, r: r, clientID: x.id}
	s2.create(x.seq)
	if n := r.fs.Opens(mustFile(t, r, o.fh)); n != 0 {
		t.Fatalf("the file is open %d times", n)
	}
	s.seq[0]++
	s.compound(s.sequence(0, s.seq[0])).is(proto.ErrBadsession)
	s2.do(putfh(fh)).is(proto.OK)
}

func mustFile(t testing.TB, r *rig, fh []byte) (f vfsFile) {
	t.Helper()
	f, err := r.fs.ParseHandle(fh)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Trap 7: csa_sequence is tracked exactly, and a retry gets the same session.
func TestCreateSessionReplay(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	x, _ := w.exchange("a", 1, 0)
	first := w.compound(createSession(x.id, x.seq, linuxFore))
	again := w.compound(createSession(x.id, x.seq, linuxFore))
	first.is(proto.OK)
	if !bytes.Equal(first.raw, again.raw) {
		t.Fatal("a retry was answered differently")
	}
	w.compound(createSession(x.id, x.seq+2, linuxFore)).is(proto.ErrSeqMisordered)
	w.compound(createSession(x.id, x.seq-1, linuxFore)).is(proto.ErrSeqMisordered)
	w.compound(createSession(x.id, x.seq+1, linuxFore)).is(proto.OK)
	w.compound(createSession(x.id+1, 1, linuxFore)).is(proto.ErrStaleClientid)
	small := linuxFore
	small.size = 100
	w.compound(createSession(x.id, x.seq+2, small)).is(proto.ErrToosmall)
}

// Trap 7: never more than asked, at least 8 operations, and no PERSIST.
func TestCreateSessionGrants(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	x, _ := w.exchange("a", 1, 0)
	asked := fore{size: 64 << 20, cached: 7000, ops: 8, slots: 1000}
	d := w.compound(createSession(x.id, x.seq, asked)).ok(proto.OpCreateSession)
	d.FixedOpaque(16)
	if seq, flags := d.Uint32(), d.Uint32(); seq != x.seq || flags != proto.CreateSessionFlagConnBackChan {
		t.Fatal(seq, flags)
	}
	f := decodeChannel(d)
	if f.MaxRequest < 1<<20+4096 || f.MaxResponse < 1<<20+4096 || f.MaxCached != 7000 || f.MaxOps != 8 || f.MaxRequests != 256 {
		t.Fatalf("%+v", f)
	}
	if b := decodeChannel(d); b.MaxCached != 0 || b.MaxOps != 2 || b.MaxRequests != 16 || b.MaxRequest != 4096 {
		t.Fatalf("%+v", b)
	}
}

// SEQUENCE: replays, and what is refused.
func TestSequence(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	fh := s.root()
	s.cache = true
	made := s.do(putfh(fh), named(proto.OpRemove, "none"))
	seq := s.seq[0]
	cases := []struct {
		name      string
		slot, seq uint32
		ops       []op
		uid       uint32
		want      proto.Status
	}{
		{"again", 0, seq, []op{putfh(fh), named(proto.OpRemove, "none")}, 0, proto.ErrNoent},
		{"another user", 0, seq, []op{putfh(fh), named(proto.OpRemove, "none")}, 9, proto.ErrSeqFalseRetry},
		{"another request", 0, seq, []op{putfh(fh)}, 0, proto.ErrSeqFalseRetry},
		{"skipped", 0, seq + 2, []op{putfh(fh)}, 0, proto.ErrSeqMisordered},
		{"old", 0, seq - 1, []op{putfh(fh)}, 0, proto.ErrSeqMisordered},
		{"new slot", 5, 0, []op{putfh(fh)}, 0, proto.ErrSeqMisordered},
		{"no slot", 64, 1, []op{putfh(fh)}, 0, proto.ErrBadslot},
		{"too many", 0, seq + 1, make([]op, 8), 0, proto.ErrTooManyOps},
		{"next", 0, seq + 1, []op{putfh(fh)}, 0, proto.OK},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.wire.cred = user(c.uid)
			ops := append([]op{s.sequence(c.slot, c.seq)}, c.ops...)
			for i := range ops {
				if ops[i] == nil {
					ops[i] = simple(proto.OpPutrootfh)
				}
			}
			rep := s.compound(ops...)
			rep.is(c.want)
			if c.name == "again" && !bytes.Equal(rep.raw, made.raw) {
				t.Fatal("the retry was answered differently")
			}
		})
	}
	s.wire.cred = user(0)
	s.id[3]++
	s.compound(s.sequence(0, 1)).is(proto.ErrBadsession)
}

// Trap 6: what changed something is never executed again, also if the client did
// not ask for its reply to be cached; a large uncached reply is.
func TestUncachedRetry(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	fh := s.root()
	o := s.mustOpen(fh, openHow{create: true, name: "f"})
	first := s.do(putfh(o.fh), writeOp(o.sid, 0, proto.FileSync, make([]byte, 5000)))
	first.is(proto.OK)
	again := s.compound(s.sequence(0, s.seq[0]), putfh(o.fh), writeOp(o.sid, 0, proto.FileSync, make([]byte, 5000)))
	if !bytes.Equal(first.raw, again.raw) {
		t.Fatal("WRITE was executed again")
	}
	s.do(putfh(o.fh), readOp(o.sid, 0, 5000)).is(proto.OK)
	s.compound(s.sequence(0, s.seq[0]), putfh(o.fh), readOp(o.sid, 0, 5000)).is(proto.ErrRetryUncachedRep)
}

// Trap 5: a retry of what is being executed is answered by the first execution,
// on whatever connection it comes.
func TestRetryInProgress(t *testing.T) {
	gate := newGate()
	r := newRig(t, func(c *Config) { c.FS = gateFS{c.FS, gate} })
	s := r.newSession("a")
	fh := s.root()
	o := s.mustOpen(fh, openHow{create: true, name: "f"})
	s.do(putfh(o.fh), writeOp(o.sid, 0, proto.FileSync, bytes.Repeat([]byte{7}, 5000))).is(proto.OK)
	gate.close()
	first := s.start(putfh(o.fh), readOp(o.sid, 0, 5000))
	gate.await()
	second := r.dial()
	retry := []op{s.sequence(0, s.seq[0]), putfh(o.fh), readOp(o.sid, 0, 5000)}
	again := []*oncrpc.Pending{second.send(retry...), second.send(retry...)}
	next := second.send(s.sequence(0, s.seq[0]+1), putfh(fh)) // its caller gave up on the first
	time.Sleep(20 * time.Millisecond)
	gate.open()
	want := s.wait(first)
	want.is(proto.OK)
	for _, p := range again {
		if got := second.wait(p); !bytes.Equal(got.raw, want.raw) {
			t.Fatal("a parked retry was answered differently")
		}
	}
	second.wait(next).is(proto.OK)
	if n := gate.reads.Load(); n != 1 {
		t.Fatalf("READ was executed %d times", n)
	}
}

// A slot whose request ended in a panic is usable again.
func TestPanicFreesSlot(t *testing.T) {
	gate := newGate()
	r := newRig(t, func(c *Config) { c.FS = gateFS{c.FS, gate} })
	s := r.newSession("a")
	fh := s.root()
	gate.panics.Store(true)
	s.seq[0]++
	_, err := s.c.Call(t.Context(), &oncrpc.Request{
		Program: proto.Program, Version: 4, Procedure: proto.ProcCompound, Cred: s.cred,
		Encode: func(e *xdr.Encoder) {
			e.String("tag")
			e.Uint32(2)
			e.Uint32(3)
			s.sequence(0, s.seq[0])(e)
			putfh(fh)(e)
			readOp(state.Anonymous, 0, 1)(e)
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	gate.panics.Store(false)
	s.do(putfh(fh)).is(proto.OK)
}

func TestCompoundRules(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	seq := func() op { s.seq[0]++; return s.sequence(0, s.seq[0]) }
	destroy := func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroySession)); e.FixedOpaque(s.id[:]) }
	bind := func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpBindConnToSession))
		e.FixedOpaque(s.id[:])
		e.Uint32(proto.CDFCForeOrBoth)
		e.Bool(false)
	}
	cases := []struct {
		name  string
		minor uint32
		ops   []op
		want  proto.Status
		n     uint32
		last  proto.Op
	}{
		{"empty", 1, nil, proto.OK, 0, 0},
		{"minor 3", 3, nil, proto.ErrMinorVersMismatch, 0, 0},
		{"no session", 1, []op{simple(proto.OpPutrootfh)}, proto.ErrOpNotInSession, 1, proto.OpPutrootfh},
		{"sequence late", 1, []op{seq(), s.sequence(1, 1)}, proto.ErrSequencePos, 2, proto.OpSequence},
		{"not only", 1, []op{exchangeID("x", 1, 0), simple(proto.OpPutrootfh)}, proto.ErrNotOnlyOp, 1, proto.OpExchangeID},
		{"bind after sequence", 1, []op{seq(), bind}, proto.ErrNotOnlyOp, 2, proto.OpBindConnToSession},
		{"bind", 1, []op{bind}, proto.OK, 1, proto.OpBindConnToSession},
		{"destroy early", 1, []op{seq(), destroy, simple(proto.OpPutrootfh)}, proto.ErrNotOnlyOp, 2, proto.OpDestroySession},
		{"no filehandle", 1, []op{seq(), getattr(proto.AttrType)}, proto.ErrNofilehandle, 2, proto.OpGetattr},
		{"no saved", 1, []op{seq(), simple(proto.OpRestorefh)}, proto.ErrNofilehandle, 2, proto.OpRestorefh},
		{"bad handle", 1, []op{seq(), putfh([]byte("nonsense"))}, proto.ErrBadhandle, 2, proto.OpPutfh},
		{"illegal", 2, []op{seq(), simple(200)}, proto.ErrOpIllegal, 2, proto.OpIllegal},
		{"zero", 2, []op{seq(), simple(0)}, proto.ErrOpIllegal, 2, proto.OpIllegal},
		{"4.2 in 4.1", 1, []op{seq(), simple(proto.OpSeek)}, proto.ErrOpIllegal, 2, proto.OpIllegal},
		// Trap 25: legal, but not supported.
		{"dir delegation", 2, []op{seq(), simple(proto.OpPutrootfh), simple(proto.OpGetDirDelegation)}, proto.ErrNotsupp, 3, proto.OpGetDirDelegation},
		{"write same", 2, []op{seq(), simple(proto.OpWriteSame)}, proto.ErrNotsupp, 2, proto.OpWriteSame},
		{"copy notify", 2, []op{seq(), simple(proto.OpCopyNotify)}, proto.ErrNotsupp, 2, proto.OpCopyNotify},
		{"layoutget", 1, []op{seq(), simple(proto.OpLayoutget)}, proto.ErrNotsupp, 2, proto.OpLayoutget},
		{"setclientid", 1, []op{seq(), simple(proto.OpSetclientid)}, proto.ErrNotsupp, 2, proto.OpSetclientid},
		{"short", 1, []op{seq(), func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpPutfh)); e.Uint32(20) }}, proto.ErrBadxdr, 2, proto.OpPutfh},
		{"destroy", 1, []op{destroy}, proto.OK, 1, proto.OpDestroySession},
		{"destroy again", 1, []op{destroy}, proto.ErrBadsession, 1, proto.OpDestroySession},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := *s.wire
			w.t, w.minor = t, c.minor
			rep := w.compound(c.ops...)
			rep.is(c.want)
			if rep.n != c.n {
				t.Fatalf("%d results, want %d", rep.n, c.n)
			}
			if c.n > 0 && c.want != proto.OK { // the last result has the status and nothing else
				end := xdr.NewDecoder(rep.raw[len(rep.raw)-8:])
				if o, st := proto.Op(end.Uint32()), proto.Status(end.Uint32()); o != c.last || st != c.want {
					t.Fatal(o, st)
				}
			}
		})
	}
}

func TestReplyTooBig(t *testing.T) {
	r := newRig(t, nil)
	s := r.mount(r.dial(), "a", 1)
	w := s.wire
	d := w.compound(createSession(s.clientID, 2, fore{size: 2048, cached: 1024, ops: 64, slots: 64})).ok(proto.OpCreateSession)
	copy(s.id[:], d.FixedOpaque(16))
	s.seq = [64]uint32{}
	fh := s.root()
	all := []int{proto.AttrType, proto.AttrFilehandle, proto.AttrSupportedAttrs, proto.AttrOwner, proto.AttrTimeModify, proto.AttrTimeAccess}
	ops := []op{putfh(fh)}
	for range 40 {
		ops = append(ops, getattr(all...))
	}
	s.do(append(ops, named(proto.OpRemove, "x"))...).is(proto.ErrRepTooBig)
	s.cache = true
	rep := s.do(ops...)
	rep.is(proto.ErrRepTooBigToCache)
	if again := s.compound(append([]op{s.sequence(0, s.seq[0])}, ops...)...); !bytes.Equal(again.raw, rep.raw) {
		t.Fatal("the error was not cached")
	}
	// What changes something is refused before, not after.
	ops = ops[:len(ops)-1]
	for len(ops) > 1 {
		probe := s.do(append(append([]op{}, ops...), mkdir("made"))...)
		if probe.status == proto.OK {
			break
		}
		if st, _ := s.one(fh, proto.OpLookup, named(proto.OpLookup, "made")); st != proto.ErrNoent {
			t.Fatal("made although the reply did not fit")
		}
		ops = ops[:len(ops)-1]
	}
}

// Not even SEQUENCE's own result may be larger than what is to be cached; its slot is
// not used up (RFC 8881 §18.46.3).
func TestSequenceTooBigToCache(t *testing.T) {
	r := newRig(t, nil)
	s := r.mount(r.dial(), "a", 1)
	d := s.compound(createSession(s.clientID, 2, fore{size: 400, cached: 10, ops: 8, slots: 8})).ok(proto.OpCreateSession)
	copy(s.id[:], d.FixedOpaque(16))
	s.cache = true
	s.compound(s.sequence(0, 1)).is(proto.ErrRepTooBigToCache)
	s.cache = false
	s.compound(s.sequence(0, 1), simple(proto.OpPutrootfh)).is(proto.OK)
	large := simple(proto.OpGetfh)
	s.compound(s.sequence(0, 2), simple(proto.OpPutrootfh), large, large, large, large, large, large).is(proto.ErrRepTooBig)
	s.compound(s.sequence(0, 3), simple(proto.OpPutrootfh), named(proto.OpLookup, string(make([]byte, 400)))).is(proto.ErrReqTooBig)
}

func mkdir(name string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeDir)
		e.String(name)
		encodeBitmap(e, attrSet(proto.AttrMode))
		e.Uint32(4)
		e.Uint32(0o755)
	}
}
