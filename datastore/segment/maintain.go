package segment

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hawserfs/hawser/cluster"
)

const (
	reclaimEvery = 10 * time.Second
	reclaimBytes = 64 << 20 // of dead bytes, that are reclaimed at once
	maxHoles     = 1 << 16  // in one Maintain
)

// wakeUp makes the upkeep look for work.
func (s *Store) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// maintain is the store's goroutine.
func (s *Store) maintain() {
	defer s.stopped.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-timer.C:
		case <-s.wake:
		}
		if s.Failed() == nil {
			s.upkeep(time.Since(last) >= reclaimEvery)
			if time.Since(last) >= reclaimEvery {
				last = time.Now()
			}
		}
		timer.Reset(reclaimEvery)
	}
}

// upkeep does what there is to do, and reclaims what is little only if due.
func (s *Store) upkeep(due bool) {
	if err := s.Prepare(); err != nil {
		s.log.Warn("no spare segment", "err", err)
	}
	if no := s.applied.Load(); no != s.flushed {
		// So that little of the log is to be read by the next Open.
		s.flushed = no
		if _, err := s.idx.db.AsyncFlush(); err != nil {
			s.log.Warn("flushing the index", "err", err)
		}
	}
	if due || s.dead.Load() >= reclaimBytes || s.short() {
		if _, err := s.Reclaim(); err != nil {
			s.log.Warn("reclaiming space", "err", err)
		}
	}
}

// short reports whether space could run out soon, and reclaiming may help.
func (s *Store) short() bool {
	if s.dead.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next == nil
}

// Prepare makes the segment after the active one, so that no put waits for it.
// Without space for one it does nothing.
func (s *Store) Prepare() error {
	if err := s.enter(); err != nil {
		return nil
	}
	defer s.leave()
	if err := s.prepare(false); err != nil && !errors.Is(err, cluster.ENOSPC) {
		return err
	}
	return nil
}

// Reclaim gives the space of deleted blobs back: segments without anything that
// counts become free, the rest get holes. It reports how many bytes it gave
// back. The index is made durable first, so that nothing refers to them.
func (s *Store) Reclaim() (int64, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	if err := s.Failed(); err != nil {
		return 0, err
	}
	w, err := s.reclaimable()
	if err != nil || len(w.segs) == 0 {
		return 0, err
	}
	if err := s.idx.db.Flush(); err != nil {
		return 0, fmt.Errorf("segment: index: %w", err)
	}
	var freed int64
	for _, g := range w.order() {
		if err := s.reclaimSegment(g); err != nil {
			return freed, err
		}
		freed += g.dead
	}
	return freed, s.forget(w)
}

// A reclaim is what one Reclaim gives back.
type reclaim struct {
	holes []span
	tombs []span // those whose holes are all among holes
	segs  map[uint32]*reclaimSeg
}

type reclaimSeg struct {
	no    uint32
	seg   *seg
	holes []span
	dead  int64 // bytes of holes
	tombs int64
	whole bool // nothing in the segment counts any more
}

