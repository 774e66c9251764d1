package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/erasure"
	"github.com/hawserfs/hawser/datastore/segment"
)

const (
	exportScratch = ".hawser-export"
	// exportPart begins the name of a file that is being written.
	exportPart = ".hawser-part-"
	// exportIncomplete ends the name of a file of which a part is missing.
	exportIncomplete = ".hawser-incomplete"
)

// An exporter writes a volume to a folder. A file gets its name when it is whole,
// with everything that belongs to it: so what has its name, size and time is not
// written again.
type exporter struct {
	ctx      context.Context
	view     volume.View
	group    cluster.GroupID
	stores   []*segment.Salvage
	to       string
	sum      *ExportSummary
	links    map[cluster.Ino]string // first name of a file that has several
	told     time.Time
	report   func(string)
	progress func(string)
	ownerOff bool // owners can't be set: told once
}

// run exports what is at a path of the volume, and below.
func (x *exporter) run(path string) error {
	ino := cluster.RootIno
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' }) {
		e, ok := x.view.Lookup(ino, part)
		if !ok {
			return fmt.Errorf("there is no %q in %s: %w", part, path, cluster.ENOENT)
		}
		ino = e.Ino
	}
	a, ok := x.view.Inode(ino)
	if !ok {
		return fmt.Errorf("the volume has no inode %d: its state is damaged or empty: %w", ino, cluster.ENOENT)
	}
	if a.Type == cluster.TypeDirectory {
		return x.directory(a, x.to)
	}
	if err := os.MkdirAll(x.to, 0o700); err != nil {
		return err
	}
	return x.entry(a, filepath.Join(x.to, filepath.Base(path)))
}

// lack tells of something that could not be had or written.
func (x *exporter) lack(format string, args ...any) { x.report(fmt.Sprintf(format, args...)) }

// directory exports a directory: its own attributes come last, since what is
// written into it changes them.
func (x *exporter) directory(a cluster.Attr, path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(path, 0o700); err != nil { // of an earlier run
		return err
	}
	var fault error
	x.view.ReadDir(a.Ino, 0, func(e *volume.Dirent) bool {
		if fault = x.ctx.Err(); fault != nil {
			return false
		}
		name := string(e.Name)
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			x.sum.Failed++
			x.lack("%s: an entry has the name %q, which no file can have", path, name)
			return true
		}
		child, ok := x.view.Inode(e.Ino)
		if !ok {
			x.sum.Failed++
			x.lack("%s: its inode %d is not there", filepath.Join(path, name), e.Ino)
			return true
		}
		fault = x.entry(child, filepath.Join(path, name))
		return fault == nil
	})
	if fault != nil {
		return fault
	}
	x.sum.Others++
	return x.attributes(a, path)
}

// entry exports what a name stands for. An error ends the export: the target is
// full, or does not work.
func (x *exporter) entry(a cluster.Attr, path string) error {
	if a.Type == cluster.TypeDirectory {
		return x.directory(a, path)
	}
	if a.Nlink > 1 {
		if first, ok := x.links[a.Ino]; ok {
			return x.link(first, path)
		}
	}
	err := x.leaf(a, path)
	if err == nil && a.Nlink > 1 {
		if _, e := os.Lstat(path); e == nil {
			x.links[a.Ino] = path
		} else if _, e := os.Lstat(path + exportIncomplete); e == nil {
			x.links[a.Ino] = path + exportIncomplete
		}
	}
	return err
}

// link makes path another name of first.
func (x *exporter) link(first, path string) error {
	if strings.HasSuffix(first, exportIncomplete) {
		path += exportIncomplete
	}
	x.sum.Others++
	a, e1 := os.Lstat(first)
	b, e2 := os.Lstat(path)
	if e1 == nil && e2 == nil && os.SameFile(a, b) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(first, path)
}

