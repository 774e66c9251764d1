package vfstest

import (
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

var permTests = map[string]func(*T){
	"access":      testAccess,
	"setattr":     testSetattr,
	"directories": testDirPerm,
	"sticky":      testSticky,
	"setgid":      testSetGID,
	"killpriv":    testKillPriv,
}

func testAccess(t *T) {
	const all = 0x3f
	const r, x, w = vfs.AccessRead, vfs.AccessExecute, vfs.AccessModify | vfs.AccessExtend
	const dx, dw = vfs.AccessLookup, vfs.AccessModify | vfs.AccessExtend | vfs.AccessDelete
	for i, c := range []struct {
		ft   vfs.FileType
		mode uint32
		cred vfs.Cred
		want uint32
	}{
		{cluster.TypeRegular, 0o640, Root, r | w},
		{cluster.TypeRegular, 0o000, Root, r | w},
		{cluster.TypeRegular, 0o001, Root, r | w | x},
		{cluster.TypeRegular, 0o640, Alice, r | w},
		{cluster.TypeRegular, 0o077, Alice, 0},
		{cluster.TypeRegular, 0o640, Bob, 0},
		{cluster.TypeRegular, 0o607, Carol, r | w | x},
		{cluster.TypeRegular, 0o704, vfs.Cred{UID: 5, GID: 6, GIDs: []uint32{9, 200}}, 0},
		{cluster.TypeRegular, 0o750, vfs.Cred{UID: 5, GID: 6, GIDs: []uint32{9, 200}}, r | x},
		{cluster.TypeDirectory, 0o000, Root, r | dx | dw},
		{cluster.TypeDirectory, 0o755, Bob, r | dx},
		{cluster.TypeDirectory, 0o722, Bob, 0},
		{cluster.TypeDirectory, 0o773, Carol, dx | dw},
		{cluster.TypeDirectory, 0o744, Carol, r},
	} {
		made := t.make(Root, t.Dir, fmt.Sprint(i), c.ft, c.mode)
		_, err := t.FS.Setattr(req(Root), made.File, vfs.SetAttr{Mask: cluster.SetUID | cluster.SetGID, UID: Alice.UID, GID: 200}, false)
		t.ok(err)
		got, err := t.FS.Access(req(c.cred), made.File, all)
		if err != nil || got != c.want {
			t.Errorf("%d: mode %o for %+v: %x, %v; want %x", i, c.mode, c.cred, got, err, c.want)
		}
		if got, _ := t.FS.Access(req(c.cred), made.File, r); got != c.want&r {
			t.Errorf("%d: %x when only reading was asked for", i, got)
		}
	}
}

func testSetattr(t *T) {
	for i, c := range []struct {
		cred vfs.Cred
		mode uint32
		set  vfs.SetAttr
		want vfs.Errno
	}{
		{Alice, 0o600, mode(0o4755), cluster.OK},
		{Bob, 0o666, mode(0o755), cluster.EPERM},
		{Root, 0o600, vfs.SetAttr{Mask: cluster.SetUID, UID: 5}, cluster.OK},
		{Alice, 0o600, vfs.SetAttr{Mask: cluster.SetUID, UID: 5}, cluster.EPERM},
		{Alice, 0o600, vfs.SetAttr{Mask: cluster.SetUID, UID: Alice.UID}, cluster.OK},
		{Alice, 0o600, vfs.SetAttr{Mask: cluster.SetGID, GID: 200}, cluster.OK},
		{Alice, 0o600, vfs.SetAttr{Mask: cluster.SetGID, GID: 300}, cluster.EPERM},
		{Bob, 0o666, vfs.SetAttr{Mask: cluster.SetGID, GID: 100}, cluster.EPERM},
		{Alice, 0o400, vfs.SetAttr{Mask: cluster.SetAtime | cluster.SetMtime, Atime: 5, Mtime: 6}, cluster.OK},
		{Bob, 0o666, vfs.SetAttr{Mask: cluster.SetMtime, Mtime: 6}, cluster.EPERM},
		{Bob, 0o666, vfs.SetAttr{Mask: cluster.SetMtimeNow | cluster.SetAtimeNow}, cluster.OK},
		{Bob, 0o644, vfs.SetAttr{Mask: cluster.SetMtimeNow}, cluster.EACCES},
		{Bob, 0o666, vfs.SetAttr{Mask: cluster.SetSize, Size: 10}, cluster.OK},
		{Bob, 0o644, vfs.SetAttr{Mask: cluster.SetSize, Size: 10}, cluster.EACCES},
		{Alice, 0o400, vfs.SetAttr{Mask: cluster.SetSize, Size: 10}, cluster.EACCES},
		{Root, 0o000, vfs.SetAttr{Mask: cluster.SetSize, Size: 1 << 63}, cluster.EFBIG},
	} {
		f := t.make(Alice, t.Dir, fmt.Sprint(i), cluster.TypeRegular, c.mode).File
		before := t.attr(f)
		a, err := t.FS.Setattr(req(c.cred), f, c.set, false)
		t.result(fmt.Sprintf("setattr %d", i), err, c.want)
		after := t.attr(f)
		if err != nil {
			if after != before {
				t.Errorf("%d: a refused setattr changed %+v", i, after)
			}
			continue
		}
		if a != after || after.Change <= before.Change {
			t.Errorf("%d: returned %+v, is %+v", i, a, after)
		}
		m := c.set.Mask
		if m&cluster.SetMode != 0 && a.Mode != c.set.Mode || m&cluster.SetUID != 0 && a.UID != c.set.UID ||
			m&cluster.SetGID != 0 && a.GID != c.set.GID || m&cluster.SetSize != 0 && a.Size != c.set.Size ||
			m&cluster.SetAtime != 0 && a.Atime != c.set.Atime || m&cluster.SetMtime != 0 && a.Mtime != c.set.Mtime ||
			m&cluster.SetMtimeNow != 0 && a.Mtime < before.Mtime {
			t.Errorf("%d: %+v", i, a)
		}
	}
	// Whoever holds it open for writing may truncate whatever the mode says now.
	f := t.make(Alice, t.Dir, "open", cluster.TypeRegular, 0o400).File
	_, err := t.FS.Setattr(req(Alice), f, vfs.SetAttr{Mask: cluster.SetSize, Size: 3}, true)
	t.ok(err)
	_, err = t.FS.Setattr(req(Root), t.Dir, vfs.SetAttr{Mask: cluster.SetSize}, true)
	t.fails(err, cluster.EISDIR)
}

func testDirPerm(t *T) {
	d := t.mkdir(t.Dir, "d") // root's, 0755
	t.make(Root, d, "f", cluster.TypeRegular, 0o644)
	_, err := t.FS.Create(req(Alice), d, "x", vfs.CreateArgs{Type: cluster.TypeRegular})
	t.fails(err, cluster.EACCES)
	_, err = t.FS.Create(req(Alice), d, "f", vfs.CreateArgs{Type: cluster.TypeRegular})
	t.ok(err) // exists: no right to create is needed
	_, err = t.FS.Remove(req(Alice), d, "f")
	t.fails(err, cluster.EACCES)
	_, _, err = t.FS.Rename(req(Alice), d, "f", t.Dir, "g")
	t.fails(err, cluster.EACCES)
	_, err = t.FS.Setattr(req(Root), d, mode(0o744), false)
	t.ok(err)
	_, _, err = t.FS.Lookup(req(Alice), d, "f")
	t.fails(err, cluster.EACCES)
	_, err = t.FS.ReadDir(req(Alice), d, 0, false, func(*vfs.Dirent) bool { return true })
	t.ok(err)
	_, err = t.FS.Setattr(req(Root), d, mode(0o711), false)
	t.ok(err)
	_, _, err = t.FS.Lookup(req(Alice), d, "f")
	t.ok(err)
	_, err = t.FS.ReadDir(req(Alice), d, 0, false, func(*vfs.Dirent) bool { return true })
	t.fails(err, cluster.EACCES)
	// A directory that moves elsewhere has its ".." changed.
	t.make(Bob, t.Dir, "bobs", cluster.TypeDirectory, 0o755)
	other := t.make(Root, t.Dir, "other", cluster.TypeDirectory, 0o777).File
	_, _, err = t.FS.Rename(req(Alice), t.Dir, "bobs", other, "bobs")
	t.fails(err, cluster.EACCES)
	_, _, err = t.FS.Rename(req(Bob), t.Dir, "bobs", other, "bobs")
	t.ok(err)
	_, err = t.FS.Create(req(Alice), t.Dir, "dev", vfs.CreateArgs{Type: cluster.TypeBlock})
	t.fails(err, cluster.EPERM)
	_, err = t.FS.Create(req(Alice), t.Dir, "given", vfs.CreateArgs{
		Type: cluster.TypeRegular, Attr: vfs.SetAttr{Mask: cluster.SetUID, UID: Bob.UID},
	})
	t.fails(err, cluster.EPERM)
}

func testSticky(t *T) {
	d := t.make(Carol, t.Dir, "d", cluster.TypeDirectory, 0o1777).File
	for _, n := range []string{"a", "b", "c"} {
		t.make(Alice, d, n, cluster.TypeRegular, 0o666)
	}
	t.make(Bob, d, "bobs", cluster.TypeRegular, 0o666)
	_, err := t.FS.Remove(req(Bob), d, "a")
	t.fails(err, cluster.EPERM)
	_, _, err = t.FS.Rename(req(Bob), d, "a", d, "z")
	t.fails(err, cluster.EPERM)
	_, _, err = t.FS.Rename(req(Bob), d, "bobs", d, "a")
	t.fails(err, cluster.EPERM)
	_, err = t.FS.Remove(req(Alice), d, "a")
	t.ok(err)
	_, err = t.FS.Remove(req(Carol), d, "b") // the directory's owner
	t.ok(err)
	_, err = t.FS.Remove(req(Root), d, "c")
	t.ok(err)
}

func testSetGID(t *T) {
	d := t.mkdir(t.Dir, "d")
	_, err := t.FS.Setattr(req(Root), d, vfs.SetAttr{Mask: cluster.SetGID | cluster.SetMode, GID: 777, Mode: 0o2777}, false)
	t.ok(err)
	f := t.make(Alice, d, "f", cluster.TypeRegular, 0o644).Attr
	sub := t.make(Alice, d, "sub", cluster.TypeDirectory, 0o755).Attr
	if f.GID != 777 || sub.GID != 777 || sub.Mode != 0o2755 || f.Mode != 0o644 {
		t.Errorf("inherited: %+v, %+v", f, sub)
	}
	if a := t.make(Alice, t.Dir, "g", cluster.TypeRegular, 0o644).Attr; a.UID != Alice.UID || a.GID != Alice.GID {
		t.Errorf("owner: %+v", a)
	}
}

func testKillPriv(t *T) {
	for i, c := range []struct {
		cred vfs.Cred
		how  vfs.Stability
		was  uint32
		want uint32
	}{
		{Alice, vfs.FileSync, 0o6755, 0o755},
		{Alice, vfs.Unstable, 0o6755, 0o755},
		{Alice, vfs.FileSync, 0o2745, 0o2745},
		{Root, vfs.FileSync, 0o6755, 0o6755},
	} {
		f := t.make(Alice, t.Dir, fmt.Sprint(i), cluster.TypeRegular, 0o755).File
		_, err := t.FS.Setattr(req(Root), f, mode(c.was), false)
		t.ok(err)
		_, _, err = t.FS.Write(req(c.cred), f, 0, []byte("x"), c.how)
		t.ok(err)
		if got := t.attr(f).Mode; got != c.want {
			t.Errorf("%d: mode %o before the commit, want %o", i, got, c.want)
		}
		t.commit(f)
		if got := t.attr(f).Mode; got != c.want {
			t.Errorf("%d: mode %o, want %o", i, got, c.want)
		}
	}
	f := t.make(Alice, t.Dir, "chown", cluster.TypeRegular, 0o4755).File
	a, err := t.FS.Setattr(req(Root), f, vfs.SetAttr{Mask: cluster.SetUID, UID: 5}, false)
	if err != nil || a.Mode != 0o755 {
		t.Errorf("mode after chown %o, %v", a.Mode, err)
	}
}
