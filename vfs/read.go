package vfs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/vfs/blobcache"
)

const (
	// MaxRead is the most that one Read returns, in bytes.
	MaxRead = 4 << 20
	// settles is how often a map is read while the file changes, before a
	// snapshot is taken, which costs more.
	settles = 2
	// remaps is how often a map is agreed on again because a blob is gone.
	remaps = 3
	// wideBlob is up to which length a blob is always loaded whole.
	wideBlob = 256 << 10
	// loadTimeout bounds the loading of a part of a blob.
	loadTimeout = time.Minute
)

var zeros [64 << 10]byte

// A reading is the memory of one Read: what its result refers to.
type reading struct {
	segs  []segment
	over  []segment
	parts []blobcache.Part
	bufs  [][]byte
	holes []Hole
	// release is Data.Release, made once for each reading.
	release func()
}

var readings sync.Pool

func newReading() *reading {
	if rd, ok := readings.Get().(*reading); ok {
		return rd
	}
	rd := new(reading)
	rd.release = rd.free
	return rd
}

// free gives back all that the reading refers to.
func (rd *reading) free() {
	rd.reset()
	readings.Put(rd)
}

func (rd *reading) reset() {
	for i := range rd.parts {
		rd.parts[i].Ref().Release()
	}
	clear(rd.parts)
	clear(rd.segs)
	clear(rd.over)
	clear(rd.bufs)
	rd.holes = rd.holes[:0]
	rd.parts, rd.segs, rd.over, rd.bufs = rd.parts[:0], rd.segs[:0], rd.over[:0], rd.bufs[:0]
}

// Read implements FS. It returns at most MaxRead bytes.
func (s *System) Read(r *Request, f File, off uint64, n int) (Data, error) {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return Data{}, err
	}
	n = min(n, MaxRead)
	rd := newReading()
	for try := 0; ; try++ {
		d, err := m.read(r, rd, f, off, n)
		if err == nil {
			return d, nil
		}
		rd.reset()
		if !errors.Is(err, cluster.ENOBLOB) {
			rd.free()
			return Data{}, err
		}
		// No member has a blob that the map names: the map was old. The file
		// was written again and the blob deleted since.
		if try == remaps {
			rd.free()
			s.cfg.Logger.Error("data is gone", "volume", m.Name, "inode", f.Ino, "offset", off, "error", err)
			return Data{}, fmt.Errorf("vfs: reading inode %d: %v: %w", f.Ino, err, cluster.EIO)
		}
		r.on(m.ID).strict = false
		if err := m.strict(r); err != nil {
			rd.free()
			return Data{}, err
		}
	}
}

// read is one attempt of Read.
func (m *mount) read(r *Request, rd *reading, f File, off uint64, n int) (Data, error) {
	if n < 0 || off > cluster.MaxFileSize {
		return Data{}, cluster.EINVAL
	}
	end := off + uint64(n)
	// What is held comes first: it is dropped only after it is in the state.
	heldEnd := uint64(0)
	if h := m.held.get(f.Ino, false); h != nil {
		rd.over, heldEnd = h.snapshot(rd.over, off, end)
		m.held.put(h)
	}
	a, err := m.inode(r, f)
	if err != nil {
		return Data{}, err
	}
	if a, err = m.mapOf(rd, f, a, off, end); err != nil {
		return Data{}, err
	}
	size := max(a.Size, heldEnd)
	if off >= size {
		m.touch(&a)
		rd.free()
		return Data{EOF: true}, nil
	}
	end = min(end, size)
	segs := compose(rd.segs, rd.over)
	seq := m.streams.advance(m, f, off, end, size)
	if err := m.fetch(r.ctx, rd, segs, off, end, seq); err != nil {
		return Data{}, err
	}
	m.touch(&a)
	return Data{Bufs: rd.bufs, N: int(end - off), EOF: end == size, Holes: rd.holes, Release: rd.release}, nil
}

