package vfstest

import (
	"fmt"
	"strings"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

var treeTests = map[string]func(*T){
	"handles":         testHandles,
	"volumes":         testVolumes,
	"create":          testCreate,
	"create-existing": testCreateExisting,
	"names":           testNames,
	"readdir":         testReadDir,
	"links":           testLinks,
	"remove":          testRemove,
	"rename":          testRename,
	"parents":         testParents,
	"stale":           testStale,
	"request":         testRequest,
}

func testHandles(t *T) {
	for _, f := range []vfs.File{vfs.Root, t.Vol, t.Dir, {Volume: 7, Ino: 1 << 60, Gen: 1 << 31}} {
		h := t.FS.AppendHandle([]byte("x"), f)[1:]
		if len(h) > vfs.MaxHandle {
			t.Errorf("handle of %d bytes", len(h))
		}
		got, err := t.FS.ParseHandle(h)
		if err != nil || got != f {
			t.Errorf("handle of %v is %v, %v", f, got, err)
		}
		for i := range h {
			h[i] ^= 0x10
			if _, err := t.FS.ParseHandle(h); err == nil {
				t.Errorf("a handle with byte %d changed is accepted", i)
			}
			h[i] ^= 0x10
		}
		_, err = t.FS.ParseHandle(h[:len(h)-1])
		t.result("short handle", err, cluster.EBADHANDLE)
	}
	_, err := t.FS.ParseHandle(nil)
	t.fails(err, cluster.EBADHANDLE)
}

func testVolumes(t *T) {
	root := t.attr(vfs.Root)
	if root.Type != cluster.TypeDirectory || root.Ino != cluster.RootIno {
		t.Errorf("root is %+v", root)
	}
	list := t.names(vfs.Root, 1)
	if len(list) == 0 || list[0].File != t.Vol {
		t.Fatalf("root has %v", list)
	}
	rv, err := t.FS.Volume(req(Root), vfs.Root)
	t.ok(err)
	fsids := map[vfs.FSID]bool{rv.FSID: true}
	for _, e := range list {
		f, a, err := t.FS.Lookup(req(Bob), vfs.Root, e.Name)
		t.ok(err)
		if f != e.File || a.Ino != cluster.RootIno || a.Type != cluster.TypeDirectory {
			t.Errorf("%s is %v, %+v", e.Name, f, a)
		}
		v, err := t.FS.Volume(req(Root), f)
		t.ok(err)
		if v.Name != e.Name || fsids[v.FSID] {
			t.Errorf("volume %+v", v)
		}
		fsids[v.FSID] = true
		if on := t.FS.MountedOn(f); on != e.MountedOn || on == root.Ino {
			t.Errorf("mounted on %d, %d in the list", on, e.MountedOn)
		}
		p, _, err := t.FS.LookupParent(req(Root), f)
		if err != nil || p != vfs.Root {
			t.Errorf("parent of a volume's root: %v, %v", p, err)
		}
	}
	if on := t.FS.MountedOn(t.Dir); on != t.Dir.Ino {
		t.Errorf("a directory is mounted on %d", on)
	}
	_, err = t.lookup(vfs.Root, "no such volume")
	t.fails(err, cluster.ENOENT)
	_, _, err = t.FS.LookupParent(req(Root), vfs.Root)
	t.fails(err, cluster.ENOENT)
	_, err = t.FS.Create(req(Root), vfs.Root, "x", vfs.CreateArgs{Type: cluster.TypeDirectory})
	t.fails(err, cluster.EROFS)
	_, err = t.FS.Remove(req(Root), vfs.Root, list[0].Name)
	t.fails(err, cluster.EROFS)
	_, err = t.FS.Setattr(req(Root), vfs.Root, mode(0o777), false)
	t.fails(err, cluster.EROFS)
	have, err := t.FS.Access(req(Alice), vfs.Root, 0x3f)
	if err != nil || have != vfs.AccessRead|vfs.AccessLookup {
		t.Errorf("access to root: %x, %v", have, err)
	}
	// What was removed before may be freed meanwhile, but once it is gone.
	more := int64(0)
	for i := 0; more != 1<<20 && i < 20; i++ {
		before, err := t.FS.Statfs(req(Root), t.Vol)
		t.ok(err)
		t.write(t.file(fmt.Sprintf("used%d", i)), 0, make([]byte, 1<<20), vfs.FileSync)
		after, err := t.FS.Statfs(req(Root), t.Vol)
		t.ok(err)
		more = int64(after.UsedBytes) - int64(before.UsedBytes)
	}
	if more != 1<<20 {
		t.Errorf("a file of 1 MiB makes the used bytes %d more", more)
	}
}

func testCreate(t *T) {
	types := []vfs.FileType{
		cluster.TypeRegular, cluster.TypeDirectory, cluster.TypeSymlink, cluster.TypeBlock,
		cluster.TypeChar, cluster.TypeFIFO, cluster.TypeSocket,
	}
	for _, ft := range types {
		name := fmt.Sprintf("type%d", ft)
		before := t.attr(t.Dir)
		c, err := t.FS.Create(req(Root), t.Dir, name, vfs.CreateArgs{
			Type: ft, How: vfs.Guarded, Target: "somewhere/../else", Major: 8, Minor: 17,
			Attr: vfs.SetAttr{
				Mask: cluster.SetMode | cluster.SetUID | cluster.SetGID | cluster.SetMtime,
				Mode: 0o640, UID: 7, GID: 8, Mtime: 12345,
			},
		})
		t.ok(err)
		a := c.Attr
		after := t.attr(t.Dir)
		if !c.Created || c.Dir.Before != before.Change || c.Dir.After != after.Change || c.Dir.After <= c.Dir.Before {
			t.Errorf("%s: %+v, directory changed from %d to %d", name, c, before.Change, after.Change)
		}
		nlink := uint32(1)
		if ft == cluster.TypeDirectory {
			nlink = 2
			if after.Nlink != before.Nlink+1 {
				t.Errorf("directory has %d links after %d", after.Nlink, before.Nlink)
			}
		}
		if a.Type != ft || a.UID != 7 || a.GID != 8 || a.Mtime != 12345 || a.Nlink != nlink || a.Ino != c.File.Ino {
			t.Errorf("%s: %+v", name, a)
		}
		if ft != cluster.TypeSymlink && a.Mode != 0o640 {
			t.Errorf("%s: mode %o", name, a.Mode)
		}
		if (ft == cluster.TypeBlock || ft == cluster.TypeChar) && (a.Major != 8 || a.Minor != 17) {
			t.Errorf("%s: device %d, %d", name, a.Major, a.Minor)
		}
		f, got, err := t.FS.Lookup(req(Root), t.Dir, name)
		t.ok(err)
		if f != c.File || got != a || t.attr(f) != a {
			t.Errorf("%s: look-up has %+v, create had %+v", name, got, a)
		}
		target, err := t.FS.Readlink(req(Root), f)
		if ft == cluster.TypeSymlink {
			if target != "somewhere/../else" || a.Size != uint64(len(target)) {
				t.Errorf("target %q, size %d", target, a.Size)
			}
		} else {
			t.result("readlink of "+name, err, cluster.EINVAL)
		}
		_, err = t.FS.Create(req(Root), t.Dir, name, vfs.CreateArgs{Type: ft, How: vfs.Guarded, Target: "x"})
		t.result("create of "+name+" again", err, cluster.EEXIST)
	}
}

func testCreateExisting(t *T) {
	f := t.file("f")
	t.write(f, 0, []byte("hello"), vfs.FileSync)
	args := vfs.CreateArgs{Type: cluster.TypeRegular}
	c, err := t.FS.Create(req(Root), t.Dir, "f", args)
	t.ok(err)
	if c.Created || c.File != f || c.Dir.Before != c.Dir.After || c.Set != 0 || c.Attr.Size != 5 {
		t.Errorf("existing: %+v", c)
	}
	t.content(f, []byte("hello"))
	t.write(f, 5, []byte(" world"), vfs.Unstable)
	args.Attr = vfs.SetAttr{Mask: cluster.SetSize | cluster.SetMode, Mode: 0o777}
	t.moves("truncating create", f, func() {
		c, err = t.FS.Create(req(Root), t.Dir, "f", args)
		t.ok(err)
	})
	if c.Created || c.Set != cluster.SetSize || c.Attr.Size != 0 || c.Attr.Mode != 0o644 {
		t.Errorf("truncating: %+v", c)
	}
	t.commit(f)
	t.content(f, nil)
	t.mkdir(t.Dir, "d")
	t.make(Root, t.Dir, "l", cluster.TypeSymlink, 0o777)
	_, err = t.FS.Create(req(Root), t.Dir, "d", args)
	t.fails(err, cluster.EISDIR)
	_, err = t.FS.Create(req(Root), t.Dir, "l", args)
	t.fails(err, cluster.ESYMLINK)

	ex := vfs.CreateArgs{Type: cluster.TypeRegular, How: vfs.Exclusive, Verifier: 42, Attr: mode(0o600)}
	c, err = t.FS.Create(req(Root), t.Dir, "ex", ex)
	t.ok(err)
	again, err := t.FS.Create(req(Root), t.Dir, "ex", ex)
	t.ok(err)
	if again.File != c.File || again.Attr.Mode != 0o600 {
		t.Errorf("exclusive create again: %+v", again)
	}
	ex.Verifier++
	_, err = t.FS.Create(req(Root), t.Dir, "ex", ex)
	t.fails(err, cluster.EEXIST)
	_, err = t.FS.Create(req(Root), t.Dir, "f", ex)
	t.fails(err, cluster.EEXIST)
}

func testNames(t *T) {
	long := strings.Repeat("ä", 127)
	for _, c := range []struct {
		name string
		want vfs.Errno
	}{
		{long, cluster.OK},
		{strings.Repeat("x", 255), cluster.OK},
		{"a b\n\\*", cluster.OK},
		{"...", cluster.OK},
		{strings.Repeat("x", 256), cluster.ENAMETOOLONG},
		{"", cluster.EINVAL},
		{".", cluster.EBADNAME},
		{"..", cluster.EBADNAME},
		{"a/b", cluster.EBADNAME},
		{"a\x00", cluster.EBADNAME},
		{"\xff\xfe", cluster.EBADNAME},
	} {
		_, err := t.FS.Create(req(Root), t.Dir, c.name, vfs.CreateArgs{Type: cluster.TypeFIFO, How: vfs.Guarded})
		t.result(fmt.Sprintf("create %.20q", c.name), err, c.want)
		_, err = t.lookup(t.Dir, c.name)
		t.result(fmt.Sprintf("lookup %.20q", c.name), err, c.want)
		_, err = t.FS.Remove(req(Root), t.Dir, c.name)
		t.result(fmt.Sprintf("remove %.20q", c.name), err, c.want)
	}
	f := t.file("file")
	l := t.make(Root, t.Dir, "link", cluster.TypeSymlink, 0o777).File
	_, err := t.lookup(f, "x")
	t.fails(err, cluster.ENOTDIR)
	_, err = t.lookup(l, "x")
	t.fails(err, cluster.ESYMLINK)
	_, err = t.FS.ReadDir(req(Root), f, 0, false, func(*vfs.Dirent) bool { return true })
	t.fails(err, cluster.ENOTDIR)
}

func testReadDir(t *T) {
	const n = 300
	want := map[string]vfs.Ino{}
	for i := range n {
		name := fmt.Sprintf("name-%d", i*i)
		want[name] = t.make(Root, t.Dir, name, cluster.TypeFIFO, 0o600).File.Ino
	}
	for _, page := range []int{1, 7, n + 1} {
		list := t.names(t.Dir, page)
		if len(list) != n {
			t.Fatalf("%d entries by pages of %d", len(list), page)
		}
		for _, e := range list {
			if e.File.Ino != want[e.Name] || e.Attr.Ino != e.File.Ino || e.Type != cluster.TypeFIFO || e.MountedOn != e.File.Ino {
				t.Errorf("entry %+v", e)
			}
		}
	}
	// Every second name goes while the directory is being read: the others
	// are seen once, and a cookie goes on being good when its name is gone.
	seen := map[string]int{}
	var cookie uint64
	i := 0
	for {
		var got vfs.Dirent
		eof, err := t.FS.ReadDir(req(Root), t.Dir, cookie, false, func(d *vfs.Dirent) bool {
			if got.Name != "" {
				return false
			}
			got = *d
			return true
		})
		t.ok(err)
		if got.Name == "" {
			break
		}
		seen[got.Name]++
		cookie = got.Cookie
		if i++; i%2 == 0 {
			_, err := t.FS.Remove(req(Root), t.Dir, got.Name)
			t.ok(err)
		}
		if eof {
			break
		}
	}
	if len(seen) != n {
		t.Errorf("%d names seen", len(seen))
	}
	if left := len(t.names(t.Dir, 50)); left != n/2 {
		t.Errorf("%d names left", left)
	}
	eof, err := t.FS.ReadDir(req(Root), t.Dir, 1<<63-1, false, func(*vfs.Dirent) bool { return true })
	if err != nil || !eof {
		t.Errorf("behind the end: %v, %v", eof, err)
	}
}

func testLinks(t *T) {
	f := t.file("a")
	d := t.mkdir(t.Dir, "d")
	before := t.attr(d)
	a, ci, err := t.FS.Link(req(Root), f, d, "b")
	t.ok(err)
	if a.Nlink != 2 || ci.Before != before.Change || ci.After != t.attr(d).Change || t.attr(f) != a {
		t.Errorf("link: %+v, %+v", a, ci)
	}
	_, _, err = t.FS.Link(req(Root), f, d, "b")
	t.fails(err, cluster.EEXIST)
	_, _, err = t.FS.Link(req(Root), d, t.Dir, "dd")
	t.fails(err, cluster.EISDIR)
	_, _, err = t.FS.Link(req(Root), f, f, "x")
	t.fails(err, cluster.ENOTDIR)
	if got, err := t.lookup(d, "b"); err != nil || got != f {
		t.Errorf("linked to %v, %v", got, err)
	}
	t.moves("remove of a link", f, func() {
		_, err = t.FS.Remove(req(Root), t.Dir, "a")
		t.ok(err)
	})
	if n := t.attr(f).Nlink; n != 1 {
		t.Errorf("%d links", n)
	}
}

func testRemove(t *T) {
	d := t.mkdir(t.Dir, "d")
	f := t.make(Root, d, "f", cluster.TypeRegular, 0o644).File
	_, err := t.FS.Remove(req(Root), t.Dir, "d")
	t.fails(err, cluster.ENOTEMPTY)
	_, err = t.FS.Remove(req(Root), d, "none")
	t.fails(err, cluster.ENOENT)

	// An unlinked file lives on while it is open.
	t.ok(t.FS.Open(req(Root), f))
	t.ok(t.FS.Open(req(Root), f))
	t.write(f, 0, []byte("still"), vfs.Unstable)
	before := t.attr(d)
	ci, err := t.FS.Remove(req(Root), d, "f")
	t.ok(err)
	if ci.Before != before.Change || ci.After != t.attr(d).Change || ci.After <= ci.Before {
		t.Errorf("remove: %+v", ci)
	}
	_, err = t.lookup(d, "f")
	t.fails(err, cluster.ENOENT)
	if n := t.attr(f).Nlink; n != 0 {
		t.Errorf("%d links", n)
	}
	t.write(f, 5, []byte(" here"), vfs.FileSync)
	t.content(f, []byte("still here"))
	_, _, err = t.FS.Link(req(Root), f, d, "back")
	if err == nil {
		t.Error("an unlinked file was linked again")
	}
	t.FS.Close(f)
	t.content(f, []byte("still here"))
	t.FS.Close(f)
	_, err = t.FS.Getattr(req(Root), f)
	t.result("getattr after the last close", err, cluster.ESTALE)
	g := t.file("closed")
	_, err = t.FS.Remove(req(Root), t.Dir, "closed")
	t.ok(err)
	_, err = t.FS.Getattr(req(Root), g)
	t.result("getattr of what was not open", err, cluster.ESTALE)

	_, err = t.FS.Remove(req(Root), t.Dir, "d")
	t.ok(err)
	_, err = t.FS.Getattr(req(Root), d)
	t.fails(err, cluster.ESTALE)
	_, err = t.FS.Create(req(Root), d, "x", vfs.CreateArgs{Type: cluster.TypeRegular})
	t.fails(err, cluster.ESTALE)
}

func testStale(t *T) {
	f := t.make(Root, t.Dir, "s", cluster.TypeSymlink, 0o777).File
	_, err := t.FS.Remove(req(Root), t.Dir, "s")
	t.ok(err)
	_, err = t.FS.Readlink(req(Root), f)
	t.result("readlink", err, cluster.ESTALE)
	for _, g := range []vfs.File{f, {Volume: t.Vol.Volume, Ino: 1 << 50, Gen: 1}, {Volume: t.Dir.Volume, Ino: t.Dir.Ino, Gen: t.Dir.Gen + 1}} {
		_, err = t.FS.Getattr(req(Root), g)
		t.result("getattr", err, cluster.ESTALE)
		_, err = t.FS.Read(req(Root), g, 0, 1)
		t.result("read", err, cluster.ESTALE)
		_, _, err = t.FS.Write(req(Root), g, 0, []byte("x"), vfs.Unstable)
		t.result("write", err, cluster.ESTALE)
		_, err = t.FS.Commit(req(Root), g)
		t.result("commit", err, cluster.ESTALE)
		t.result("open", t.FS.Open(req(Root), g), cluster.ESTALE)
		_, _, err = t.FS.Lookup(req(Root), g, "x")
		t.result("lookup", err, cluster.ESTALE)
	}
}

func testRename(t *T) {
	for _, c := range []struct {
		name     string
		from, to string
		want     vfs.Errno
	}{
		{"new name", "f1", "new", cluster.OK},
		{"file over file", "f1", "f2", cluster.OK},
		{"file over directory", "f1", "d1", cluster.EISDIR},
		{"directory over file", "d1", "f1", cluster.ENOTDIR},
		{"directory over empty directory", "d1", "d2", cluster.OK},
		{"directory over full directory", "d1", "full", cluster.ENOTEMPTY},
		{"onto itself", "f1", "f1", cluster.OK},
		{"other name of the same file", "f1", "f1link", cluster.OK},
		{"missing", "none", "x", cluster.ENOENT},
		{"bad name", "f1", "a/b", cluster.EBADNAME},
		{"symlink over file", "l", "f1", cluster.OK},
	} {
		d := t.mkdir(t.Dir, c.name)
		ino := map[string]vfs.File{}
		for _, n := range []string{"f1", "f2"} {
			ino[n] = t.make(Root, d, n, cluster.TypeRegular, 0o644).File
		}
		for _, n := range []string{"d1", "d2", "full"} {
			ino[n] = t.mkdir(d, n)
		}
		ino["l"] = t.make(Root, d, "l", cluster.TypeSymlink, 0o777).File
		t.mkdir(ino["full"], "x")
		_, _, err := t.FS.Link(req(Root), ino["f1"], d, "f1link")
		t.ok(err)
		before := t.attr(d)
		from, to, err := t.FS.Rename(req(Root), d, c.from, d, c.to)
		t.result(c.name, err, c.want)
		after := t.attr(d)
		if err != nil {
			if after != before {
				t.Errorf("%s: directory changed", c.name)
			}
			continue
		}
		if from.Before != before.Change || from.After != after.Change || from != to {
			t.Errorf("%s: %+v, %+v", c.name, from, to)
		}
		if got, err := t.lookup(d, c.to); err != nil || got != ino[c.from] {
			t.Errorf("%s: name leads to %v, %v", c.name, got, err)
		}
		_, err = t.lookup(d, c.from)
		gone := c.from != c.to && c.to != "f1link"
		if gone {
			t.result(c.name+": old name", err, cluster.ENOENT)
		}
		want := before.Nlink
		if c.name == "directory over empty directory" {
			want--
		}
		if after.Nlink != want {
			t.Errorf("%s: %d links after %d", c.name, after.Nlink, before.Nlink)
		}
	}
	// Between directories.
	a, b := t.mkdir(t.Dir, "A"), t.mkdir(t.Dir, "B")
	sub := t.mkdir(a, "sub")
	deep := t.mkdir(sub, "deep")
	_, _, err := t.FS.Rename(req(Root), t.Dir, "A", deep, "x")
	t.fails(err, cluster.ELOOP)
	_, _, err = t.FS.Rename(req(Root), a, "sub", deep, "x")
	t.fails(err, cluster.ELOOP)
	ba, bb := t.attr(a), t.attr(b)
	from, to, err := t.FS.Rename(req(Root), a, "sub", b, "bus")
	t.ok(err)
	aa, ab := t.attr(a), t.attr(b)
	if from.Before != ba.Change || from.After != aa.Change || to.Before != bb.Change || to.After != ab.Change {
		t.Errorf("%+v, %+v", from, to)
	}
	if aa.Nlink != 2 || ab.Nlink != 3 {
		t.Errorf("links: %d, %d", aa.Nlink, ab.Nlink)
	}
	p, _, err := t.FS.LookupParent(req(Root), sub)
	if err != nil || p != b {
		t.Errorf("parent is %v, %v", p, err)
	}
}

func testParents(t *T) {
	d := t.mkdir(t.Dir, "d")
	p, a, err := t.FS.LookupParent(req(Root), d)
	if err != nil || p != t.Dir || a != t.attr(t.Dir) {
		t.Errorf("parent: %v, %v", p, err)
	}
	f := t.file("f")
	_, _, err = t.FS.LookupParent(req(Root), f)
	t.fails(err, cluster.ENOTDIR)
	// Very deep.
	for range 100 {
		d = t.mkdir(d, "down")
	}
	for range 101 {
		p, _, err := t.FS.LookupParent(req(Root), d)
		t.ok(err)
		d = p
	}
	if d != t.Dir {
		t.Errorf("came up at %v", d)
	}
}

// testRequest: a request sees its own effects, and those of earlier ones.
func testRequest(t *T) {
	r := req(Root)
	c, err := t.FS.Create(r, t.Dir, "d", vfs.CreateArgs{Type: cluster.TypeDirectory, Attr: mode(0o755)})
	t.ok(err)
	a, err := t.FS.Getattr(r, c.File)
	if err != nil || a != c.Attr {
		t.Errorf("%+v, %v", a, err)
	}
	a, err = t.FS.Getattr(r, t.Dir)
	if err != nil || a.Change != c.Dir.After {
		t.Errorf("directory: %d, %v; create said %d", a.Change, err, c.Dir.After)
	}
	f, err := t.FS.Create(r, c.File, "f", vfs.CreateArgs{Type: cluster.TypeRegular, Attr: mode(0o644)})
	t.ok(err)
	if _, _, err := t.FS.Lookup(r, c.File, "f"); err != nil {
		t.Error(err)
	}
	_, _, err = t.FS.Write(r, f.File, 0, []byte("x"), vfs.FileSync)
	t.ok(err)
	a, err = t.FS.Getattr(r, f.File)
	if err != nil || a.Size != 1 || a.Change <= f.Attr.Change {
		t.Errorf("%+v, %v", a, err)
	}
	d, err := t.FS.Read(r, f.File, 0, 10)
	if err != nil || d.N != 1 || !d.EOF {
		t.Errorf("read: %+v, %v", d, err)
	}
	if d.Release != nil {
		d.Release()
	}
	_, err = t.FS.Remove(r, c.File, "f")
	t.ok(err)
	_, _, err = t.FS.Lookup(r, c.File, "f")
	t.result("lookup after remove", err, cluster.ENOENT)
}
