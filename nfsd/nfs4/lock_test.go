package nfs4

import (
	"math"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

type lockArgs struct {
	kind     uint32
	reclaim  bool
	off, len uint64
	owner    string        // of a new lock owner: sid is the open's
	sid      state.Stateid // else: sid is the lock's
}

func (s *sess) lockOp(l lockArgs) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpLock))
		e.Uint32(l.kind)
		e.Bool(l.reclaim)
		e.Uint64(l.off)
		e.Uint64(l.len)
		e.Bool(l.owner != "")
		if l.owner != "" {
			e.Uint32(0)
			l.sid.Encode(e)
			e.Uint32(0)
			e.Uint64(s.clientID)
			e.String(l.owner)
			return
		}
		l.sid.Encode(e)
		e.Uint32(0)
	}
}

func (s *sess) lock(fh []byte, l lockArgs) (state.Stateid, proto.Status) {
	s.t.Helper()
	st, d := s.one(fh, proto.OpLock, s.lockOp(l))
	if st == proto.OK {
		return state.DecodeStateid(d), st
	}
	return state.Stateid{}, st
}

func unlockOp(sid state.Stateid, off, n uint64) op {
	return stateidOp(proto.OpLocku, func(e *xdr.Encoder) { e.Uint32(proto.WriteLt); e.Uint32(0) }, sid,
		func(e *xdr.Encoder) { e.Uint64(off); e.Uint64(n) })
}

func (s *sess) lockt(kind uint32, off, n uint64, owner string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpLockt))
		e.Uint32(kind)
		e.Uint64(off)
		e.Uint64(n)
		e.Uint64(s.clientID)
		e.String(owner)
	}
}

func TestLocks(t *testing.T) {
	r := newRig(t, nil)
	s, s2 := r.newSession("a"), r.newSession("b")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	o2 := s2.mustOpen(root, openHow{name: "f"})
	sid, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 10, len: 20, owner: "p1", sid: o.sid})
	if st != proto.OK || sid.Seq != 1 || sid.Other == o.sid.Other {
		t.Fatal(st, sid)
	}
	// The same owner again, by the open's stateid and by its own.
	again, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 100, len: math.MaxUint64, owner: "p1", sid: o.sid})
	if st != proto.OK || again.Other != sid.Other || again.Seq != 2 {
		t.Fatal(st, again)
	}
	again, st = s.lock(o.fh, lockArgs{kind: proto.ReadLt, off: 0, len: 5, sid: again})
	if st != proto.OK || again.Seq != 3 {
		t.Fatal(st, again)
	}
	// Another client is told whose lock is in the way.
	st, d := s2.one(o.fh, proto.OpLock, s2.lockOp(lockArgs{kind: proto.ReadLt, off: 15, len: 1, owner: "q", sid: o2.sid}))
	if st != proto.ErrDenied {
		t.Fatal(st)
	}
	if off, n, kind, id, owner := d.Uint64(), d.Uint64(), d.Uint32(), d.Uint64(), d.String(100); off != 10 || n != 20 || kind != proto.WriteLt || id != s.clientID || owner != "p1" {
		t.Fatal(off, n, kind, id, owner)
	}
	st, d = s2.one(o.fh, proto.OpLockt, s2.lockt(proto.WriteLt, 200, 1, "q"))
	if off, n := d.Uint64(), d.Uint64(); st != proto.ErrDenied || off != 100 || n != math.MaxUint64 {
		t.Fatal(st, off, n)
	}
	if st, _ := s2.one(o.fh, proto.OpLockt, s2.lockt(proto.ReadLt, 0, 5, "q")); st != proto.OK {
		t.Fatal(st)
	}
	if st, _ := s.one(o.fh, proto.OpLockt, s.lockt(proto.WriteLt, 10, 1, "p1")); st != proto.OK {
		t.Fatal(st) // one's own lock is not in the way
	}
	for _, bad := range []lockArgs{{kind: 1, off: 1}, {kind: 1, off: 2, len: math.MaxUint64 - 1}} {
		bad.sid = again
		if _, st := s.lock(o.fh, bad); st != proto.ErrInval {
			t.Fatal(st)
		}
	}
	free := func(sid state.Stateid) op { return stateidOp(proto.OpFreeStateid, nil, sid, nil) }
	s.do(free(again)).is(proto.ErrLocksHeld)
	// Released in parts.
	for _, u := range []struct{ off, n uint64 }{{0, 15}, {15, 100}, {115, math.MaxUint64}} {
		st, d := s.one(o.fh, proto.OpLocku, unlockOp(again, u.off, u.n))
		if st != proto.OK {
			t.Fatal(st)
		}
		again = state.DecodeStateid(d)
	}
	if st, _ := s2.one(o.fh, proto.OpLockt, s2.lockt(proto.WriteLt, 0, math.MaxUint64, "q")); st != proto.OK {
		t.Fatal(st)
	}
	s.do(free(again)).is(proto.OK)
	s.do(free(again)).is(proto.ErrBadStateid)
	// CLOSE releases what is held through the open.
	if _, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p2", sid: o.sid}); st != proto.OK {
		t.Fatal(st)
	}
	s.do(putfh(o.fh), closeOp(o.sid)).is(proto.OK)
	if _, st := s2.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q", sid: o2.sid}); st != proto.OK {
		t.Fatal(st)
	}
	ro := s.mustOpen(root, openHow{name: "f", access: proto.ShareAccessRead})
	if _, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 50, len: 10, owner: "p", sid: ro.sid}); st != proto.ErrOpenmode {
		t.Fatal(st)
	}
}

// A lock of a client whose lease has ended does not keep others out.
func TestLockOfLapsedClient(t *testing.T) {
	r := newRig(t, nil)
	s, s2 := r.newSession("a"), r.newSession("b")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: o.sid})
	r.advance(30 * time.Second)
	o2 := s2.mustOpen(root, openHow{name: "f"})
	if _, st := s2.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q", sid: o2.sid}); st != proto.OK {
		t.Fatal(st)
	}
	s.seq[0]++
	s.compound(s.sequence(0, s.seq[0])).is(proto.ErrBadsession)
}
