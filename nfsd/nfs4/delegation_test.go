package nfs4

import (
	"slices"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// delegates has a Program delegate what is in the volume "main", which is relaxed.
func delegates(c *Config) {
	c.FS = memfs.New(memfs.Options{Volumes: []string{"main", "other"}, Class: cluster.Class{Consistency: cluster.Relaxed, Copies: 1}})
	c.Delegate = func(v vfs.Volume) bool { return v.Name == "main" }
}

// delegRig is a client that answers callbacks, and has a file in "main" that nobody has open.
func delegRig(t *testing.T, change func(*Config)) (r *rig, s *sess, cb *cbClient, root, fh []byte) {
	r, s, cb = cbRig(t, func(c *Config) {
		delegates(c)
		if change != nil {
			change(c)
		}
	})
	r.run()
	root = s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	s.do(putfh(o.fh), writeOp(o.sid, 0, proto.FileSync, []byte("content"))).is(proto.OK)
	s.do(putfh(o.fh), closeOp(o.sid)).is(proto.OK)
	return r, s, cb, root, o.fh
}

// another is a second client of the Program, with callbacks of its own.
func (r *rig) another(name string) (*sess, *cbClient) {
	cb := &cbClient{slots: map[uint32]uint32{}}
	old := r.callbacks
	r.callbacks = []oncrpc.Program{cb.program()}
	defer func() { r.callbacks = old }()
	return r.newSession(name), cb
}

// A delegated is what an OPEN said of delegations.
type delegated struct {
	kind, why uint32
	sid       state.Stateid // of the delegation
	open      state.Stateid
}

// openFor opens dir/name and returns what is said of delegations.
func (s *sess) openFor(dir []byte, h openHow) (d delegated, st proto.Status) {
	s.t.Helper()
	if h.owner == "" {
		h.owner = "owner"
	}
	st, x := s.one(dir, proto.OpOpen, openOp(s.clientID, h))
	if st != proto.OK {
		return d, st
	}
	return s.opened(x), proto.OK
}

func (s *sess) opened(x *xdr.Decoder) (d delegated) {
	d.open = state.DecodeStateid(x)
	x.FixedOpaque(4 + 8 + 8 + 4)
	decodeBitmap(x)
	switch d.kind = x.Uint32(); d.kind {
	case proto.OpenDelegateRead:
		d.sid = state.DecodeStateid(x)
		x.FixedOpaque(4 + 3*4)
		x.Opaque(10)
	case proto.OpenDelegateNoneExt:
		if d.why = x.Uint32(); d.why == proto.WNDContention || d.why == proto.WNDResource {
			x.Bool()
		}
	}
	if x.Err() != nil {
		s.t.Fatal(x.Err())
	}
	return d
}

// mustDelegate opens dir/name for reading and gets a delegation; the open is closed.
func (s *sess) mustDelegate(dir []byte, name string, fh []byte) state.Stateid {
	s.t.Helper()
	d, st := s.openFor(dir, openHow{name: name, access: proto.ShareAccessRead})
	if st != proto.OK || d.kind != proto.OpenDelegateRead {
		s.t.Fatalf("%v %+v", st, d)
	}
	s.do(putfh(fh), closeOp(d.open)).is(proto.OK)
	return d.sid
}

func delegreturnOp(sid state.Stateid) op { return stateidOp(proto.OpDelegreturn, nil, sid, nil) }

// claimCur opens with CLAIM_DELEG_CUR_FH, or CLAIM_DELEGATE_CUR of a name.
func claimCur(clientID uint64, owner string, access uint32, sid state.Stateid, name string) op {
	h := openHow{owner: owner, access: access, claim: proto.ClaimDelegCurFH, delegation: sid, name: name}
	if name != "" {
		h.claim = proto.ClaimDelegateCur
	}
	return openOp(clientID, h)
}

func (c *cbClient) recalled(sid state.Stateid) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.recalls, sid)
}

