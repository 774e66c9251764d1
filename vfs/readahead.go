package vfs

import (
	"sync"

	"github.com/hawserfs/hawser/vfs/blobcache"
)

// A stream is how a file is being read here.
type stream struct {
	next  uint64 // where a sequential reader goes on
	ahead uint64 // up to where it was read ahead
	run   int    // reads that went on where others had ended
}

// streamTable has the streams of a volume's files: one each, for all readers.
type streamTable struct {
	mu      sync.Mutex
	streams map[Ino]*stream
}

const (
	maxStreams = 4096
	// near is how far from where a stream is a read may be to belong to it:
	// clients have several under way, which arrive in any order.
	near = 8 << 20
	// minAhead is the least that is read ahead at a time.
	minAhead = 1 << 20
)

// advance notes a read of [off, end), and reads ahead if it goes on from
// earlier ones. It reports whether it is sequential.
func (t *streamTable) advance(m *mount, f File, off, end, size uint64) bool {
	window := m.sys.cfg.ReadAhead
	if window < 0 {
		return false
	}
	t.mu.Lock()
	st := t.streams[f.Ino]
	if st == nil {
		if len(t.streams) >= maxStreams {
			for ino := range t.streams { // any: the map's order is random
				delete(t.streams, ino)
				break
			}
		}
		st = &stream{}
		t.streams[f.Ino] = st
	}
	if off > st.next+near || end+near < st.next {
		*st = stream{next: end}
		t.mu.Unlock()
		return false
	}
	if end > st.next {
		st.next = end
		st.run++
	}
	seq := st.run > 1
	from, to := max(st.ahead, end), min(size, st.next+min(uint64(window), minAhead<<min(st.run, 16)))
	if !seq || to <= from || to-from < minAhead && to < size {
		t.mu.Unlock()
		return seq
	}
	st.ahead = to
	t.mu.Unlock()
	m.readAhead(f, from, to)
	return true
}

// readAhead loads [from, to) of a file into the cache, in the background. What
// does not fit into the bounds on that is left out.
func (m *mount) readAhead(f File, from, to uint64) {
	segs := stored(m.View, nil, f.Ino, from, to)
	if !locate(m.View, segs) {
		return
	}
	start := func(fn func()) {
		if !m.sys.ahead.TryAcquire(1) {
			// The frame is announced already, and others may wait for it.
			m.sys.tasks.Go(fn)
			return
		}
		m.sys.tasks.Go(func() {
			defer m.sys.ahead.Release(1)
			fn()
		})
	}
	var parts []blobcache.Part
	for i := range segs {
		s := &segs[i]
		if s.blob == 0 || !m.sys.ahead.TryAcquire(1) {
			continue
		}
		m.sys.ahead.Release(1)
		parts = m.sys.cache.Acquire(parts[:0], blobcache.Key{Group: m.ID, Blob: s.blob}, s.blobLen, s.blobOff, s.n,
			true, m.loader(s), start)
		for j := range parts {
			parts[j].Ref().Release()
		}
	}
}
