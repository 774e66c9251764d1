package volume

import "github.com/hawserfs/hawser/cluster"

// What Allowed may be asked for: the bits of a class in the mode.
const (
	MayExec  uint32 = 1 // execute a file, search a directory
	MayWrite uint32 = 2
	MayRead  uint32 = 4
)

// Allowed reports whether cred may do all of want with an object, by its mode
// bits. The owner is judged by the owner's bits alone, a member of the group
// by the group's alone. Root may do everything but execute a file that nobody
// may execute.
func Allowed(a *cluster.Attr, cred *cluster.Cred, want uint32) bool {
	if cred.Root() {
		return want&MayExec == 0 || a.Type == cluster.TypeDirectory || a.Mode&0o111 != 0
	}
	bits := a.Mode
	switch {
	case cred.UID == a.UID:
		bits >>= 6
	case cred.InGroup(a.GID):
		bits >>= 3
	}
	return want&^bits == 0
}

// Owner reports whether cred may do what only the owner may.
func Owner(a *cluster.Attr, cred *cluster.Cred) bool {
	return cred.Root() || cred.UID == a.UID
}

// Removable returns why cred may not take the name of victim out of dir, or
// OK: EACCES without write and search permission for dir, EPERM if dir is
// sticky and neither dir nor victim is cred's.
func Removable(dir, victim *cluster.Attr, cred *cluster.Cred) cluster.Errno {
	if !Allowed(dir, cred, MayWrite|MayExec) {
		return cluster.EACCES
	}
	if dir.Mode&cluster.ModeSticky != 0 && !Owner(victim, cred) && !Owner(dir, cred) {
		return cluster.EPERM
	}
	return cluster.OK
}

// inGroup reports whether cred may give a file of group gid the set-group-id
// bit.
func inGroup(cred *cluster.Cred, gid uint32) bool { return cred.Root() || cred.InGroup(gid) }

// KillPriv clears what a change of content or owner must not leave to an
// executable: set-user-id, and set-group-id where the group may execute it (it
// means something else where it may not).
func KillPriv(mode uint32) uint32 {
	mode &^= cluster.ModeSetUID
	if mode&0o010 != 0 {
		mode &^= cluster.ModeSetGID
	}
	return mode
}
