package nfs4

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// OPENs of one owner and file that are under way at the same time have one "other",
// and each seqid once: a client waits for one that is missing.
func TestTrap12ConcurrentOpens(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	s.mustOpen(root, openHow{create: true, name: "f", owner: "first"})
	const n = 32
	sids := make([]state.Stateid, n)
	var wg sync.WaitGroup
	for i := range n {
		p := s.send(s.sequence(uint32(i+1), 1), putfh(root),
			openOp(s.clientID, openHow{name: "f", owner: "o", access: proto.ShareAccessRead}))
		wg.Go(func() {
			rep, err := s.waitFor(p)
			if err != nil || rep.status != proto.OK {
				return // its stateid stays zero
			}
			rep.d.FixedOpaque(8 + 16 + 5*4 + 8 + 8) // SEQUENCE, PUTFH, and OPEN's number and status
			sids[i] = state.DecodeStateid(rep.d)
		})
	}
	wg.Wait()
	slices.SortFunc(sids, func(a, b state.Stateid) int { return int(a.Seq) - int(b.Seq) })
	for i, sid := range sids {
		if sid.Seq != uint32(i+1) || sid.Other != sids[0].Other {
			t.Fatalf("open %d has %+v", i, sid)
		}
	}
}

// What was set is said, and nothing else: by CREATE, and by an OPEN that finds the
// file there and truncates it.
func TestTrap20Attrset(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	rep := s.do(putfh(root), func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeDir)
		e.String("d")
		encodeBitmap(e, attrSet(proto.AttrMode, proto.AttrOwner, proto.AttrTimeModifySet))
		var v xdr.Encoder
		v.Uint32(0o700)
		v.String("5")
		v.Uint32(proto.SetToServerTime)
		e.Opaque(v.Bytes())
	})
	rep.ok(proto.OpPutfh)
	d := rep.ok(proto.OpCreate)
	d.FixedOpaque(4 + 8 + 8)
	if set, _ := decodeBitmap(d); set != attrSet(proto.AttrMode, proto.AttrOwner, proto.AttrTimeModifySet) {
		t.Errorf("CREATE set %v", set)
	}
	if o := s.mustOpen(root, openHow{create: true, name: "f"}); o.attr != attrSet(proto.AttrMode) {
		t.Errorf("OPEN of a new file set %v", o.attr)
	}
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	if o.attr.any() {
		t.Errorf("OPEN of a file that is there set %v", o.attr)
	}
	s.do(putfh(o.fh), writeOp(o.sid, 0, proto.FileSync, []byte("abc"))).is(proto.OK)
	if o = s.mustOpen(root, openHow{create: true, truncate: true, name: "f"}); o.attr != attrSet(proto.AttrSize) {
		t.Errorf("OPEN that truncates set %v", o.attr)
	}
}

