package nfs4

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// Sessions go on at whoever takes over, whatever reply was lost.
func TestTakeoverOfSessions(t *testing.T) {
	w := newWorld(t)
	cb := &cbClient{slots: map[uint32]uint32{}}
	w.r.callbacks = []oncrpc.Program{cb.program()}
	s := w.r.newSession("a")
	s.slot = 5
	for range 3 {
		s.do(simple(proto.OpPutrootfh)).is(proto.OK)
	}
	unconfirmed, _ := w.r.dial().exchange("b", 1, 0)

	w.takeover(s)
	// Slots take whatever comes first, and count from there.
	for _, k := range []struct {
		slot, seq uint32
		want      proto.Status
	}{
		{5, 3, proto.OK}, // the last again: its reply is known to nobody
		{5, 4, proto.OK},
		{5, 4, proto.OK}, // from the reply cache
		{5, 6, proto.ErrSeqMisordered},
		{7, 1000, proto.OK},
		{7, 1001, proto.OK},
		{8, 1, proto.OK},
		{64, 1, proto.ErrBadslot},
	} {
		if rep := s.compound(s.sequence(k.slot, k.seq), simple(proto.OpPutrootfh)); rep.status != k.want {
			t.Errorf("slot %d, sequence %d: %v, want %v", k.slot, k.seq, rep.status, k.want)
		}
	}
	s.seq = [64]uint32{0: s.seq[0], 5: 4, 7: 1001, 8: 1}
	// The client is told to bind a connection for callbacks, once.
	if f := s.flags(); f != pathDown {
		t.Fatalf("%#x", f)
	}
	if _, err := s.call(proto.CBRecall); !errors.Is(err, errNoPath) {
		t.Fatal(err)
	}
	s.compound(bindOp(s.id, proto.CDFCForeOrBoth)).is(proto.OK)
	if f := s.flags(); f != 0 {
		t.Fatalf("%#x", f)
	}
	if st, err := s.call(proto.CBRecall); st != proto.OK || err != nil {
		t.Fatal(st, err)
	}
	// What the client has said of itself is known.
	s.do(reclaimComplete()).is(proto.ErrCompleteAlready)
	if x, st := s.exchange("a", 1, 0); st != proto.OK || x.id != s.clientID || x.flags&proto.ExchgIDFlagConfirmedR == 0 || x.seq != 2 {
		t.Fatal(st, x)
	}
	// CREATE_SESSION whose reply was lost is answered as it was.
	first := s.compound(createSession(s.clientID, 2, linuxFore))
	first.is(proto.OK)
	w.takeover(s)
	if again := s.compound(createSession(s.clientID, 2, linuxFore)); string(again.raw) != string(first.raw) {
		t.Fatal("CREATE_SESSION is answered otherwise by whoever takes over")
	}
	s.compound(createSession(s.clientID, 4, linuxFore)).is(proto.ErrSeqMisordered)
	s.create(3)
	s.compound(createSession(s.clientID, 4, fore{size: 100, ops: 8, slots: 1})).is(proto.ErrToosmall)
	// Also its failures count.
	w.takeover(s)
	s.compound(createSession(s.clientID, 4, fore{size: 100, ops: 8, slots: 1})).is(proto.ErrToosmall)
	s.compound(createSession(s.clientID, 5, linuxFore)).is(proto.OK)
	// Whoever was not confirmed holds nothing and begins anew.
	s.compound(createSession(unconfirmed.id, unconfirmed.seq, linuxFore)).is(proto.ErrStaleClientid)
	// A session that was ended is not there again.
	s.compound(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroySession)); e.FixedOpaque(s.id[:]) }).is(proto.OK)
	w.takeover(s)
	s.compound(s.sequence(0, 1)).is(proto.ErrBadsession)
	// A restarted client drops what its last incarnation held.
	s2 := w.r.mount(w.r.dial(), "a", 2)
	w.takeover(s2)
	if x, st := s2.exchange("a", 2, 0); st != proto.OK || x.id != s2.clientID {
		t.Fatal(st, x)
	}
	if n := w.reg.count(); n != 1 {
		t.Fatalf("%d records", n)
	}
}

