package memfs

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// Permission bits of one class of users.
const (
	mayExec  uint32 = 1
	mayWrite uint32 = 2
	mayRead  uint32 = 4
)

// allowed reports whether cred has all rights of want on a.
func allowed(a *vfs.Attr, cred *vfs.Cred, want uint32) bool {
	if cred.Root() {
		return want&mayExec == 0 || a.Type == cluster.TypeDirectory || a.Mode&0o111 != 0
	}
	mode := a.Mode
	switch {
	case cred.UID == a.UID:
		mode >>= 6
	case cred.InGroup(a.GID):
		mode >>= 3
	}
	return mode&want == want
}

// sticky reports whether the sticky bit of dir keeps cred from removing n.
func sticky(dir, n *node, cred *vfs.Cred) bool {
	return dir.attr.Mode&cluster.ModeSticky != 0 && !cred.Root() &&
		cred.UID != dir.attr.UID && cred.UID != n.attr.UID
}

// killPriv clears the set-id bits of a file whose data an unprivileged user changed.
func killPriv(a *vfs.Attr, cred *vfs.Cred) {
	if !cred.Root() && a.Type == cluster.TypeRegular {
		clearSetID(a)
	}
}

func clearSetID(a *vfs.Attr) {
	a.Mode &^= cluster.ModeSetUID
	if a.Mode&0o010 != 0 {
		a.Mode &^= cluster.ModeSetGID
	}
}

// Access implements vfs.FS.
func (fs *FS) Access(r *vfs.Request, f vfs.File, want uint32) (uint32, error) {
	a, err := fs.Getattr(r, f)
	if err != nil {
		return 0, err
	}
	need := [...]struct{ right, file, dir uint32 }{
		{vfs.AccessRead, mayRead, mayRead},
		{vfs.AccessLookup, 0, mayExec},
		{vfs.AccessModify, mayWrite, mayWrite | mayExec},
		{vfs.AccessExtend, mayWrite, mayWrite | mayExec},
		{vfs.AccessDelete, 0, mayWrite | mayExec},
		{vfs.AccessExecute, mayExec, 0},
	}
	var have uint32
	for _, n := range need {
		bits := n.file
		if a.Type == cluster.TypeDirectory {
			bits = n.dir
		}
		if bits != 0 && allowed(&a, r.Cred(), bits) && !(isRoot(f) && bits&mayWrite != 0) {
			have |= n.right
		}
	}
	return have & want, nil
}

// Getattr implements vfs.FS.
func (fs *FS) Getattr(_ *vfs.Request, f vfs.File) (vfs.Attr, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if isRoot(f) {
		return fs.rootAttr(), nil
	}
	_, n, errno := fs.node(f)
	if errno != cluster.OK {
		return vfs.Attr{}, errno
	}
	return n.attr, nil
}

func (fs *FS) setattr(r *vfs.Request, f vfs.File, set vfs.SetAttr, opened bool) (vfs.Attr, error) {
	if isRoot(f) {
		return vfs.Attr{}, cluster.EROFS
	}
	_, n, errno := fs.node(f)
	if errno != cluster.OK {
		return vfs.Attr{}, errno
	}
	if errno := maySet(&n.attr, r.Cred(), &set, opened); errno != cluster.OK {
		return vfs.Attr{}, errno
	}
	fs.change++
	if set.Mask&cluster.SetSize != 0 {
		if set.Size != n.attr.Size {
			n.attr.Mtime = fs.now()
		}
		n.resize(set.Size)
		killPriv(&n.attr, r.Cred())
	}
	fs.touch(n, false)
	apply(&n.attr, r.Cred(), &set, fs.now())
	return n.attr, nil
}

func maySet(a *vfs.Attr, cred *vfs.Cred, set *vfs.SetAttr, opened bool) vfs.Errno {
	m := set.Mask
	owner := cred.Root() || cred.UID == a.UID
	writer := allowed(a, cred, mayWrite)
	switch {
	case m&cluster.SetSize != 0 && a.Type == cluster.TypeDirectory:
		return cluster.EISDIR
	case m&cluster.SetSize != 0 && a.Type != cluster.TypeRegular:
		return cluster.EINVAL
	case m&cluster.SetSize != 0 && set.Size > cluster.MaxFileSize:
		return cluster.EFBIG
	case m&cluster.SetSize != 0 && !opened && !writer:
		return cluster.EACCES
	case m&cluster.SetMode != 0 && !owner,
		m&cluster.SetUID != 0 && !cred.Root() && (!owner || set.UID != a.UID),
		m&cluster.SetGID != 0 && !cred.Root() && (!owner || set.GID != a.GID && !cred.InGroup(set.GID)),
		m&(cluster.SetAtime|cluster.SetMtime) != 0 && !owner:
		return cluster.EPERM
	case m&(cluster.SetAtimeNow|cluster.SetMtimeNow) != 0 && !owner && !writer:
		return cluster.EACCES
	}
	return cluster.OK
}

// apply sets all of set but the size.
func apply(a *vfs.Attr, cred *vfs.Cred, set *vfs.SetAttr, now cluster.Time) {
	m := set.Mask
	if m&(cluster.SetUID|cluster.SetGID) != 0 && a.Type != cluster.TypeDirectory {
		clearSetID(a)
	}
	if m&cluster.SetUID != 0 {
		a.UID = set.UID
	}
	if m&cluster.SetGID != 0 {
		a.GID = set.GID
	}
	if m&cluster.SetMode != 0 {
		a.Mode = set.Mode & cluster.ModeMask
		if !cred.Root() && !cred.InGroup(a.GID) {
			a.Mode &^= cluster.ModeSetGID
		}
	}
	if m&cluster.SetAtime != 0 {
		a.Atime = set.Atime
	}
	if m&cluster.SetMtime != 0 {
		a.Mtime = set.Mtime
	}
	if m&cluster.SetAtimeNow != 0 {
		a.Atime = now
	}
	if m&cluster.SetMtimeNow != 0 {
		a.Mtime = now
	}
}

// mayOpen reports whether cred may open a file for access. Who may execute it
// may read it, to execute it.
func mayOpen(a *vfs.Attr, cred *vfs.Cred, access uint8) bool {
	if access&vfs.ShareRead != 0 && !allowed(a, cred, mayRead) && !allowed(a, cred, mayExec) {
		return false
	}
	return access&vfs.ShareWrite == 0 || allowed(a, cred, mayWrite)
}
