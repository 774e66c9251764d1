package nfs4

import (
	"sync/atomic"
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// An upgrade that takes effect and is not answered is repeated at the next front-end:
// what the owner denies by it is not in its own way, and what it was granted is what is
// recorded.
func TestUpgradeAgainAfterTakeover(t *testing.T) {
	w := newWorld(t)
	s := w.r.newSession("a")
	root := s.root()
	o := s.mustOpen(root, openHow{owner: "o", access: proto.ShareAccessWrite, create: true, name: "f"})
	upgrade := []op{putfh(o.fh), openOp(s.clientID, openHow{
		owner: "o", access: proto.ShareAccessRead, deny: proto.ShareDenyRead, claim: proto.ClaimFH,
	})}
	w.fnc.after.Store(w.fnc.calls.Load() + 1)
	if r, err := s.waitFor(s.start(upgrade...)); err == nil {
		r.is(proto.OK) // recording it is all that it does
	}
	w.takeover(s)
	s.seq[s.slot]--
	s.do(upgrade...).is(proto.OK) // again, under the same number
	if _, st := s.tryOpen(o.fh, openHow{owner: "o", access: proto.ShareAccessRead, claim: proto.ClaimFH}); st != proto.ErrShareDenied {
		t.Errorf("an OPEN that is no repetition, against what its owner denies: %v", st)
	}
	other := w.r.newSession("b")
	if _, st := other.tryOpen(o.fh, openHow{access: proto.ShareAccessRead, claim: proto.ClaimFH}); st != proto.ErrShareDenied {
		t.Errorf("an OPEN against what was granted: %v", st)
	}
}

// An earlierFS calls first, once, before a state is put.
type earlierFS struct {
	vfs.FS
	first atomic.Pointer[func()]
}

func (f *earlierFS) PutState(r *vfs.Request, x vfs.File, st vfs.State) error {
	if fn := f.first.Swap(nil); fn != nil {
		(*fn)()
	}
	return f.FS.PutState(r, x, st)
}

// An upgrade that is refused after it was recorded, for this front-end has granted
// meanwhile what is recorded nowhere, leaves recorded what there was before.
func TestRefusedUpgradeLeavesNothing(t *testing.T) {
	fs := &earlierFS{}
	r := newRig(t, func(c *Config) { fs.FS, c.FS = c.FS, fs })
	elsewhere := newRig(t, func(c *Config) { c.FS, c.Identity, c.Epoch, c.ServerOwner = fs, 2, 1, "other" })
	a, b, c := r.newSession("a"), r.newSession("b"), elsewhere.newSession("c")
	root := a.root()
	o := a.mustOpen(root, openHow{owner: "o", access: proto.ShareAccessWrite, create: true, name: "f"})
	read := func() { b.mustOpen(root, openHow{owner: "p", access: proto.ShareAccessRead, name: "f"}) }
	fs.first.Store(&read)
	if _, st := a.tryOpen(o.fh, openHow{owner: "o", access: proto.ShareAccessWrite, deny: proto.ShareDenyRead, claim: proto.ClaimFH}); st != proto.ErrShareDenied {
		t.Fatal(st)
	}
	c.mustOpen(root, openHow{access: proto.ShareAccessRead, name: "f"})
	if _, st := c.tryOpen(root, openHow{access: proto.ShareAccessRead, deny: proto.ShareDenyWrite, name: "f"}); st != proto.ErrShareDenied {
		t.Errorf("the open for writing that was there before is recorded no more: %v", st)
	}
}
