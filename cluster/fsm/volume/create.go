package volume

import (
	"strings"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// The modes of what is created without one.
const (
	defaultFileMode = 0o600
	defaultDirMode  = 0o700
	symlinkMode     = 0o777
)

// check returns why c can't be meant, before anything is looked at.
func (c *Create) check() cluster.Errno {
	switch {
	case c.Gen == 0 || c.How > Exclusive || c.Type < cluster.TypeRegular || c.Type > cluster.TypeSocket:
		return cluster.EINVAL
	case c.Type != cluster.TypeSymlink:
	case c.Target == "" || strings.IndexByte(c.Target, 0) >= 0:
		return cluster.EINVAL
	case len(c.Target) > cluster.MaxSymlink:
		return cluster.ENAMETOOLONG
	}
	if c.Open != nil && (!c.Open.valid() || c.Open.Kind != StateOpen || c.Type != cluster.TypeRegular) {
		return cluster.EINVAL
	}
	return checkSetAttr(&c.Attr)
}

func applyCreate(tx *fsm.Tx, _ *fsm.Envelope, c *Create, dst []byte) ([]byte, cluster.Errno) {
	if errno := c.check(); errno != cluster.OK {
		return dst, errno
	}
	rec, ok := loadRecord(tx)
	if !ok {
		return dst, cluster.ESTALE
	}
	dir, errno := searchDir(tx, c.Dir, &c.Cred, c.Name)
	if errno != cluster.OK {
		return dst, errno
	}
	if e, ok := findDirent(tx, &rec, dir.Ino, c.Name); ok {
		return createExisting(tx, c, &dir, &e.Dirent, dst)
	}
	if !Allowed(&dir.Attr, &c.Cred, MayWrite) {
		return dst, cluster.EACCES
	}
	n, set, errno := c.newInode(tx, &dir)
	if errno != cluster.OK {
		return dst, errno
	}
	if n.Type == cluster.TypeDirectory && dir.Nlink >= maxLinks {
		return dst, cluster.EMLINK
	}
	n.Ino = rec.NextIno
	rec.NextIno++
	errno = insertDirent(tx, &rec, dir.Ino, Dirent{Ino: n.Ino, Gen: n.Gen, Type: n.Type, Name: c.Name})
	if errno != cluster.OK {
		return dst, errno
	}
	storeRecord(tx, &rec)
	storeInode(tx, &n)
	addUsage(tx, 0, 1)
	if c.Open != nil {
		putState(tx, n.Ino, c.Open)
	}
	before := dir.Change
	dir.Entries++
	if n.Type == cluster.TypeDirectory {
		dir.Nlink++
	}
	dir.modify(tx)
	storeInode(tx, &dir)
	return CreateResult{
		Attr:    n.Attr,
		Dir:     cluster.ChangeInfo{Before: before, After: dir.Change},
		Created: true,
		Set:     set,
	}.AppendTo(dst), cluster.OK
}

// createExisting is Create of a name that is there.
func createExisting(tx *fsm.Tx, c *Create, dir *inode, e *Dirent, dst []byte) ([]byte, cluster.Errno) {
	if c.How == Guarded || c.Type != cluster.TypeRegular {
		return dst, cluster.EEXIST
	}
	n := mustInode(tx, e)
	res := CreateResult{Dir: cluster.ChangeInfo{Before: dir.Change, After: dir.Change}}
	if c.How == Exclusive {
		if n.Type != cluster.TypeRegular || !n.Exclusive || n.Verifier != c.Verifier {
			return dst, cluster.EEXIST
		}
		// The same request once more: it gets what it got.
		if errno := c.open(tx, &n.Attr, true); errno != cluster.OK {
			return dst, errno
		}
		res.Attr, res.Created, res.Set = n.Attr, true, c.Attr.Mask
		return res.AppendTo(dst), cluster.OK
	}
	switch n.Type {
	case cluster.TypeRegular:
	case cluster.TypeDirectory:
		return dst, cluster.EISDIR
	default:
		// Linux looks at the object itself, and opens devices and FIFOs on its
		// own, when it is told that an open met a symbolic link.
		return dst, cluster.ESYMLINK
	}
	if errno := c.open(tx, &n.Attr, false); errno != cluster.OK {
		return dst, errno
	}
	if c.Attr.Mask&cluster.SetSize != 0 && c.Attr.Size == 0 {
		if !Allowed(&n.Attr, &c.Cred, MayWrite) {
			return dst, cluster.EACCES
		}
		if errno := truncate(tx, &n.Attr, 0); errno != cluster.OK {
			return dst, errno
		}
		if !c.Cred.Root() {
			n.Mode = KillPriv(n.Mode)
		}
		n.modify(tx)
		storeInode(tx, &n)
		res.Set = cluster.SetSize
	}
	res.Attr = n.Attr
	return res.AppendTo(dst), cluster.OK
}

// open records c's open of a file that exists. made: by c itself, whose user
// may open it whatever the mode says.
func (c *Create) open(tx *fsm.Tx, a *cluster.Attr, made bool) cluster.Errno {
	if c.Open == nil {
		return cluster.OK
	}
	if !made && !mayOpen(a, &c.Cred, c.Open.Access) {
		return cluster.EACCES
	}
	return recordState(tx, a.Ino, c.Open)
}

// mayOpen reports whether cred may open a file for access. Who may execute it
// may read it, to execute it.
func mayOpen(a *cluster.Attr, cred *cluster.Cred, access uint8) bool {
	if access&ShareRead != 0 && !Allowed(a, cred, MayRead) && !Allowed(a, cred, MayExec) {
		return false
	}
	return access&ShareWrite == 0 || Allowed(a, cred, MayWrite)
}

// newInode returns what c makes in dir, without a number, and which of the
// attributes asked for it has.
func (c *Create) newInode(tx *fsm.Tx, dir *inode) (inode, cluster.SetMask, cluster.Errno) {
	now := tx.Time()
	n := inode{Attr: cluster.Attr{
		Gen:   c.Gen,
		Type:  c.Type,
		Mode:  defaultFileMode,
		Nlink: 1,
		UID:   c.Cred.UID,
		GID:   c.Cred.GID,
		Atime: now,
		Mtime: now,
		Btime: now,
		Class: dir.Class,
	}}
	n.touch(tx)
	inherited := dir.Mode&cluster.ModeSetGID != 0
	if inherited {
		n.GID = dir.GID
	}
	set := c.Attr.Mask &^ cluster.SetSize
	switch c.Type {
	case cluster.TypeRegular:
		set = c.Attr.Mask
		if c.How == Exclusive {
			n.Exclusive, n.Verifier = true, c.Verifier
		}
		if set&cluster.SetSize != 0 {
			n.Size = c.Attr.Size
		}
	case cluster.TypeDirectory:
		n.Mode = defaultDirMode
		n.Nlink = 2
		n.Size = dirSize
		n.Parent = dir.Ino
	case cluster.TypeSymlink:
		n.Mode = symlinkMode
		set &^= cluster.SetMode
		n.Target = c.Target
		n.Size = uint64(len(c.Target))
	case cluster.TypeBlock, cluster.TypeChar:
		if !c.Cred.Root() {
			return inode{}, 0, cluster.EPERM
		}
		n.Major, n.Minor = c.Major, c.Minor
	}
	if set&cluster.SetUID != 0 {
		n.UID = c.Attr.UID
	}
	if set&cluster.SetGID != 0 {
		n.GID = c.Attr.GID
	}
	// To create for somebody else is to create and to chown: for root only,
	// but for the groups that the user is in. What the directory gives is free.
	if !c.Cred.Root() && (n.UID != c.Cred.UID || !c.Cred.InGroup(n.GID) && !(inherited && n.GID == dir.GID)) {
		return inode{}, 0, cluster.EPERM
	}
	if set&cluster.SetMode != 0 {
		n.Mode = c.Attr.Mode & cluster.ModeMask
	}
	n.Mode = c.setGID(&n, inherited)
	if set&cluster.SetAtime != 0 {
		n.Atime = c.Attr.Atime
	}
	if set&cluster.SetMtime != 0 {
		n.Mtime = c.Attr.Mtime
	}
	return n, set, cluster.OK
}

// setGID returns the mode of the new n as its directory's set-group-id bit has
// it: a directory inherits the bit; a program must not get the directory's
// group's rights from a user who is not in that group.
func (c *Create) setGID(n *inode, inherited bool) uint32 {
	const program = cluster.ModeSetGID | 0o010
	switch {
	case n.Type == cluster.TypeSymlink:
	case inherited && n.Type == cluster.TypeDirectory:
		return n.Mode | cluster.ModeSetGID
	case n.Mode&program == program && !inGroup(&c.Cred, n.GID):
		return n.Mode &^ cluster.ModeSetGID
	}
	return n.Mode
}