// mapOf fills rd.segs with what is stored of [off, end), and returns the
// attributes of the same state; a is what they were a moment ago. ENOBLOB if
// the map names a blob that is gone.
func (m *mount) mapOf(rd *reading, f File, a Attr, off, end uint64) (Attr, error) {
	// If the file did not change meanwhile, all was read of one state.
	for range settles {
		rd.segs = stored(m.View, rd.segs[:0], f.Ino, off, min(end, a.Size))
		located := locate(m.View, rd.segs)
		now, ok := m.peek(f)
		if !ok {
			return Attr{}, cluster.ESTALE
		}
		if now.Change == a.Change {
			if !located {
				return Attr{}, cluster.ENOBLOB
			}
			return now, nil
		}
		a = now
	}
	// It changes all the time.
	if m.Snapshot == nil {
		return Attr{}, cluster.EAGAIN
	}
	snap := m.Snapshot()
	if snap == nil {
		return Attr{}, cluster.EAGAIN
	}
	view := volume.View{Reader: snap}
	a, ok := view.Inode(f.Ino)
	located := false
	if ok {
		rd.segs = stored(view, rd.segs[:0], f.Ino, off, min(end, a.Size))
		located = locate(view, rd.segs)
	}
	switch err := snap.Close(); {
	case err != nil:
		return Attr{}, again("reading a snapshot", err)
	case !ok:
		return Attr{}, cluster.ESTALE
	case !located:
		return Attr{}, cluster.ENOBLOB
	}
	return a, nil
}

// fetch fills rd.bufs with the bytes of [off, end), which segs describe.
func (m *mount) fetch(ctx context.Context, rd *reading, segs []segment, off, end uint64, wide bool) error {
	// All that is missing is loaded at once, the last of it in this goroutine.
	var wg sync.WaitGroup
	var last func()
	start := func(f func()) {
		if last != nil {
			wg.Go(last)
		}
		last = f
	}
	type span struct{ first, end int } // of rd.parts
	spans := make([]span, len(segs))
	for i := range segs {
		s := &segs[i]
		spans[i].first = len(rd.parts)
		if s.blob != 0 {
			rd.parts = m.sys.cache.Acquire(rd.parts, blobcache.Key{Group: m.ID, Blob: s.blob}, s.blobLen, s.blobOff, s.n,
				wide || s.blobLen <= wideBlob || m.near.read(m.ID, s.blob, s.blobOff, s.n), m.loader(s), start)
		}
		spans[i].end = len(rd.parts)
	}
	if last != nil {
		last()
	}
	at := off
	for i := range segs {
		s := &segs[i]
		rd.zero(at, s.off-at)
		at = s.end()
		if s.blob == 0 {
			rd.bufs = append(rd.bufs, s.bytes)
			continue
		}
		got := 0
		for j := spans[i].first; j < spans[i].end; j++ {
			b, err := rd.parts[j].Wait(ctx)
			if err != nil {
				wg.Wait()
				return m.readError(s, err)
			}
			got += len(b)
			rd.bufs = append(rd.bufs, b)
		}
		if got != int(s.n) {
			wg.Wait()
			return m.readError(s, cluster.EIO)
		}
	}
	rd.zero(at, end-at)
	wg.Wait()
	return nil
}

// zero appends n zeros, for a hole at off.
func (rd *reading) zero(off, n uint64) {
	if n > 0 {
		rd.holes = append(rd.holes, Hole{off, n})
	}
	for n > 0 {
		k := min(n, uint64(len(zeros)))
		rd.bufs = append(rd.bufs, zeros[:k:k])
		n -= k
	}
}

func (m *mount) readError(s *segment, err error) error {
	if e, ok := errors.AsType[cluster.Errno](err); ok && (e == cluster.ENOBLOB || e == cluster.EIO) {
		return fmt.Errorf("vfs: blob %v of volume %s: %w", s.blob, m.Name, e)
	}
	return again("reading data", err)
}

// loader returns the function that loads parts of s's blob.
func (m *mount) loader(s *segment) blobcache.Load {
	c := placement.Coded{Blob: s.stored, Len: s.blobLen, Code: s.code, Members: s.members}
	return func(ctx context.Context, dst []byte, off uint32) error {
		ctx, cancel := context.WithTimeout(ctx, loadTimeout)
		defer cancel()
		return placement.Fill(ctx, m.sys.cfg.Blobs, m.ID, c, off, dst)
	}
}
