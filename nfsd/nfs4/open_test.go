package nfs4

import (
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

func isClosed(t *testing.T, r *rig, fh []byte) {
	t.Helper()
	if n := r.fs.Opens(mustFile(t, r, fh)); n != 0 {
		t.Fatalf("the file is still open %d times", n)
	}
}

// Trap 12: opens of one owner and file have one "other", and seqids from 1 on;
// after the last CLOSE there is a new one.
func TestOpenStateids(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	one := s.mustOpen(root, openHow{create: true, name: "f"})
	two := s.mustOpen(root, openHow{name: "f"})
	three := s.mustOpen(two.fh, openHow{claim: proto.ClaimFH, access: proto.ShareAccessRead})
	other := s.mustOpen(root, openHow{name: "f", owner: "other"})
	want := one.sid
	for i, o := range []opened{one, two, three} {
		if want.Seq = uint32(i + 1); o.sid != want {
			t.Fatalf("open %d has %+v, want %+v", i, o.sid, want)
		}
	}
	if other.sid.Other == one.sid.Other || other.sid.Seq != 1 {
		t.Fatal("two owners share a stateid")
	}
	if n := r.fs.Opens(mustFile(t, r, one.fh)); n != 2 {
		t.Fatalf("the file is open %d times", n)
	}
	// Trap 13: an old seqid is OLD_STATEID, a closed one BAD_STATEID.
	if st, _ := s.one(one.fh, proto.OpClose, closeOp(two.sid)); st != proto.ErrOldStateid {
		t.Fatal(st)
	}
	future := three.sid
	future.Seq++
	if st, _ := s.one(one.fh, proto.OpClose, closeOp(future)); st != proto.ErrBadStateid {
		t.Fatal(st)
	}
	st, d := s.one(one.fh, proto.OpClose, closeOp(three.sid))
	if got := state.DecodeStateid(d); st != proto.OK || got != state.Invalid {
		t.Fatal(st, got)
	}
	if st, _ := s.one(one.fh, proto.OpClose, closeOp(three.sid)); st != proto.ErrBadStateid {
		t.Fatal(st)
	}
	again := s.mustOpen(root, openHow{name: "f"})
	if again.sid.Other == one.sid.Other || again.sid.Seq != 1 {
		t.Fatalf("after CLOSE: %+v", again.sid)
	}
	s.one(one.fh, proto.OpClose, closeOp(again.sid))
	s.one(one.fh, proto.OpClose, closeOp(other.sid))
	isClosed(t, r, one.fh)
	// Trap 2: nothing is ever STALE_STATEID.
	for _, sid := range []state.Stateid{again.sid, {Seq: 1, Other: [12]byte{1}}, {Seq: 1, Other: [12]byte{0x11, 0, 1, 9}}} {
		if st, _ := s.one(one.fh, proto.OpRead, readOp(sid, 0, 1)); st != proto.ErrBadStateid {
			t.Fatal(st)
		}
	}
}

func testStateids(sids ...state.Stateid) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpTestStateid))
		e.Uint32(uint32(len(sids)))
		for _, s := range sids {
			s.Encode(e)
		}
	}
}

func TestTestAndFreeStateid(t *testing.T) {
	r := newRig(t, nil)
	s, s2 := r.newSession("a"), r.newSession("b")
	root := s.root()
	old := s.mustOpen(root, openHow{create: true, name: "f"})
	now := s.mustOpen(root, openHow{name: "f"})
	theirs := s2.mustOpen(root, openHow{name: "f"})
	d := s.do(testStateids(old.sid, now.sid, theirs.sid, state.Stateid{Seq: 1, Other: [12]byte{9}})).ok(proto.OpTestStateid)
	want := []proto.Status{proto.ErrOldStateid, proto.OK, proto.ErrBadStateid, proto.ErrBadStateid}
	if n := d.Uint32(); n != 4 {
		t.Fatal(n)
	}
	for i, w := range want {
		if got := proto.Status(d.Uint32()); got != w {
			t.Errorf("%d: %v, want %v", i, got, w)
		}
	}
	free := func(sid state.Stateid) op { return stateidOp(proto.OpFreeStateid, nil, sid, nil) }
	s.do(free(now.sid)).is(proto.ErrLocksHeld)
	s.do(free(theirs.sid)).is(proto.ErrBadStateid)
}

