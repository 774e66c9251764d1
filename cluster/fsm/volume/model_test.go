package volume

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// A model is the tree as a map of maps, with nothing counted: link counts are
// found by looking at every directory.
type model struct {
	nodes map[cluster.Ino]*node
	now   uint64
}

type node struct {
	ino                cluster.Ino
	typ                cluster.FileType
	mode, uid, gid     uint32
	size               uint64
	kids               map[string]*node // of a directory
	up                 *node            // of a directory
	verifier           uint64
	mtime, ctime       uint64
	removed, exclusive bool
}

func newModel() *model {
	root := &node{ino: cluster.RootIno, typ: cluster.TypeDirectory, mode: 0o755, size: dirSize, kids: map[string]*node{}, mtime: 1, ctime: 1}
	root.up = root
	return &model{nodes: map[cluster.Ino]*node{root.ino: root}}
}

func (m *model) links(n *node) uint32 {
	var count uint32
	for _, d := range m.nodes {
		if d.removed {
			continue
		}
		for _, k := range d.kids {
			if k == n {
				count++
			}
			if d == n && k.typ == cluster.TypeDirectory {
				count++ // its ".."
			}
		}
	}
	if n.typ == cluster.TypeDirectory && !n.removed {
		count++ // its "."
	}
	if n.ino == cluster.RootIno {
		count++
	}
	return count
}

func (n *node) may(c *cluster.Cred, want uint32) bool {
	if c.UID == 0 {
		return true
	}
	perm := n.mode & 7
	if c.UID == n.uid {
		perm = n.mode >> 6 & 7
	} else if c.GID == n.gid || slices.Contains(c.GIDs, n.gid) {
		perm = n.mode >> 3 & 7
	}
	return perm&want == want
}

func (d *node) mayUnlink(victim *node, c *cluster.Cred) cluster.Errno {
	switch {
	case !d.may(c, 3):
		return cluster.EACCES
	case d.mode&0o1000 != 0 && c.UID != 0 && c.UID != d.uid && c.UID != victim.uid:
		return cluster.EPERM
	}
	return cluster.OK
}

// dir finds a directory to look a name up in.
func (m *model) dir(ino cluster.Ino, c *cluster.Cred) (*node, cluster.Errno) {
	d := m.nodes[ino]
	switch {
	case d == nil || d.removed:
		return nil, cluster.ESTALE
	case d.typ != cluster.TypeDirectory:
		return nil, cluster.ENOTDIR
	case !d.may(c, 1):
		return nil, cluster.EACCES
	}
	return d, cluster.OK
}

func (m *model) changed(nodes ...*node) {
	for _, n := range nodes {
		n.ctime = m.now
		if n.kids != nil {
			n.mtime = m.now
		}
	}
}

func (m *model) create(c *Create, ino cluster.Ino) (found *node, errno cluster.Errno) {
	d, errno := m.dir(c.Dir, &c.Cred)
	if errno != cluster.OK {
		return nil, errno
	}
	if old := d.kids[c.Name]; old != nil {
		switch {
		case c.How == Exclusive && c.Type == cluster.TypeRegular && old.exclusive && old.verifier == c.Verifier:
			return old, cluster.OK
		case c.How != Unchecked || c.Type != cluster.TypeRegular:
			return nil, cluster.EEXIST
		case old.typ == cluster.TypeDirectory:
			return nil, cluster.EISDIR
		case old.typ != cluster.TypeRegular:
			return nil, cluster.ESYMLINK
		}
		if c.Attr.Mask&cluster.SetSize != 0 && c.Attr.Size == 0 {
			if !old.may(&c.Cred, 2) {
				return nil, cluster.EACCES
			}
			old.size = 0
			if c.Cred.UID != 0 && old.mode&0o2010 == 0o2010 {
				old.mode &^= 0o2000
			}
			old.mtime = m.now
			m.changed(old)
		}
		return old, cluster.OK
	}
	if !d.may(&c.Cred, 2) {
		return nil, cluster.EACCES
	}
	n := &node{ino: ino, typ: c.Type, mode: c.Attr.Mode, uid: c.Cred.UID, gid: c.Cred.GID, mtime: m.now, ctime: m.now}
	if d.mode&0o2000 != 0 {
		n.gid = d.gid
	}
	switch c.Type {
	case cluster.TypeDirectory:
		n.kids, n.up, n.size = map[string]*node{}, d, dirSize
		n.mode |= d.mode & 0o2000
	case cluster.TypeSymlink:
		n.mode, n.size = 0o777, uint64(len(c.Target))
	case cluster.TypeRegular:
		if c.Attr.Mask&cluster.SetSize != 0 {
			n.size = c.Attr.Size
		}
		if c.How == Exclusive {
			n.exclusive, n.verifier = true, c.Verifier
		}
	}
	if n.kids == nil && n.mode&0o2010 == 0o2010 && c.Cred.UID != 0 && c.Cred.GID != n.gid && !slices.Contains(c.Cred.GIDs, n.gid) {
		n.mode &^= 0o2000
	}
	m.nodes[ino] = n
	d.kids[c.Name] = n
	m.changed(d)
	return n, cluster.OK
}

