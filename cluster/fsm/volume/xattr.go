package volume

import (
	"strings"
	"unicode/utf8"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// Limits of extended attributes. The first two are Linux' (XATTR_SIZE_MAX and
// XATTR_LIST_MAX), so that what can be set can be listed and copied.
const (
	MaxXattrValue = 64 << 10 // bytes in one value
	maxXattrNames = 64 << 10 // bytes in the names of an inode, one more counted for each
	maxXattrBytes = 1 << 20  // bytes in the values of an inode
)

func init() {
	register(KindSetXattr, command(applySetXattr))
	register(KindRemoveXattr, command(applyRemoveXattr))
}

// checkXattrName returns why name cannot be an extended attribute's, or OK.
func checkXattrName(name string) cluster.Errno {
	switch {
	case name == "":
		return cluster.EINVAL
	case len(name) > cluster.MaxName:
		return cluster.ENAMETOOLONG
	case strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name):
		return cluster.EBADNAME
	}
	return cluster.OK
}

// xattrInode returns inode ino, whose extended attribute name cred changes.
// Only files and directories have them, since the mode of other objects says
// nothing about who may; a sticky directory's are its owner's.
func xattrInode(tx *fsm.Tx, ino cluster.Ino, cred *cluster.Cred, name string) (inode, cluster.Errno) {
	n, ok := loadInode(tx, ino)
	if !ok {
		return inode{}, cluster.ESTALE
	}
	if errno := checkXattrName(name); errno != cluster.OK {
		return inode{}, errno
	}
	switch {
	case n.Type != cluster.TypeRegular && n.Type != cluster.TypeDirectory:
		return inode{}, cluster.EPERM
	case n.Type == cluster.TypeDirectory && n.Mode&cluster.ModeSticky != 0 && !Owner(&n.Attr, cred):
		return inode{}, cluster.EPERM
	case !Allowed(&n.Attr, cred, MayWrite):
		return inode{}, cluster.EACCES
	}
	return n, cluster.OK
}

func applySetXattr(tx *fsm.Tx, _ *fsm.Envelope, c *SetXattr, dst []byte) ([]byte, cluster.Errno) {
	if c.How > Exclusive {
		return dst, cluster.EINVAL
	}
	if len(c.Value) > MaxXattrValue {
		return dst, cluster.EFBIG
	}
	n, errno := xattrInode(tx, c.Ino, &c.Cred, c.Name)
	if errno != cluster.OK {
		return dst, errno
	}
	key := appendXattrKey(nil, c.Ino, c.Name)
	old, ok := tx.Get(nil, key)
	switch {
	case ok && c.How == Guarded:
		return dst, cluster.EEXIST
	case !ok && c.How == Exclusive:
		return dst, cluster.ENODATA
	}
	if !ok {
		n.XattrNames += uint32(len(c.Name)) + 1
	}
	n.XattrBytes += uint32(len(c.Value)) - uint32(len(old))
	if n.XattrNames > maxXattrNames || n.XattrBytes > maxXattrBytes {
		return dst, cluster.ENOSPC
	}
	tx.Set(key, c.Value)
	return finishXattr(tx, &n, dst), cluster.OK
}

func applyRemoveXattr(tx *fsm.Tx, _ *fsm.Envelope, c *RemoveXattr, dst []byte) ([]byte, cluster.Errno) {
	n, errno := xattrInode(tx, c.Ino, &c.Cred, c.Name)
	if errno != cluster.OK {
		return dst, errno
	}
	key := appendXattrKey(nil, c.Ino, c.Name)
	old, ok := tx.Get(nil, key)
	if !ok {
		return dst, cluster.ENODATA
	}
	n.XattrNames -= uint32(len(c.Name)) + 1
	n.XattrBytes -= uint32(len(old))
	tx.Delete(key)
	return finishXattr(tx, &n, dst), cluster.OK
}

// finishXattr stores n, an extended attribute of which has changed.
func finishXattr(tx *fsm.Tx, n *inode, dst []byte) []byte {
	before := n.Change
	n.touch(tx)
	storeInode(tx, n)
	return XattrResult{Change: cluster.ChangeInfo{Before: before, After: n.Change}}.AppendTo(dst)
}