// RECLAIM_COMPLETE whose reply was lost is no second one.
func TestReclaimCompleteAgain(t *testing.T) {
	w := newWorld(t)
	s := w.r.mount(w.r.dial(), "a", 1)
	s.lost(reclaimComplete())
	w.takeover(s)
	s.again(reclaimComplete()).is(proto.OK)
	s.do(reclaimComplete()).is(proto.ErrCompleteAlready)
}

// An open for reading is recorded nowhere; its stateid proves it, to whoever takes
// over, again and again; but only this client's, of this file.
func TestReadOpensAreRevived(t *testing.T) {
	w := newWorld(t)
	a, b := w.r.newSession("a"), w.r.newSession("b")
	root := a.root()
	f := a.mustOpen(root, openHow{create: true, name: "f"})
	g := a.mustOpen(root, openHow{create: true, name: "g"})
	a.do(putfh(f.fh), writeOp(f.sid, 0, proto.FileSync, []byte("abc"))).is(proto.OK)
	ro := a.mustOpen(root, openHow{name: "f", owner: "reader", access: proto.ShareAccessRead})
	ro = a.mustOpen(root, openHow{name: "f", owner: "reader", access: proto.ShareAccessRead})
	closed := a.mustOpen(root, openHow{name: "f", owner: "closed", access: proto.ShareAccessRead})
	if st, _ := a.one(f.fh, proto.OpClose, closeOp(closed.sid)); st != proto.OK {
		t.Fatal(st)
	}
	if st, _ := a.one(f.fh, proto.OpRead, readOp(closed.sid, 0, 3)); st != proto.ErrBadStateid {
		t.Fatalf("a stateid that was closed here: %v", st)
	}
	for round := range 3 {
		w.takeover(a, b)
		zero := ro.sid
		zero.Seq = 0
		wrong := ro.sid
		wrong.Other[11]++
		kind := ro.sid
		kind.Other[0] = byte(state.KindOpen)<<4 | 3
		for _, k := range []struct {
			name string
			s    *sess
			fh   []byte
			op   op
			want proto.Status
		}{
			{"another file", a, g.fh, readOp(ro.sid, 0, 3), proto.ErrBadStateid},
			{"another client", b, f.fh, readOp(ro.sid, 0, 3), proto.ErrBadStateid},
			{"a forged one", a, f.fh, readOp(wrong, 0, 3), proto.ErrBadStateid},
			{"one with more access", a, f.fh, readOp(kind, 0, 3), proto.ErrBadStateid},
			{"the current one", a, f.fh, readOp(zero, 0, 3), proto.OK},
			{"its own", a, f.fh, readOp(ro.sid, 0, 3), proto.OK},
			{"the open for writing", a, f.fh, readOp(f.sid, 0, 3), proto.OK},
		} {
			if st, _ := k.s.one(k.fh, proto.OpRead, k.op); st != k.want {
				t.Errorf("round %d: %s: %v, want %v", round, k.name, st, k.want)
			}
		}
		if st, _ := a.one(f.fh, proto.OpWrite, writeOp(ro.sid, 0, proto.FileSync, []byte("x"))); st != proto.ErrOpenmode {
			t.Errorf("writing: %v", st)
		}
		d := a.do(testStateids(ro.sid, g.sid, state.Stateid{Seq: 1, Other: vfs.StateID{9}})).ok(proto.OpTestStateid)
		for i, want := range []proto.Status{proto.OK, proto.OK, proto.ErrBadStateid} {
			if i == 0 {
				d.Uint32()
			}
			if got := proto.Status(d.Uint32()); got != want {
				t.Errorf("round %d: TEST_STATEID %d: %v, want %v", round, i, got, want)
			}
		}
		if st := a.do(putfh(f.fh), closeOp(state.Stateid{Seq: ro.sid.Seq - 1, Other: ro.sid.Other})).status; st != proto.ErrOldStateid {
			t.Errorf("round %d: an old seqid: %v", round, st)
		}
	}
	// It is closed like any other.
	if st, _ := a.one(f.fh, proto.OpClose, closeOp(ro.sid)); st != proto.OK {
		t.Fatal(st)
	}
	for _, o := range []opened{f, g} {
		if st, _ := a.one(o.fh, proto.OpClose, closeOp(o.sid)); st != proto.OK {
			t.Fatal(st)
		}
	}
	if _, _, opens := w.r.p.state.Counts(); opens != 0 {
		t.Fatalf("%d opens are left", opens)
	}
}