// What OPEN says of delegations (RFC 8881 §18.16.3).
func TestDelegationOffer(t *testing.T) {
	const read, write = proto.ShareAccessRead, proto.ShareAccessWrite
	const none, ext, deleg = proto.OpenDelegateNone, proto.OpenDelegateNoneExt, proto.OpenDelegateRead
	off := func(c *Config) { c.Delegate = nil }
	strict := func(c *Config) { c.FS = memfs.New(memfs.Options{}) }
	for name, c := range map[string]struct {
		change    func(*Config)
		access    uint32 // with wants
		volume    string
		kind, why uint32
	}{
		"no preference":              {nil, read, "main", deleg, 0},
		"read wanted":                {nil, read | proto.ShareAccessWantReadDeleg, "main", deleg, 0},
		"any wanted":                 {nil, read | proto.ShareAccessWantAnyDeleg, "main", deleg, 0},
		"none wanted":                {nil, read | proto.ShareAccessWantNoDeleg, "main", ext, proto.WNDNotWanted},
		"cancelled":                  {nil, read | proto.ShareAccessWantCancel, "main", ext, proto.WNDCancelled},
		"write wanted":               {nil, read | proto.ShareAccessWantWriteDeleg, "main", ext, proto.WNDWriteDelegNotSuppFtype},
		"for writing":                {nil, read | write, "main", none, 0},
		"for writing, any wanted":    {nil, read | write | proto.ShareAccessWantAnyDeleg, "main", ext, proto.WNDWriteDelegNotSuppFtype},
		"another volume":             {nil, read, "other", none, 0},
		"another volume, wanted":     {nil, read | proto.ShareAccessWantReadDeleg, "other", ext, proto.WNDNotSuppFtype},
		"strict directory":           {strict, read, "main", none, 0},
		"strict directory, wanted":   {strict, read | proto.ShareAccessWantAnyDeleg, "main", ext, proto.WNDNotSuppFtype},
		"switched off":               {off, read, "main", none, 0},
		"switched off, wanted":       {off, read | proto.ShareAccessWantReadDeleg, "main", ext, proto.WNDNotSuppFtype},
		"switched off, none wanted":  {off, read | proto.ShareAccessWantNoDeleg, "main", ext, proto.WNDNotWanted},
		"signal when there is one":   {nil, read | proto.ShareAccessWantReadDeleg | proto.ShareAccessWantSignalDelegWhenResrcAvail, "main", deleg, 0},
		"push when there is no need": {nil, read | proto.ShareAccessWantWriteDeleg | proto.ShareAccessWantPushDelegWhenUncontended, "main", ext, proto.WNDWriteDelegNotSuppFtype},
	} {
		t.Run(name, func(t *testing.T) {
			_, s, _ := cbRig(t, func(cfg *Config) {
				delegates(cfg)
				if c.change != nil {
					c.change(cfg)
				}
			})
			r := s.do(simple(proto.OpPutrootfh), named(proto.OpLookup, c.volume), simple(proto.OpGetfh))
			r.ok(proto.OpPutrootfh)
			r.ok(proto.OpLookup)
			dir := append([]byte(nil), r.ok(proto.OpGetfh).Opaque(128)...)
			o, st := s.openFor(dir, openHow{create: true, name: "f", access: write})
			if st != proto.OK {
				t.Fatal(st)
			}
			rep := s.do(putfh(dir), named(proto.OpLookup, "f"), closeOp(o.open))
			rep.is(proto.OK)
			d, st := s.openFor(dir, openHow{name: "f", access: c.access})
			if st != proto.OK || d.kind != c.kind || d.why != c.why {
				t.Errorf("%v: type %d, why %d, want %d, %d", st, d.kind, d.why, c.kind, c.why)
			}
		})
	}
}

// A client that can't be called back gets no delegation, and is told why if it wants one.
func TestDelegationNeedsBackChannel(t *testing.T) {
	r, s, _, root, fh := delegRig(t, nil)
	s.down = true
	conn := s.c
	s.wire = r.dial()
	conn.Close()
	until(t, "no path", func() bool { return s.flags() == pathDown })
	d, st := s.openFor(root, openHow{name: "f", access: proto.ShareAccessRead | proto.ShareAccessWantReadDeleg})
	if st != proto.OK || d.kind != proto.OpenDelegateNoneExt || d.why != proto.WNDResource {
		t.Fatalf("%v %+v", st, d)
	}
	s.compound(bindOp(s.id, proto.CDFCForeOrBoth)).is(proto.OK)
	s.mustDelegate(root, "f", fh)
}