// A listing goes on where it was, also if all that was listed is removed meanwhile, as
// rm -r does; and with whatever cookie verifier an old client sends.
func TestTrap21ReaddirWhileRemoving(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	const n = 200
	for i := range n {
		if _, err := r.fs.Create(rootRequest(t), mainRoot(t, r), fmt.Sprint(i), regular()); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	var cookie, verifier uint64
	for eof := false; !eof; {
		st, d := s.one(root, proto.OpReaddir, func(e *xdr.Encoder) {
			e.Uint32(uint32(proto.OpReaddir))
			e.Uint64(cookie)
			e.Uint64(verifier)
			e.Uint32(600)
			e.Uint32(600)
			e.Uint32(0)
		})
		if st != proto.OK {
			t.Fatal(st)
		}
		if v := d.Uint64(); cookie != 0 && verifier == 0 && v != 0 {
			t.Fatalf("the cookie verifier is %d", v)
		}
		var page []string
		for d.Bool() {
			cookie = d.Uint64()
			name := d.String(255)
			if seen[name] {
				t.Fatalf("%q twice", name)
			}
			seen[name] = true
			page = append(page, name)
			decodeBitmap(d)
			d.Opaque(0)
		}
		eof = d.Bool()
		for _, name := range page {
			s.do(putfh(root), named(proto.OpRemove, name)).is(proto.OK)
		}
	}
	if len(seen) != n {
		t.Fatalf("%d entries of %d", len(seen), n)
	}
	if st, d := s.one(root, proto.OpReaddir, readdirOp(cookie, 4096)); st != proto.OK || d.Uint64() != 0 || d.Bool() || !d.Bool() {
		t.Fatal("a cookie of what is removed does not lead to the end: ", st)
	}
}

// Every operation that a Linux client (6.1 to 7.2) sends is done or, where it is
// legal in the minor version, NOTSUPP: OP_ILLEGAL is for what is not.
func TestTrap25LegalOperations(t *testing.T) {
	// What Linux sends without delegations, pNFS and Kerberos, and can't do without.
	needed := map[uint32][]proto.Op{
		1: {
			proto.OpAccess, proto.OpClose, proto.OpCommit, proto.OpCreate, proto.OpGetattr, proto.OpGetfh,
			proto.OpLink, proto.OpLock, proto.OpLockt, proto.OpLocku, proto.OpLookup, proto.OpLookupp,
			proto.OpOpen, proto.OpOpenDowngrade, proto.OpPutfh, proto.OpPutrootfh, proto.OpRead,
			proto.OpReaddir, proto.OpReadlink, proto.OpRemove, proto.OpRename, proto.OpRestorefh,
			proto.OpSavefh, proto.OpSecinfo, proto.OpSecinfoNoName, proto.OpSetattr, proto.OpWrite,
			proto.OpExchangeID, proto.OpCreateSession, proto.OpDestroySession, proto.OpDestroyClientid,
			proto.OpBindConnToSession, proto.OpSequence, proto.OpReclaimComplete, proto.OpFreeStateid,
			proto.OpTestStateid,
		},
		2: {
			proto.OpSeek, proto.OpAllocate, proto.OpDeallocate, proto.OpClone, proto.OpCopy,
			proto.OpGetxattr, proto.OpSetxattr, proto.OpListxattrs, proto.OpRemovexattr,
		},
	}
	r := newRig(t, nil)
	s := r.newSession("a")
	for minor, last := range map[uint32]proto.Op{1: proto.OpReclaimComplete, 2: proto.OpRemovexattr} {
		s.wire.minor = minor
		done := slices.Clone(needed[1])
		if minor == 2 {
			done = append(done, needed[2]...)
		}
		for o := proto.Op(0); o < last+50; o++ {
			rep := s.do(simple(proto.OpPutrootfh), simple(proto.OpSavefh), simple(o))
			rep.ok(proto.OpPutrootfh)
			rep.ok(proto.OpSavefh)
			want := OpSupport(o, minor)
			if slices.Contains(done, o) && want != Supported {
				t.Errorf("4.%d: %v is needed and not there", minor, o)
			}
			if legal := o >= proto.OpAccess && o <= last; legal != (want != Illegal) {
				t.Errorf("4.%d: %v is %d", minor, o, want)
			}
			name := o
			if want == Illegal {
				name = proto.OpIllegal
			}
			switch st := rep.next(name); {
			case want == Illegal && st != proto.ErrOpIllegal,
				want == NotSupported && st != proto.ErrNotsupp,
				want == Supported && (st == proto.ErrNotsupp || st == proto.ErrOpIllegal):
				t.Errorf("4.%d: %v: %v", minor, o, st)
			}
		}
	}
}

// Where delegations are off there are none: whatever a client wants, it is told so, with a reason if it
// understands one; and what it says of one it can't have is no stale state.
func TestTrap26NoDelegations(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	for _, k := range []struct {
		want uint32
		why  []uint32 // the type, and the reason of NONE_EXT
	}{
		{proto.ShareAccessWantNoPreference, []uint32{proto.OpenDelegateNone}},
		{proto.ShareAccessWantNoDeleg, []uint32{proto.OpenDelegateNoneExt, proto.WNDNotWanted}},
		{proto.ShareAccessWantCancel, []uint32{proto.OpenDelegateNoneExt, proto.WNDCancelled}},
		{proto.ShareAccessWantReadDeleg, []uint32{proto.OpenDelegateNoneExt, proto.WNDNotSuppFtype}},
		{proto.ShareAccessWantWriteDeleg, []uint32{proto.OpenDelegateNoneExt, proto.WNDNotSuppFtype}},
		{proto.ShareAccessWantAnyDeleg | proto.ShareAccessWantPushDelegWhenUncontended, []uint32{proto.OpenDelegateNoneExt, proto.WNDNotSuppFtype}},
		{proto.ShareAccessWantOpenXorDelegation | proto.ShareAccessWantDelegTimestamps, []uint32{proto.OpenDelegateNone}},
	} {
		st, d := s.one(root, proto.OpOpen, openOp(s.clientID, openHow{name: "f", owner: "o", access: proto.ShareAccessRead | k.want}))
		if st != proto.OK {
			t.Fatalf("%#x: %v", k.want, st)
		}
		d.FixedOpaque(16 + 4 + 8 + 8 + 4) // stateid, change_info4, rflags
		decodeBitmap(d)
		for _, want := range k.why {
			if got := d.Uint32(); got != want {
				t.Errorf("%#x: %d, want %d", k.want, got, want)
			}
		}
		if d.Err() != nil || d.Remaining() != 0 {
			t.Errorf("%#x: %v, %d bytes left", k.want, d.Err(), d.Remaining())
		}
	}
	s.do(putfh(f.fh), stateidOp(proto.OpDelegreturn, nil, f.sid, nil)).is(proto.ErrBadStateid)
	for claim, want := range map[uint32]proto.Status{
		proto.ClaimDelegateCur: proto.ErrBadStateid, proto.ClaimDelegCurFH: proto.ErrBadStateid,
		proto.ClaimDelegatePrev: proto.ErrNotsupp, proto.ClaimDelegPrevFH: proto.ErrNotsupp,
	} {
		at := f.fh
		if claim == proto.ClaimDelegateCur {
			at = root
		}
		if _, st := s.tryOpen(at, openHow{claim: claim, name: "f"}); st != want {
			t.Errorf("claim %d: %v, want %v", claim, st, want)
		}
	}
}