func (m *model) link(c *Link) cluster.Errno {
	n := m.nodes[c.Ino]
	if n == nil || n.removed {
		return cluster.ESTALE
	}
	d, errno := m.dir(c.Dir, &c.Cred)
	switch {
	case errno != cluster.OK:
		return errno
	case d.kids[c.Name] != nil:
		return cluster.EEXIST
	case !d.may(&c.Cred, 2):
		return cluster.EACCES
	case n.kids != nil:
		return cluster.EISDIR
	case m.links(n) == 0:
		return cluster.ENOENT
	}
	d.kids[c.Name] = n
	m.changed(d, n)
	return cluster.OK
}

// gone marks what has lost its last name and is no regular file.
func (m *model) gone(n *node) {
	m.changed(n)
	if n.kids != nil || n.typ != cluster.TypeRegular && m.links(n) == 0 {
		n.removed = true
	}
}

func (m *model) remove(c *Remove) cluster.Errno {
	d, errno := m.dir(c.Dir, &c.Cred)
	if errno != cluster.OK {
		return errno
	}
	n := d.kids[c.Name]
	if n == nil {
		return cluster.ENOENT
	}
	if errno := d.mayUnlink(n, &c.Cred); errno != cluster.OK {
		return errno
	}
	if len(n.kids) > 0 {
		return cluster.ENOTEMPTY
	}
	delete(d.kids, c.Name)
	m.changed(d)
	m.gone(n)
	return cluster.OK
}

func (n *node) below(top *node) bool {
	for ; n != top; n = n.up {
		if n == n.up {
			return false
		}
	}
	return true
}

func (m *model) rename(c *Rename) cluster.Errno {
	from, errno := m.dir(c.FromDir, &c.Cred)
	if errno != cluster.OK {
		return errno
	}
	to, errno := m.dir(c.ToDir, &c.Cred)
	if errno != cluster.OK {
		return errno
	}
	n, old := from.kids[c.FromName], to.kids[c.ToName]
	switch {
	case n == nil:
		return cluster.ENOENT
	case n.kids != nil && from != to && to.below(n):
		return cluster.ELOOP
	case old != nil && old.kids != nil && from != to && from.below(old):
		return cluster.ENOTEMPTY
	case n == old:
		return cluster.OK
	}
	if errno := from.mayUnlink(n, &c.Cred); errno != cluster.OK {
		return errno
	}
	if old == nil {
		if !to.may(&c.Cred, 2) {
			return cluster.EACCES
		}
	} else {
		if errno := to.mayUnlink(old, &c.Cred); errno != cluster.OK {
			return errno
		}
		if n.kids != nil && old.kids == nil {
			return cluster.ENOTDIR
		}
		if n.kids == nil && old.kids != nil {
			return cluster.EISDIR
		}
	}
	if n.kids != nil && from != to && !n.may(&c.Cred, 2) {
		return cluster.EACCES
	}
	if old != nil && len(old.kids) > 0 {
		return cluster.ENOTEMPTY
	}
	delete(from.kids, c.FromName)
	to.kids[c.ToName] = n
	if n.kids != nil {
		n.up = to
	}
	m.changed(from, to)
	n.ctime = m.now
	if old != nil {
		m.gone(old)
	}
	return cluster.OK
}

