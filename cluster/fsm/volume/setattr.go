package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

func init() {
	register(KindSetAttr, command(applySetAttr))
	register(KindSetClass, command(applySetClass))
	register(KindTouch, command(applyTouch))
}

// allSet is every bit of a SetMask that means something.
const allSet = cluster.SetMode | cluster.SetUID | cluster.SetGID | cluster.SetSize |
	cluster.SetAtime | cluster.SetMtime | cluster.SetAtimeNow | cluster.SetMtimeNow

// checkSetAttr returns why s makes no sense for any object.
func checkSetAttr(s *cluster.SetAttr) cluster.Errno {
	const (
		atimes = cluster.SetAtime | cluster.SetAtimeNow
		mtimes = cluster.SetMtime | cluster.SetMtimeNow
	)
	switch {
	case s.Mask&^allSet != 0 || s.Mask&atimes == atimes || s.Mask&mtimes == mtimes:
		return cluster.EINVAL
	case s.Mask&cluster.SetSize != 0 && s.Size > cluster.MaxFileSize:
		return cluster.EFBIG
	}
	return cluster.OK
}

func applySetAttr(tx *fsm.Tx, _ *fsm.Envelope, c *SetAttr, dst []byte) ([]byte, cluster.Errno) {
	if errno := checkSetAttr(&c.Attr); errno != cluster.OK {
		return dst, errno
	}
	n, ok := loadInode(tx, c.Ino)
	if !ok {
		return dst, cluster.ESTALE
	}
	if c.Attr.Mask == 0 {
		return AttrResult{Attr: n.Attr}.AppendTo(dst), cluster.OK
	}
	if errno := c.allowed(&n.Attr); errno != cluster.OK {
		return dst, errno
	}
	if errno := c.apply(tx, &n); errno != cluster.OK {
		return dst, errno
	}
	storeInode(tx, &n)
	return AttrResult{Attr: n.Attr}.AppendTo(dst), cluster.OK
}

// allowed checks types and permissions, in the order of Linux.
func (c *SetAttr) allowed(a *cluster.Attr) cluster.Errno {
	set, cred := &c.Attr, &c.Cred
	if set.Mask&cluster.SetSize != 0 {
		switch {
		case a.Type == cluster.TypeDirectory:
			return cluster.EISDIR
		case a.Type != cluster.TypeRegular:
			return cluster.EINVAL
		case !c.Open && !Allowed(a, cred, MayWrite):
			return cluster.EACCES
		}
	}
	if cred.Root() {
		return cluster.OK
	}
	owner := cred.UID == a.UID
	if set.Mask&cluster.SetUID != 0 && !(owner && set.UID == a.UID) {
		return cluster.EPERM
	}
	if set.Mask&cluster.SetGID != 0 && !(owner && (set.GID == a.GID || cred.InGroup(set.GID))) {
		return cluster.EPERM
	}
	if set.Mask&(cluster.SetMode|cluster.SetAtime|cluster.SetMtime) != 0 && !owner {
		return cluster.EPERM
	}
	if set.Mask&(cluster.SetAtimeNow|cluster.SetMtimeNow) != 0 && !owner && !Allowed(a, cred, MayWrite) {
		return cluster.EACCES
	}
	return cluster.OK
}

// apply changes n. What it must not do has been checked.
func (c *SetAttr) apply(tx *fsm.Tx, n *inode) cluster.Errno {
	set, cred := &c.Attr, &c.Cred
	resized := false
	if set.Mask&cluster.SetSize != 0 {
		resized = set.Size != n.Size
		if errno := truncate(tx, &n.Attr, set.Size); errno != cluster.OK {
			return errno
		}
	}
	if set.Mask&cluster.SetUID != 0 {
		n.UID = set.UID
	}
	if set.Mask&cluster.SetGID != 0 {
		n.GID = set.GID
	}
	if set.Mask&cluster.SetMode != 0 {
		n.Mode = set.Mode & cluster.ModeMask
		if !inGroup(cred, n.GID) {
			n.Mode &^= cluster.ModeSetGID
		}
	}
	n.Mode = c.killed(n)
	now := tx.Time()
	if resized || set.Mask&cluster.SetMtimeNow != 0 {
		n.Mtime = now
	}
	if set.Mask&cluster.SetMtime != 0 {
		n.Mtime = set.Mtime
	}
	if set.Mask&cluster.SetAtimeNow != 0 {
		n.Atime = now
	}
	if set.Mask&cluster.SetAtime != 0 {
		n.Atime = set.Atime
	}
	n.touch(tx)
	return cluster.OK
}

// killed returns n's mode without what a change of owner or size takes from an
// executable. A mode that root gives together with the owner stays.
func (c *SetAttr) killed(n *inode) uint32 {
	mask := c.Attr.Mask
	switch {
	case n.Type == cluster.TypeDirectory:
	case mask&(cluster.SetUID|cluster.SetGID) != 0:
		if mask&cluster.SetMode == 0 || !c.Cred.Root() {
			return KillPriv(n.Mode)
		}
	case mask&cluster.SetSize != 0 && mask&cluster.SetMode == 0 && !c.Cred.Root():
		return KillPriv(n.Mode)
	}
	return n.Mode
}

func applySetClass(tx *fsm.Tx, _ *fsm.Envelope, c *SetClass, dst []byte) ([]byte, cluster.Errno) {
	if !validClass(c.Class) {
		return dst, cluster.EINVAL
	}
	n, ok := loadInode(tx, c.Ino)
	switch {
	case !ok:
		return dst, cluster.ESTALE
	case n.Type != cluster.TypeDirectory && n.Type != cluster.TypeRegular:
		return dst, cluster.ENOTDIR
	case !Owner(&n.Attr, &c.Cred):
		return dst, cluster.EPERM
	}
	if !c.Class.Code.IsZero() {
		v, _ := loadRecord(tx)
		if !v.addCode(c.Class.Code) {
			return dst, cluster.ENOSPC
		}
		storeRecord(tx, &v)
	}
	if n.Type == cluster.TypeRegular {
		// Where its bytes lie is nothing that a client sees.
		n.Class.Copies, n.Class.Code = c.Class.Copies, c.Class.Code
		storeInode(tx, &n)
		return AttrResult{Attr: n.Attr}.AppendTo(dst), cluster.OK
	}
	n.Class = c.Class
	n.touch(tx)
	storeInode(tx, &n)
	return AttrResult{Attr: n.Attr}.AppendTo(dst), cluster.OK
}

// applyTouch sets access times. They are no change that clients' caches need
// to hear of, so that ctime and the change attribute stay.
func applyTouch(tx *fsm.Tx, _ *fsm.Envelope, c *Touch, dst []byte) ([]byte, cluster.Errno) {
	for _, ino := range c.Inos {
		n, ok := loadInode(tx, ino)
		if !ok || n.Atime >= c.Atime {
			continue
		}
		n.Atime = c.Atime
		storeInode(tx, &n)
	}
	return dst, cluster.OK
}
