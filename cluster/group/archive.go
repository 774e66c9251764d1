package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hawserfs/hawser/cluster"
)

// A checkpoint travels as an archive of its files:
//
//	"HWSNAP01"
//	'F' nameLen u16 size u64 name content crc32c u32     for each file; the sum is of all before it
//	'E' files u32 crc32c u32
//
// Names are relative, with slashes; numbers are big-endian.
const (
	archiveMagic = "HWSNAP01"
	fileFixed    = 1 + 2 + 8
	endFixed     = 1 + 4 + 4
	maxFileName  = 1024
)

var errArchive = errors.New("a received snapshot is damaged")

// An archiveReader makes the archive of a folder, which it removes on Close.
type archiveReader struct {
	dir   string
	size  int64 // bytes
	names []string
	sizes []int64

	next int    // file
	buf  []byte // what is to be read before the file
	file *os.File
	left int64
	sum  uint32
	done bool
}

func newArchiveReader(dir string) (*archiveReader, error) {
	r := &archiveReader{dir: dir, buf: []byte(archiveMagic), size: int64(len(archiveMagic)) + endFixed}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || len(name) > maxFileName {
			return fmt.Errorf("%s cannot be part of a snapshot", path)
		}
		r.names = append(r.names, filepath.ToSlash(name))
		r.sizes = append(r.sizes, info.Size())
		r.size += fileFixed + int64(len(name)) + info.Size() + 4
		return nil
	})
	return r, err
}

// Read reads the archive.
func (r *archiveReader) Read(p []byte) (n int, err error) {
	for len(p) > 0 {
		switch {
		case len(r.buf) > 0:
			k := copy(p, r.buf)
			r.buf = r.buf[k:]
			n, p = n+k, p[k:]
		case r.file != nil && r.left > 0:
			k, err := r.file.Read(p[:min(int64(len(p)), r.left)])
			r.sum = crc32.Update(r.sum, castagnoli, p[:k])
			r.left -= int64(k)
			n, p = n+k, p[k:]
			if err == io.EOF && r.left > 0 {
				err = io.ErrUnexpectedEOF
			}
			if err != nil && err != io.EOF {
				return n, err
			}
		case r.file != nil:
			_ = r.file.Close()
			r.file = nil
			r.buf = binary.BigEndian.AppendUint32(nil, r.sum)
		case r.next < len(r.names):
			if err := r.open(r.names[r.next], r.sizes[r.next]); err != nil {
				return n, err
			}
			r.next++
		case !r.done:
			r.done = true
			r.buf = binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(r.names)))
			r.buf = binary.BigEndian.AppendUint32(r.buf, crc32.Checksum(r.buf, castagnoli))
		default:
			if n == 0 {
				err = io.EOF
			}
			return n, err
		}
	}
	return n, nil
}

func (r *archiveReader) open(name string, size int64) error {
	f, err := os.Open(filepath.Join(r.dir, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	r.file, r.left = f, size
	r.buf = append(r.buf[:0:0], 'F')
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(len(name)))
	r.buf = binary.BigEndian.AppendUint64(r.buf, uint64(size))
	r.buf = append(r.buf, name...)
	r.sum = crc32.Checksum(r.buf, castagnoli)
	return nil
}

// Close removes the folder.
func (r *archiveReader) Close() error {
	if r.file != nil {
		_ = r.file.Close()
		r.file = nil
	}
	return os.RemoveAll(r.dir)
}

// An archiveWriter unpacks an archive into a new folder. The bytes may come in
// pieces of any size.
type archiveWriter struct {
	dir   string
	buf   []byte // of the part that is being gathered
	need  int    // bytes of that part
	step  func(*archiveWriter) error
	file  *os.File
	left  int64 // bytes of the file's content
	sum   uint32
	files uint32
	end   bool
}

func newArchiveWriter(dir string) (*archiveWriter, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return &archiveWriter{dir: dir, need: len(archiveMagic), step: (*archiveWriter).magic}, nil
}

// Write takes the next bytes.
func (w *archiveWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if w.end {
			return 0, fmt.Errorf("%w: bytes after its end", errArchive)
		}
		if w.left > 0 {
			k := int(min(int64(len(p)), w.left))
			if _, err := w.file.Write(p[:k]); err != nil {
				return 0, err
			}
			w.sum = crc32.Update(w.sum, castagnoli, p[:k])
			w.left -= int64(k)
			p = p[k:]
			continue
		}
		k := min(len(p), w.need-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		if len(w.buf) == w.need {
			if err := w.step(w); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// expect gathers the next part, of n bytes, for step.
func (w *archiveWriter) expect(n int, step func(*archiveWriter) error) {
	w.buf, w.need, w.step = w.buf[:0], n, step
}

func (w *archiveWriter) magic() error {
	if n := len(archiveMagic) - 2; string(w.buf[:n]) == archiveMagic[:n] && string(w.buf[n:]) > archiveMagic[n:] {
		return fmt.Errorf("the snapshot has format %s, this program knows up to %s: upgrade it: %w", w.buf[n:], archiveMagic[n:], cluster.EVERSION)
	}
	if string(w.buf) != archiveMagic {
		return fmt.Errorf("%w: it has another format", errArchive)
	}
	w.expect(1, (*archiveWriter).kind)
	return nil
}

func (w *archiveWriter) kind() error {
	switch w.buf[0] {
	case 'F':
		w.need, w.step = fileFixed, (*archiveWriter).lengths
	case 'E':
		w.need, w.step = endFixed, (*archiveWriter).finish
	default:
		return fmt.Errorf("%w: a part of kind %d", errArchive, w.buf[0])
	}
	return nil
}

func (w *archiveWriter) lengths() error {
	n := int(binary.BigEndian.Uint16(w.buf[1:]))
	if n == 0 || n > maxFileName || int64(binary.BigEndian.Uint64(w.buf[3:])) < 0 {
		return fmt.Errorf("%w: bad lengths of a file", errArchive)
	}
	w.need, w.step = fileFixed+n, (*archiveWriter).open
	return nil
}

func (w *archiveWriter) open() error {
	name := filepath.FromSlash(string(w.buf[fileFixed:]))
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%w: a file named %q", errArchive, name)
	}
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.file = f
	w.left = int64(binary.BigEndian.Uint64(w.buf[3:]))
	w.sum = crc32.Checksum(w.buf, castagnoli)
	w.expect(4, (*archiveWriter).closeFile)
	return nil
}

func (w *archiveWriter) closeFile() error {
	if binary.BigEndian.Uint32(w.buf) != w.sum {
		return fmt.Errorf("%w: bad checksum of %s", errArchive, w.file.Name())
	}
	f := w.file
	w.file = nil
	w.files++
	w.expect(1, (*archiveWriter).kind)
	return errors.Join(f.Sync(), f.Close())
}

func (w *archiveWriter) finish() error {
	if crc32.Checksum(w.buf[:5], castagnoli) != binary.BigEndian.Uint32(w.buf[5:]) ||
		binary.BigEndian.Uint32(w.buf[1:]) != w.files {
		return fmt.Errorf("%w: bad end", errArchive)
	}
	w.end = true
	return nil
}

// Close completes the folder and makes it durable.
func (w *archiveWriter) Close() error {
	if !w.end {
		w.abort()
		return fmt.Errorf("%w: it has no end", errArchive)
	}
	return filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
}

// abort closes the file that is being written.
func (w *archiveWriter) abort() {
	if w.file != nil {
		_ = w.file.Close()
		w.file = nil
	}
}

// syncDir makes a folder's entries durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