func (m *model) chmod(c *SetAttr) cluster.Errno {
	n := m.nodes[c.Ino]
	switch {
	case n == nil || n.removed:
		return cluster.ESTALE
	case c.Cred.UID != 0 && c.Cred.UID != n.uid:
		return cluster.EPERM
	}
	n.mode = c.Attr.Mode
	if c.Cred.UID != 0 && c.Cred.GID != n.gid && !slices.Contains(c.Cred.GIDs, n.gid) {
		n.mode &^= 0o2000
	}
	n.ctime = m.now
	return cluster.OK
}

// compare fails the test if the volume differs from the model.
func (m *model) compare(t *rapid.T, v View) {
	for _, n := range m.nodes {
		got, ok := loadInode(v, n.ino)
		if n.removed {
			if ok {
				t.Fatalf("inode %d is still there", n.ino)
			}
			continue
		}
		if !ok {
			t.Fatalf("inode %d is gone", n.ino)
		}
		have := fmt.Sprintf("type %d %o %d:%d nlink %d size %d m %d c %d change %d entries %d",
			got.Type, got.Mode, got.UID, got.GID, got.Nlink, got.Size, got.Mtime, got.Ctime, got.Change, got.Entries)
		want := fmt.Sprintf("type %d %o %d:%d nlink %d size %d m %d c %d change %d entries %d",
			n.typ, n.mode, n.uid, n.gid, m.links(n), n.size, n.mtime, n.ctime, n.ctime, len(n.kids))
		if have != want {
			t.Fatalf("inode %d:\n have %s\n want %s", n.ino, have, want)
		}
		if n.kids == nil {
			continue
		}
		if got.Parent != n.up.ino {
			t.Fatalf("directory %d has parent %d, want %d", n.ino, got.Parent, n.up.ino)
		}
		names := map[string]cluster.Ino{}
		last := uint64(2)
		v.ReadDir(n.ino, 0, func(d *Dirent) bool {
			if d.Cookie <= last || d.Cookie >= 1<<63 {
				t.Fatalf("cookie %d after %d", d.Cookie, last)
			}
			last = d.Cookie
			names[d.Name] = d.Ino
			if e, ok := v.Lookup(n.ino, d.Name); !ok || e != *d {
				t.Fatalf("lookup of %q: %+v, listed as %+v", d.Name, e, *d)
			}
			return true
		})
		want2 := map[string]cluster.Ino{}
		for name, k := range n.kids {
			want2[name] = k.ino
		}
		if !maps.Equal(names, want2) {
			t.Fatalf("directory %d has %v, want %v", n.ino, names, want2)
		}
	}
	live := uint64(0)
	for _, n := range m.nodes {
		if !n.removed {
			live++
		}
	}
	if u := v.Usage(); u.Inodes != live {
		t.Fatalf("usage counts %d inodes, there are %d", u.Inodes, live)
	}
}

// TestTreeModel runs random commands on a volume and on the model.
func TestTreeModel(t *testing.T) {
	for _, c := range []struct {
		name string
		hash func(k0, k1 uint64, name []byte) uint64
	}{
		{"siphash", hashName},
		// Three hashes for all names of all directories: the entries of each
		// fill several slots, and 0 is one of the hashes.
		{"collisions", func(_, _ uint64, name []byte) uint64 { return uint64(name[len(name)-1]%3) << 40 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func(h func(k0, k1 uint64, name []byte) uint64) { hashName = h }(hashName)
			hashName = c.hash
			rapid.Check(t, func(rt *rapid.T) { runModel(t, rt) })
		})
	}
}

