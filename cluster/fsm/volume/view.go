package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A View reads a volume. Its methods see one state each; what changes between
// two calls is for the caller to bear, who finds an inode gone (ESTALE) that a
// name had led to.
type View struct{ fsm.Reader }

// Formatted reports whether Format was applied.
func (v View) Formatted() bool {
	_, ok := loadRecord(v.Reader)
	return ok
}

// Inode returns an inode's attributes, and whether there is one. An unlinked
// file that is open somewhere is there, with Nlink 0.
func (v View) Inode(ino cluster.Ino) (cluster.Attr, bool) {
	n, ok := loadInode(v.Reader, ino)
	return n.Attr, ok
}

// Lookup returns the entry of name in dir, and whether there is one. It does
// not look whether dir is a directory.
func (v View) Lookup(dir cluster.Ino, name string) (Dirent, bool) {
	rec, ok := loadRecord(v.Reader)
	if !ok {
		return Dirent{}, false
	}
	e, ok := findDirent(v.Reader, &rec, dir, name)
	return e.Dirent, ok
}

// ReadDir calls fn for each entry of dir with a cookie above cookie, in cookie
// order, until it returns false. eof: fn has seen the last one and not
// returned false. The entry is valid during the call, its name for ever.
func (v View) ReadDir(dir cluster.Ino, cookie uint64, fn func(e *Dirent) bool) (eof bool) {
	return ascendDirents(v.Reader, dir, cookie, fn)
}

// Readlink returns a symbolic link's target: EINVAL if it is none.
func (v View) Readlink(ino cluster.Ino) (string, error) {
	n, ok := loadInode(v.Reader, ino)
	switch {
	case !ok:
		return "", cluster.ESTALE
	case n.Type != cluster.TypeSymlink:
		return "", cluster.EINVAL
	}
	return n.Target, nil
}

// Verifier returns the verifier that ino was created with exclusively.
func (v View) Verifier(ino cluster.Ino) (uint64, bool) {
	n, ok := loadInode(v.Reader, ino)
	return n.Verifier, ok && n.Exclusive
}

// Xattr returns an extended attribute: ENODATA if there is none.
func (v View) Xattr(ino cluster.Ino, name string) ([]byte, error) {
	if _, ok := loadInode(v.Reader, ino); !ok {
		return nil, cluster.ESTALE
	}
	val, ok := v.Get(nil, appendXattrKey(nil, ino, name))
	if !ok {
		return nil, cluster.ENODATA
	}
	return val, nil
}

// Xattrs returns the names of an inode's extended attributes, sorted.
func (v View) Xattrs(ino cluster.Ino) ([]string, error) {
	n, ok := loadInode(v.Reader, ino)
	if !ok {
		return nil, cluster.ESTALE
	}
	if n.XattrNames == 0 {
		return nil, nil
	}
	var names []string
	lower := appendXattrBound(nil, ino)
	v.Ascend(lower, codec.AppendUpper(nil, lower), func(key, _ []byte) bool {
		if _, name, ok := parseXattrKey(key); ok {
			names = append(names, string(name))
		}
		return true
	})
	return names, nil
}

// Usage returns what the volume holds.
func (v View) Usage() Usage { return loadUsage(v.Reader, usageVolume, 0) }
