package volume

import (
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// within reports whether directory dir is below top, or is top itself.
func within(tx *fsm.Tx, dir *inode, top cluster.Ino) bool {
	ino, parent := dir.Ino, dir.Parent
	for range maxDepth {
		if ino == top {
			return true
		}
		if ino == cluster.RootIno {
			return false
		}
		n, ok := loadInode(tx, parent)
		if !ok {
			break
		}
		ino, parent = n.Ino, n.Parent
	}
	panic(fmt.Sprintf("volume: the parents of directory %d do not lead to the root: restore this replica from another", dir.Ino))
}

// A rename is a Rename under way. to is from if both are one directory.
type rename struct {
	*Rename
	from, to     *inode
	source, dest slot
	replaces     bool // there is a dest
	moved        inode
	replaced     inode
}

func applyRename(tx *fsm.Tx, _ *fsm.Envelope, c *Rename, dst []byte) ([]byte, cluster.Errno) {
	rec, ok := loadRecord(tx)
	if !ok {
		return dst, cluster.ESTALE
	}
	from, errno := searchDir(tx, c.FromDir, &c.Cred, c.FromName)
	if errno != cluster.OK {
		return dst, errno
	}
	r := rename{Rename: c, from: &from, to: &from}
	to, errno := searchDir(tx, c.ToDir, &c.Cred, c.ToName)
	if errno != cluster.OK {
		return dst, errno
	}
	if c.ToDir != c.FromDir {
		r.to = &to
	}
	if r.source, ok = findDirent(tx, &rec, c.FromDir, c.FromName); !ok {
		return dst, cluster.ENOENT
	}
	r.moved = mustInode(tx, &r.source.Dirent)
	if r.dest, r.replaces = findDirent(tx, &rec, c.ToDir, c.ToName); r.replaces {
		r.replaced = mustInode(tx, &r.dest.Dirent)
	}
	res := RenameResult{
		From: cluster.ChangeInfo{Before: r.from.Change, After: r.from.Change},
		To:   cluster.ChangeInfo{Before: r.to.Change, After: r.to.Change},
	}
	if errno := r.loops(tx); errno != cluster.OK {
		return dst, errno
	}
	if r.replaces && r.replaced.Ino == r.moved.Ino {
		// Two names of one file: rename(2) leaves both.
		res.Attr = r.moved.Attr
		return res.AppendTo(dst), cluster.OK
	}
	if errno := r.allowed(); errno != cluster.OK {
		return dst, errno
	}
	if errno := r.apply(tx, &rec); errno != cluster.OK {
		return dst, errno
	}
	res.From.After, res.To.After = r.from.Change, r.to.Change
	res.Attr = r.moved.Attr
	res.Replaced = r.replaced.Ino
	return res.AppendTo(dst), cluster.OK
}

// loops refuses to move a directory into itself (ELOOP), and to put something
// in the place of a directory that it is in (ENOTEMPTY).
func (r *rename) loops(tx *fsm.Tx) cluster.Errno {
	if r.from == r.to {
		return cluster.OK
	}
	if r.moved.Type == cluster.TypeDirectory && within(tx, r.to, r.moved.Ino) {
		return cluster.ELOOP
	}
	if r.replaces && r.replaced.Type == cluster.TypeDirectory && within(tx, r.from, r.replaced.Ino) {
		return cluster.ENOTEMPTY
	}
	return cluster.OK
}

// allowed checks permissions and types, in the order of Linux.
func (r *rename) allowed() cluster.Errno {
	isDir := r.moved.Type == cluster.TypeDirectory
	if errno := Removable(&r.from.Attr, &r.moved.Attr, &r.Cred); errno != cluster.OK {
		return errno
	}
	if !r.replaces {
		if !Allowed(&r.to.Attr, &r.Cred, MayWrite) {
			return cluster.EACCES
		}
	} else {
		if errno := Removable(&r.to.Attr, &r.replaced.Attr, &r.Cred); errno != cluster.OK {
			return errno
		}
		switch toDir := r.replaced.Type == cluster.TypeDirectory; {
		case isDir && !toDir:
			return cluster.ENOTDIR
		case !isDir && toDir:
			return cluster.EISDIR
		}
	}
	if isDir && r.from != r.to {
		// Its ".." changes.
		if !Allowed(&r.moved.Attr, &r.Cred, MayWrite) {
			return cluster.EACCES
		}
		if !r.replaces && r.to.Nlink >= maxLinks {
			return cluster.EMLINK
		}
	}
	if r.replaced.Entries > 0 {
		return cluster.ENOTEMPTY
	}
	return cluster.OK
}

// apply makes the change.
func (r *rename) apply(tx *fsm.Tx, rec *record) cluster.Errno {
	isDir := r.moved.Type == cluster.TypeDirectory
	deleteDirent(tx, r.FromDir, &r.source)
	r.from.Entries--
	if isDir {
		r.from.Nlink--
	}
	e := Dirent{Ino: r.moved.Ino, Gen: r.moved.Gen, Type: r.moved.Type, Name: r.ToName}
	if r.replaces {
		if r.dest.chained {
			// The source may have been the only one chained to it.
			r.dest, _ = findDirent(tx, rec, r.ToDir, r.ToName)
		}
		e.Cookie = r.dest.Cookie
		putSlot(tx, r.ToDir, &slot{Dirent: e, chained: r.dest.chained})
		if r.replaced.Type == cluster.TypeDirectory {
			r.to.Nlink--
		}
		if errno := dropName(tx, &r.replaced); errno != cluster.OK {
			return errno
		}
	} else {
		if errno := insertDirent(tx, rec, r.ToDir, e); errno != cluster.OK {
			return errno
		}
		r.to.Entries++
	}
	if isDir {
		r.to.Nlink++
		r.moved.Parent = r.ToDir
	}
	r.moved.touch(tx)
	storeInode(tx, &r.moved)
	r.from.modify(tx)
	storeInode(tx, r.from)
	if r.to != r.from {
		r.to.modify(tx)
		storeInode(tx, r.to)
	}
	return cluster.OK
}
