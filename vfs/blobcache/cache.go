// Package blobcache keeps parts of blobs in memory. A blob never changes, so
// what is kept never needs invalidating.
package blobcache

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
)

const (
	// Chunk is the unit in which parts of a blob are kept, in bytes.
	Chunk = 64 << 10
	// Frame is the most that is loaded at once, in bytes.
	Frame = 1 << 20

	shards = 16
)

// A Key names a blob.
type Key struct {
	Group cluster.GroupID
	Blob  cluster.BlobID
}

// A Load fills dst with the bytes of a blob from off on.
type Load func(ctx context.Context, dst []byte, off uint32) error

// A Cache keeps parts of blobs up to a number of bytes. Parts in use count, and
// may exceed it.
type Cache struct {
	shards [shards]shard
	hits   atomic.Uint64
	misses atomic.Uint64
}

type chunkKey struct {
	Key
	chunk uint32
}

type shard struct {
	mu     sync.Mutex
	chunks map[chunkKey]*frame
	lru    frame // head of the list of frames; the newest follows it
	used   int64
	limit  int64
}

// A frame is some chunks of a blob, loaded together. It never crosses a
// multiple of Frame.
type frame struct {
	key        Key
	off        uint32 // of its first byte in the blob: a multiple of Chunk
	buf        []byte
	refs       atomic.Int32  // one of the cache, one for each use
	done       chan struct{} // closed when buf is filled or err is set
	err        error
	prev, next *frame
	evicted    bool
}

// New returns a cache of limit bytes.
func New(limit int64) *Cache {
	c := &Cache{}
	for i := range c.shards {
		s := &c.shards[i]
		s.chunks = make(map[chunkKey]*frame)
		s.limit = limit / shards
		s.lru.prev, s.lru.next = &s.lru, &s.lru
	}
	return c
}

// Stats returns how many chunks were found and not found, and the bytes kept.
func (c *Cache) Stats() (hits, misses uint64, bytes int64) {
	for i := range c.shards {
		c.shards[i].mu.Lock()
		bytes += c.shards[i].used
		c.shards[i].mu.Unlock()
	}
	return c.hits.Load(), c.misses.Load(), bytes
}

func (c *Cache) shard(k Key, off uint32) *shard {
	// Blobs are numbered one after the other, so that all bits of the number
	// must be mixed: the finalizer of SplitMix64.
	h := uint64(k.Blob) + uint64(k.Group)<<48 + uint64(off/Frame)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return &c.shards[(h^h>>31)%shards]
}

// A Ref is a part of a blob in the cache.
type Ref struct{ f *frame }

// Release gives the part's memory back.
func (r Ref) Release() { r.f.release() }

func (f *frame) release() {
	if f.refs.Add(-1) == 0 {
		putBuffer(f.buf)
		f.buf = nil
	}
}

// A Part is a pending part of a read: Wait for it before using it.
type Part struct {
	f      *frame
	lo, hi uint32 // in the blob
}

// Wait waits until the part is there and returns its bytes. The reference is
// kept either way.
func (p *Part) Wait(ctx context.Context) ([]byte, error) {
	select {
	case <-p.f.done:
	default:
		select {
		case <-p.f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if p.f.err != nil {
		return nil, p.f.err
	}
	return p.f.buf[p.lo-p.f.off : p.hi-p.f.off], nil
}

// Ref returns the part's reference, for Release.
func (p *Part) Ref() Ref { return Ref{p.f} }

// Acquire appends the parts that make up [off, off+n) of a blob of size bytes
// to dst, each with a reference. What is not there is loaded; wide: with what
// is near it. start runs what Acquire gives it, at once or in a goroutine.
func (c *Cache) Acquire(dst []Part, k Key, size, off, n uint32, wide bool, load Load, start func(func())) []Part {
	for end := off + n; off < end; {
		stop := min(end, off/Frame*Frame+Frame, size)
		if stop <= off {
			return dst
		}
		dst = c.acquire(dst, k, size, off, stop, wide, load, start)
		off = stop
	}
	return dst
}

// acquire is Acquire within one frame's range.
func (c *Cache) acquire(dst []Part, k Key, size, off, end uint32, wide bool, load Load, start func(func())) []Part {
	s := c.shard(k, off)
	var fresh [Frame / Chunk]*frame
	count := 0
	s.mu.Lock()
	for off < end {
		f := s.chunks[chunkKey{k, off / Chunk}]
		if f == nil {
			c.misses.Add(1)
			lo := off / Chunk * Chunk
			hi := min(size, (end+Chunk-1)/Chunk*Chunk)
			if wide {
				hi = min(size, off/Frame*Frame+Frame)
			}
			f = s.add(k, lo, hi)
			fresh[count] = f
			count++
		} else {
			c.hits.Add(1)
			s.front(f)
		}
		f.refs.Add(1)
		stop := min(end, f.off+uint32(len(f.buf)))
		dst = append(dst, Part{f: f, lo: off, hi: stop})
		off = stop
	}
	s.evict()
	s.mu.Unlock()
	for _, f := range fresh[:count] {
		f.refs.Add(1) // of the loading
		start(func() { s.load(f, load) })
	}
	return dst
}

// add makes a frame of the chunks in [lo, hi) up to the first that is there.
func (s *shard) add(k Key, lo, hi uint32) *frame {
	f := &frame{key: k, off: lo, done: make(chan struct{})}
	f.refs.Store(1)
	stop := lo
	for stop < hi {
		ck := chunkKey{k, stop / Chunk}
		if s.chunks[ck] != nil {
			break
		}
		s.chunks[ck] = f
		stop = min(hi, stop+Chunk)
	}
	f.buf = getBuffer(int(stop - lo))
	s.used += int64(len(f.buf))
	s.link(f)
	return f
}

func (s *shard) link(f *frame) {
	f.prev, f.next = &s.lru, s.lru.next
	f.prev.next, f.next.prev = f, f
}

func (s *shard) front(f *frame) {
	if s.lru.next != f {
		f.prev.next, f.next.prev = f.next, f.prev
		s.link(f)
	}
}

// evict drops the frames used longest ago until the rest is within the limit.
func (s *shard) evict() {
	for f := s.lru.prev; s.used > s.limit && f != &s.lru; {
		older := f
		f = f.prev
		s.remove(older)
	}
}

// remove takes a frame out of the cache. Those who use it go on.
func (s *shard) remove(f *frame) {
	if f.evicted {
		return
	}
	f.evicted = true
	f.prev.next, f.next.prev = f.next, f.prev
	n := uint32(len(f.buf))
	for c := f.off / Chunk; c*Chunk < f.off+n; c++ {
		delete(s.chunks, chunkKey{f.key, c})
	}
	s.used -= int64(n)
	f.release()
}

// load fills a frame. It does not end with the one who asked first: others may
// wait for it.
func (s *shard) load(f *frame, load Load) {
	f.err = load(context.Background(), f.buf, f.off)
	close(f.done)
	if f.err != nil {
		s.mu.Lock()
		s.remove(f)
		s.mu.Unlock()
	}
	f.release()
}