// leaf exports what is no directory.
func (x *exporter) leaf(a cluster.Attr, path string) error {
	if a.Type == cluster.TypeRegular {
		return x.file(a, path)
	}
	x.sum.Others++
	if st, err := os.Lstat(path); err == nil && st.ModTime().UnixNano() == int64(a.Mtime) {
		return nil // of an earlier run
	}
	part := filepath.Join(filepath.Dir(path), fmt.Sprint(exportPart, a.Ino))
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	switch a.Type {
	case cluster.TypeSymlink:
		var target string
		if target, err = x.view.Readlink(a.Ino); err == nil {
			err = os.Symlink(target, part)
		}
	case cluster.TypeFIFO:
		err = unix.Mkfifo(part, 0o600)
	case cluster.TypeSocket:
		err = unix.Mknod(part, unix.S_IFSOCK|0o600, 0)
	case cluster.TypeChar:
		err = unix.Mknod(part, unix.S_IFCHR|0o600, int(unix.Mkdev(a.Major, a.Minor)))
	case cluster.TypeBlock:
		err = unix.Mknod(part, unix.S_IFBLK|0o600, int(unix.Mkdev(a.Major, a.Minor)))
	default:
		err = fmt.Errorf("type %d is not known", a.Type)
	}
	if err != nil {
		if full(err) {
			return err
		}
		x.sum.Failed++
		x.lack("%s could not be made: %v", path, err)
		return nil
	}
	if err := x.attributes(a, part); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// file exports a regular file.
func (x *exporter) file(a cluster.Attr, path string) error {
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && st.Size() == int64(a.Size) && st.ModTime().UnixNano() == int64(a.Mtime) {
		x.sum.Files++
		return nil // of an earlier run
	}
	part := filepath.Join(filepath.Dir(path), fmt.Sprint(exportPart, a.Ino))
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	lost, err := x.data(f, a, path)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if err := x.attributes(a, part); err != nil {
		return err
	}
	if lost > 0 {
		x.sum.Damaged++
		return os.Rename(part, path+exportIncomplete)
	}
	x.sum.Files++
	if err := os.Rename(part, path); err != nil {
		return err
	}
	// Of an earlier run with fewer disks.
	if err := os.Remove(path + exportIncomplete); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// data writes a file's bytes, and returns how many are missing: they are holes.
func (x *exporter) data(f *os.File, a cluster.Attr, path string) (lost uint64, err error) {
	if err := f.Truncate(int64(a.Size)); err != nil {
		return 0, err
	}
	var blob cluster.BlobID
	var held segment.Blocks
	var why error
	defer func() { held.Release() }()
	x.view.Extents(a.Ino, 0, ^uint64(0), func(e *volume.Extent) bool {
		if err = x.ctx.Err(); err != nil {
			return false
		}
		p := e.Bytes
		if e.Blob != 0 {
			if e.Blob != blob {
				held.Release()
				blob = e.Blob
				held, why = x.read(e.Blob)
			}
			switch {
			case why == nil && uint64(e.BlobOff)+uint64(e.Len) > uint64(len(held.Data)):
				why = fmt.Errorf("has %d bytes, and the file refers to %d+%d", len(held.Data), e.BlobOff, e.Len)
				fallthrough
			case why != nil:
				x.lack("%s: bytes %d to %d are missing: blob %v %v", path, e.Off, e.End(), e.Blob, why)
				lost += uint64(e.Len)
				return true
			}
			p = held.Data[e.BlobOff:][:e.Len]
		}
		_, err = f.WriteAt(p, int64(e.Off))
		x.sum.Bytes += uint64(len(p))
		x.tell()
		return err == nil
	})
	return lost, err
}

// read reads a blob from the first disk that has it whole.
func (x *exporter) read(id cluster.BlobID) (segment.Blocks, error) {
	b, ok := x.view.Blob(id)
	if !ok {
		return segment.Blocks{}, errors.New("has no record in the volume")
	}
	switch b.Kind {
	case volume.Copies:
	case volume.Coded:
		return x.decode(b)
	default:
		return segment.Blocks{}, fmt.Errorf("is of kind %d, which this program can't export", b.Kind)
	}
	key := cluster.BlobKey{Group: x.group, Blob: b.Stored}
	why := errors.New("is on none of the disks")
	for _, s := range x.stores {
		if !s.Has(key) {
			continue
		}
		blocks, err := s.Read(key)
		switch {
		case err != nil:
			why = fmt.Errorf("can't be read: %w", err)
		case blocks.Len != b.Len || blocks.Sums.Whole(len(blocks.Data)) != b.CRC:
			why = fmt.Errorf("has another content than the volume says: %d bytes", blocks.Len)
			blocks.Release()
		default:
			return blocks, nil
		}
	}
	return segment.Blocks{}, why
}

// decode makes a coded blob of the shards that the disks have.
func (x *exporter) decode(b volume.Blob) (segment.Blocks, error) {
	set, ok := x.view.ReplicaSet(b.Set)
	if !ok || !set.Code.Valid() {
		return segment.Blocks{}, fmt.Errorf("is on replica set %d, which is not there", b.Set)
	}
	size := int(set.Code.ShardLen(b.Len))
	shards, made := make([][]byte, set.Code.Shards()), make([][]byte, set.Code.Shards())
	have := 0
	for i := range shards {
		for _, s := range x.stores {
			r, err := s.Read(cluster.BlobKey{Group: x.group, Blob: b.Stored, Shard: uint8(i + 1)})
			if err == nil && len(r.Data) == size {
				defer r.Release()
				shards[i] = r.Data
				have++
				break
			}
			r.Release()
		}
		if shards[i] == nil && i < int(set.Code.K) {
			made[i] = make([]byte, size)
		}
	}
	if have < int(set.Code.K) {
		return segment.Blocks{}, fmt.Errorf("has %d shards on the disks, and %d are needed", have, set.Code.K)
	}
	if err := erasure.Reconstruct(set.Code, shards, made); err != nil {
		return segment.Blocks{}, err
	}
	data := make([]byte, 0, int(set.Code.K)*size)
	for i := range int(set.Code.K) {
		if shards[i] == nil {
			shards[i] = made[i]
		}
		data = append(data, shards[i]...)
	}
	data = data[:b.Len]
	if checksum.Sum(data) != b.CRC {
		return segment.Blocks{}, errors.New("has another content than the volume says, made of its shards")
	}
	return segment.NewBlocks(0, b.Len, data, nil, nil), nil
}

// attributes sets owner, mode, extended attributes and times, in this order.
func (x *exporter) attributes(a cluster.Attr, path string) error {
	fault := func(what string, err error) error {
		if full(err) {
			return fmt.Errorf("%s: %w", path, err)
		}
		x.sum.Failed++
		x.lack("%s: %s could not be set: %v", path, what, err)
		return nil
	}
	if !x.ownerOff {
		switch err := os.Lchown(path, int(a.UID), int(a.GID)); {
		case errors.Is(err, fs.ErrPermission):
			x.ownerOff = true
			x.sum.Failed++
			x.lack("owners could not be set (%v): run this as root to keep them", err)
		case err != nil:
			if err := fault("its owner", err); err != nil {
				return err
			}
		}
	}
	if a.Type != cluster.TypeSymlink {
		if err := unix.Chmod(path, a.Mode); err != nil { // with the bits that os.Chmod spells differently
			if err := fault("its mode", err); err != nil {
				return err
			}
		}
	}
	names, err := x.view.Xattrs(a.Ino)
	if err != nil {
		return fault("its extended attributes", err)
	}
	for _, name := range names {
		value, err := x.view.Xattr(a.Ino, name)
		if err == nil {
			err = unix.Lsetxattr(path, "user."+name, value, 0)
		}
		if err != nil {
			if err := fault(fmt.Sprintf("its extended attribute %q", name), err); err != nil {
				return err
			}
		}
	}
	times := []unix.Timespec{unix.NsecToTimespec(int64(a.Atime)), unix.NsecToTimespec(int64(a.Mtime))}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fault("its times", err)
	}
	return nil
}

// full reports whether an error means that the target takes nothing more.
func full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO)
}

// tell tells of the progress, now and then.
func (x *exporter) tell() {
	if now := time.Now(); now.Sub(x.told) >= progressEvery {
		x.told = now
		u := x.view.Usage()
		x.progress(fmt.Sprintf("%d of %d inodes, %s written of %s", x.sum.Files+x.sum.Others, u.Inodes, humanize.IBytes(x.sum.Bytes), humanize.IBytes(u.Bytes)))
	}
}
