package segment

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/datastore/bufpool"
)

// A file is a segment's file. It is closed when the last of those who hold it
// lets go.
//
// It is written past the page cache where the file system can: data that comes
// by the stream would be copied into pages that the kernel has to find first,
// and be written from there by the sync, with all writers of the segment
// waiting for one lock. All writes go that way, the small ones as well, so that
// there is never a dirty page that could be in the way of one. Reads go through
// the page cache.
type file struct {
	vfs.File
	fd       int         // -1: the file system has no descriptors
	direct   int         // descriptor that writes past the page cache, -1: none
	buffered atomic.Bool // direct does not work
	refs     atomic.Int32
}

func openFile(fs vfs.FS, name string, buffered bool) (*file, error) {
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	fd := -1
	if d := f.Fd(); d != vfs.InvalidFd {
		fd = int(d)
	}
	r := &file{File: f, fd: fd, direct: -1}
	if fd >= 0 && !buffered {
		r.direct = openDirect(fd)
	}
	r.refs.Store(1)
	return r, nil
}

// openDirect opens an open file again, to be written past the page cache, and
// returns -1 if that cannot be.
func openDirect(fd int) int {
	name := fmt.Sprintf("/proc/self/fd/%d", fd)
	for {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd
		}
		if err != unix.EINTR {
			return -1
		}
	}
}

func (f *file) hold() { f.refs.Add(1) }

// tryHold is hold for one who does not know that anybody else holds the file.
func (f *file) tryHold() bool {
	for {
		n := f.refs.Load()
		if n == 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *file) drop() {
	if f.refs.Add(-1) == 0 {
		if f.direct >= 0 {
			unix.Close(f.direct)
		}
		f.Close()
	}
}

// zeros pads payloads. It is never written to.
var zeros [1 << 20]byte

// write writes b at off. Both off and the length are multiples of Align.
func (f *file) write(off int64, b []byte) error {
	if f.fd < 0 {
		_, err := f.WriteAt(b, off)
		return err
	}
	if f.direct >= 0 && !f.buffered.Load() {
		err := writeDirect(f.direct, off, b)
		if err != unix.EINVAL {
			return err
		}
		// The file system takes no such writes after all, or wants them to be
		// aligned to more than Align.
		f.buffered.Store(true)
	}
	return pwrite(f.fd, off, b)
}

// writeDirect is write past the page cache. The kernel wants memory that is
// aligned as well, as that of bufpool is.
func writeDirect(fd int, off int64, b []byte) error {
	if bufpool.Aligned(b) {
		return pwrite(fd, off, b)
	}
	buf := bufpool.Get(len(b))
	defer buf.Release()
	copy(buf.B, b)
	return pwrite(fd, off, buf.B)
}

func pwrite(fd int, off int64, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		off, b = off+int64(n), b[n:]
	}
	return nil
}

// readFull reads len(p) bytes at off; what is beyond the file's end is zeros.
func (f *file) readFull(p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		clear(p[n:])
		return nil
	}
	return err
}

// allocate makes the file size bytes long, with the space for them reserved
// where the file system can.
func (f *file) allocate(size int64) error {
	if f.fd < 0 {
		return nil
	}
	err := unix.Fallocate(f.fd, 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return unix.Ftruncate(f.fd, size)
	}
	return err
}

var errNoHoles = errors.New("the file system cannot punch holes")

// punch makes [off, off+n) a hole, that reads as zeros.
func (f *file) punch(off, n int64) error {
	if f.fd < 0 {
		for n > 0 {
			k := min(n, int64(len(zeros)))
			if _, err := f.WriteAt(zeros[:k], off); err != nil {
				return err
			}
			off, n = off+k, n-k
		}
		return nil
	}
	err := unix.Fallocate(f.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return errNoHoles
	}
	return err
}

// nextData returns the first place at or after off that may hold data, up to end.
func (f *file) nextData(off, end int64) int64 {
	if f.fd < 0 {
		return off
	}
	n, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return end
	}
	if err != nil || n < off {
		return off
	}
	return min(n&^(Align-1), end)
}