// Each way to change a file, or to keep others from reading it, by another client: while
// the delegation is not returned it is put off, and its holder is told; then it is done.
func TestDelegationConflicts(t *testing.T) {
	const read, write = proto.ShareAccessRead, proto.ShareAccessWrite
	for name, c := range map[string]struct {
		op  proto.Op
		dir bool // the current file handle is the directory
		ops func(s *sess, root, fh []byte) []op
	}{
		"open to write": {proto.OpOpen, true, func(s *sess, _, _ []byte) []op {
			return []op{openOp(s.clientID, openHow{owner: "o", access: write, name: "f"})}
		}},
		"open to write by handle": {proto.OpOpen, false, func(s *sess, _, _ []byte) []op {
			return []op{openOp(s.clientID, openHow{owner: "o", access: write, claim: proto.ClaimFH})}
		}},
		"open that denies reading": {proto.OpOpen, true, func(s *sess, _, _ []byte) []op {
			return []op{openOp(s.clientID, openHow{owner: "o", access: read, deny: proto.ShareDenyRead, name: "f"})}
		}},
		"open that creates": {proto.OpOpen, true, func(s *sess, _, _ []byte) []op {
			return []op{openOp(s.clientID, openHow{owner: "o", access: write, create: true, name: "f"})}
		}},
		"open that truncates": {proto.OpOpen, true, func(s *sess, _, _ []byte) []op {
			return []op{openOp(s.clientID, openHow{owner: "o", access: read, create: true, truncate: true, name: "f"})}
		}},
		"write without an open": {proto.OpWrite, false, func(*sess, []byte, []byte) []op {
			return []op{writeOp(state.Anonymous, 0, proto.FileSync, []byte("x"))}
		}},
		"mode": {proto.OpSetattr, false, func(*sess, []byte, []byte) []op { return []op{setMode(0o600)} }},
		"size": {proto.OpSetattr, false, func(*sess, []byte, []byte) []op { return []op{setSize(state.Anonymous, 1)} }},
		"remove": {proto.OpRemove, true, func(*sess, []byte, []byte) []op {
			return []op{named(proto.OpRemove, "f")}
		}},
		"rename": {proto.OpRename, true, func(*sess, []byte, []byte) []op {
			return []op{simple(proto.OpSavefh), named(proto.OpRename, "f", "g")}
		}},
		"replace": {proto.OpRename, true, func(*sess, []byte, []byte) []op {
			return []op{simple(proto.OpSavefh), named(proto.OpRename, "e", "f")}
		}},
		"link": {proto.OpLink, false, func(_ *sess, root, _ []byte) []op {
			return []op{simple(proto.OpSavefh), putfh(root), named(proto.OpLink, "g")}
		}},
		"hole": {proto.OpDeallocate, false, func(*sess, []byte, []byte) []op {
			return []op{stateidOp(proto.OpDeallocate, nil, state.Anonymous, func(e *xdr.Encoder) { e.Uint64(0); e.Uint64(1) })}
		}},
		"attribute": {proto.OpSetxattr, false, func(*sess, []byte, []byte) []op {
			return []op{func(e *xdr.Encoder) {
				e.Uint32(uint32(proto.OpSetxattr))
				e.Uint32(0)
				e.String("x")
				e.String("y")
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, s, cb, root, fh := delegRig(t, nil)
			b, _ := r.another("b")
			e, _ := b.openFor(root, openHow{create: true, name: "e", access: write})
			_ = e
			sid := s.mustDelegate(root, "f", fh)
			at := fh
			if c.dir {
				at = root
			}
			do := func() proto.Status { return b.do(append([]op{putfh(at)}, c.ops(b, root, fh)...)...).status }
			if st := do(); st != proto.ErrDelay {
				t.Fatalf("%v while it is delegated", st)
			}
			until(t, "the holder is told", func() bool { return cb.recalled(sid) })
			if st := do(); st != proto.ErrDelay {
				t.Fatalf("%v while it is recalled", st)
			}
			// Until then it is good.
			if st, _ := s.one(fh, proto.OpRead, readOp(sid, 0, 10)); st != proto.OK {
				t.Fatal(st)
			}
			s.do(putfh(fh), delegreturnOp(sid)).is(proto.OK)
			if st := do(); st != proto.OK {
				t.Fatalf("%v when it has been returned", st)
			}
			// It is contended for: not at once again.
			if d, st := s.openFor(root, openHow{name: "f", access: read}); st == proto.OK && d.kind == proto.OpenDelegateRead {
				t.Fatal("delegated again at once")
			}
		})
	}
}

// What another client reads is in nobody's way.
func TestDelegationsShared(t *testing.T) {
	r, s, cb, root, fh := delegRig(t, nil)
	b, _ := r.another("b")
	mine, its := s.mustDelegate(root, "f", fh), b.mustDelegate(root, "f", fh)
	if mine == its {
		t.Fatal("two delegations of one name")
	}
	b.do(putfh(fh), readOp(state.Anonymous, 0, 10), getattr(proto.AttrSize)).is(proto.OK)
	if st, _ := b.one(fh, proto.OpRead, readOp(mine, 0, 10)); st != proto.ErrBadStateid {
		t.Fatal("another client's:", st)
	}
	if st, _ := b.one(fh, proto.OpWrite, writeOp(its, 0, 2, []byte("x"))); st != proto.ErrOpenmode {
		t.Fatal("writing by a delegation to read:", st)
	}
	time.Sleep(50 * time.Millisecond)
	if cb.executed() > 0 {
		t.Fatal("recalled")
	}
	s.do(putfh(fh), delegreturnOp(mine)).is(proto.OK)
	if st, _ := s.one(fh, proto.OpDelegreturn, delegreturnOp(mine)); st != proto.ErrBadStateid {
		t.Fatal("returned twice:", st)
	}
}

// A change through another front-end recalls it when it is applied here: relaxed files
// are changed without waiting for that.
func TestDelegationRecalledFromElsewhere(t *testing.T) {
	r, s, cb, root, fh := delegRig(t, nil)
	elsewhere := newRig(t, func(c *Config) {
		delegates(c)
		c.FS, c.Identity, c.Epoch, c.ServerOwner = r.p.fs, 2, 1, "other"
	})
	b := elsewhere.newSession("b")
	for name, o := range map[string]op{
		"mode":          setMode(0o640),
		"write":         writeOp(state.Anonymous, 0, proto.FileSync, []byte("x")),
		"open to write": openOp(b.clientID, openHow{owner: "o", access: proto.ShareAccessWrite, claim: proto.ClaimFH}),
	} {
		sid := s.mustDelegate(root, "f", fh)
		b.do(putfh(fh), o).is(proto.OK)
		until(t, name, func() bool { return cb.recalled(sid) })
		s.do(putfh(fh), delegreturnOp(sid)).is(proto.OK)
		r.advance(time.Minute)
		elsewhere.advance(time.Minute)
		s.do().is(proto.OK)
		if name == "open to write" {
			if d, _ := s.openFor(root, openHow{name: "f", access: proto.ShareAccessRead}); d.kind != proto.OpenDelegateNone {
				t.Fatal("delegated while another front-end's client may write")
			}
			elsewhere.p.release(t.Context(), elsewhere.p.state.Expire(1<<62))
			b = elsewhere.newSession("b")
		}
	}
}

// Trap 26: whatever a holder does, by itself or because it is told to, is not put off by its own
// delegation, also while another client waits for that.
func TestTrap26HolderNeverWaits(t *testing.T) {
	for name, contended := range map[string]bool{"quiet": false, "recalled": true} {
		t.Run(name, func(t *testing.T) {
			r, s, cb, root, fh := delegRig(t, nil)
			b, _ := r.another("b")
			sid := s.mustDelegate(root, "f", fh)
			if contended {
				// It never returns it here, and b goes on asking.
				stop := make(chan struct{})
				done := make(chan struct{})
				go func() {
					defer close(done)
					for {
						select {
						case <-stop:
							return
						default:
							b.wait(b.start(putfh(fh), writeOp(state.Anonymous, 0, proto.FileSync, []byte("b"))))
						}
					}
				}()
				defer func() { close(stop); <-done }()
				until(t, "told", func() bool { return cb.recalled(sid) })
			}
			s.do(putfh(fh), simple(proto.OpSavefh), putfh(root), named(proto.OpLink, "f2")).is(proto.OK)
			w, st := s.openFor(root, openHow{owner: "w", name: "f", access: proto.ShareAccessBoth})
			if st != proto.OK {
				t.Fatal("own open to write:", st)
			}
			for what, ops := range map[string][]op{
				"WRITE":         {putfh(fh), writeOp(w.open, 0, proto.FileSync, []byte("mine"))},
				"anonymous":     {putfh(fh), writeOp(state.Anonymous, 0, proto.FileSync, []byte("mine"))},
				"SETATTR":       {putfh(fh), setMode(0o600)},
				"truncate":      {putfh(fh), setSize(w.open, 3)},
				"READ":          {putfh(fh), readOp(sid, 0, 10)},
				"claim":         {putfh(fh), claimCur(s.clientID, "c", proto.ShareAccessRead, sid, "")},
				"claim by name": {putfh(root), claimCur(s.clientID, "n", proto.ShareAccessRead, sid, "f")},
				"LINK":          {putfh(fh), simple(proto.OpSavefh), putfh(root), named(proto.OpLink, "g")},
				"RENAME":        {putfh(root), simple(proto.OpSavefh), named(proto.OpRename, "f2", "f3")},
			} {
				if st := s.do(ops...).status; st != proto.OK {
					t.Errorf("%s: %v", what, st)
				}
			}
			if st := s.do(putfh(fh), delegreturnOp(sid)).status; st != proto.OK {
				t.Fatal("DELEGRETURN:", st)
			}
		})
	}
}

// A holder that is told opens what it has opened by itself, takes its locks, and returns
// the delegation; whoever waits goes on then, and respects that.
func TestDelegationReturned(t *testing.T) {
	r, s, cb, root, fh := delegRig(t, nil)
	b, _ := r.another("b")
	sid := s.mustDelegate(root, "f", fh)
	waits := b.start(putfh(root), openOp(b.clientID, openHow{owner: "o", access: proto.ShareAccessWrite, deny: proto.ShareDenyRead, name: "f"}))
	until(t, "told", func() bool { return cb.recalled(sid) })
	for st, o := range map[proto.Status]op{
		proto.ErrOpenmode:   claimCur(s.clientID, "c", proto.ShareAccessBoth, sid, ""),
		proto.ErrBadStateid: claimCur(s.clientID, "c", proto.ShareAccessRead, state.Stateid{Seq: 1, Other: vfs.StateID{0x51}}, ""),
		proto.ErrNotsupp:    openOp(s.clientID, openHow{owner: "c", access: proto.ShareAccessRead, claim: proto.ClaimDelegPrevFH}),
	} {
		if got, _ := s.one(fh, proto.OpOpen, o); got != st {
			t.Fatalf("%v, want %v", got, st)
		}
	}
	st, x := s.one(fh, proto.OpOpen, claimCur(s.clientID, "c", proto.ShareAccessRead, sid, ""))
	if st != proto.OK {
		t.Fatal(st)
	}
	o := s.opened(x)
	if o.kind != proto.OpenDelegateNone {
		t.Fatal("a delegation for what is to be returned")
	}
	s.do(putfh(fh), lockOp(s, o.open, proto.ReadLt)).is(proto.OK)
	s.do(putfh(fh), delegreturnOp(sid)).is(proto.OK)
	if st := b.wait(waits).status; st != proto.ErrShareDenied && st != proto.ErrDelay {
		t.Fatalf("%v: it denies what s has open", st)
	}
	w := b.mustOpen(root, openHow{name: "f"})
	if st, _ := b.one(fh, proto.OpLock, lockOp(b, w.sid, proto.WriteLt)); st != proto.ErrDenied {
		t.Fatalf("%v: s has a lock", st)
	}
}

// lockOp locks the whole file for a new lock-owner.
func lockOp(s *sess, open state.Stateid, kind uint32) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpLock))
		e.Uint32(kind)
		e.Bool(false)
		e.Uint64(0)
		e.Uint64(^uint64(0))
		e.Bool(true)
		e.Uint32(0)
		open.Encode(e)
		e.Uint32(0)
		e.Uint64(s.clientID)
		e.String("locker")
	}
}

