package nfs4

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// What a fuzzWorld has is named by marks in the arguments, since ids differ from one
// world to the next: a mark is replaced by what it stands for.
var (
	markClient  = uint64(0xc11e27c11e27c11e)
	markPending = uint64(0xbe9d119be9d119be) // a client id that is not confirmed, and what confirms it
	markConfirm = uint64(0xc0f12ac0f12ac0f1)
	markOpen    = state.Stateid{Other: vfs.StateID([]byte("open-stateid"))}
	markLock    = state.Stateid{Other: vfs.StateID([]byte("lock-stateid"))}
	markFresh   = state.Stateid{Seq: 1, Other: vfs.StateID([]byte("unconfirmed!"))}
	markSession = state.SessionID([]byte("a-session-of-his"))
)

// A fuzzWorld is a server with a client of a minor version, which has a file open and
// locked, another client id and another open that are not confirmed (4.0), a directory,
// a symbolic link and an extended attribute.
type fuzzWorld struct {
	p       *Program
	minor   uint32
	xid     uint32
	session state.SessionID
	seq     uint32
	marks   [][2][]byte
}

// newFuzzWorld makes one.
func newFuzzWorld(t testing.TB, minor uint32) *fuzzWorld {
	p, err := New(Config{
		FS: smallFS{memfs.New(memfs.Options{})}, ServerOwner: "o", Scope: "s",
		Now: func() cluster.Time { return 1 },
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &fuzzWorld{p: p, minor: minor}
	must := func(ops ...op) *reply {
		st, r := w.do(t, ops)
		if st != proto.OK {
			t.Fatal(st)
		}
		return r
	}
	var client uint64
	if minor == 0 {
		for _, name := range []string{"c", "unconfirmed"} {
			d := must(setclientidOp(name, 1, "0.0.0.0.0.0")).ok(proto.OpSetclientid)
			id, confirm := d.Uint64(), d.Uint64()
			if name == "c" {
				client = id
				must(confirmOp(id, confirm))
			} else {
				w.mark(markPending, id)
				w.mark(markConfirm, confirm)
			}
		}
	} else {
		d := must(exchangeID("c", 1, 0)).ok(proto.OpExchangeID)
		client = d.Uint64()
		copy(w.session[:], must(createSession(client, d.Uint32(), linuxFore)).ok(proto.OpCreateSession).FixedOpaque(16))
		w.marks = append(w.marks, [2][]byte{markSession[:], w.session[:]})
	}
	w.mark(markClient, client)
	must(append(lookupMain(), mkdirOp("d"), mkdirOp("e"))...)
	must(append(lookupMain(), symlinkOp("s", "target"))...)

	how := openHow{owner: "o", access: proto.ShareAccessBoth, create: true, name: "seed"}
	opening := openOp(client, how)
	if minor == 0 {
		opening = open40(client, "o", 1, "seed", proto.ShareAccessBoth, 0)
	}
	r := must(append(lookupMain(), opening)...)
	if minor > 0 {
		r.ok(proto.OpSequence).Skip(16 + 5*4)
	}
	r.ok(proto.OpPutrootfh)
	r.ok(proto.OpLookup)
	sid := state.DecodeStateid(r.ok(proto.OpOpen))
	if minor == 0 {
		must(append(seedFile(), stateidOp(proto.OpOpenConfirm, nil, sid, func(e *xdr.Encoder) { e.Uint32(2) }))...)
		sid.Seq = 0
		r = must(append(lookupMain(), open40(client, "fresh", 1, "seed", proto.ShareAccessRead, 0))...)
		r.ok(proto.OpPutrootfh)
		r.ok(proto.OpLookup)
		fresh := state.DecodeStateid(r.ok(proto.OpOpen))
		w.marks = append(w.marks, [2][]byte{markFresh.Other[:], fresh.Other[:]})
		r = must(append(seedFile(), lock40(client, sid, 3, "l", 0, 0))...)
	} else {
		s := &sess{clientID: client}
		sid.Seq = 0
		r = must(append(seedFile(), s.lockOp(lockArgs{kind: proto.WriteLt, len: 10, owner: "l", sid: sid}))...)
		r.ok(proto.OpSequence).Skip(16 + 5*4)
	}
	r.ok(proto.OpPutrootfh)
	r.ok(proto.OpLookup)
	r.ok(proto.OpLookup)
	lock := state.DecodeStateid(r.ok(proto.OpLock))
	must(append(seedFile(), writeOp(sid, 0, proto.FileSync, []byte("hello, world")))...)
	if minor == 2 {
		must(append(seedFile(), setxattrOp("x", "value"))...)
	}
	w.marks = append(w.marks, [2][]byte{markOpen.Other[:], sid.Other[:]}, [2][]byte{markLock.Other[:], lock.Other[:]})
	return w
}

func (w *fuzzWorld) mark(mark, value uint64) {
	w.marks = append(w.marks, [2][]byte{binary.BigEndian.AppendUint64(nil, mark), binary.BigEndian.AppendUint64(nil, value)})
}

// do executes operations, in the session if they can be, and returns the status.
func (w *fuzzWorld) do(t testing.TB, ops []op) (proto.Status, *reply) {
	var e xdr.Encoder
	for _, o := range ops {
		o(&e)
	}
	return w.raw(t, uint32(len(ops)), e.Bytes())
}

// raw is do with the operations as they are sent.
func (w *fuzzWorld) raw(t testing.TB, n uint32, ops []byte) (proto.Status, *reply) {
	ops = bytes.Clone(ops)
	for _, m := range w.marks {
		ops = bytes.ReplaceAll(ops, m[0], m[1])
	}
	var e, out xdr.Encoder
	e.String("")
	e.Uint32(w.minor)
	bare := w.minor == 0 || len(ops) >= 4 && outside(proto.Op(binary.BigEndian.Uint32(ops)))
	if bare {
		e.Uint32(n)
	} else {
		w.seq++
		e.Uint32(n + 1)
		e.Uint32(uint32(proto.OpSequence))
		e.FixedOpaque(w.session[:])
		e.Uint32(w.seq)
		e.Uint32(0)
		e.Uint32(0)
		e.Bool(n%2 == 0)
		n++
	}
	e.Raw(ops)
	w.xid++
	call := &oncrpc.Call{XID: w.xid, Procedure: proto.ProcCompound, Cred: user(0), Args: xdr.NewDecoder(e.Bytes())}
	if w.p.ServeRPC(call, &out) != oncrpc.Success {
		t.Fatal("the header is right, and refused")
	}
	whole := out.AppendTo(nil)
	out.Release()
	if len(whole) > 2<<20 || len(whole)%4 != 0 {
		t.Fatalf("%d bytes", len(whole))
	}
	d := xdr.NewDecoder(whole)
	st := proto.Status(d.Uint32())
	d.Opaque(0)
	if got := d.Uint32(); d.Err() != nil || got > n {
		t.Fatal(got, d.Err())
	}
	return st, &reply{t: t, d: d, status: st}
}

// outside says whether an operation is sent without SEQUENCE (RFC 8881 §2.10.2.2).
func outside(o proto.Op) bool {
	switch o {
	case proto.OpExchangeID, proto.OpCreateSession, proto.OpBindConnToSession, proto.OpSequence:
		return true
	}
	return false
}

func confirmOp(id, confirm uint64) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpSetclientidConfirm))
		e.Uint64(id)
		e.Uint64(confirm)
	}
}