// Trap 14: seqid 0 and the special current stateid stand for what there is now.
func TestCurrentStateid(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	how := openHow{create: true, name: "f", access: proto.ShareAccessBoth, owner: "o"}
	for range 3 { // the seqid of the open is not 1 for long
		s.do(putfh(root), openOp(s.clientID, how), writeOp(state.Current, 0, proto.FileSync, []byte("abc")),
			readOp(state.Current, 0, 3)).is(proto.OK)
	}
	s.do(putfh(root), openOp(s.clientID, how), simple(proto.OpSavefh), simple(proto.OpPutrootfh),
		simple(proto.OpRestorefh), closeOp(state.Current)).is(proto.OK)
	o := s.mustOpen(root, openHow{name: "f"})
	o = s.mustOpen(root, openHow{name: "f"})
	o.sid.Seq = 0
	s.do(putfh(o.fh), readOp(o.sid, 0, 3)).is(proto.OK)
	s.do(putfh(o.fh), readOp(state.Current, 0, 3)).is(proto.ErrBadStateid) // none set
}

func TestOpenErrors(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	s.do(putfh(root), mkdir("dir")).is(proto.OK)
	s.do(putfh(root), func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeLnk)
		e.String("target")
		e.String("link")
		e.Uint32(0)
		e.Uint32(0)
	}).is(proto.OK)
	s.do(putfh(root), func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeFIFO)
		e.String("fifo")
		e.Uint32(0)
		e.Uint32(0)
	}).is(proto.OK)
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	s.do(putfh(f.fh), setMode(0o600)).is(proto.OK)
	cases := []struct {
		name string
		fh   []byte
		how  openHow
		uid  uint32
		want proto.Status
	}{
		{"missing", root, openHow{name: "none"}, 0, proto.ErrNoent},
		{"directory", root, openHow{name: "dir"}, 0, proto.ErrIsdir},
		{"directory, created", root, openHow{name: "dir", create: true}, 0, proto.ErrIsdir},
		{"link", root, openHow{name: "link"}, 0, proto.ErrSymlink},
		{"fifo", root, openHow{name: "fifo"}, 0, proto.ErrSymlink},
		{"guarded", root, openHow{name: "f", create: true, mode: proto.Guarded}, 0, proto.ErrExist},
		{"dot", root, openHow{name: ".."}, 0, proto.ErrBadname},
		{"long", root, openHow{name: string(make([]byte, 256))}, 0, proto.ErrNametoolong},
		{"slash", root, openHow{name: "a/b", create: true}, 0, proto.ErrBadchar},
		{"not a directory", f.fh, openHow{name: "x"}, 0, proto.ErrNotdir},
		{"by handle of a directory", root, openHow{claim: proto.ClaimFH}, 0, proto.ErrIsdir},
		{"not permitted", root, openHow{name: "f", access: proto.ShareAccessRead}, 5, proto.ErrAccess},
		{"not permitted, by handle", f.fh, openHow{claim: proto.ClaimFH, access: proto.ShareAccessWrite}, 5, proto.ErrAccess},
		{"not permitted, created", root, openHow{name: "f", create: true}, 5, proto.ErrAccess},
		{"deny 4", root, openHow{name: "f", deny: 4}, 0, proto.ErrInval},
		{"delegation", f.fh, openHow{claim: proto.ClaimDelegPrevFH}, 0, proto.ErrNotsupp},
		{"reclaim", f.fh, openHow{claim: proto.ClaimPrevious, owner: "another"}, 0, proto.ErrNoGrace},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s.wire.cred = user(c.uid)
			defer func() { s.wire.cred = user(0) }()
			if _, st := s.tryOpen(c.fh, c.how); st != c.want {
				t.Fatalf("%v, want %v", st, c.want)
			}
		})
	}
	s.one(f.fh, proto.OpClose, closeOp(f.sid))
	isClosed(t, r, f.fh)
}

func setMode(mode uint32) op {
	return stateidOp(proto.OpSetattr, nil, state.Anonymous, func(e *xdr.Encoder) {
		encodeBitmap(e, attrSet(proto.AttrMode))
		e.Uint32(4)
		e.Uint32(mode)
	})
}

