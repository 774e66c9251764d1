package segment

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hawserfs/hawser/cluster"
)

// An entry is a record that has its place in the log and is not committed yet.
type entry struct {
	rec     record
	f       *file
	keys    []cluster.BlobKey // of a tombstone
	written bool              // under Store.mu
	// replaces: a damaged copy of the blob may be there, which the record takes
	// the place of.
	replaces bool
	err      error // its result
	// wake says true to the entry whose caller is to commit next, and false to
	// one that is committed.
	wake chan bool
	done chan struct{} // of a blob: closed when it is in the index, or failed
}

// reserve gives the entry its place in the log. Its rec has kind, head and info.
func (s *Store) reserve(e *entry) error {
	n := e.rec.span()
	limit := s.segSize
	if e.rec.kind == kindBlob {
		limit -= s.spare
	}
	if Align+n > limit {
		return fmt.Errorf("segment: %d bytes do not fit in a segment of %d: %w", n, s.segSize, cluster.EFBIG)
	}
	for {
		ok, err := s.tryReserve(e, n, limit)
		if ok || err != nil {
			return err
		}
		if err := s.prepare(e.rec.kind == kindTombstone); err != nil {
			s.wakeUp()
			return err
		}
	}
}

// tryReserve reports false if there is no room and no next segment.
func (s *Store) tryReserve(e *entry, n, limit int64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Failed(); err != nil {
		return false, err
	}
	for s.active == nil || s.active.end+n > limit {
		if s.behind() {
			s.drained.Wait()
			continue
		}
		if s.next == nil {
			return false, nil
		}
		s.roll()
	}
	g := s.active
	if g.forced && e.rec.kind == kindBlob {
		if s.over(0) {
			s.wakeUp()
			return false, s.fullError()
		}
		g.forced = false
	}
	e.rec.seg, e.rec.off, e.rec.seq = g.no, g.end, s.seq
	e.f = g.f
	e.f.hold()
	g.end += n
	s.seq++
	s.queue = append(s.queue, e)
	return true, nil
}

// behind reports whether a record of a segment before the active one is not
// durable yet. The next segment has to wait for it, so that a search of the
// whole log knows that only the last two have records that may be torn.
func (s *Store) behind() bool {
	oldest := s.batchSeg
	if oldest == 0 && len(s.queue) > 0 {
		oldest = s.queue[0].rec.seg
	}
	return oldest != 0 && oldest < s.active.no && s.Failed() == nil
}

// roll makes the next segment the active one. The caller holds mu.
func (s *Store) roll() {
	if s.active != nil {
		s.active.sealed = true
	}
	s.active, s.next = s.next, nil
	s.wakeUp()
}

// commit is called by each entry's caller once it has written the record, or
// has failed to. It returns when the record is durable and in the index.
func (s *Store) commit(e *entry) error {
	s.mu.Lock()
	e.written = true
	if s.committing || !s.queue[0].written {
		s.mu.Unlock()
		if lead := <-e.wake; !lead {
			return e.err
		}
		s.mu.Lock()
	}
	// This caller commits: all that is written, up to the first that is not.
	s.committing = true
	n := 1
	for n < len(s.queue) && s.queue[n].written {
		n++
	}
	batch := s.queue[:n:n]
	s.queue = s.queue[n:]
	s.batchSeg = batch[0].rec.seg
	s.mu.Unlock()

	if err := s.commitBatch(batch); err != nil {
		for _, b := range batch {
			b.err = err
		}
	}

	s.mu.Lock()
	s.committing, s.batchSeg = false, 0
	s.drained.Broadcast()
	if len(s.queue) > 0 && s.queue[0].written {
		s.committing = true
		s.queue[0].wake <- true
	}
	s.mu.Unlock()
	for _, b := range batch {
		b.f.drop()
		if b != e {
			b.wake <- false
		}
	}
	return e.err
}