// order returns the segments so that no tombstone goes away before the records
// that it is for, were the index to be lost: holes come first, and of the
// segments that become free, which may have tombstones, the older ones, as a
// tombstone is never in an older segment than what it is for.
func (w *reclaim) order() []*reclaimSeg {
	return slices.SortedFunc(maps.Values(w.segs), func(a, b *reclaimSeg) int {
		if a.whole != b.whole {
			if a.whole {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.no, b.no)
	})
}

// reclaimable collects what can be given back now.
func (s *Store) reclaimable() (*reclaim, error) {
	w := &reclaim{segs: map[uint32]*reclaimSeg{}}
	snap := s.idx.db.NewSnapshot()
	defer snap.Close()
	of := func(no uint32) *reclaimSeg {
		g := w.segs[no]
		if g == nil {
			s.mu.Lock()
			g = &reclaimSeg{no: no, seg: s.segs[no]}
			s.mu.Unlock()
			w.segs[no] = g
		}
		return g
	}
	all := true
	errEnough := errors.New("enough")
	err := each(snap, keyHole, func(k, v []byte) error {
		if len(w.holes) == maxHoles {
			all = false
			return errEnough
		}
		h := parseSpan(k, v)
		w.holes = append(w.holes, h)
		g := of(h.seg)
		g.holes = append(g.holes, h)
		g.dead += h.n
		return nil
	})
	if err != nil && err != errEnough {
		return nil, err
	}
	if all {
		err := each(snap, keyTomb, func(k, v []byte) error {
			t := parseSpan(k, v)
			w.tombs = append(w.tombs, t)
			of(t.seg).tombs += t.n
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for no, g := range s.segs {
		// Once the index is past a segment, it gets no more of anything.
		if no >= s.applied.Load() || !g.sealed || g.live != 0 {
			continue
		}
		r := w.segs[no]
		if r == nil && g.dead == 0 && g.tombs == 0 {
			r = &reclaimSeg{no: no, seg: g}
			w.segs[no] = r
		}
		if r != nil {
			r.whole = g.dead == r.dead && g.tombs == r.tombs
		}
	}
	return w, nil
}

// reclaimSegment punches a segment's holes, durably, or marks it as free.
func (s *Store) reclaimSegment(r *reclaimSeg) error {
	if r.seg == nil {
		return nil
	}
	f := r.seg.f
	switch {
	case r.whole:
		var h [Align]byte
		encodeSegmentHeader(h[:], freeMagic, r.seg.no, &s.super.uuid)
		if err := f.write(0, h[:]); err != nil {
			return s.ioError("freeing a segment", err)
		}
	case len(r.holes) == 0:
		return nil
	default:
		for _, h := range r.holes {
			if err := s.punch(f, h); err != nil {
				return s.ioError("punching a hole", err)
			}
		}
	}
	if err := f.Sync(); err != nil {
		return s.fail("fsync", err)
	}
	return nil
}

// punch makes a hole of a record that is dead; where that cannot be, a pad.
func (s *Store) punch(f *file, h span) error {
	if !s.noHoles.Load() {
		err := f.punch(h.off, h.n)
		if err != errNoHoles {
			return err
		}
		s.noHoles.Store(true)
		s.log.Warn("the file system cannot punch holes: space is given back by whole segments only")
	}
	// The lowest number of all: the log's order of numbers is for those that
	// come after it.
	r := record{kind: kindPad, head: h.n, seg: h.seg, off: h.off}
	var b [Align]byte
	r.encode(b[:], &s.super.uuid, nil)
	return f.write(h.off, b[:])
}

// forget takes what was given back out of the index and the books.
func (s *Store) forget(w *reclaim) error {
	b := s.idx.db.NewBatch()
	defer b.Close()
	for _, h := range w.holes {
		k := placeKey(keyHole, h.seg, h.off)
		if err := b.Delete(k[:], nil); err != nil {
			return err
		}
	}
	for _, t := range w.tombs {
		k := placeKey(keyTomb, t.seg, t.off)
		if err := b.Delete(k[:], nil); err != nil {
			return err
		}
	}
	for no, r := range w.segs {
		if r.whole {
			k := sealedKey(no)
			if err := b.Delete(k[:], nil); err != nil {
				return err
			}
		}
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return s.fail("index", err)
	}
	for _, r := range w.segs {
		s.dead.Add(-r.dead)
	}
	// Holes of tombstones need not be durable: one that is read again deletes
	// what is not there.
	for _, t := range w.tombs {
		if r := w.segs[t.seg]; r.seg != nil && !r.whole {
			if err := s.punch(r.seg.f, t); err != nil {
				return s.ioError("punching a hole", err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range w.segs {
		if r.seg == nil {
			continue
		}
		r.seg.dead -= r.dead
		r.seg.tombs -= r.tombs
		if r.whole {
			s.retire(r.seg)
		}
	}
	return nil
}

// retire takes a free segment out of the log. The caller holds mu.
func (s *Store) retire(g *seg) {
	delete(s.segs, g.no)
	s.files.Delete(g.no)
	from := s.fs.PathJoin(s.dir, fileName(segPrefix, g.no))
	if len(s.free) >= maxFree || s.over(s.segSize) {
		if err := s.fs.Remove(from); err != nil {
			s.log.Warn("removing a free segment", "err", err)
		}
		g.f.drop()
		return
	}
	name := fileName(freePrefix, g.no)
	if err := s.fs.Rename(from, s.fs.PathJoin(s.dir, name)); err != nil {
		s.log.Warn("renaming a free segment", "err", err)
		name = fileName(segPrefix, g.no)
	}
	s.free = append(s.free, g.f)
	s.freeNames = append(s.freeNames, name)
}
