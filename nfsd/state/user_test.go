package state

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// Who uses another user's stateid is told from who opened the file, unless several did.
func TestStateidOfAnotherUser(t *testing.T) {
	m := newManager()
	c, _ := confirm(t, m, 0, "a")
	f := vfs.File{Ino: 5}
	by := func(uid uint32) Stateid {
		owner := []byte("o")
		a := OpenArgs{
			Owner: owner, File: f, Access: proto.ShareAccessBoth, UID: uid,
			Other: m.NewOther(c, KindOpen, proto.ShareAccessBoth, owner, f, []byte{byte(uid)}),
		}
		o, st := m.Open(c, &a, true)
		if st != proto.OK {
			t.Fatal(st)
		}
		return o.Stateid
	}
	for _, k := range []struct {
		opens, uses uint32
		other       bool
	}{
		{7, 7, false},
		{7, 8, true},
		{7, 0, true}, // root has no rights of its own here: the file system decides
		{8, 8, false},
		{8, 7, false},
		{8, 9, false}, // of two: not remembered
	} {
		sid := by(k.opens)
		if other, st := m.CheckIO(c, sid, f, proto.ShareAccessWrite, k.uses); st != proto.OK || other != k.other {
			t.Errorf("opened by %d, used by %d: another's %v, %v", k.opens, k.uses, other, st)
		}
	}
}
