package memfs

import (
	"sort"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// attributed returns f, if it can have extended attributes and cred has the rights want.
func (fs *FS) attributed(r *vfs.Request, f vfs.File, want uint32) (*node, vfs.Errno) {
	if isRoot(f) {
		return nil, cluster.ENOTSUP
	}
	_, n, errno := fs.node(f)
	switch {
	case errno != cluster.OK:
		return nil, errno
	case n.attr.Type != cluster.TypeRegular && n.attr.Type != cluster.TypeDirectory:
		return nil, cluster.EPERM
	case want == mayWrite && n.attr.Type == cluster.TypeDirectory && n.attr.Mode&cluster.ModeSticky != 0 &&
		!r.Cred().Root() && r.Cred().UID != n.attr.UID:
		return nil, cluster.EPERM // a sticky directory's are its owner's
	case !allowed(&n.attr, r.Cred(), want):
		return nil, cluster.EACCES
	}
	return n, cluster.OK
}

// Getxattr implements vfs.FS.
func (fs *FS) Getxattr(r *vfs.Request, f vfs.File, name string) ([]byte, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, errno := fs.attributed(r, f, mayRead)
	if errno != cluster.OK {
		return nil, errno
	}
	value, ok := n.xattrs[name]
	if !ok {
		return nil, cluster.ENODATA
	}
	return append([]byte{}, value...), nil
}

func (fs *FS) setxattr(r *vfs.Request, f vfs.File, name string, value []byte, how vfs.CreateHow) (vfs.ChangeInfo, error) {
	n, errno := fs.attributed(r, f, mayWrite)
	if errno != cluster.OK {
		return vfs.ChangeInfo{}, errno
	}
	_, ok := n.xattrs[name]
	switch {
	case name == "":
		return vfs.ChangeInfo{}, cluster.EINVAL
	case len(name) > cluster.MaxName:
		return vfs.ChangeInfo{}, cluster.ENAMETOOLONG
	case len(value) > vfs.MaxXattr:
		return vfs.ChangeInfo{}, cluster.EFBIG
	case ok && how == vfs.Guarded:
		return vfs.ChangeInfo{}, cluster.EEXIST
	case !ok && how == vfs.Exclusive:
		return vfs.ChangeInfo{}, cluster.ENODATA
	}
	if n.xattrs == nil {
		n.xattrs = map[string][]byte{}
	}
	before := n.attr.Change
	fs.change++
	n.xattrs[name] = append([]byte{}, value...)
	fs.touch(n, false)
	return vfs.ChangeInfo{Before: before, After: n.attr.Change}, nil
}

func (fs *FS) removexattr(r *vfs.Request, f vfs.File, name string) (vfs.ChangeInfo, error) {
	n, errno := fs.attributed(r, f, mayWrite)
	if errno != cluster.OK {
		return vfs.ChangeInfo{}, errno
	}
	if _, ok := n.xattrs[name]; !ok {
		return vfs.ChangeInfo{}, cluster.ENODATA
	}
	before := n.attr.Change
	fs.change++
	delete(n.xattrs, name)
	fs.touch(n, false)
	return vfs.ChangeInfo{Before: before, After: n.attr.Change}, nil
}

// Listxattr implements vfs.FS.
func (fs *FS) Listxattr(r *vfs.Request, f vfs.File) ([]string, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, errno := fs.attributed(r, f, mayRead)
	if errno != cluster.OK {
		return nil, errno
	}
	var names []string
	for name := range n.xattrs {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}
