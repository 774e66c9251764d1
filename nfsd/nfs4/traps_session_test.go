package nfs4

import (
	"errors"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// restarted returns a front-end over the same file system, as it is after a restart.
func (r *rig) restarted(change func(*Config)) *rig {
	r.t.Helper()
	now := newRig(r.t, func(c *Config) {
		c.FS, c.Identity, c.Epoch = r.fs, r.p.cfg.Identity, r.p.cfg.Epoch+1
		if change != nil {
			change(c)
		}
	})
	now.fs = r.fs
	return now
}

// A front-end that has restarted knows neither session nor client: the client is
// told so, and never that it has miscounted, which it would wait out for ever.
func TestTrap01RestartIsNoMisorder(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	for range 5 {
		s.do(simple(proto.OpPutrootfh)).is(proto.OK)
	}
	s.wire = r.restarted(nil).dial()
	for _, seq := range []uint32{s.seq[0], s.seq[0] + 1, 1} {
		s.compound(s.sequence(0, seq), simple(proto.OpPutrootfh)).is(proto.ErrBadsession)
	}
	s.compound(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroySession)); e.FixedOpaque(s.id[:]) }).is(proto.ErrBadsession)
	for _, seq := range []uint32{1, 2, 3} {
		s.compound(createSession(s.clientID, seq, linuxFore)).is(proto.ErrStaleClientid)
	}
	x, st := s.exchange("a", 1, 0)
	if st != proto.OK || x.id == s.clientID {
		t.Fatal(st, x)
	}
	s.clientID = x.id
	s.create(x.seq)
	s.do(reclaimComplete(), simple(proto.OpPutrootfh)).is(proto.OK)
}

// A COMPOUND that ends anywhere is answered, and so is the next one: a client does
// not send again on a connection that is open.
func TestTrap04EveryCallIsAnswered(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	var whole xdr.Encoder
	whole.String("tag")
	whole.Uint32(2)
	ops := []op{
		s.sequence(0, 0), putfh(root), openOp(s.clientID, openHow{create: true, name: "f", owner: "o", access: 3}),
		writeOp(state.Current, 0, proto.FileSync, make([]byte, 20)), getattr(linuxAttrs...), named(proto.OpLookup, "x"),
	}
	whole.Uint32(uint32(len(ops)))
	for _, o := range ops {
		o(&whole)
	}
	const seqAt = 8 + 4 + 4 + 4 + 16 // after tag, minor version, count, number and session id
	var answers, refused int
	for n := 0; n <= len(whole.Bytes()); n += 4 {
		call := &oncrpc.Request{
			Program: proto.Program, Version: 4, Procedure: proto.ProcCompound, Cred: s.cred,
			Encode: func(e *xdr.Encoder) {
				cut := append([]byte(nil), whole.Bytes()[:n]...)
				if n >= seqAt+4 {
					var seq xdr.Encoder
					seq.Uint32(s.seq[0] + 1)
					copy(cut[seqAt:], seq.Bytes())
				}
				e.Raw(cut)
			},
		}
		p, err := s.c.Start(call)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := s.waitFor(p)
		var stat *oncrpc.CallError
		switch {
		case errors.As(err, &stat) && stat.Stat == oncrpc.GarbageArgs:
			refused++
			continue
		case err != nil:
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		answers++
		if n >= seqAt+16 && rep.next(proto.OpSequence) == proto.OK {
			s.seq[0]++
		}
	}
	if answers == 0 || refused == 0 {
		t.Fatalf("%d answered, %d refused", answers, refused)
	}
	s.do(simple(proto.OpPutrootfh)).is(proto.OK)
}

// A connection is bound in all directions that the client asks for, at once and later.
func TestTrap08BackChannel(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	bind := func(id state.SessionID, dir uint32) op {
		return func(e *xdr.Encoder) {
			e.Uint32(uint32(proto.OpBindConnToSession))
			e.FixedOpaque(id[:])
			e.Uint32(dir)
			e.Bool(false)
		}
	}
	w := r.dial()
	for _, k := range []struct {
		dir, want uint32
		st        proto.Status
	}{
		{proto.CDFCFore, proto.CDFSFore, proto.OK},
		{proto.CDFCBack, proto.CDFSBack, proto.OK},
		{proto.CDFCForeOrBoth, proto.CDFSBoth, proto.OK},
		{proto.CDFCBackOrBoth, proto.CDFSBoth, proto.OK},
		{4, 0, proto.ErrInval},
	} {
		rep := w.compound(bind(s.id, k.dir))
		rep.is(k.st)
		if k.st != proto.OK {
			continue
		}
		d := rep.ok(proto.OpBindConnToSession)
		if id, dir, rdma := d.FixedOpaque(16), d.Uint32(), d.Bool(); string(id) != string(s.id[:]) || dir != k.want || rdma {
			t.Errorf("asked for %d: %d, RDMA %v", k.dir, dir, rdma)
		}
	}
	w.compound(bind(state.SessionID{9}, proto.CDFCFore)).is(proto.ErrBadsession)
	// Without a BIND, a connection is bound by being used.
	s.wire = r.dial()
	s.do(simple(proto.OpPutrootfh)).is(proto.OK)
}

// SEQUENCE never says that a path for callbacks is down, or anything else that
// makes a client drain its slots: also not in a session without a back channel.
func TestTrap11StatusFlags(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	x, _ := w.exchange("a", 1, 0)
	s := &sess{wire: w, r: r, clientID: x.id}
	d := w.compound(func(e *xdr.Encoder) {
		var with xdr.Encoder
		createSession(x.id, x.seq, linuxFore)(&with)
		b := with.Bytes()
		b[4+8+4+3] = 0 // csa_flags
		e.Raw(b)
	}).ok(proto.OpCreateSession)
	copy(s.id[:], d.FixedOpaque(16))
	if seq, flags := d.Uint32(), d.Uint32(); seq != x.seq || flags != 0 {
		t.Fatalf("flags %#x were granted and not asked for", flags)
	}
	for range 3 {
		s.do(simple(proto.OpPutrootfh)).is(proto.OK) // do looks at the flags
		r.advance(4 * time.Second)
	}
}

// The table of slots never shrinks, whatever the client says of its own, and a
// slot starts at 1 whenever it is first used.
func TestTrap22SlotTable(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	for _, slot := range []uint32{63, 0, 31, 63, 5, 31} {
		s.slot = slot
		s.do(simple(proto.OpPutrootfh)).is(proto.OK) // do looks at the highest slots
	}
	s.slot = 0
	s.seq[0]++
	s.compound(func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpSequence))
		e.FixedOpaque(s.id[:])
		e.Uint32(s.seq[0])
		e.Uint32(0)
		e.Uint32(0) // no more than one slot is in use
		e.Bool(false)
	}).is(proto.OK)
	s.slot = 63
	s.do(simple(proto.OpPutrootfh)).is(proto.OK)
}

