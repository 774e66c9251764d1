package nfs4

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// lock40 is a LOCK by a lock-owner that is new to the open.
func lock40(client uint64, sid state.Stateid, openSeq uint32, owner string, lockSeq uint32, off uint64) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpLock))
		e.Uint32(proto.WriteLt)
		e.Bool(false)
		e.Uint64(off)
		e.Uint64(10)
		e.Bool(true)
		e.Uint32(openSeq)
		sid.Encode(e)
		e.Uint32(lockSeq)
		e.Uint64(client)
		e.String(owner)
	}
}

// TestOwnerWaitsNotForItself has a lock-owner lock through its own lock stateid, as if
// that were an open's. It must not wait for its own turn, and its turn must be free
// afterwards.
func TestOwnerWaitsNotForItself(t *testing.T) {
	w := newRig(t, nil).dial()
	id := w.client40("a", 1, "0.0.0.0.0.0")
	fh, sid := w.opened40(id, "o", "f", proto.ShareAccessBoth, 0)
	r := w.do40(putfh(fh), lock40(id, sid, 3, "l", 0, 0))
	r.ok(proto.OpPutfh)
	locked := state.DecodeStateid(r.ok(proto.OpLock))
	w.do40(putfh(fh), lock40(id, locked, 1, "l", 1, 20)).is(proto.ErrBadStateid)
	w.do40(putfh(fh), lock40(id, sid, 4, "l", 1, 20)).is(proto.OK)
}

// TestFailedOpenCancelsOnce has a stray OPEN be cancelled by one that fails: the next
// finds nothing to cancel, and the stray one's share is free.
func TestFailedOpenCancelsOnce(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	id := w.client40("a", 1, "0.0.0.0.0.0")
	open := func(owner string, seq uint32, name string, deny uint32) *reply {
		return w.do40(simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), open40(id, owner, seq, name, proto.ShareAccessBoth, deny))
	}
	open("o", 1, "f", proto.ShareDenyBoth).is(proto.OK)
	open("o", 2, "..", 0).is(proto.ErrBadname)
	c := r.p.state.Client(id)
	o, st := r.p.state.OpenOwner(c, []byte("o"), 0)
	if st != proto.OK {
		t.Fatal(st)
	}
	if _, _, ok := o.Pending(); ok {
		t.Error("what was cancelled is still pending")
	}
	o.Leave()
	open("p", 1, "f", proto.ShareDenyBoth).is(proto.OK)
}