// After a take-over nobody but the client knows an open's seqid. Its next OPEN gives
// the open a new stateid with seqid 1, which Linux takes at once; a seqid that is out of
// order it would wait for. The old one stays good, for what is under way.
func TestTrap12OpenAfterTakeover(t *testing.T) {
	w := newWorld(t)
	s := w.r.newSession("a")
	root := s.root()
	for i, h := range []openHow{
		{access: proto.ShareAccessRead},
		{access: proto.ShareAccessBoth},
		{access: proto.ShareAccessRead, deny: proto.ShareDenyWrite},
	} {
		h.name, h.owner = fmt.Sprint(i), "o"
		first := h
		first.create = true
		old := s.mustOpen(root, first)
		old = s.mustOpen(root, h)
		w.takeover(s)
		now := s.mustOpen(root, h)
		if now.sid.Other == old.sid.Other || now.sid.Seq != 1 {
			t.Fatalf("%d: %+v after %+v", i, now.sid, old.sid)
		}
		now = s.mustOpen(root, h)
		if now.sid.Seq != 2 {
			t.Fatalf("%d: %+v", i, now.sid)
		}
		for _, sid := range []state.Stateid{old.sid, now.sid} {
			if st, _ := s.one(old.fh, proto.OpRead, readOp(sid, 0, 1)); st != proto.OK {
				t.Errorf("%d: %v", i, st)
			}
		}
		w.takeover(s)
		for _, sid := range []state.Stateid{old.sid, now.sid} {
			if st, _ := s.one(old.fh, proto.OpRead, readOp(sid, 0, 1)); st != proto.OK {
				t.Errorf("%d: after another: %v", i, st)
			}
		}
		if st, _ := s.one(old.fh, proto.OpClose, closeOp(now.sid)); st != proto.OK {
			t.Fatal(st)
		}
		if states, err := w.fs.States(rootRequest(t), mustFile(t, w.r, old.fh)); err != nil || len(states) != 0 {
			t.Fatalf("%d: %v is left, %v", i, states, err)
		}
		if _, _, opens := w.r.p.state.Counts(); opens != 0 {
			t.Fatalf("%d: %d opens are left", i, opens)
		}
	}
}