func runModel(t *testing.T, rt *rapid.T) {
	e, done := openTree(t)
	defer done()
	m := newModel()
	creds := []cluster.Cred{{}, {UID: 1, GID: 1}, {UID: 2, GID: 2, GIDs: []uint32{1, 7}}}
	modes := []uint32{0o777, 0o755, 0o700, 0o1777, 0o2775, 0o555, 0o300, 0o644}
	// At most 8 names end in a character of one class: no hash overflows.
	names := []string{"a", "b", "c", "d", "e", "f", "aa", "bb", "cc", "Ä"}
	ino := func(label string) cluster.Ino {
		return cluster.Ino(rapid.IntRange(1, min(len(m.nodes)+1, 14)).Draw(rt, label))
	}
	check := func(what string, err error, want cluster.Errno) {
		if err != want.Err() {
			rt.Fatalf("%s: have %v, want %v", what, err, want.Err())
		}
	}
	next := cluster.RootIno + 1
	// The root is everybody's to begin with.
	first := SetAttr{Ino: cluster.RootIno, Attr: cluster.SetAttr{Mask: cluster.SetMode, Mode: 0o777}}
	m.now = e.index + 1
	_, err := do(e, first, DecodeAttrResult)
	check("chmod /", err, m.chmod(&first))
	for range rapid.IntRange(1, 60).Draw(rt, "steps") {
		cred := rapid.SampledFrom(creds).Draw(rt, "cred")
		m.now = e.index + 1
		switch rapid.IntRange(0, 9).Draw(rt, "op") {
		case 0, 1, 2, 3:
			c := Create{
				Cred: cred, Dir: ino("dir"), Name: rapid.SampledFrom(names).Draw(rt, "name"), Gen: 1,
				Type: rapid.SampledFrom([]cluster.FileType{
					cluster.TypeDirectory, cluster.TypeDirectory, cluster.TypeRegular, cluster.TypeRegular, cluster.TypeSymlink, cluster.TypeFIFO,
				}).Draw(rt, "type"),
				How:      CreateHow(rapid.IntRange(0, 2).Draw(rt, "how")),
				Verifier: uint64(rapid.IntRange(0, 1).Draw(rt, "verifier")),
				Target:   "t",
				Attr:     cluster.SetAttr{Mask: cluster.SetMode, Mode: rapid.SampledFrom(modes).Draw(rt, "mode")},
			}
			if rapid.Bool().Draw(rt, "sized") {
				c.Attr.Mask |= cluster.SetSize
				c.Attr.Size = uint64(rapid.IntRange(0, 1).Draw(rt, "size"))
			}
			r, err := do(e, c, DecodeCreateResult)
			n, want := m.create(&c, next)
			check(fmt.Sprintf("%+v", c), err, want)
			if want != cluster.OK {
				break
			}
			if r.Attr.Ino != n.ino {
				rt.Fatalf("%+v: inode %d, want %d", c, r.Attr.Ino, n.ino)
			}
			if n.ino == next {
				next++
			}
		case 4:
			c := Link{Cred: cred, Ino: ino("ino"), Dir: ino("dir"), Name: rapid.SampledFrom(names).Draw(rt, "name")}
			_, err := do(e, c, DecodeLinkResult)
			check(fmt.Sprintf("%+v", c), err, m.link(&c))
		case 5:
			c := Remove{Cred: cred, Dir: ino("dir"), Name: rapid.SampledFrom(names).Draw(rt, "name")}
			_, err := do(e, c, DecodeRemoveResult)
			check(fmt.Sprintf("%+v", c), err, m.remove(&c))
		case 6, 7, 8:
			c := Rename{
				Cred: cred, FromDir: ino("from"), FromName: rapid.SampledFrom(names).Draw(rt, "name"),
				ToDir: ino("to"), ToName: rapid.SampledFrom(names).Draw(rt, "toName"),
			}
			_, err := do(e, c, DecodeRenameResult)
			check(fmt.Sprintf("%+v", c), err, m.rename(&c))
		case 9:
			c := SetAttr{Cred: cred, Ino: ino("ino"), Attr: cluster.SetAttr{Mask: cluster.SetMode, Mode: rapid.SampledFrom(modes).Draw(rt, "mode")}}
			_, err := do(e, c, DecodeAttrResult)
			check(fmt.Sprintf("%+v", c), err, m.chmod(&c))
		}
		m.compare(rt, e.view)
	}
	Check(e.view, func(p Problem) { rt.Errorf("check: %v", p) })

	// A replica that applies the log in other batches has the same state.
	twin, err := fsm.Open(fsm.Options{Dir: "twin", FS: vfs.NewMem(), Core: New(), CacheBytes: 1 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		rt.Fatal(err)
	}
	defer func() { _ = twin.Close() }()
	for log := e.log; len(log) > 0; {
		n := rapid.IntRange(1, len(log)).Draw(rt, "batch")
		twin.Apply(log[:n])
		log = log[n:]
	}
	if fsm.StateHash(twin.Reader()) != fsm.StateHash(e.m.Reader()) {
		rt.Fatal("the state depends on how the log is cut into batches")
	}
}
