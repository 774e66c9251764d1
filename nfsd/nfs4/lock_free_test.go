package nfs4

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A slowLockFS lets each Lock but the first wait.
type slowLockFS struct {
	vfs.FS
	locks   int
	entered chan struct{}
	resume  chan struct{}
}

func (f *slowLockFS) Lock(r *vfs.Request, x vfs.File, l vfs.Lock) (*vfs.Lock, error) {
	if f.locks++; f.locks > 1 {
		f.entered <- struct{}{}
		<-f.resume
	}
	return f.FS.Lock(r, x, l)
}

// Linux sends FREE_STATEID after an unlock and, before that is answered, a LOCK of the same
// owner as of one that is new to the file: both must succeed, or FREE_STATEID must fail.
func TestFreeStateidBesideLock(t *testing.T) {
	fs := &slowLockFS{entered: make(chan struct{}), resume: make(chan struct{})}
	r := newRig(t, func(c *Config) { fs.FS, c.FS = c.FS, fs })
	s := r.newSession("a")
	o := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	l := lockArgs{kind: proto.WriteLt, len: 5, owner: "p", sid: o.sid}
	sid, st := s.lock(o.fh, l)
	if st != proto.OK {
		t.Fatal(st)
	}
	if st, _ := s.one(o.fh, proto.OpLocku, unlockOp(sid, 0, 5)); st != proto.OK {
		t.Fatal(st)
	}
	sid.Seq++
	locking := s.start(putfh(o.fh), s.lockOp(l))
	<-fs.entered
	s.slot = 1
	s.do(stateidOp(proto.OpFreeStateid, nil, sid, nil)).is(proto.ErrLocksHeld)
	close(fs.resume)
	s.wait(locking).is(proto.OK)
}
