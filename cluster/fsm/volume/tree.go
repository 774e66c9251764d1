package volume

import (
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// Limits and constants of the tree.
const (
	maxLinks = 1<<31 - 1 // names of an inode, or subdirectories of a directory
	dirSize  = 4096      // size that a directory shows
	rootGen  = 1         // generation of the root directory
	maxDepth = 1 << 24   // of a directory: more is a cycle
)

func init() {
	register(KindFormat, command(applyFormat))
	register(KindCreate, command(applyCreate))
	register(KindLink, command(applyLink))
	register(KindRemove, command(applyRemove))
	register(KindRename, command(applyRename))
}

// validClass reports whether c can be a directory's class.
func validClass(c cluster.Class) bool {
	return c.Consistency <= cluster.Relaxed && c.Copies >= 1 && c.Copies <= 3 && (c.Code.IsZero() || c.Code.Valid())
}

func applyFormat(tx *fsm.Tx, _ *fsm.Envelope, c *Format, dst []byte) ([]byte, cluster.Errno) {
	if _, ok := loadRecord(tx); ok {
		return dst, cluster.OK
	}
	if !validClass(c.Class) {
		return dst, cluster.EINVAL
	}
	now := tx.Time()
	v := record{HashKey: c.HashKey, Created: now, NextIno: cluster.RootIno + 1, NextSet: 1}
	v.addCode(c.Class.Code)
	storeRecord(tx, &v)
	storeInode(tx, &inode{Attr: cluster.Attr{
		Ino:    cluster.RootIno,
		Gen:    rootGen,
		Type:   cluster.TypeDirectory,
		Mode:   c.Mode & cluster.ModeMask,
		Nlink:  2,
		Size:   dirSize,
		Atime:  now,
		Mtime:  now,
		Ctime:  now,
		Btime:  now,
		Change: tx.Index(),
		Parent: cluster.RootIno,
		Class:  c.Class,
	}})
	addUsage(tx, 0, 1)
	return dst, cluster.OK
}

// searchDir returns directory ino, in which cred looks for name: ESTALE if it
// is gone, ENOTDIR, the errors of CheckName, EACCES without search permission.
func searchDir(tx *fsm.Tx, ino cluster.Ino, cred *cluster.Cred, name string) (inode, cluster.Errno) {
	dir, ok := loadInode(tx, ino)
	switch {
	case !ok:
		return inode{}, cluster.ESTALE
	case dir.Type != cluster.TypeDirectory:
		return inode{}, cluster.ENOTDIR
	}
	if errno := CheckName(name); errno != cluster.OK {
		return inode{}, errno
	}
	if !Allowed(&dir.Attr, cred, MayExec) {
		return inode{}, cluster.EACCES
	}
	return dir, cluster.OK
}

// mustInode returns the inode that an entry names. There always is one.
func mustInode(tx *fsm.Tx, e *Dirent) inode {
	n, ok := loadInode(tx, e.Ino)
	if !ok {
		panic(fmt.Sprintf("volume: the name %q leads to inode %d, which is not there: restore this replica from another", e.Name, e.Ino))
	}
	return n
}

func applyLink(tx *fsm.Tx, _ *fsm.Envelope, c *Link, dst []byte) ([]byte, cluster.Errno) {
	rec, ok := loadRecord(tx)
	if !ok {
		return dst, cluster.ESTALE
	}
	n, ok := loadInode(tx, c.Ino)
	if !ok {
		return dst, cluster.ESTALE
	}
	dir, errno := searchDir(tx, c.Dir, &c.Cred, c.Name)
	if errno != cluster.OK {
		return dst, errno
	}
	if _, ok := findDirent(tx, &rec, dir.Ino, c.Name); ok {
		return dst, cluster.EEXIST
	}
	switch {
	case !Allowed(&dir.Attr, &c.Cred, MayWrite):
		return dst, cluster.EACCES
	case n.Type == cluster.TypeDirectory:
		return dst, cluster.EISDIR
	case n.Nlink == 0:
		// Unlinked and on its way to be reaped: it can't come back.
		return dst, cluster.ENOENT
	case n.Nlink >= maxLinks:
		return dst, cluster.EMLINK
	}
	errno = insertDirent(tx, &rec, dir.Ino, Dirent{Ino: n.Ino, Gen: n.Gen, Type: n.Type, Name: c.Name})
	if errno != cluster.OK {
		return dst, errno
	}
	n.Nlink++
	n.touch(tx)
	storeInode(tx, &n)
	before := dir.Change
	dir.Entries++
	dir.modify(tx)
	storeInode(tx, &dir)
	return LinkResult{Attr: n.Attr, Dir: cluster.ChangeInfo{Before: before, After: dir.Change}}.AppendTo(dst), cluster.OK
}

func applyRemove(tx *fsm.Tx, _ *fsm.Envelope, c *Remove, dst []byte) ([]byte, cluster.Errno) {
	rec, ok := loadRecord(tx)
	if !ok {
		return dst, cluster.ESTALE
	}
	dir, errno := searchDir(tx, c.Dir, &c.Cred, c.Name)
	if errno != cluster.OK {
		return dst, errno
	}
	e, ok := findDirent(tx, &rec, dir.Ino, c.Name)
	if !ok {
		return dst, cluster.ENOENT
	}
	n := mustInode(tx, &e.Dirent)
	if errno := Removable(&dir.Attr, &n.Attr, &c.Cred); errno != cluster.OK {
		return dst, errno
	}
	if n.Entries > 0 {
		return dst, cluster.ENOTEMPTY
	}
	deleteDirent(tx, dir.Ino, &e)
	before := dir.Change
	dir.Entries--
	if n.Type == cluster.TypeDirectory {
		dir.Nlink--
	}
	dir.modify(tx)
	storeInode(tx, &dir)
	if errno := dropName(tx, &n); errno != cluster.OK {
		return dst, errno
	}
	return RemoveResult{Dir: cluster.ChangeInfo{Before: before, After: dir.Change}, Attr: n.Attr}.AppendTo(dst), cluster.OK
}

// dropName takes one name from n, whose entry is gone already. With the last
// one n goes too: a regular file when no front-end has it open any more, and
// its extents step by step; anything else at once.
func dropName(tx *fsm.Tx, n *inode) cluster.Errno {
	n.touch(tx)
	if n.Type == cluster.TypeDirectory {
		n.Nlink = 0
		dropInode(tx, n.Ino)
		return cluster.OK
	}
	n.Nlink--
	if n.Nlink == 0 && n.Type != cluster.TypeRegular {
		dropInode(tx, n.Ino)
		return cluster.OK
	}
	storeInode(tx, n)
	if n.Nlink == 0 {
		return unlink(tx, &n.Attr)
	}
	return cluster.OK
}
