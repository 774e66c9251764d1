package volume

import (
	"strings"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

func TestAllowed(t *testing.T) {
	const (
		r, w, x = MayRead, MayWrite, MayExec
		file    = cluster.TypeRegular
		dir     = cluster.TypeDirectory
	)
	root := cluster.Cred{}
	owner := cluster.Cred{UID: 1, GID: 9}
	member := cluster.Cred{UID: 2, GID: 5}
	also := cluster.Cred{UID: 3, GID: 9, GIDs: []uint32{4, 5}}
	other := cluster.Cred{UID: 4, GID: 9, GIDs: []uint32{4}}
	for _, c := range []struct {
		typ  cluster.FileType
		mode uint32
		cred cluster.Cred
		want uint32 // what is allowed
	}{
		{file, 0o000, root, r | w},
		{file, 0o001, root, r | w | x},
		{file, 0o7666, root, r | w},
		{dir, 0o000, root, r | w | x},
		{file, 0o741, owner, r | w | x},
		{file, 0o741, member, r},
		{file, 0o741, also, r},
		{file, 0o741, other, x},
		// The first class that fits decides, even if a later one has more.
		{file, 0o077, owner, 0},
		{file, 0o707, member, 0},
		{file, 0o707, also, 0},
		{file, 0o776, other, r | w},
		{file, 0o7000, owner, 0},
		{dir, 0o1773, other, w | x},
	} {
		a := cluster.Attr{Type: c.typ, Mode: c.mode, UID: 1, GID: 5}
		for want := range uint32(8) {
			if have := Allowed(&a, &c.cred, want); have != (want&^c.want == 0) {
				t.Errorf("type %d, mode %o, uid %d: %o is %v", c.typ, c.mode, c.cred.UID, want, have)
			}
		}
	}
}

// TestXattrsGo: extended attributes go with what has them.
func TestXattrsGo(t *testing.T) {
	e := newTree(t)
	for _, line := range []string{"mkdir /d", "setx /d one 1", "setx /d two 2", "mkdir /e", "setx /e one 1", "mv /d /e"} {
		e.line(strings.Fields(line))
	}
	if n := countKeys(e, prefixXattr); n != 2 {
		t.Errorf("%d attributes, want those of d", n)
	}
	e.line(strings.Fields("rm /e"))
	if n := countKeys(e, prefixXattr); n != 0 {
		t.Errorf("%d attributes are left", n)
	}
	Check(e.view, func(p Problem) { t.Errorf("check: %v", p) })
}

func TestUsageDoesNotWrap(t *testing.T) {
	for _, c := range []struct {
		have uint64
		add  int64
		want uint64
	}{{5, 3, 8}, {5, -5, 0}, {5, -6, 0}, {0, -1 << 63, 0}} {
		if got := addClamped(c.have, c.add); got != c.want {
			t.Errorf("%d%+d = %d, want %d", c.have, c.add, got, c.want)
		}
	}
}