// Locks and deny modes keep others out over every take-over, and are their owner's.
func TestLocksAndSharesSurvive(t *testing.T) {
	w := newWorld(t)
	a, b := w.r.newSession("a"), w.r.newSession("b")
	root := a.root()
	f := a.mustOpen(root, openHow{create: true, name: "f"})
	ro := a.mustOpen(root, openHow{name: "f", owner: "reader", access: proto.ShareAccessRead})
	theirs := b.mustOpen(root, openHow{name: "f"})
	d := a.mustOpen(root, openHow{create: true, name: "d", deny: proto.ShareDenyBoth})
	wl, st := a.lock(f.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: f.sid})
	if st != proto.OK {
		t.Fatal(st)
	}
	rl, st := a.lock(f.fh, lockArgs{kind: proto.ReadLt, off: 100, len: 10, owner: "q", sid: ro.sid})
	if st != proto.OK {
		t.Fatal(st)
	}
	for round := range 3 {
		w.takeover(a, b)
		try := func(kind uint32, off uint64) proto.Status {
			_, st := b.lock(f.fh, lockArgs{kind: kind, off: off, len: 1, owner: "x", sid: theirs.sid})
			return st
		}
		if st := try(proto.ReadLt, 5); st != proto.ErrDenied {
			t.Fatalf("round %d: a lock is held by two: %v", round, st)
		}
		if st := try(proto.WriteLt, 105); st != proto.ErrDenied {
			t.Fatalf("round %d: %v", round, st)
		}
		if _, st := b.tryOpen(root, openHow{name: "d", access: proto.ShareAccessRead}); st != proto.ErrShareDenied {
			t.Fatalf("round %d: a deny mode is gone: %v", round, st)
		}
		if st, _ := b.one(d.fh, proto.OpRead, readOp(state.Anonymous, 0, 1)); st != proto.ErrLocked {
			t.Fatalf("round %d: %v", round, st)
		}
		if st, _ := a.one(d.fh, proto.OpRead, readOp(d.sid, 0, 1)); st != proto.OK {
			t.Fatalf("round %d: %v", round, st)
		}
		// Its owner goes on, by the lock's stateid or by the open's.
		if st, _ := a.one(f.fh, proto.OpWrite, writeOp(wl, 0, proto.FileSync, []byte("x"))); st != proto.OK {
			t.Fatalf("round %d: %v", round, st)
		}
		if wl, st = a.lock(f.fh, lockArgs{kind: proto.WriteLt, off: uint64(20 * (round + 1)), len: 10, sid: wl}); st != proto.OK {
			t.Fatalf("round %d: %v", round, st)
		}
		again, st := a.lock(f.fh, lockArgs{kind: proto.ReadLt, off: 100, len: 20, owner: "q", sid: ro.sid})
		if st != proto.OK || again.Other != rl.Other {
			t.Fatalf("round %d: %v, %+v after %+v", round, st, again, rl)
		}
		rl = again
	}
	// FREE_STATEID of what has not been used since the take-over.
	w.takeover(a, b)
	free := func(sid state.Stateid) op { return stateidOp(proto.OpFreeStateid, nil, sid, nil) }
	a.do(free(rl)).is(proto.ErrLocksHeld)
	unlock := func(sid state.Stateid) op {
		return stateidOp(proto.OpLocku, func(e *xdr.Encoder) { e.Uint32(proto.WriteLt); e.Uint32(0) }, sid,
			func(e *xdr.Encoder) { e.Uint64(0); e.Uint64(1 << 40) })
	}
	a.do(putfh(f.fh), unlock(rl)).is(proto.OK)
	w.takeover(a, b)
	rl.Seq = 0
	a.lost(free(rl))
	w.takeover(a, b)
	a.again(free(rl)).is(proto.OK)
	// CLOSE releases the rest.
	if st, _ := a.one(f.fh, proto.OpClose, closeOp(f.sid)); st != proto.OK {
		t.Fatal(st)
	}
	if _, st := b.lock(f.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 1 << 40, owner: "x", sid: theirs.sid}); st != proto.OK {
		t.Fatal(st)
	}
}

// Deny modes hold between the clients of two front-ends.
func TestDenyAcrossFrontEnds(t *testing.T) {
	r1 := newRig(t, func(c *Config) { c.Identity, c.Epoch = 1, 1 })
	r2 := newRig(t, func(c *Config) { c.FS, c.Identity, c.Epoch = r1.fs, 2, 1 })
	a, b := r1.newSession("a"), r2.newSession("b")
	root := a.root()
	o := a.mustOpen(root, openHow{create: true, name: "f", access: proto.ShareAccessRead, deny: proto.ShareDenyWrite})
	for _, k := range []struct {
		how  openHow
		want proto.Status
	}{
		{openHow{access: proto.ShareAccessWrite}, proto.ErrShareDenied},
		{openHow{access: proto.ShareAccessBoth, create: true, truncate: true}, proto.ErrShareDenied},
		{openHow{access: proto.ShareAccessRead, create: true, truncate: true}, proto.ErrShareDenied},
		{openHow{access: proto.ShareAccessRead, deny: proto.ShareDenyRead}, proto.ErrShareDenied},
		{openHow{access: proto.ShareAccessRead}, proto.OK},
	} {
		k.how.name = "f"
		if _, st := b.tryOpen(root, k.how); st != k.want {
			t.Errorf("%+v: %v, want %v", k.how, st, k.want)
		}
	}
	if st, _ := b.one(o.fh, proto.OpWrite, writeOp(state.Anonymous, 0, proto.FileSync, []byte("x"))); st != proto.ErrLocked {
		t.Error(st)
	}
	if st, _ := a.one(o.fh, proto.OpClose, closeOp(o.sid)); st != proto.OK {
		t.Fatal(st)
	}
	b.mustOpen(root, openHow{name: "f"})
}

