package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// errSkipped says that the local file system was not asked.
var errSkipped = errors.New("not asked")

// A local is a folder of a local file system, which is used as users of all
// kinds. Its methods do nothing on nil. Objects are O_PATH descriptors.
type local struct {
	path string
	root int
	// protectedLinks: users may make links only to files that they could write.
	protectedLinks bool
}

func newLocal(r *rapid.T) *local {
	dir, err := os.MkdirTemp("", "hawser-oracle-")
	if err != nil {
		r.Fatal(err)
	}
	unix.Umask(0)
	if err := os.Chmod(dir, 0o755); err != nil {
		r.Fatal(err)
	}
	l := &local{path: dir}
	if l.root, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		r.Fatal(err)
	}
	text, err := os.ReadFile("/proc/sys/fs/protected_hardlinks")
	l.protectedLinks = err != nil || strings.TrimSpace(string(text)) != "0"
	return l
}

func (l *local) remove() {
	l.close(l.root)
	_ = os.RemoveAll(l.path)
}

func (l *local) close(fd int) {
	if l != nil && fd >= 0 {
		_ = unix.Close(fd)
	}
}

// as calls fn with the file-system credentials of a user, in this thread.
func (l *local) as(c vfs.Cred, fn func() error) error {
	if c.UID == 0 {
		return toErrno(fn())
	}
	setGroups(c.GIDs)
	_, _ = unix.SetfsgidRetGid(int(c.GID))
	_, _ = unix.SetfsuidRetUid(int(c.UID))
	err := fn()
	_, _ = unix.SetfsuidRetUid(0)
	_, _ = unix.SetfsgidRetGid(0)
	setGroups(nil)
	return toErrno(err)
}

// setGroups sets the supplementary groups of this thread alone.
func setGroups(gids []uint32) {
	p := append([]uint32{0}, gids...)[1:]
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(p)), uintptr(unsafe.Pointer(unsafe.SliceData(p))), 0); e != 0 {
		panic(e)
	}
}

var localErrnos = map[unix.Errno]cluster.Errno{
	unix.EPERM: cluster.EPERM, unix.ENOENT: cluster.ENOENT, unix.EACCES: cluster.EACCES, unix.EEXIST: cluster.EEXIST,
	unix.ENOTDIR: cluster.ENOTDIR, unix.EISDIR: cluster.EISDIR, unix.EINVAL: cluster.EINVAL, unix.ENOTEMPTY: cluster.ENOTEMPTY,
	unix.ENODATA: cluster.ENODATA, unix.ELOOP: cluster.ESYMLINK, unix.EFBIG: cluster.EFBIG,
}

func toErrno(err error) error {
	var e unix.Errno
	if !errors.As(err, &e) {
		return err
	}
	if c, ok := localErrnos[e]; ok {
		return fmt.Errorf("%v: %w", err, c)
	}
	return err
}