// A delegation that is not returned within the lease time is revoked, whether its client
// answers, does not answer, or can't be reached: others go on then. The client hears of it
// until it has freed the stateid.
func TestDelegationRevoked(t *testing.T) {
	for name, lose := range map[string]func(s *sess, cb *cbClient){
		"it answers only":     func(*sess, *cbClient) {},
		"it does not answer":  func(_ *sess, cb *cbClient) { cb.mu.Lock(); cb.mute = true; cb.mu.Unlock() },
		"it is busy":          func(_ *sess, cb *cbClient) { cb.mu.Lock(); cb.answer = proto.ErrDelay; cb.mu.Unlock() },
		"it can't be reached": func(s *sess, _ *cbClient) { s.c.Close(); s.wire, s.down = s.r.dial(), true },
	} {
		t.Run(name, func(t *testing.T) {
			r, s, cb, root, fh := delegRig(t, nil)
			b, _ := r.another("b")
			sid := s.mustDelegate(root, "f", fh)
			lose(s, cb)
			s.down = true
			write := func() proto.Status {
				return b.do(putfh(fh), writeOp(state.Anonymous, 0, proto.FileSync, []byte("x"))).status
			}
			if st := write(); st != proto.ErrDelay {
				t.Fatal(st)
			}
			r.advance(9 * time.Second)
			s.compound(s.sequence(3, 1)).is(proto.OK) // its lease goes on
			if st := write(); st != proto.ErrDelay {
				t.Fatalf("%v within the lease time", st)
			}
			r.advance(2 * time.Second)
			r.p.wake()
			until(t, "revoked", func() bool { return write() == proto.OK })
			const told = proto.Seq4StatusRecallableStateRevoked
			if f := s.flags() &^ pathDown; f != told {
				t.Fatalf("flags %#x", f)
			}
			s.slot, s.seq[3] = 3, 1
			is := func(want proto.Status, ops ...op) {
				t.Helper()
				if rep := s.wait(s.start(ops...)); rep.status != want {
					t.Fatalf("%v, want %v", rep.status, want)
				}
			}
			is(proto.ErrDelegRevoked, putfh(fh), readOp(sid, 0, 10))
			is(proto.ErrDelegRevoked, putfh(fh), delegreturnOp(sid))
			is(proto.ErrDelegRevoked, putfh(fh), claimCur(s.clientID, "c", proto.ShareAccessRead, sid, ""))
			rep := s.wait(s.start(testStateidOp(sid)))
			rep.ok(proto.OpSequence).FixedOpaque(16 + 5*4)
			if d := rep.ok(proto.OpTestStateid); d.Uint32() != 1 || proto.Status(d.Uint32()) != proto.ErrDelegRevoked {
				t.Fatal("TEST_STATEID")
			}
			is(proto.OK, freeOp(sid))
			if f := s.flags() &^ pathDown; f != 0 {
				t.Fatalf("flags %#x when it has been freed", f)
			}
			is(proto.ErrBadStateid, freeOp(sid))
		})
	}
}