// What a silent client of another identity holds is asked for where that is served.
func TestConflictAcrossIdentities(t *testing.T) {
	var r2 *rig
	var asked atomic.Int32
	r1 := newRig(t, func(c *Config) {
		c.Identity, c.Epoch = 1, 1
		c.Conflict = func(ctx context.Context, id uint64) bool {
			asked.Add(1)
			return cluster.ClientIdentity(id) == 2 && r2.p.ExpireClient(ctx, id)
		}
	})
	r2 = newRig(t, func(c *Config) { c.FS, c.Identity, c.Epoch = r1.fs, 2, 1 })
	a, b := r1.newSession("a"), r2.newSession("b")
	root := a.root()
	f := b.mustOpen(root, openHow{create: true, name: "f"})
	d := b.mustOpen(root, openHow{create: true, name: "d", deny: proto.ShareDenyBoth})
	if _, st := b.lock(f.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: f.sid}); st != proto.OK {
		t.Fatal(st)
	}
	mine := a.mustOpen(root, openHow{name: "f"})
	want := lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: mine.sid}
	if _, st := a.lock(f.fh, want); st != proto.ErrDenied || asked.Load() != 1 {
		t.Fatal(st, asked.Load())
	}
	if _, st := a.tryOpen(root, openHow{name: "d"}); st != proto.ErrShareDenied || asked.Load() != 2 {
		t.Fatal(st, asked.Load())
	}
	r2.advance(time.Minute / 2)
	if _, st := a.lock(f.fh, want); st != proto.OK {
		t.Fatal(st)
	}
	if _, st := a.tryOpen(root, openHow{name: "d"}); st != proto.OK {
		t.Fatal(st)
	}
	b.seq[0]++
	b.compound(b.sequence(0, b.seq[0])).is(proto.ErrBadsession)
	_ = d
}

// hanging reports whether a call is not answered for a while, and then how it ends.
func (w *wire) hanging(p *oncrpc.Pending, do func()) (*reply, error) {
	w.t.Helper()
	type end struct {
		r   *reply
		err error
	}
	ch := make(chan end, 1)
	go func() {
		r, err := w.waitFor(p)
		ch <- end{r, err}
	}()
	select {
	case <-ch:
		w.t.Fatal("it was answered")
	case <-time.After(50 * time.Millisecond):
	}
	do()
	e := <-ch
	return e.r, e.err
}