// The state of a client that is gone is not confirmed any more: the client has to
// know that there is something to reclaim, or that it can't be.
func TestTrap24ConfirmedOnlyWithState(t *testing.T) {
	again := func(r *rig, what string) {
		t.Helper()
		if x, st := r.dial().exchange("a", 1, 0); st != proto.OK || x.flags&proto.ExchgIDFlagConfirmedR != 0 {
			t.Errorf("%s: %v, flags %#x", what, st, x.flags)
		}
	}
	r := newRig(t, nil)
	r.newSession("a")
	if x, _ := r.dial().exchange("a", 1, 0); x.flags&proto.ExchgIDFlagConfirmedR == 0 {
		t.Error("it is there, and not confirmed")
	}
	again(r.restarted(nil), "after a restart")
	r.advance(2 * time.Hour)
	r.p.Tick(t.Context(), r.p.cfg.Now())
	again(r, "after it expired")
}

// The lease is renewed by each SEQUENCE that succeeds and by none that fails; that a
// connection is gone takes nothing away.
func TestTrap27Renewal(t *testing.T) {
	r := newRig(t, nil)
	s, other := r.newSession("a"), r.newSession("b")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f", deny: proto.ShareDenyBoth})
	s.c.Close()
	s.down = true // until it binds another connection to the back channel
	r.p.Tick(t.Context(), r.p.cfg.Now())
	if _, st := other.tryOpen(root, openHow{name: "f"}); st != proto.ErrShareDenied {
		t.Fatal("the state went with the connection: ", st)
	}
	s.wire = r.dial()
	s.do(putfh(o.fh), readOp(o.sid, 0, 1)).is(proto.OK)
	r.advance(8 * time.Second)
	other.do(simple(proto.OpPutrootfh)).is(proto.OK)
	s.compound(s.sequence(0, s.seq[0]+5)).is(proto.ErrSeqMisordered)
	s.compound(s.sequence(999, 1)).is(proto.ErrBadslot)
	r.advance(4 * time.Second)
	if _, st := other.tryOpen(root, openHow{name: "f"}); st != proto.OK {
		t.Fatal("a SEQUENCE that failed has renewed the lease: ", st)
	}
}

// Two front-ends of one file system show the same handles, numbers, change
// attributes and cookies, whichever of them changed what, at once.
func TestTrap17TwoFrontEnds(t *testing.T) {
	r1 := newRig(t, func(c *Config) { c.ServerOwner = "n1" })
	r2 := r1.restarted(func(c *Config) { c.ServerOwner = "n2" })
	a, b := r1.newSession("a"), r2.newSession("b")
	root := a.root()
	if string(b.root()) != string(root) {
		t.Fatal("two handles of one directory")
	}
	var last uint64
	for i, s := range []*sess{a, b, a, a, b, b} {
		o := s.mustOpen(root, openHow{create: true, name: string(rune('a' + i))})
		if i > 0 && o.dir.Before != last || o.dir.After <= o.dir.Before {
			t.Fatalf("%d: the change attribute went from %d to %d; it was %d", i, o.dir.Before, o.dir.After, last)
		}
		last = o.dir.After
		var values [2][]byte
		for j, s := range []*sess{a, b} {
			for _, fh := range [][]byte{root, o.fh} {
				_, d := s.one(fh, proto.OpGetattr, getattr(linuxAttrs...))
				values[j] = append(values[j], d.FixedOpaque(d.Remaining())...)
			}
			_, d := s.one(root, proto.OpReaddir, readdirOp(0, 4096, linuxAttrs...))
			values[j] = append(values[j], d.FixedOpaque(d.Remaining())...)
		}
		if string(values[0]) != string(values[1]) {
			t.Fatalf("%d: the front-ends show different attributes or entries", i)
		}
		if change := attrValue(t, a, root, proto.AttrChange).Uint64(); change != last {
			t.Fatalf("%d: change is %d, change_info4 said %d", i, change, last)
		}
	}
}