// commitBatch syncs the batch's segments and brings the index up to it.
func (s *Store) commitBatch(batch []*entry) error {
	if err := s.Failed(); err != nil {
		return err
	}
	for i, e := range batch {
		if i+1 == len(batch) || batch[i+1].f != e.f {
			if err := e.f.SyncData(); err != nil {
				return s.fail("fdatasync", err)
			}
		}
	}
	if err := s.apply(batch); err != nil {
		return s.fail("index", err)
	}
	return nil
}

// apply brings the index up to the entries, which are the next of the log.
// Only one goroutine applies at a time.
func (s *Store) apply(batch []*entry) error {
	b := s.idx.db.NewBatch()
	defer func() { b.Close() }()
	finish := func() error {
		p := s.pos.value()
		if err := b.Set([]byte{keyPosition}, p[:], nil); err != nil {
			return err
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			return err
		}
		s.applied.Store(s.pos.seg)
		return nil
	}
	pendingPuts := false
	for _, e := range batch {
		r := &e.rec
		if s.pos.seg != r.seg {
			if s.pos.seg != 0 {
				k, v := sealedKey(s.pos.seg), lenValue(s.pos.off)
				if err := b.Set(k[:], v[:], nil); err != nil {
					return err
				}
			}
			s.pos.seg = r.seg
		}
		s.pos.off, s.pos.seq = r.end(), max(s.pos.seq, r.seq+1)
		switch r.kind {
		case kindBlob:
			if e.replaces && on(ruleReplaceBooks) {
				if pendingPuts {
					// The lookup must see them.
					if err := finish(); err != nil {
						return err
					}
					b.Close()
					b, pendingPuts = s.idx.db.NewBatch(), false
				}
				switch info, loc, err := s.idx.lookup(r.info.Key); {
				case err == nil:
					if err := s.kill(b, info, loc); err != nil {
						return err
					}
				case err != cluster.ENOBLOB:
					return err
				}
			}
			k, v := blobKey(r.info.Key), blobValue(r)
			if err := b.Set(k[:], v[:], nil); err != nil {
				return err
			}
			s.account(r.seg, func(g *seg) { g.live += r.span() })
			s.blobs.Add(1)
			s.used.Add(uint64(r.span()))
			pendingPuts = true
		case kindTombstone:
			if pendingPuts {
				// The lookups must see them.
				if err := finish(); err != nil {
					return err
				}
				b.Close()
				b, pendingPuts = s.idx.db.NewBatch(), false
			}
			if err := s.applyTombstone(b, e); err != nil {
				return err
			}
			pendingPuts = true
		}
	}
	return finish()
}

func (s *Store) applyTombstone(b *pebble.Batch, e *entry) error {
	r := &e.rec
	k, v := placeKey(keyTomb, r.seg, r.off), lenValue(r.span())
	if err := b.Set(k[:], v[:], nil); err != nil {
		return err
	}
	s.account(r.seg, func(g *seg) { g.tombs += r.span() })
	seen := make(map[cluster.BlobKey]struct{}, len(e.keys))
	for _, key := range e.keys {
		if _, twice := seen[key]; twice {
			continue
		}
		seen[key] = struct{}{}
		info, loc, err := s.idx.lookup(key)
		if err == cluster.ENOBLOB {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.kill(b, info, loc); err != nil {
			return err
		}
	}
	return nil
}

// kill takes a blob out of the index and remembers the hole to be punched.
func (s *Store) kill(b *pebble.Batch, info Info, loc location) error {
	n := spanLen(int(info.Len))
	k := blobKey(info.Key)
	if err := b.Delete(k[:], nil); err != nil {
		return err
	}
	h, v := placeKey(keyHole, loc.seg, loc.off), lenValue(n)
	if err := b.Set(h[:], v[:], nil); err != nil {
		return err
	}
	s.account(loc.seg, func(g *seg) { g.live -= n; g.dead += n })
	s.blobs.Add(^uint64(0))
	s.used.Add(-uint64(n))
	s.dead.Add(n)
	return nil
}

func (s *Store) account(no uint32, fn func(*seg)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.segs[no]; g != nil {
		fn(g)
	}
}