// A front-end that may have been taken over holds its replies, and never sends them
// once it was; so does one that finds its epoch or its commands refused.
func TestOldFrontEndIsSilent(t *testing.T) {
	reg := newRegistry()
	var valid atomic.Bool
	valid.Store(true)
	lost := make(chan struct{}, 8)
	config := func(c *Config) {
		reg.with(c)
		c.Valid = valid.Load
		c.Lost = func() { lost <- struct{}{} }
	}
	r := newRig(t, config)
	s := r.newSession("a")
	root := s.root()
	valid.Store(false)
	rep, err := s.hanging(s.start(putfh(root), mkdir("held")), func() { valid.Store(true) })
	if err != nil || rep.status != proto.OK {
		t.Fatal(err)
	}
	valid.Store(false)
	if _, err := s.hanging(s.start(putfh(root), mkdir("dropped")), r.p.Abandon); !errors.Is(err, oncrpc.ErrClosed) {
		t.Fatal(err)
	}
	w := r.dial()
	if _, err := w.c.Call(t.Context(), &oncrpc.Request{Program: proto.Program, Version: 4}); !errors.Is(err, oncrpc.ErrClosed) {
		t.Fatal("an abandoned identity answers NULL: ", err)
	}
	valid.Store(true)

	// Its epoch is over.
	r = newRig(t, config)
	s = r.newSession("b")
	reg.serve()
	w = r.dial()
	x, _ := w.exchange("c", 1, 0)
	p := w.send(createSession(x.id, x.seq, linuxFore))
	if _, err := w.waitFor(p); !errors.Is(err, oncrpc.ErrClosed) {
		t.Fatal(err)
	}
	<-lost
	<-s.c.Done() // it was bound for callbacks
	s.wire = r.dial()
	if _, err := s.waitFor(s.start(simple(proto.OpPutrootfh))); !errors.Is(err, oncrpc.ErrClosed) {
		t.Fatal(err)
	}

	// Its commands are refused.
	fs := &fencedFS{FS: r.fs, opens: map[vfs.File]int{}}
	r = newRig(t, func(c *Config) { config(c); c.FS = fs })
	s = r.newSession("d")
	root = s.root()
	fs.fenced.Store(true)
	if _, err := s.waitFor(s.start(putfh(root), mkdir("never"))); !errors.Is(err, oncrpc.ErrClosed) {
		t.Fatal(err)
	}
	<-lost
	select {
	case <-lost:
		t.Fatal("it was lost twice")
	default:
	}
}