func symlinkOp(name, target string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeLnk)
		e.String(target)
		e.String(name)
		e.Uint32(0)
		e.Uint32(0)
	}
}

func setxattrOp(name, value string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpSetxattr))
		e.Uint32(proto.SetxattrEither)
		e.String(name)
		e.String(value)
	}
}

// seedFile makes the file that is open the current one.
func seedFile() []op { return append(lookupMain(), named(proto.OpLookup, "seed")) }

// numbers is an operation whose arguments are numbers of four bytes.
func numbers(o proto.Op, args ...uint32) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(o))
		for _, a := range args {
			e.Uint32(a)
		}
	}
}

// fuzzSeed is a request whose last operation is one that a minor version has, with
// arguments that are right, and what that is answered with.
type fuzzSeed struct {
	op   proto.Op
	ops  []op
	want proto.Status
}

// fuzzSeeds has one for each operation that is supported.
func fuzzSeeds(minor uint32) (list []fuzzSeed) {
	add := func(o proto.Op, ops ...op) { list = append(list, fuzzSeed{op: o, ops: ops}) }
	refused := func(st proto.Status) { list[len(list)-1].want = st }
	in := func(o proto.Op, ops ...op) { add(o, append(lookupMain(), ops...)...) }
	of := func(o proto.Op, ops ...op) { add(o, append(seedFile(), ops...)...) }
	u32 := func(v ...uint32) func(*xdr.Encoder) {
		return func(e *xdr.Encoder) {
			for _, x := range v {
				e.Uint32(x)
			}
		}
	}
	u64 := func(v ...uint64) func(*xdr.Encoder) {
		return func(e *xdr.Encoder) {
			for _, x := range v {
				e.Uint64(x)
			}
		}
	}
	sizeIs := func(o proto.Op, size uint64) op {
		return func(e *xdr.Encoder) {
			e.Uint32(uint32(o))
			encodeBitmap(e, attrSet(proto.AttrSize))
			e.Uint32(8)
			e.Uint64(size)
		}
	}
	of(proto.OpDelegreturn, stateidOp(proto.OpDelegreturn, nil, markLock, nil))
	refused(proto.ErrBadStateid) // there is no delegation
	of(proto.OpAccess, numbers(proto.OpAccess, 63))
	of(proto.OpCommit, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpCommit)); e.Uint64(0); e.Uint32(0) })
	in(proto.OpCreate, mkdirOp("new"))
	of(proto.OpGetattr, getattr(linuxAttrs...))
	of(proto.OpGetfh, simple(proto.OpGetfh))
	add(proto.OpLink, append(seedFile(), append([]op{simple(proto.OpSavefh)}, append(lookupMain(), named(proto.OpLink, "l"))...)...)...)
	in(proto.OpLookup, named(proto.OpLookup, "d"))
	of(proto.OpLookupp, append([]op{}, simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), named(proto.OpLookup, "d"), simple(proto.OpLookupp))...)
	of(proto.OpNverify, sizeIs(proto.OpNverify, 99))
	of(proto.OpVerify, sizeIs(proto.OpVerify, 12))
	add(proto.OpPutfh, putfh(memfs.New(memfs.Options{}).AppendHandle(nil, vfs.Root)))
	add(proto.OpPutpubfh, simple(proto.OpPutpubfh))
	add(proto.OpPutrootfh, simple(proto.OpPutrootfh))
	of(proto.OpRead, readOp(markOpen, 0, 100))
	in(proto.OpReaddir, readdirOp(0, 8192, linuxAttrs...))
	in(proto.OpReadlink, named(proto.OpLookup, "s"), simple(proto.OpReadlink))
	in(proto.OpRemove, named(proto.OpRemove, "s"))
	in(proto.OpRename, simple(proto.OpSavefh), named(proto.OpRename, "s", "t"))
	of(proto.OpRestorefh, simple(proto.OpSavefh), simple(proto.OpRestorefh))
	of(proto.OpSavefh, simple(proto.OpSavefh))
	in(proto.OpSecinfo, named(proto.OpSecinfo, "d"))
	of(proto.OpSetattr, setSize(markOpen, 5))
	of(proto.OpWrite, writeOp(markOpen, 3, proto.Unstable, []byte("abc")))
	range0 := func(e *xdr.Encoder) { e.Uint64(0); e.Uint64(10) }
	if minor == 0 {
		of(proto.OpClose, stateidOp(proto.OpClose, u32(4), markOpen, nil))
		of(proto.OpLock, lock40(markClient, markOpen, 4, "other", 0, 100))
		of(proto.OpLockt, (&sess{clientID: markClient}).lockt(proto.WriteLt, 0, 5, "l"))
		of(proto.OpLocku, stateidOp(proto.OpLocku, u32(proto.WriteLt, 1), markLock, range0))
		in(proto.OpOpen, open40(markClient, "o", 4, "f", proto.ShareAccessRead, 0))
		of(proto.OpOpenConfirm, stateidOp(proto.OpOpenConfirm, nil, markFresh, u32(2)))
		add(proto.OpOpenDowngrade, append(append(lookupMain(), open40(markClient, "o", 4, "seed", proto.ShareAccessRead, 0)),
			stateidOp(proto.OpOpenDowngrade, nil, markOpen, u32(5, proto.ShareAccessRead, 0)))...)
		add(proto.OpReleaseLockowner, func(e *xdr.Encoder) {
			e.Uint32(uint32(proto.OpReleaseLockowner))
			e.Uint64(markClient)
			e.String("nobody")
		})
		add(proto.OpDelegpurge, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDelegpurge)); e.Uint64(markClient) })
		refused(proto.ErrNotsupp)
		add(proto.OpRenew, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpRenew)); e.Uint64(markClient) })
		add(proto.OpSetclientid, setclientidOp("c", 1, "127.0.0.1.8.1"))
		add(proto.OpSetclientidConfirm, confirmOp(markPending, markConfirm))
		return list
	}
	s := &sess{clientID: markClient, id: markSession}
	of(proto.OpClose, closeOp(markOpen))
	of(proto.OpLock, s.lockOp(lockArgs{kind: proto.ReadLt, off: 20, len: 9, sid: markLock}))
	of(proto.OpLockt, s.lockt(proto.WriteLt, 0, 5, "l"))
	of(proto.OpLocku, stateidOp(proto.OpLocku, u32(proto.WriteLt, 0), markLock, range0))
	in(proto.OpOpen, openOp(markClient, openHow{owner: "o", access: 1, create: true, mode: proto.Exclusive, verifier: 5, name: "f"}))
	of(proto.OpOpen, openOp(markClient, openHow{owner: "o", access: 1, claim: proto.ClaimFH}))
	of(proto.OpOpen, openOp(markClient, openHow{owner: "o", access: 2, claim: proto.ClaimPrevious}))
	refused(proto.ErrNoGrace) // there is nothing to reclaim
	of(proto.OpOpenDowngrade, openOp(markClient, openHow{owner: "o", access: 1, claim: proto.ClaimFH}),
		stateidOp(proto.OpOpenDowngrade, nil, markOpen, u32(0, proto.ShareAccessRead, 0)))
	add(proto.OpBackchannelCtl, numbers(proto.OpBackchannelCtl, proto.CBProgram, 1, 0))
	add(proto.OpBindConnToSession, bindOp(markSession, 1))
	add(proto.OpExchangeID, exchangeID("x", 1, 0))
	add(proto.OpCreateSession, createSession(markClient, 2, linuxFore))
	add(proto.OpDestroySession, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroySession)); e.FixedOpaque(markSession[:]) })
	of(proto.OpFreeStateid, stateidOp(proto.OpLocku, u32(proto.WriteLt, 0), markLock, range0), stateidOp(proto.OpFreeStateid, nil, markLock, nil))
	in(proto.OpSecinfoNoName, numbers(proto.OpSecinfoNoName, 0))
	add(proto.OpSequence, s.sequence(0, 99))
	refused(proto.ErrSeqMisordered)
	add(proto.OpTestStateid, testStateids(markOpen, markLock))
	add(proto.OpDestroyClientid, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroyClientid)); e.Uint64(99) })
	refused(proto.ErrStaleClientid)
	add(proto.OpReclaimComplete, reclaimComplete())
	if minor == 1 {
		return list
	}
	of(proto.OpAllocate, stateidOp(proto.OpAllocate, nil, markOpen, u64(0, 100)))
	of(proto.OpDeallocate, stateidOp(proto.OpDeallocate, nil, markOpen, u64(0, 5)))
	of(proto.OpCopy, simple(proto.OpSavefh), func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCopy))
		markOpen.Encode(e)
		markOpen.Encode(e)
		u64(0, 100, 5)(e)
		u32(1, 1, 0)(e)
	})
	of(proto.OpClone, simple(proto.OpSavefh), func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpClone))
		markOpen.Encode(e)
		markOpen.Encode(e)
		u64(0, 8192, 12)(e)
	})
	of(proto.OpIOAdvise, stateidOp(proto.OpIOAdvise, nil, markOpen, func(e *xdr.Encoder) { u64(0, 9)(e); u32(1, 2)(e) }))
	of(proto.OpOffloadCancel, stateidOp(proto.OpOffloadCancel, nil, markLock, nil))
	refused(proto.ErrBadStateid) // nothing is being copied
	of(proto.OpOffloadStatus, stateidOp(proto.OpOffloadStatus, nil, markLock, nil))
	refused(proto.ErrBadStateid)
	of(proto.OpReadPlus, readPlusOp(markOpen, 0, 100))
	of(proto.OpSeek, stateidOp(proto.OpSeek, nil, markOpen, func(e *xdr.Encoder) { e.Uint64(0); e.Uint32(1) }))
	of(proto.OpGetxattr, named(proto.OpGetxattr, "x"))
	of(proto.OpSetxattr, setxattrOp("y", "v"))
	of(proto.OpListxattrs, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpListxattrs)); e.Uint64(0); e.Uint32(100) })
	of(proto.OpRemovexattr, named(proto.OpRemovexattr, "x"))
	return list
}