func setSize(sid state.Stateid, size uint64) op {
	return stateidOp(proto.OpSetattr, nil, sid, func(e *xdr.Encoder) {
		encodeBitmap(e, attrSet(proto.AttrSize))
		e.Uint32(8)
		e.Uint64(size)
	})
}

// Trap 20: an exclusive create says truthfully what was set, is repeatable, and
// does not keep its verifier in the times.
func TestExclusiveCreate(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	how := openHow{create: true, name: "f", mode: proto.Exclusive41, verifier: 0x1234}
	one := s.mustOpen(root, how)
	if one.attr != attrSet(proto.AttrMode) {
		t.Fatalf("attrset %v", one.attr)
	}
	if one.dir.Before == one.dir.After {
		t.Fatal("the directory's change attribute did not change")
	}
	two := s.mustOpen(root, how)
	if two.attr != one.attr || string(two.fh) != string(one.fh) {
		t.Fatal("a repeated exclusive create made another file")
	}
	if _, st := r.newSession("b").tryOpen(root, how); st != proto.ErrExist {
		t.Fatalf("another client with the same verifier: %v", st)
	}
	how.verifier++
	if _, st := s.tryOpen(root, how); st != proto.ErrExist {
		t.Fatal(st)
	}
	sup := attrValue(t, s, one.fh, proto.AttrSuppattrExclcreat)
	excl, _ := decodeBitmap(sup)
	all, _ := decodeBitmap(attrValue(t, s, one.fh, proto.AttrSupportedAttrs))
	if excl.without(all).any() {
		t.Fatal("suppattr_exclcreat is not within supported_attrs")
	}
	if !excl.has(proto.AttrTimeAccessSet) || !excl.has(proto.AttrTimeModifySet) {
		t.Fatal("without the times in suppattr_exclcreat, Linux sends a SETATTR after each create")
	}
}

func attrValue(t *testing.T, s *sess, fh []byte, attr int) *xdr.Decoder {
	t.Helper()
	st, d := s.one(fh, proto.OpGetattr, getattr(attr))
	if st != proto.OK {
		t.Fatal(st)
	}
	if got, _ := decodeBitmap(d); got != attrSet(attr) {
		t.Fatalf("asked for %d, got %v", attr, got)
	}
	return xdr.NewDecoder(d.Opaque(1 << 20))
}