func proc(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// dirOnly is what vfs says of names in what is no directory.
func dirOnly(x *object, look bool) error {
	switch {
	case x.typ == cluster.TypeSymlink && look:
		return cluster.ESYMLINK
	case x.typ != cluster.TypeDirectory:
		return cluster.ENOTDIR
	}
	return nil
}

func find(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func (l *local) lookup(c vfs.Cred, dir *object, name string) (fd int, err error) {
	if l == nil {
		return -1, errSkipped
	}
	if err := dirOnly(dir, true); err != nil {
		return -1, err
	}
	err = l.as(c, func() (err error) {
		fd, err = find(dir.fd, name)
		return err
	})
	return fd, err
}

func (l *local) create(c vfs.Cred, dir *object, name string, args *vfs.CreateArgs) (fd int, err error) {
	if l == nil {
		return -1, errSkipped
	}
	if err := dirOnly(dir, false); err != nil {
		return -1, err
	}
	mode := args.Attr.Mode
	err = l.as(c, func() error {
		switch args.Type {
		case cluster.TypeDirectory:
			return unix.Mkdirat(dir.fd, name, mode)
		case cluster.TypeSymlink:
			return unix.Symlinkat(args.Target, dir.fd, name)
		case cluster.TypeFIFO:
			return unix.Mknodat(dir.fd, name, unix.S_IFIFO|mode, 0)
		}
		fd, err := unix.Openat(dir.fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, mode)
		l.close(fd)
		return err
	})
	if args.How == vfs.Unchecked && errors.Is(err, cluster.EEXIST) {
		return l.existing(c, dir, name, args)
	}
	if err != nil {
		return -1, err
	}
	if fd, err = find(dir.fd, name); err != nil {
		return -1, err
	}
	if args.Type == cluster.TypeDirectory {
		// mkdir(2) ignores these bits; a user's mkdir and chmod are one in NFS.
		if special := mode & (cluster.ModeSetUID | cluster.ModeSetGID | cluster.ModeSticky); special != 0 {
			var st unix.Stat_t
			if err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH); err != nil {
				return -1, err
			}
			if err := unix.Chmod(proc(fd), st.Mode&cluster.ModeMask|special); err != nil {
				return -1, err
			}
		}
	}
	return fd, nil
}

// existing is open(2) of what is there: NFS opens nothing but files.
func (l *local) existing(c vfs.Cred, dir *object, name string, args *vfs.CreateArgs) (int, error) {
	fd, err := find(dir.fd, name)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH); err != nil {
		return -1, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return -1, cluster.EISDIR
	default:
		return -1, cluster.ESYMLINK
	}
	if args.Attr.Mask&cluster.SetSize != 0 {
		if err := l.as(c, func() error {
			f, err := unix.Openat(dir.fd, name, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
			l.close(f)
			return err
		}); err != nil {
			return -1, err
		}
	}
	return fd, nil
}

func (l *local) same(a, b int) bool {
	if l == nil {
		return true
	}
	var x, y unix.Stat_t
	return unix.Fstatat(a, "", &x, unix.AT_EMPTY_PATH) == nil && unix.Fstatat(b, "", &y, unix.AT_EMPTY_PATH) == nil &&
		x.Ino == y.Ino && x.Dev == y.Dev
}

// has reports whether dir/name is x.
func (l *local) has(r *rapid.T, dir *object, name string, x *object) bool {
	if l == nil {
		return true
	}
	fd, err := find(dir.fd, name)
	if err != nil {
		r.Fatal(err)
	}
	defer l.close(fd)
	return l.same(fd, x.fd)
}

func (l *local) link(c vfs.Cred, x, dir *object, name string) error {
	if l == nil {
		return errSkipped
	}
	if err := dirOnly(dir, false); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(x.fd, "", &st, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	if l.protectedLinks && c.UID != 0 && c.UID != st.Uid {
		return errSkipped
	}
	return l.as(c, func() error {
		err := unix.Linkat(unix.AT_FDCWD, proc(x.fd), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
		if err == unix.EPERM && isDir(x) {
			return cluster.EISDIR // as NFS says it
		}
		return err
	})
}

func (l *local) unlink(c vfs.Cred, dir *object, name string) error {
	if l == nil {
		return errSkipped
	}
	if err := dirOnly(dir, false); err != nil {
		return err
	}
	flags := 0
	var st unix.Stat_t
	if unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	return l.as(c, func() error { return unix.Unlinkat(dir.fd, name, flags) })
}

func (l *local) rename(c vfs.Cred, from *object, name string, to *object, newName string) error {
	if l == nil {
		return errSkipped
	}
	if !isDir(from) || !isDir(to) {
		return errSkipped
	}
	return l.as(c, func() error {
		err := unix.Renameat(from.fd, name, to.fd, newName)
		if err == unix.EINVAL {
			return cluster.ELOOP
		}
		return err
	})
}

func (l *local) setattr(c vfs.Cred, x *object, set *vfs.SetAttr, opened bool) error {
	if l == nil {
		return errSkipped
	}
	name := proc(x.fd)
	switch set.Mask {
	case cluster.SetMode:
		return l.as(c, func() error { return unix.Chmod(name, set.Mode) })
	case cluster.SetUID:
		return l.as(c, func() error { return unix.Fchownat(x.fd, "", int(set.UID), -1, unix.AT_EMPTY_PATH) })
	case cluster.SetGID:
		return l.as(c, func() error { return unix.Fchownat(x.fd, "", -1, int(set.GID), unix.AT_EMPTY_PATH) })
	case cluster.SetMtime:
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(int64(set.Mtime))}
		return l.as(c, func() error { return unix.UtimesNanoAt(x.fd, "", times, unix.AT_EMPTY_PATH) })
	case cluster.SetMtimeNow:
		// Only both times may be set to now by who is not the owner.
		times := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
		return l.as(c, func() error { return unix.UtimesNanoAt(x.fd, "", times, unix.AT_EMPTY_PATH) })
	case cluster.SetSize:
		if !opened {
			return l.as(c, func() error { return unix.Truncate(name, int64(set.Size)) })
		}
		return l.opened(c, x, func(fd int) error { return unix.Ftruncate(fd, int64(set.Size)) })
	}
	return errSkipped
}

// opened calls fn as a user who has x open.
func (l *local) opened(c vfs.Cred, x *object, fn func(fd int) error) error {
	if l == nil {
		return errSkipped
	}
	fd, err := unix.Open(proc(x.fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer l.close(fd)
	return l.as(c, func() error { return fn(fd) })
}

func (l *local) write(c vfs.Cred, x *object, off uint64, p []byte) error {
	if l == nil {
		return nil
	}
	return l.opened(c, x, func(fd int) error {
		if len(p) == 0 {
			return nil
		}
		n, err := unix.Pwrite(fd, p, int64(off))
		if err == nil && n != len(p) {
			return fmt.Errorf("%d of %d bytes written", n, len(p))
		}
		return err
	})
}

func (l *local) read(x *object, off uint64, n int) ([]byte, bool) {
	if l == nil {
		return nil, false
	}
	p := make([]byte, n)
	err := l.opened(vfs.Cred{}, x, func(fd int) (err error) {
		n, err = unix.Pread(fd, p, int64(off))
		return err
	})
	return p[:max(n, 0)], err == nil
}

func (l *local) punch(c vfs.Cred, x *object, off, n uint64) error {
	return l.opened(c, x, func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
	})
}

func (l *local) allocate(c vfs.Cred, x *object, off, n uint64) error {
	return l.opened(c, x, func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || off+n <= uint64(st.Size) {
			return err // nothing changes: space is not set aside
		}
		return unix.Fallocate(fd, 0, int64(off), int64(n))
	})
}

func (l *local) list(c vfs.Cred, dir *object) ([]string, error) {
	if l == nil {
		return nil, errSkipped
	}
	if err := dirOnly(dir, false); err != nil {
		return nil, err
	}
	var fd int
	if err := l.as(c, func() (err error) {
		fd, err = unix.Open(proc(dir.fd), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	}); err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "dir")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func (l *local) readlink(x *object, want string) string {
	if l == nil {
		return want
	}
	p := make([]byte, 4096)
	n, err := unix.Readlinkat(x.fd, "", p)
	if err != nil {
		return err.Error()
	}
	return string(p[:n])
}

func (l *local) attr(r *rapid.T, x *object) (a vfs.Attr, ok bool) {
	if l == nil {
		return a, false
	}
	var st unix.Stat_t
	if err := unix.Fstatat(x.fd, "", &st, unix.AT_EMPTY_PATH); err != nil {
		r.Fatal(err)
	}
	types := map[uint32]vfs.FileType{
		unix.S_IFREG: cluster.TypeRegular, unix.S_IFDIR: cluster.TypeDirectory,
		unix.S_IFLNK: cluster.TypeSymlink, unix.S_IFIFO: cluster.TypeFIFO,
	}
	return vfs.Attr{
		Type: types[st.Mode&unix.S_IFMT], Mode: st.Mode & cluster.ModeMask, Nlink: uint32(st.Nlink), UID: st.Uid, GID: st.Gid,
		Size: uint64(st.Size), Mtime: cluster.Time(st.Mtim.Nano()),
	}, true
}

func (l *local) setxattr(c vfs.Cred, x *object, name string, value []byte, how vfs.CreateHow) error {
	if l == nil {
		return errSkipped
	}
	flags := map[vfs.CreateHow]int{vfs.Guarded: unix.XATTR_CREATE, vfs.Exclusive: unix.XATTR_REPLACE}[how]
	return l.as(c, func() error { return unix.Setxattr(proc(x.fd), "user."+name, value, flags) })
}

func (l *local) removexattr(c vfs.Cred, x *object, name string) error {
	if l == nil {
		return errSkipped
	}
	return l.as(c, func() error { return unix.Removexattr(proc(x.fd), "user."+name) })
}

func (l *local) xattrs(r *rapid.T, x *object, want []string) (names []string) {
	if l == nil {
		return want
	}
	p := make([]byte, 4096)
	n, err := unix.Listxattr(proc(x.fd), p)
	if err != nil {
		r.Fatal(err)
	}
	for name := range strings.SplitSeq(string(p[:n]), "\x00") {
		if name, ok := strings.CutPrefix(name, "user."); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (l *local) xattrIs(x *object, name string, want []byte) bool {
	if l == nil {
		return true
	}
	p := make([]byte, 4096)
	n, err := unix.Getxattr(proc(x.fd), "user."+name, p)
	return err == nil && bytes.Equal(p[:n], want)
}