func testStateidOp(sid state.Stateid) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpTestStateid))
		e.Uint32(1)
		sid.Encode(e)
	}
}

func freeOp(sid state.Stateid) op { return stateidOp(proto.OpFreeStateid, nil, sid, nil) }

// A client that says, again and again, that it does not have a delegation has none: it is
// not revoked.
func TestDelegationUnknownToClient(t *testing.T) {
	r, s, cb, root, fh := delegRig(t, nil)
	b, _ := r.another("b")
	s.mustDelegate(root, "f", fh)
	cb.mu.Lock()
	cb.answer = proto.ErrBadhandle
	cb.mu.Unlock()
	until(t, "gone", func() bool {
		r.advance(time.Second)
		r.p.wake()
		s.do()
		return b.do(putfh(fh), writeOp(state.Anonymous, 0, proto.FileSync, []byte("x"))).status == proto.OK
	})
	if f := s.flags(); f != 0 {
		t.Fatalf("flags %#x", f)
	}
}

// A file whose last name goes lives on while it is delegated: its client may have it open.
func TestDelegationKeepsUnlinked(t *testing.T) {
	r, s, cb, root, fh := delegRig(t, nil)
	elsewhere := newRig(t, func(c *Config) {
		delegates(c)
		c.FS, c.Identity, c.Epoch, c.ServerOwner = r.p.fs, 2, 1, "other"
	})
	sid := s.mustDelegate(root, "f", fh)
	b := elsewhere.newSession("b")
	b.do(putfh(root), named(proto.OpRemove, "f")).is(proto.OK)
	until(t, "told", func() bool { return cb.recalled(sid) })
	st, x := s.one(fh, proto.OpOpen, claimCur(s.clientID, "c", proto.ShareAccessRead, sid, ""))
	if st != proto.OK {
		t.Fatal(st)
	}
	o := s.opened(x)
	s.do(putfh(fh), delegreturnOp(sid)).is(proto.OK)
	if st, d := s.one(fh, proto.OpRead, readOp(o.open, 0, 10)); st != proto.OK || !d.Bool() || string(d.Opaque(10)) != "content" {
		t.Fatal(st)
	}
	s.do(putfh(fh), closeOp(o.open)).is(proto.OK)
	if st, _ := s.one(fh, proto.OpGetattr, getattr(proto.AttrSize)); st != proto.ErrStale {
		t.Fatalf("%v: it is kept for nobody", st)
	}
}

