package state

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A lock state can't be freed while a LOCK through it is under way, whichever stateid that
// names; after it, only if it holds nothing.
func TestFreeDuringLock(t *testing.T) {
	m := newManager()
	c, _ := confirm(t, m, 0, "a")
	f := vfs.File{Ino: 5}
	sid, st := open(m, c, "o", f, 3, 0)
	if st != proto.OK {
		t.Fatal(st)
	}
	first := func() *Lock {
		l, st := m.LockOpen(c, &LockArgs{Open: sid, File: f, Owner: []byte("p"), Digest: vfs.LockOwner{1}, Write: true})
		if st != proto.OK {
			t.Fatal(st)
		}
		return l
	}
	l := first()
	ls, st := m.Locked(l, 0, 9)
	if st != proto.OK {
		t.Fatal(st)
	}
	free := func(want proto.Status) {
		t.Helper()
		if _, _, st := m.Free(c, Stateid{Other: ls.Other}); st != want {
			t.Fatalf("FREE_STATEID: %v, want %v", st, want)
		}
	}
	free(proto.ErrLocksHeld)
	if _, st := m.Unlocked(l, 0, 9); st != proto.OK {
		t.Fatal(st)
	}

	again := first() // by the open's stateid, as if the owner were new to it
	free(proto.ErrLocksHeld)
	if ls, st = m.Locked(again, 0, 9); st != proto.OK || again != l {
		t.Fatal(st)
	}
	if _, st := m.Unlocked(l, 0, 9); st != proto.OK {
		t.Fatal(st)
	}

	more, st := m.LockMore(c, Stateid{Other: ls.Other}, f, true)
	if st != proto.OK {
		t.Fatal(st)
	}
	free(proto.ErrLocksHeld)
	m.Refused(more)
	free(proto.OK)
	free(proto.ErrBadStateid)
}