func TestShareReservations(t *testing.T) {
	r := newRig(t, nil)
	s, s2 := r.newSession("a"), r.newSession("b")
	root := s.root()
	s.mustOpen(root, openHow{create: true, name: "f", access: proto.ShareAccessRead})
	o := s.mustOpen(root, openHow{name: "f", deny: proto.ShareDenyWrite})
	if _, st := s2.tryOpen(root, openHow{name: "f"}); st != proto.ErrShareDenied {
		t.Fatal(st)
	}
	if st, _ := s2.one(o.fh, proto.OpWrite, writeOp(state.Anonymous, 0, proto.FileSync, []byte("x"))); st != proto.ErrLocked {
		t.Fatal(st)
	}
	// Trap 15: attributes other than the size do not care.
	if st, _ := s2.one(o.fh, proto.OpSetattr, setMode(0o600)); st != proto.OK {
		t.Fatal(st)
	}
	if st, _ := s2.one(o.fh, proto.OpSetattr, setSize(state.Anonymous, 5)); st != proto.ErrLocked {
		t.Fatal(st)
	}
	rd := s2.mustOpen(root, openHow{name: "f", access: proto.ShareAccessRead})
	if st, _ := s.one(o.fh, proto.OpSetattr, setSize(o.sid, 9)); st != proto.OK {
		t.Fatal(st)
	}
	if _, st := s2.tryOpen(root, openHow{name: "f", create: true, truncate: true}); st != proto.ErrShareDenied {
		t.Fatal(st)
	}
	if n := attrValue(t, s, o.fh, proto.AttrSize).Uint64(); n != 9 {
		t.Fatalf("truncated to %d although the open was refused", n)
	}
	// It holds for its owner, too (RFC 8881 §18.16.3), who can go back to what it
	// had, and not to what it never asked for (§18.18.3).
	if _, st := s.tryOpen(root, openHow{name: "f"}); st != proto.ErrShareDenied {
		t.Fatal(st)
	}
	never := stateidOp(proto.OpOpenDowngrade, nil, o.sid, func(e *xdr.Encoder) {
		e.Uint32(0)
		e.Uint32(proto.ShareAccessWrite)
		e.Uint32(proto.ShareDenyNone)
	})
	if st, _ := s.one(o.fh, proto.OpOpenDowngrade, never); st != proto.ErrInval {
		t.Fatal(st)
	}
	down := stateidOp(proto.OpOpenDowngrade, nil, o.sid, func(e *xdr.Encoder) {
		e.Uint32(0)
		e.Uint32(proto.ShareAccessRead)
		e.Uint32(proto.ShareDenyNone)
	})
	st, d := s.one(o.fh, proto.OpOpenDowngrade, down)
	o.sid = state.DecodeStateid(d)
	if st != proto.OK || o.sid.Seq != 3 {
		t.Fatal(st, o.sid)
	}
	if st, _ := s.one(o.fh, proto.OpWrite, writeOp(o.sid, 0, proto.FileSync, []byte("x"))); st != proto.ErrOpenmode {
		t.Fatal(st)
	}
	w := s2.mustOpen(root, openHow{name: "f"})
	if _, st := s.tryOpen(root, openHow{name: "f", deny: proto.ShareDenyRead}); st != proto.ErrShareDenied {
		t.Fatal(st)
	}
	s.one(o.fh, proto.OpClose, closeOp(o.sid))
	s2.one(o.fh, proto.OpClose, closeOp(w.sid))
	_ = rd
	isClosed(t, r, o.fh)
}

// Trap 27: a silent client keeps its state for as long as nobody wants what it
// holds; then it goes after the lease. SEQUENCE renews the lease.
func TestLease(t *testing.T) {
	r := newRig(t, nil)
	s, s2 := r.newSession("a"), r.newSession("b")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f", deny: proto.ShareDenyBoth})
	for range 5 {
		r.advance(8 * time.Second)
		s.do(simple(proto.OpPutrootfh)).is(proto.OK)
		r.p.Tick(t.Context(), r.p.cfg.Now())
	}
	if _, st := s2.tryOpen(root, openHow{name: "f"}); st != proto.ErrShareDenied {
		t.Fatal(st)
	}
	r.advance(20 * time.Second)
	r.p.Tick(t.Context(), r.p.cfg.Now())
	s.do(simple(proto.OpPutrootfh)).is(proto.OK) // courtesy: still there
	r.advance(20 * time.Second)
	theirs := s2.mustOpen(root, openHow{name: "f"})
	s.seq[0]++
	s.compound(s.sequence(0, s.seq[0])).is(proto.ErrBadsession)
	s.compound(createSession(s.clientID, 2, linuxFore)).is(proto.ErrStaleClientid)
	if n := r.fs.Opens(mustFile(t, r, o.fh)); n != 1 {
		t.Fatal(n)
	}
	r.advance(2 * time.Minute) // lease and courtesy
	r.p.Tick(t.Context(), r.p.cfg.Now())
	isClosed(t, r, theirs.fh)
	if c, ss, _ := r.p.state.Counts(); c != 0 || ss != 0 {
		t.Fatal(c, ss)
	}
}

// A file that is open stays when its last name is removed.
func TestUnlinkedOpen(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	s.do(putfh(o.fh), writeOp(o.sid, 0, proto.FileSync, []byte("abc"))).is(proto.OK)
	s.do(putfh(root), named(proto.OpRemove, "f")).is(proto.OK)
	st, d := s.one(o.fh, proto.OpRead, readOp(o.sid, 0, 10))
	if eof, p := d.Bool(), d.String(10); st != proto.OK || !eof || p != "abc" {
		t.Fatal(st, eof, p)
	}
	s.do(putfh(o.fh), closeOp(o.sid)).is(proto.OK)
	if st, _ := s.one(o.fh, proto.OpGetattr, getattr(proto.AttrType)); st != proto.ErrStale {
		t.Fatal(st)
	}
}