// A take-over ends the delegations, and the client hears of it: what it has cached may be
// old. It can return what it was returning, and gets new ones when it has heard. A client
// that never had one hears nothing.
func TestDelegationTakeover(t *testing.T) {
	w := newWorldWith(t, func(c *Config) { c.Delegate = func(vfs.Volume) bool { return true } }, delegates)
	cb := &cbClient{slots: map[uint32]uint32{}}
	w.r.callbacks = []oncrpc.Program{cb.program()}
	s, other := w.r.newSession("a"), w.r.newSession("b")
	root := s.root()
	var fhs [][]byte
	for _, name := range []string{"f", "g"} {
		o := s.mustOpen(root, openHow{create: true, name: name})
		s.do(putfh(o.fh), closeOp(o.sid)).is(proto.OK)
		fhs = append(fhs, o.fh)
	}
	f, g := s.mustDelegate(root, "f", fhs[0]), s.mustDelegate(root, "g", fhs[1])
	w.takeover(s, other)
	if fl := other.flags(); fl&^pathDown != 0 {
		t.Fatalf("flags %#x to who has had none", fl)
	}
	s.compound(bindOp(s.id, proto.CDFCForeOrBoth)).is(proto.OK)
	rep := s.start(putfh(root), openOp(s.clientID, openHow{owner: "o", name: "f", access: proto.ShareAccessRead}))
	first := s.wait(rep)
	x := first.ok(proto.OpSequence)
	x.FixedOpaque(16 + 4*4)
	if fl := x.Uint32(); fl != proto.Seq4StatusRecallableStateRevoked {
		t.Fatalf("flags %#x", fl)
	}
	first.ok(proto.OpPutfh)
	if d := s.opened(first.ok(proto.OpOpen)); d.kind != proto.OpenDelegateNone {
		t.Fatal("delegated before the client has heard of those that are lost")
	}
	is := func(want proto.Status, ops ...op) {
		t.Helper()
		if rep := s.wait(s.start(ops...)); rep.status != want {
			t.Fatalf("%v, want %v", rep.status, want)
		}
	}
	// While it finds out which, it is not told that files have changed.
	asked := func() bitmap {
		t.Helper()
		rep := s.wait(s.start(putfh(fhs[0]), getattr(proto.AttrChange, proto.AttrSize)))
		rep.ok(proto.OpSequence).FixedOpaque(16 + 5*4)
		rep.ok(proto.OpPutfh)
		got, _ := decodeBitmap(rep.ok(proto.OpGetattr))
		return got
	}
	if got := asked(); got != attrSet(proto.AttrSize) {
		t.Errorf("shown %v", got)
	}
	is(proto.ErrDelegRevoked, putfh(fhs[0]), readOp(f, 0, 10))
	is(proto.OK, freeOp(f))
	// g was being returned.
	is(proto.OK, putfh(fhs[1]), claimCur(s.clientID, "c", proto.ShareAccessRead, g, ""))
	is(proto.ErrBadStateid, putfh(fhs[0]), claimCur(s.clientID, "c", proto.ShareAccessRead, g, ""))
	is(proto.OK, putfh(fhs[1]), delegreturnOp(g))
	if fl := s.flags(); fl != 0 {
		t.Fatalf("flags %#x, for ever", fl)
	}
	s.mustDelegate(root, "f", fhs[0])
	w.r.advance(6 * time.Second)
	if got := asked(); got != attrSet(proto.AttrChange, proto.AttrSize) {
		t.Errorf("shown %v for ever", got)
	}
}

