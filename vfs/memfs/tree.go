package memfs

import (
	"hash/fnv"
	"sort"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// dir returns the directory f, if cred has the rights want on it.
func (fs *FS) dir(r *vfs.Request, f vfs.File, want uint32) (*volume, *node, vfs.Errno) {
	if isRoot(f) {
		return nil, nil, cluster.EROFS
	}
	v, n, errno := fs.node(f)
	switch {
	case errno != cluster.OK:
		return nil, nil, errno
	case n.attr.Type == cluster.TypeSymlink && want == mayExec:
		return nil, nil, cluster.ESYMLINK
	case n.attr.Type != cluster.TypeDirectory:
		return nil, nil, cluster.ENOTDIR
	case !allowed(&n.attr, r.Cred(), want):
		return nil, nil, cluster.EACCES
	}
	return v, n, cluster.OK
}

// searched returns the directory f, for looking up a name that is to change.
func (fs *FS) searched(r *vfs.Request, f vfs.File) (*volume, *node, vfs.Errno) {
	v, n, errno := fs.dir(r, f, mayExec)
	if errno == cluster.ESYMLINK {
		errno = cluster.ENOTDIR
	}
	return v, n, errno
}

// child returns what name is in dir.
func (v *volume) child(dir *node, name string) (*node, vfs.Errno) {
	if errno := vfs.CheckName(name); errno != cluster.OK {
		return nil, errno
	}
	e := dir.entries[name]
	if e == nil {
		return nil, cluster.ENOENT
	}
	return v.nodes[e.ino], cluster.OK
}

// enter gives n the name dir/name, and changes dir.
func (fs *FS) enter(dir *node, name string, n *node) {
	h := fnv.New64a()
	h.Write([]byte(name))
	cookie := h.Sum64()>>1 | 4
	for taken := true; taken; {
		taken = false
		for _, e := range dir.entries {
			if e.cookie == cookie {
				cookie, taken = cookie>>1+7, true
			}
		}
	}
	dir.entries[name] = &entry{cookie: cookie, ino: n.attr.Ino}
	if n.attr.Type == cluster.TypeDirectory {
		n.attr.Parent = dir.attr.Ino
		dir.attr.Nlink++
	}
	dir.attr.Size = uint64(len(dir.entries))
	fs.touch(dir, true)
}

// leave takes the name dir/name away from n, and changes dir.
func (fs *FS) leave(dir *node, name string, n *node) {
	delete(dir.entries, name)
	if n.attr.Type == cluster.TypeDirectory {
		dir.attr.Nlink--
	}
	dir.attr.Size = uint64(len(dir.entries))
	fs.touch(dir, true)
}

// Lookup implements vfs.FS.
func (fs *FS) Lookup(r *vfs.Request, dir vfs.File, name string) (vfs.File, vfs.Attr, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if isRoot(dir) {
		if errno := vfs.CheckName(name); errno != cluster.OK {
			return vfs.File{}, vfs.Attr{}, errno
		}
		for _, v := range fs.volumes {
			if v.name == name {
				n := v.nodes[cluster.RootIno]
				return v.file(n), n.attr, nil
			}
		}
		return vfs.File{}, vfs.Attr{}, cluster.ENOENT
	}
	v, d, errno := fs.dir(r, dir, mayExec)
	if errno != cluster.OK {
		return vfs.File{}, vfs.Attr{}, errno
	}
	n, errno := v.child(d, name)
	if errno != cluster.OK {
		return vfs.File{}, vfs.Attr{}, errno
	}
	return v.file(n), n.attr, nil
}

// LookupParent implements vfs.FS.
func (fs *FS) LookupParent(r *vfs.Request, dir vfs.File) (vfs.File, vfs.Attr, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if isRoot(dir) {
		return vfs.File{}, vfs.Attr{}, cluster.ENOENT
	}
	v, d, errno := fs.dir(r, dir, mayExec)
	if errno != cluster.OK {
		return vfs.File{}, vfs.Attr{}, errno
	}
	if d.attr.Ino == cluster.RootIno {
		return vfs.Root, fs.rootAttr(), nil
	}
	p := v.nodes[d.attr.Parent]
	if p == nil {
		return vfs.File{}, vfs.Attr{}, cluster.ESTALE
	}
	return v.file(p), p.attr, nil
}

// Readlink implements vfs.FS.
func (fs *FS) Readlink(_ *vfs.Request, f vfs.File) (string, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if isRoot(f) {
		return "", cluster.EINVAL
	}
	_, n, errno := fs.node(f)
	if errno != cluster.OK {
		return "", errno
	}
	if n.attr.Type != cluster.TypeSymlink {
		return "", cluster.EINVAL
	}
	return n.target, nil
}

func (fs *FS) create(r *vfs.Request, dir vfs.File, name string, args vfs.CreateArgs) (vfs.Created, error) {
	v, d, errno := fs.searched(r, dir)
	if errno != cluster.OK {
		return vfs.Created{}, errno
	}
	n, errno := v.child(d, name)
	switch errno {
	case cluster.OK:
		return fs.existing(r, v, d, n, &args)
	case cluster.ENOENT:
	default:
		return vfs.Created{}, errno
	}
	cred, set := r.Cred(), args.Attr
	switch {
	case !allowed(&d.attr, cred, mayExec|mayWrite):
		return vfs.Created{}, cluster.EACCES
	case args.Type < cluster.TypeRegular || args.Type > cluster.TypeSocket,
		args.Type == cluster.TypeSymlink && args.Target == "":
		return vfs.Created{}, cluster.EINVAL
	case len(args.Target) > cluster.MaxSymlink:
		return vfs.Created{}, cluster.ENAMETOOLONG
	case d.attr.Nlink == 0:
		return vfs.Created{}, cluster.ESTALE
	case (args.Type == cluster.TypeBlock || args.Type == cluster.TypeChar) && !cred.Root():
		return vfs.Created{}, cluster.EPERM
	}
	made := vfs.Attr{Type: args.Type, UID: cred.UID, GID: cred.GID}
	inherit := d.attr.Mode&cluster.ModeSetGID != 0
	if inherit {
		made.GID = d.attr.GID
	}
	if args.Type != cluster.TypeRegular {
		set.Mask &^= cluster.SetSize
	}
	if errno := maySet(&made, cred, &set, true); errno != cluster.OK {
		return vfs.Created{}, errno
	}
	before := d.attr.Change
	fs.change++
	n = v.newNode(fs, args.Type, 0)
	n.attr.UID, n.attr.GID, n.attr.Class = made.UID, made.GID, d.attr.Class
	n.attr.Major, n.attr.Minor = args.Major, args.Minor
	n.target, n.attr.Size = args.Target, uint64(len(args.Target))
	n.verifier = args.Verifier
	apply(&n.attr, cred, &set, fs.now())
	if set.Mask&cluster.SetMode != 0 && set.Mode&0o010 == 0 {
		// The bit that apply may have taken says nothing of rights.
		n.attr.Mode = set.Mode & cluster.ModeMask
	}
	if inherit && args.Type == cluster.TypeDirectory {
		n.attr.Mode |= cluster.ModeSetGID
	}
	if set.Mask&cluster.SetSize != 0 {
		n.resize(set.Size)
	}
	if args.Type == cluster.TypeSymlink {
		n.attr.Mode = 0o777
	}
	fs.enter(d, name, n)
	if args.Open != nil {
		fs.putState(n, args.Open)
	}
	return vfs.Created{
		File: v.file(n), Attr: n.attr, Created: true, Set: set.Mask,
		Dir: vfs.ChangeInfo{Before: before, After: d.attr.Change},
	}, nil
}

// existing is Create of a name that is there.
func (fs *FS) existing(r *vfs.Request, v *volume, d, n *node, args *vfs.CreateArgs) (vfs.Created, error) {
	c := vfs.Created{File: v.file(n), Dir: vfs.ChangeInfo{Before: d.attr.Change, After: d.attr.Change}}
	open := func() vfs.Errno {
		switch s := args.Open; {
		case s == nil:
			return cluster.OK
		case !c.Created && !mayOpen(&n.attr, r.Cred(), s.Access):
			return cluster.EACCES
		default:
			return fs.putState(n, s)
		}
	}
	switch {
	case args.Type != cluster.TypeRegular || args.How == vfs.Guarded:
		return vfs.Created{}, cluster.EEXIST
	case args.How == vfs.Exclusive:
		if n.attr.Type != cluster.TypeRegular || n.verifier != args.Verifier {
			return vfs.Created{}, cluster.EEXIST
		}
		c.Created, c.Set = true, args.Attr.Mask
	case n.attr.Type == cluster.TypeDirectory:
		return vfs.Created{}, cluster.EISDIR
	case n.attr.Type != cluster.TypeRegular:
		return vfs.Created{}, cluster.ESYMLINK
	case args.Attr.Mask&cluster.SetSize != 0 && args.Attr.Size == 0:
		if !allowed(&n.attr, r.Cred(), mayWrite) {
			return vfs.Created{}, cluster.EACCES
		}
		if errno := open(); errno != cluster.OK {
			return vfs.Created{}, errno
		}
		fs.change++
		n.resize(0)
		killPriv(&n.attr, r.Cred())
		fs.touch(n, true)
		c.Set = cluster.SetSize
		c.Attr = n.attr
		return c, nil
	}
	if errno := open(); errno != cluster.OK {
		return vfs.Created{}, errno
	}
	c.Attr = n.attr
	return c, nil
}

func (fs *FS) link(r *vfs.Request, f, dir vfs.File, name string) (vfs.Attr, vfs.ChangeInfo, error) {
	if isRoot(f) || f.Volume != dir.Volume {
		return vfs.Attr{}, vfs.ChangeInfo{}, cluster.EXDEV
	}
	_, n, errno := fs.node(f)
	if errno != cluster.OK {
		return vfs.Attr{}, vfs.ChangeInfo{}, errno
	}
	v, d, errno := fs.searched(r, dir)
	if errno != cluster.OK {
		return vfs.Attr{}, vfs.ChangeInfo{}, errno
	}
	switch _, errno := v.child(d, name); errno {
	case cluster.OK:
		return vfs.Attr{}, vfs.ChangeInfo{}, cluster.EEXIST
	case cluster.ENOENT:
	default:
		return vfs.Attr{}, vfs.ChangeInfo{}, errno
	}
	switch {
	case !allowed(&d.attr, r.Cred(), mayWrite):
		return vfs.Attr{}, vfs.ChangeInfo{}, cluster.EACCES
	case n.attr.Type == cluster.TypeDirectory:
		return vfs.Attr{}, vfs.ChangeInfo{}, cluster.EISDIR
	case n.attr.Nlink == 0:
		return vfs.Attr{}, vfs.ChangeInfo{}, cluster.ENOENT
	}
	before := d.attr.Change
	fs.change++
	fs.enter(d, name, n)
	n.attr.Nlink++
	fs.touch(n, false)
	return n.attr, vfs.ChangeInfo{Before: before, After: d.attr.Change}, nil
}

func (fs *FS) remove(r *vfs.Request, dir vfs.File, name string) (vfs.ChangeInfo, error) {
	v, d, errno := fs.searched(r, dir)
	if errno != cluster.OK {
		return vfs.ChangeInfo{}, errno
	}
	n, errno := v.child(d, name)
	switch {
	case errno != cluster.OK:
		return vfs.ChangeInfo{}, errno
	case !allowed(&d.attr, r.Cred(), mayWrite):
		return vfs.ChangeInfo{}, cluster.EACCES
	case sticky(d, n, r.Cred()):
		return vfs.ChangeInfo{}, cluster.EPERM
	case len(n.entries) > 0:
		return vfs.ChangeInfo{}, cluster.ENOTEMPTY
	}
	before := d.attr.Change
	fs.change++
	fs.leave(d, name, n)
	fs.unlinked(v, n)
	return vfs.ChangeInfo{Before: before, After: d.attr.Change}, nil
}

// unlinked takes one name from n's count.
func (fs *FS) unlinked(v *volume, n *node) {
	n.attr.Nlink--
	if n.attr.Type == cluster.TypeDirectory {
		n.attr.Nlink = 0
	}
	fs.touch(n, false)
	if n.attr.Nlink == 0 && n.opens > 0 {
		fs.gone = append(fs.gone, v.file(n))
	}
	v.forget(n)
}

func (fs *FS) rename(r *vfs.Request, fromDir vfs.File, fromName string, toDir vfs.File, toName string) (from, to vfs.ChangeInfo, err error) {
	if fromDir.Volume != toDir.Volume {
		return from, to, cluster.EXDEV
	}
	v, fd, errno := fs.searched(r, fromDir)
	if errno != cluster.OK {
		return from, to, errno
	}
	_, td, errno := fs.searched(r, toDir)
	if errno != cluster.OK {
		return from, to, errno
	}
	n, errno := v.child(fd, fromName)
	if errno != cluster.OK {
		return from, to, errno
	}
	old, errno := v.child(td, toName)
	if errno != cluster.OK && errno != cluster.ENOENT {
		return from, to, errno
	}
	from = vfs.ChangeInfo{Before: fd.attr.Change, After: fd.attr.Change}
	to = vfs.ChangeInfo{Before: td.attr.Change, After: td.attr.Change}
	if errno := v.mayRename(r.Cred(), fd, td, n, old); errno != cluster.OK {
		return from, to, errno
	}
	if old == n {
		return from, to, nil
	}
	fs.change++
	if old != nil {
		fs.leave(td, toName, old)
		fs.unlinked(v, old)
	}
	fs.leave(fd, fromName, n)
	fs.enter(td, toName, n)
	fs.touch(n, false)
	from.After, to.After = fd.attr.Change, td.attr.Change
	return from, to, nil
}

// mayRename says whether cred may move n, of fd, to td, in the place of old,
// which may be nil. Where several errors apply it is Linux' first one.
func (v *volume) mayRename(cred *vfs.Cred, fd, td, n, old *node) vfs.Errno {
	isDir := n.attr.Type == cluster.TypeDirectory
	oldDir := old != nil && old.attr.Type == cluster.TypeDirectory
	switch {
	case fd != td && isDir && v.inside(td, n):
		return cluster.ELOOP
	case fd != td && oldDir && v.inside(fd, old):
		return cluster.ENOTEMPTY
	case old == n:
		return cluster.OK
	case !allowed(&fd.attr, cred, mayWrite):
		return cluster.EACCES
	case sticky(fd, n, cred):
		return cluster.EPERM
	case !allowed(&td.attr, cred, mayWrite):
		return cluster.EACCES
	case old != nil && sticky(td, old, cred):
		return cluster.EPERM
	case old != nil && isDir && !oldDir:
		return cluster.ENOTDIR
	case oldDir && !isDir:
		return cluster.EISDIR
	case isDir && fd != td && !allowed(&n.attr, cred, mayWrite):
		return cluster.EACCES
	case oldDir && len(old.entries) > 0:
		return cluster.ENOTEMPTY
	}
	return cluster.OK
}

// inside reports whether d is top or below it.
func (v *volume) inside(d, top *node) bool {
	for d != top {
		if d.attr.Ino == cluster.RootIno {
			return false
		}
		d = v.nodes[d.attr.Parent]
	}
	return true
}

// ReadDir implements vfs.FS.
func (fs *FS) ReadDir(r *vfs.Request, dir vfs.File, cookie uint64, attrs bool, fn func(*vfs.Dirent) bool) (bool, error) {
	list, errno := fs.list(r, dir, cookie)
	if errno != cluster.OK {
		return false, errno
	}
	for i := range list {
		if !attrs {
			list[i].Attr = nil
		}
		if !fn(&list[i]) {
			return false, nil
		}
	}
	return true, nil
}

// list returns the entries after cookie, in cookie order.
func (fs *FS) list(r *vfs.Request, f vfs.File, cookie uint64) ([]vfs.Dirent, vfs.Errno) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var list []vfs.Dirent
	add := func(v *volume, name string, cookie uint64, n *node, on vfs.Ino) {
		a := n.attr
		list = append(list, vfs.Dirent{
			Cookie: cookie, Name: name, File: v.file(n), Type: a.Type, Attr: &a, MountedOn: on,
		})
	}
	if isRoot(f) {
		for id, v := range fs.volumes {
			if c := uint64(id) + 2; c > cookie {
				add(v, v.name, c, v.nodes[cluster.RootIno], vfs.CoveredBy(id))
			}
		}
	} else {
		v, d, errno := fs.dir(r, f, mayRead)
		if errno != cluster.OK {
			return nil, errno
		}
		for name, e := range d.entries {
			if e.cookie > cookie {
				add(v, name, e.cookie, v.nodes[e.ino], e.ino)
			}
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Cookie < list[j].Cookie })
	return list, cluster.OK
}
