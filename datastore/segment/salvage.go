package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// A Salvage reads the blobs of a store's segments without its index, and without
// writing anything: for the day when nothing else is left. It has everything that
// is in the segments, also what was deleted since and is not overwritten yet.
type Salvage struct {
	fs      vfs.FS
	uuid    [16]byte
	files   []vfs.File
	records map[cluster.BlobKey][]salvaged // newest first
	skipped int
}

type salvaged struct {
	file int
	rec  record
}

// OpenSalvage reads the headers of all records in the folder of a store. It
// calls progress, if not nil, before each segment.
func OpenSalvage(fs vfs.FS, dir string, progress func(segment, of int)) (_ *Salvage, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	s := &Salvage{fs: fs, records: map[cluster.BlobKey][]salvaged{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		_, seg := parseName(n, segPrefix)
		_, free := parseName(n, freePrefix)
		return !seg && !free
	})
	slices.Sort(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("segment: %s has no segments: is it the folder of a store, and is its disk mounted?", dir)
	}
	known := false
	sb, ok, err := readSuper(fs, dir)
	if errors.Is(err, errNewerFormat) {
		return nil, fmt.Errorf("segment: %w", err)
	}
	if ok && err == nil {
		s.uuid, known = sb.uuid, true
	}
	for _, n := range names {
		f, err := fs.Open(fs.PathJoin(dir, n))
		if err != nil {
			return nil, fmt.Errorf("segment: %w", err)
		}
		s.files = append(s.files, f)
		if !known {
			// The superblock is lost: each segment says whose it is.
			known = s.learn(f)
		}
	}
	if !known {
		return nil, fmt.Errorf("segment: %s has neither a superblock nor a segment with a whole header", dir)
	}
	for i, n := range names {
		if progress != nil {
			progress(i, len(names))
		}
		if err := s.scan(i, n); err != nil {
			return nil, fmt.Errorf("segment: %s: %w", n, err)
		}
	}
	for _, list := range s.records {
		slices.SortFunc(list, func(a, b salvaged) int { return cmp.Compare(b.rec.seq, a.rec.seq) })
	}
	return s, nil
}

// learn takes the store's UUID from a segment's header.
func (s *Salvage) learn(f vfs.File) bool {
	var h [Align]byte
	if readFullAt(f, h[:], 0) != nil {
		return false
	}
	uuid := [16]byte(h[12:28])
	if magic, _ := decodeSegmentHeader(h[:], &uuid); magic == 0 {
		return false
	}
	s.uuid = uuid
	return true
}

// scan notes the records of a segment.
func (s *Salvage) scan(i int, name string) error {
	no, ok := parseName(name, segPrefix)
	if !ok {
		no, _ = parseName(name, freePrefix)
	}
	f := s.files[i]
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size := st.Size()
	raw := &file{File: f, fd: -1, direct: -1}
	if d := f.Fd(); d != vfs.InvalidFd {
		raw.fd = int(d)
	}
	var head [Align]byte
	if err := readFullAt(f, head[:], 0); err == nil {
		if err := checkSegmentVersion(head[:], &s.uuid); err != nil {
			return err
		}
	}
	var long []byte
	for off := int64(Align); off+Align <= size; off += Align {
		if to := raw.nextData(off, size); to > off {
			off = to &^ (Align - 1)
			if off+Align > size {
				break
			}
		}
		if err := readFullAt(f, head[:], off); err != nil {
			s.skipped++ // a bad sector: what is behind it counts
			continue
		}
		n, ok := sumsLen(head[:])
		if !ok {
			continue
		}
		b := head[:]
		if headerSize+n > len(b) {
			long = append(long[:0], make([]byte, headerSize+n)...)
			if err := readFullAt(f, long, off); err != nil {
				s.skipped++
				continue
			}
			b = long
		}
		var r record
		if _, ok := r.decode(b, &s.uuid, no, off); !ok || r.end() > size {
			continue
		}
		if r.kind == kindBlob {
			s.records[r.info.Key] = append(s.records[r.info.Key], salvaged{i, r})
			off = r.end() - Align
		}
	}
	return nil
}

func readFullAt(f vfs.File, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		clear(p[n:])
		return nil
	}
	return err
}

// Blobs returns how many blobs were found.
func (s *Salvage) Blobs() int { return len(s.records) }

// Has reports whether a blob was found, whole or not.
func (s *Salvage) Has(key cluster.BlobKey) bool { return len(s.records[key]) > 0 }

// Read reads a whole blob, verified: ENOBLOB if it was not found, ECORRUPT or EIO
// if no record of it can be read.
func (s *Salvage) Read(key cluster.BlobKey) (Blocks, error) {
	err := error(cluster.ENOBLOB)
	for _, c := range s.records[key] {
		var b Blocks
		if b, err = s.read(c); err == nil {
			return b, nil
		}
	}
	return Blocks{}, err
}

func (s *Salvage) read(c salvaged) (Blocks, error) {
	buf := bufpool.Get(int(c.rec.head) + int(c.rec.info.Len))
	if err := readFullAt(s.files[c.file], buf.B, c.rec.off); err != nil {
		buf.Release()
		return Blocks{}, fmt.Errorf("segment: blob %v: %w: %w", c.rec.info.Key.Blob, err, cluster.EIO)
	}
	var r record
	sums, ok := r.decode(buf.B[:c.rec.head], &s.uuid, c.rec.seg, c.rec.off)
	data := buf.B[c.rec.head:]
	if !ok || sums.Verify(data) >= 0 || checksum.Sums(sums).Whole(len(data)) != r.info.CRC {
		buf.Release()
		return Blocks{}, fmt.Errorf("segment: blob %v is damaged: %w", c.rec.info.Key.Blob, cluster.ECORRUPT)
	}
	return NewBlocks(0, r.info.Len, data, sums, buf), nil
}

// Close closes the segments.
func (s *Salvage) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	return errors.Join(errs...)
}

// IsStore reports whether a folder looks like that of a store.
func IsStore(fs vfs.FS, dir string) bool {
	if fs == nil {
		fs = vfs.Default
	}
	names, err := fs.List(dir)
	return err == nil && slices.ContainsFunc(names, func(n string) bool { return n == "super" || strings.HasPrefix(n, segPrefix) })
}
