package memfs

import (
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

const pageSize = 4096

// regular returns the regular file f.
func (fs *FS) regular(f vfs.File) (*volume, *node, vfs.Errno) {
	if isRoot(f) {
		return nil, nil, cluster.EISDIR
	}
	v, n, errno := fs.node(f)
	switch {
	case errno != cluster.OK:
		return nil, nil, errno
	case n.attr.Type == cluster.TypeDirectory:
		return nil, nil, cluster.EISDIR
	case n.attr.Type == cluster.TypeSymlink:
		return nil, nil, cluster.ESYMLINK
	case n.attr.Type != cluster.TypeRegular:
		return nil, nil, cluster.EINVAL
	}
	return v, n, cluster.OK
}

// readAt reads what the pages have, and zeros between them.
func (n *node) readAt(p []byte, off uint64) {
	for len(p) > 0 {
		in := off % pageSize
		k := min(len(p), int(pageSize-in))
		if page := n.pages[off/pageSize]; page != nil {
			copy(p[:k], page[in:])
		} else {
			clear(p[:k])
		}
		p, off = p[k:], off+uint64(k)
	}
}

// writeAt writes p; the size is the caller's business.
func (n *node) writeAt(p []byte, off uint64) {
	for len(p) > 0 {
		in := off % pageSize
		page := n.pages[off/pageSize]
		if page == nil {
			page = make([]byte, pageSize)
			n.pages[off/pageSize] = page
		}
		k := copy(page[in:], p)
		p, off = p[k:], off+uint64(k)
	}
	n.attr.Used = uint64(len(n.pages)) * pageSize
}

// punch makes [off, end) zero, and a hole where it covers whole pages.
func (n *node) punch(off, end uint64) {
	for i, page := range n.pages {
		from, to := max(i*pageSize, off), min((i+1)*pageSize, end)
		switch {
		case from >= to:
		case to-from == pageSize:
			delete(n.pages, i)
		default:
			clear(page[from-i*pageSize : to-i*pageSize])
		}
	}
	n.attr.Used = uint64(len(n.pages)) * pageSize
}

func (n *node) resize(size uint64) {
	if size < n.attr.Size {
		n.punch(size, math.MaxUint64)
	}
	n.attr.Size = size
}

// Open implements vfs.FS.
func (fs *FS) Open(_ *vfs.Request, f vfs.File) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return errno
	}
	n.opens++
	return nil
}

// Close implements vfs.FS.
func (fs *FS) Close(f vfs.File) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	v, n, errno := fs.regular(f)
	if errno != cluster.OK || n.opens == 0 {
		panic("memfs: Close without Open")
	}
	n.opens--
	v.forget(n)
}

// Read implements vfs.FS.
func (fs *FS) Read(_ *vfs.Request, f vfs.File, off uint64, count int) (vfs.Data, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return vfs.Data{}, errno
	}
	if off >= n.attr.Size {
		return vfs.Data{EOF: true}, nil
	}
	count = int(min(uint64(count), n.attr.Size-off))
	p := make([]byte, count)
	n.readAt(p, off)
	return vfs.Data{
		Bufs: [][]byte{p}, N: count, EOF: off+uint64(count) == n.attr.Size, Holes: n.holes(off, off+uint64(count)),
	}, nil
}

// holes returns what there is no page of in [off, end).
func (n *node) holes(off, end uint64) (holes []vfs.Hole) {
	for off < end {
		next := min(end, (off/pageSize+1)*pageSize)
		if n.pages[off/pageSize] == nil {
			if i := len(holes) - 1; i >= 0 && holes[i].Off+holes[i].Len == off {
				holes[i].Len += next - off
			} else {
				holes = append(holes, vfs.Hole{Off: off, Len: next - off})
			}
		}
		off = next
	}
	return holes
}

func (fs *FS) write(r *vfs.Request, f vfs.File, off uint64, p []byte, how vfs.Stability) (vfs.Stability, vfs.Verifier, error) {
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return 0, 0, errno
	}
	if n.attr.Class.Consistency == cluster.Strict {
		how = vfs.FileSync
	}
	if len(p) == 0 {
		return how, fs.verifier, nil
	}
	if off > cluster.MaxFileSize || uint64(len(p)) > cluster.MaxFileSize-off {
		return 0, 0, cluster.EFBIG
	}
	fs.change++
	n.writeAt(p, off)
	n.attr.Size = max(n.attr.Size, off+uint64(len(p)))
	killPriv(&n.attr, r.Cred())
	fs.touch(n, true)
	return how, fs.verifier, nil
}

// Commit implements vfs.FS.
func (fs *FS) Commit(_ *vfs.Request, f vfs.File) (vfs.Verifier, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if _, _, errno := fs.regular(f); errno != cluster.OK {
		return 0, errno
	}
	return fs.verifier, nil
}

// Seek implements vfs.FS.
func (fs *FS) Seek(_ *vfs.Request, f vfs.File, off uint64, what vfs.SeekWhat) (uint64, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return 0, errno
	}
	if off >= n.attr.Size {
		return 0, cluster.ENXIO
	}
	if what == vfs.SeekHole {
		for off < n.attr.Size && n.pages[off/pageSize] != nil {
			off = (off/pageSize + 1) * pageSize
		}
		return min(off, n.attr.Size), nil // the end of a file is a hole
	}
	if n.pages[off/pageSize] != nil {
		return off, nil
	}
	next := uint64(math.MaxUint64)
	for i := range n.pages {
		if i*pageSize > off {
			next = min(next, i*pageSize)
		}
	}
	if next >= n.attr.Size {
		return 0, cluster.ENXIO
	}
	return next, nil
}

func (fs *FS) allocate(r *vfs.Request, f vfs.File, off, count uint64) error {
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return errno
	}
	if off > cluster.MaxFileSize || count > cluster.MaxFileSize-off {
		return cluster.EFBIG
	}
	if off+count > n.attr.Size {
		fs.change++
		n.attr.Size = off + count
		killPriv(&n.attr, r.Cred())
		fs.touch(n, true)
	}
	return nil
}

func (fs *FS) deallocate(r *vfs.Request, f vfs.File, off, count uint64) error {
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return errno
	}
	if count > math.MaxUint64-off {
		count = math.MaxUint64 - off
	}
	fs.change++
	n.punch(off, off+count)
	killPriv(&n.attr, r.Cred())
	fs.touch(n, true)
	return nil
}

func (fs *FS) clone(r *vfs.Request, src vfs.File, srcOff uint64, dst vfs.File, dstOff, count uint64) error {
	_, s, errno := fs.regular(src)
	if errno != cluster.OK {
		return errno
	}
	_, d, errno := fs.regular(dst)
	if errno != cluster.OK {
		return errno
	}
	if src.Volume != dst.Volume {
		return cluster.EXDEV
	}
	if count == 0 && srcOff <= s.attr.Size {
		count = s.attr.Size - srcOff
	}
	if srcOff > s.attr.Size || count > s.attr.Size-srcOff ||
		s == d && srcOff < dstOff+count && dstOff < srcOff+count {
		return cluster.EINVAL
	}
	if count == 0 {
		return nil
	}
	p := make([]byte, count)
	s.readAt(p, srcOff)
	fs.change++
	d.writeAt(p, dstOff)
	d.attr.Size = max(d.attr.Size, dstOff+count)
	killPriv(&d.attr, r.Cred())
	fs.touch(d, true)
	return nil
}
