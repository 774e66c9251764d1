package nfs4

import (
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A crampedFS has no room for the lock that begins at cramped, nor for what is left when
// one is given up there.
type crampedFS struct{ vfs.FS }

const cramped = 1000

func (f *crampedFS) Lock(r *vfs.Request, x vfs.File, l vfs.Lock) (*vfs.Lock, error) {
	if l.Start == cramped {
		return nil, cluster.ENOSPC
	}
	return f.FS.Lock(r, x, l)
}

func (f *crampedFS) Unlock(r *vfs.Request, x vfs.File, l vfs.Lock) error {
	if l.Start == cramped {
		return cluster.ENOSPC
	}
	return f.FS.Unlock(r, x, l)
}

// What a file with too many locks is answered with is an error that LOCK and LOCKU have:
// RESOURCE in 4.0, where the request's number is used again, else SERVERFAULT; NOSPC is
// for neither.
func TestTooManyLocks(t *testing.T) {
	r := newRig(t, func(c *Config) { c.FS = &crampedFS{c.FS} })
	s := r.newSession("a")
	o := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	sid, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, len: 5, owner: "p", sid: o.sid})
	if st != proto.OK {
		t.Fatal(st)
	}
	if _, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: cramped, len: 5, sid: sid}); st != proto.ErrServerfault {
		t.Errorf("LOCK: %v", st)
	}
	if st, _ := s.one(o.fh, proto.OpLocku, unlockOp(sid, cramped, 5)); st != proto.ErrServerfault {
		t.Errorf("LOCKU: %v", st)
	}

	w := r.dial()
	id := w.client40("b", 1, "0.0.0.0.0.0")
	fh, open := w.opened40(id, "o", "g", proto.ShareAccessBoth, 0)
	w.do40(putfh(fh), lock40(id, open, 3, "l", 0, cramped)).is(proto.ErrResource)
	d := w.do40(putfh(fh), lock40(id, open, 3, "l", 0, 0))
	d.ok(proto.OpPutfh)
	lock := state.DecodeStateid(d.ok(proto.OpLock))
	unlock := func(seq uint32, off uint64) op {
		return stateidOp(proto.OpLocku, func(e *xdr.Encoder) { e.Uint32(proto.WriteLt); e.Uint32(seq) }, lock,
			func(e *xdr.Encoder) { e.Uint64(off); e.Uint64(5) })
	}
	w.do40(putfh(fh), unlock(1, cramped)).is(proto.ErrResource)
	w.do40(putfh(fh), unlock(1, 0)).is(proto.OK)
}