// TestFuzzSeeds checks that the fuzzer begins with a request that is right for each
// operation that is supported, in each minor version: only so it comes far into each.
func TestFuzzSeeds(t *testing.T) {
	for minor := range uint32(3) {
		seen := map[proto.Op]bool{}
		for _, s := range fuzzSeeds(minor) {
			st, _ := newFuzzWorld(t, minor).do(t, s.ops)
			if st != s.want {
				t.Errorf("4.%d %v: %v, want %v", minor, s.op, st, s.want)
			}
			seen[s.op] = true
		}
		w := newFuzzWorld(t, minor)
		for o := proto.OpAccess; o <= proto.MaxOp42; o++ {
			if how := w.p.lookup(o, minor); how != nil && how.do != nil && !seen[o] {
				t.Errorf("4.%d: nothing begins with %v", minor, o)
			}
		}
	}
}

// FuzzOperations executes what the fuzzer makes of one request of each operation and of
// those of two that follow each other, in all minor versions, where there is state to be
// wrong about: it must neither panic nor answer what can't be decoded, and what the
// client does next is answered.
func FuzzOperations(f *testing.F) {
	for minor := range uint8(3) {
		for _, s := range fuzzSeeds(uint32(minor)) {
			var e xdr.Encoder
			for _, o := range s.ops {
				o(&e)
			}
			f.Add(minor, uint8(len(s.ops)), e.Bytes())
		}
	}
	f.Fuzz(func(t *testing.T, minor, n uint8, ops []byte) {
		w := newFuzzWorld(t, uint32(minor%3))
		w.raw(t, uint32(n), ops)
		w.raw(t, uint32(n), ops)
		w.p.Tick(context.Background(), 2)
		if w.minor > 0 {
			return // there may be no session any more
		}
		if st, _ := w.do(t, []op{simple(proto.OpPutrootfh), simple(proto.OpGetfh)}); st != proto.OK {
			t.Fatal(st)
		}
	})
}