// A holder is not shown what others have changed before it has returned the delegation:
// Linux would take it for its own doing, and keep the data that it has cached.
func TestDelegationHidesChanges(t *testing.T) {
	r, s, cb, root, fh := delegRig(t, nil)
	elsewhere := newRig(t, func(c *Config) {
		delegates(c)
		c.FS, c.Identity, c.Epoch, c.ServerOwner = r.p.fs, 2, 1, "other"
	})
	change := func(s *sess) uint64 {
		t.Helper()
		st, d := s.one(fh, proto.OpGetattr, getattr(proto.AttrChange))
		if st != proto.OK {
			t.Fatal(st)
		}
		decodeBitmap(d)
		d.Uint32()
		return d.Uint64()
	}
	listed := func() uint64 {
		t.Helper()
		st, d := s.one(root, proto.OpReaddir, func(e *xdr.Encoder) {
			e.Uint32(uint32(proto.OpReaddir))
			e.Uint64(0)
			e.Uint64(0)
			e.Uint32(4096)
			e.Uint32(4096)
			encodeBitmap(e, attrSet(proto.AttrChange))
		})
		if st != proto.OK {
			t.Fatal(st)
		}
		d.Uint64()
		if !d.Bool() {
			t.Fatal("no entry")
		}
		d.Uint64()
		if name := d.String(10); name != "f" {
			t.Fatal(name)
		}
		decodeBitmap(d)
		d.Uint32()
		return d.Uint64()
	}
	before := change(s)
	sid := s.mustDelegate(root, "f", fh)
	b := elsewhere.newSession("b")
	b.do(putfh(fh), writeOp(state.Anonymous, 0, proto.FileSync, []byte("x"))).is(proto.OK)
	until(t, "told", func() bool { return cb.recalled(sid) })
	if now, list := change(s), listed(); now != before || list != before {
		t.Errorf("the holder is shown %d and %d, not %d", now, list, before)
	}
	after := change(b)
	s.do(putfh(fh), delegreturnOp(sid)).is(proto.OK)
	if now, list := change(s), listed(); now != after || list != after || after == before {
		t.Errorf("when it has returned it, it is shown %d and %d, not %d", now, list, after)
	}
	// What it changes itself it sees.
	r.advance(time.Minute)
	s.do().is(proto.OK)
	s.mustDelegate(root, "f", fh)
	s.do(putfh(fh), setMode(0o600)).is(proto.OK)
	if now := change(s); now == after {
		t.Error("its own change is hidden")
	}
}