// A hand-over lets requests end, has later ones wait, and loses nothing.
func TestQuiesce(t *testing.T) {
	reg := newRegistry()
	gate := newGate()
	r := newRig(t, func(c *Config) { reg.with(c); c.FS = gateFS{c.FS, gate} })
	s := r.newSession("a")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	gate.close()
	s.slot = 1
	reading := s.start(putfh(o.fh), readOp(o.sid, 0, 10))
	gate.await()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.p.Quiesce(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	s.slot = 2
	later := s.start(putfh(root), mkdir("d"))
	quiet := make(chan error, 1)
	go func() { quiet <- r.p.Quiesce(t.Context()) }()
	time.Sleep(10 * time.Millisecond)
	gate.open()
	s.wait(reading).is(proto.OK)
	if err := <-quiet; err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.fs.Lookup(rootRequest(t), mainRoot(t, r), "d"); !errors.Is(err, cluster.ENOENT) {
		t.Fatal("it was executed: ", err)
	}
	// The hand-over fails, and is tried again.
	rep, err := s.hanging(later, r.p.Resume)
	if err != nil || rep.status != proto.OK {
		t.Fatal(err)
	}
	if err := r.p.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.slot = 3
	ops := []op{putfh(root), mkdir("e")}
	last := s.start(ops...)
	next := newRig(t, func(c *Config) { reg.with(c); c.FS = r.fs })
	if _, err := s.hanging(last, r.p.Abandon); !errors.Is(err, oncrpc.ErrClosed) {
		t.Fatal(err)
	}
	s.wire = next.dial()
	s.again(ops...).is(proto.OK)
	r.p.Resume()
	if !r.p.Lost() {
		t.Fatal("an abandoned identity is resumed")
	}
}

// A file that is unlinked through another front-end lives on for those who have it
// open for reading here, also after a take-over.
func TestUnlinkedElsewhere(t *testing.T) {
	w := newWorld(t)
	s := w.r.newSession("a")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	s.do(putfh(o.fh), writeOp(o.sid, 0, proto.FileSync, []byte("abc"))).is(proto.OK)
	if st, _ := s.one(o.fh, proto.OpClose, closeOp(o.sid)); st != proto.OK {
		t.Fatal(st)
	}
	ro := s.mustOpen(root, openHow{name: "f", access: proto.ShareAccessRead})
	if _, err := w.fs.Remove(rootRequest(t), mainRoot(t, w.r), "f"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.takeover(s)
		st, d := s.one(ro.fh, proto.OpRead, readOp(ro.sid, 0, 10))
		if eof, p := d.Bool(), d.String(10); st != proto.OK || !eof || p != "abc" {
			t.Fatal(st, eof, p)
		}
	}
	if st, _ := s.one(ro.fh, proto.OpClose, closeOp(ro.sid)); st != proto.OK {
		t.Fatal(st)
	}
	if st, _ := s.one(ro.fh, proto.OpGetattr, getattr(proto.AttrType)); st != proto.ErrStale {
		t.Fatal(st)
	}
}

// A front-end that dies may leave records of what was closed just before. They don't
// keep the client from ending: what it has not named since the take-over goes with it, and
// with that the files that have no name. What it has named is its own to close.
func TestDestroyClientidAfterTakeover(t *testing.T) {
	w := newWorld(t)
	s, other := w.r.newSession("a"), w.r.newSession("b")
	root := s.root()
	left := s.mustOpen(root, openHow{create: true, name: "left", owner: "o"})
	used := s.mustOpen(root, openHow{create: true, name: "used", owner: "o"})
	beside := s.mustOpen(root, openHow{name: "used", owner: "p"})
	if _, st := s.lock(left.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q", sid: left.sid}); st != proto.OK {
		t.Fatal(st)
	}
	s.do(putfh(root), named(proto.OpRemove, "left")).is(proto.OK)
	w.takeover(s, other)
	if st, _ := s.one(used.fh, proto.OpRead, readOp(used.sid, 0, 1)); st != proto.OK {
		t.Fatal(st)
	}
	// What is found of left on the way is no use of it.
	st, _ := s.one(left.fh, proto.OpLockt, s.lockt(proto.WriteLt, 0, 1, "z"))
	if st != proto.ErrDenied {
		t.Fatal("the lock is gone: ", st)
	}
	destroy := func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroyClientid)); e.Uint64(s.clientID) }
	other.do(destroy).is(proto.ErrClientidBusy) // a session
	s.compound(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroySession)); e.FixedOpaque(s.id[:]) }).is(proto.OK)
	other.do(destroy).is(proto.ErrClientidBusy) // an open that is used
	s.create(2)
	if st, _ := s.one(used.fh, proto.OpClose, closeOp(used.sid)); st != proto.OK {
		t.Fatal(st)
	}
	s.compound(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroySession)); e.FixedOpaque(s.id[:]) }).is(proto.OK)
	other.do(destroy).is(proto.OK) // left and beside were not named
	if st, _ := other.one(left.fh, proto.OpGetattr, getattr(proto.AttrType)); st != proto.ErrStale {
		t.Fatalf("a file without a name or a client is there: %v", st)
	}
	if o := other.mustOpen(root, openHow{name: "used", deny: proto.ShareDenyBoth}); o.sid.Other == beside.sid.Other {
		t.Fatal(o)
	}
	if n := w.reg.count(); n != 1 {
		t.Fatalf("%d client records", n)
	}
}

// Who is silent for a lease after a take-over loses its lock to who needs it, also if
// that one's request may be one of before.
func TestLapsedLockAfterTakeover(t *testing.T) {
	w := newWorld(t)
	a, b := w.r.newSession("a"), w.r.newSession("b")
	root := a.root()
	held := a.mustOpen(root, openHow{create: true, name: "f"})
	if _, st := a.lock(held.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: held.sid}); st != proto.OK {
		t.Fatal(st)
	}
	o := b.mustOpen(root, openHow{name: "f"})
	w.takeover(a, b)
	lock := lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q", sid: o.sid}
	if _, st := b.lock(o.fh, lock); st != proto.ErrDenied {
		t.Fatal("a lease has begun with the take-over: ", st)
	}
	w.r.advance(8 * time.Second)
	b.do(simple(proto.OpPutrootfh)).is(proto.OK)
	w.r.advance(3 * time.Second)
	b.slot = 5 // used for the first time since
	if _, st := b.lock(o.fh, lock); st != proto.OK {
		t.Fatal(st)
	}
}
