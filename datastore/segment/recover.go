package segment

import (
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// recover opens the segments and brings the index up to the end of the log.
func (s *Store) recover() error {
	if err := s.openSegments(); err != nil {
		return err
	}
	pos, err := s.idx.position()
	if err != nil {
		return err
	}
	s.pos = pos
	if err := s.loadIndex(); err != nil {
		return err
	}
	nos := make([]uint32, 0, len(s.segs))
	for no := range s.segs {
		nos = append(nos, no)
	}
	slices.Sort(nos)
	// What is read below must not be lost by the next crash once the index
	// refers to it.
	for _, no := range nos {
		if no >= pos.seg {
			if err := s.segs[no].f.Sync(); err != nil {
				return fmt.Errorf("fsync: %w", err)
			}
		}
	}
	for i, no := range nos {
		if no < pos.seg {
			continue
		}
		// Only the last two segments with records may have some that were not
		// synced (see behind), and an empty one that was ready may follow.
		unsynced := i+3 >= len(nos)
		if err := s.replay(s.segs[no], unsynced); err != nil {
			return err
		}
	}
	s.arrange(nos)
	s.applied.Store(s.pos.seg)
	// A record that was written before a crash and not found now, because one
	// before it is torn, must not turn up in front of one that is written from
	// now on: those have much higher numbers.
	s.seq = s.pos.seq + 1<<32
	return nil
}

// openSegments opens the files and tells free segments from those of the log.
func (s *Store) openSegments() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		no, isSeg := parseName(name, segPrefix)
		freeNo, isFree := parseName(name, freePrefix)
		if !isSeg && !isFree {
			continue
		}
		s.lastNo = max(s.lastNo, no, freeNo)
		f, err := openFile(s.fs, s.fs.PathJoin(s.dir, name), s.opts.Buffered)
		if err != nil {
			return err
		}
		var h [Align]byte
		if err := f.readFull(h[:], 0); err != nil {
			f.drop()
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if err := checkSegmentVersion(h[:], &s.super.uuid); err != nil {
			f.drop()
			return fmt.Errorf("%s: %w", name, err)
		}
		magic, has := decodeSegmentHeader(h[:], &s.super.uuid)
		if isFree || magic == freeMagic {
			s.free = append(s.free, f)
			s.freeNames = append(s.freeNames, name)
			continue
		}
		if magic != segmentMagic || has != no {
			// The records say themselves whether they are this segment's.
			s.log.Warn("a segment's header is damaged; its records are looked at one by one", "segment", name)
		}
		s.files.Store(no, f)
		s.segs[no] = &seg{no: no, f: f, end: Align}
	}
	return nil
}

// loadIndex counts what the index has, by segment.
func (s *Store) loadIndex() error {
	err := each(s.idx.db, keySealed, func(k, v []byte) error {
		if g := s.segs[parseSpan(append(k, 0, 0, 0, 0), v).seg]; g != nil {
			g.sealed, g.end = true, parseLen(v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if g := s.segs[s.pos.seg]; g != nil {
		g.end = max(g.end, s.pos.off)
	}
	lost := 0
	err = s.ascend([]byte{keyBlob}, nil, func(i Info, l location) bool {
		n := spanLen(int(i.Len))
		if g := s.segs[l.seg]; g != nil {
			g.live += n
		} else {
			lost++
		}
		s.blobs.Add(1)
		s.used.Add(uint64(n))
		return true
	})
	if err != nil {
		return err
	}
	if lost > 0 {
		s.log.Error("segments are missing: copies are lost", "blobs", lost)
	}
	err = each(s.idx.db, keyHole, func(k, v []byte) error {
		h := parseSpan(k, v)
		if g := s.segs[h.seg]; g != nil {
			g.dead += h.n
		}
		s.dead.Add(h.n)
		return nil
	})
	if err != nil {
		return err
	}
	return each(s.idx.db, keyTomb, func(k, v []byte) error {
		t := parseSpan(k, v)
		if g := s.segs[t.seg]; g != nil {
			g.tombs += t.n
		}
		return nil
	})
}

// replay brings the index up to the end of a segment's records.
func (s *Store) replay(g *seg, unsynced bool) error {
	off := int64(Align)
	if s.pos.seg == g.no {
		off = s.pos.off
	}
	found := 0
	var batch []*entry
	flush := func() error {
		err := s.applyReplayed(batch)
		batch = batch[:0]
		return err
	}
	sc := scanner{s: s, g: g, check: unsynced, seq: s.pos.seq}
	defer sc.close()
	for {
		e, err := sc.next(off)
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		off = e.rec.end()
		g.end = off
		found++
		if batch = append(batch, e); len(batch) == 256 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if found > 0 {
		s.log.Info("read records of the log", "segment", g.no, "records", found)
	}
	return flush()
}

// applyReplayed applies records that were found. A blob that is there already
// (put again after the index forgot that it had been) makes the older dead.
func (s *Store) applyReplayed(batch []*entry) error {
	for _, e := range batch {
		if e.rec.kind == kindBlob {
			info, loc, err := s.idx.lookup(e.rec.info.Key)
			if err == nil && loc == (location{e.rec.seg, e.rec.off, e.rec.seq}) {
				continue
			}
			if err == nil {
				b := s.idx.db.NewBatch()
				if err = s.kill(b, info, loc); err == nil {
					err = b.Commit(pebble.NoSync)
				}
				b.Close()
				if err != nil {
					return err
				}
			}
		}
		if err := s.apply([]*entry{e}); err != nil {
			return err
		}
	}
	return nil
}

// arrange sets which segment is active, next, sealed and free, after replay.
func (s *Store) arrange(nos []uint32) {
	slices.Sort(nos)
	last := -1
	for i, no := range nos {
		if s.segs[no].end > Align || no == s.pos.seg {
			last = i
		}
	}
	for i, no := range nos {
		g := s.segs[no]
		switch {
		case i < last:
			g.sealed = true
		case i == last:
			// A segment that the index has as full was followed by another.
			if !g.sealed {
				s.active = g
			}
		case s.next == nil:
			s.next = g
		default:
			// Empty, and one is enough.
			delete(s.segs, no)
			s.files.Delete(no)
			s.free = append(s.free, g.f)
			s.freeNames = append(s.freeNames, fileName(segPrefix, no))
		}
	}
}

// A scanner finds a segment's records.
type scanner struct {
	s     *Store
	g     *seg
	check bool // the payloads, too
	seq   uint64
	buf   *bufpool.Buffer
	at    int64 // of buf in the segment
	have  int
}

func (sc *scanner) close() {
	if sc.buf != nil {
		sc.buf.Release()
	}
}

const scanSize = 256 << 10

// bytes returns n ≤ scanSize bytes at off, or fewer at the segment's end. They
// are valid until the next call.
func (sc *scanner) bytes(off int64, n int) ([]byte, error) {
	if sc.buf == nil {
		sc.buf = bufpool.Get(scanSize)
	}
	if off < sc.at || off+int64(n) > sc.at+int64(sc.have) {
		sc.at, sc.have = off, 0
		k := min(scanSize, sc.s.segSize-off)
		if err := sc.g.f.readFull(sc.buf.B[:k], off); err != nil {
			return nil, fmt.Errorf("reading segment %d at %d: %w", sc.g.no, off, err)
		}
		sc.have = int(k)
	}
	return sc.buf.B[off-sc.at : min(off-sc.at+int64(n), int64(sc.have))], nil
}

// next returns the first good record at or after off, or nil at the segment's
// end. Behind a hole, or a damaged record, the search goes on.
func (sc *scanner) next(off int64) (*entry, error) {
	for ; off+Align <= sc.s.segSize; off += Align {
		b, err := sc.bytes(off, Align)
		if err != nil {
			return nil, err
		}
		n, ok := sumsLen(b)
		if !ok {
			if isZero(b) {
				if to := sc.g.f.nextData(off, sc.s.segSize); to > off {
					off = to - Align
				}
			}
			continue
		}
		if b, err = sc.bytes(off, headerSize+n); err != nil {
			return nil, err
		}
		e := new(entry)
		sums, ok := e.rec.decode(b, &sc.s.super.uuid, sc.g.no, off)
		if !ok || e.rec.end() > sc.s.segSize {
			continue
		}
		// A pad in the place of a dead blob has the number 0.
		if e.rec.seq < sc.seq && (e.rec.kind != kindPad || e.rec.seq != 0) {
			continue
		}
		good, err := sc.payload(e, append(checksum.Sums(nil), sums...))
		if err != nil {
			return nil, err
		}
		if !good {
			sc.s.log.Warn("a record's payload is damaged, or was not written before a crash: it is dropped", "segment", sc.g.no, "offset", off)
			if err := sc.void(off); err != nil {
				return nil, err
			}
			continue
		}
		sc.seq = max(sc.seq, e.rec.seq+1)
		return e, nil
	}
	return nil, nil
}

// payload checks the record's payload, if that is wanted, and reads a tombstone's.
func (sc *scanner) payload(e *entry, sums checksum.Sums) (bool, error) {
	r := &e.rec
	if r.kind == kindPad || r.kind == kindBlob && !sc.check {
		return true, nil
	}
	p := bufpool.Get(int(r.info.Len))
	defer p.Release()
	if err := sc.g.f.readFull(p.B, r.off+r.head); err != nil {
		return false, fmt.Errorf("reading segment %d at %d: %w", r.seg, r.off, err)
	}
	if sums.Verify(p.B) >= 0 {
		return false, nil
	}
	if r.kind == kindTombstone {
		e.keys = parseTombstone(p.B)
	}
	return true, nil
}

// void wipes the header of a record that is not to be found again, also not by
// a later search that does not look at payloads.
func (sc *scanner) void(off int64) error {
	sc.have = 0
	err := sc.g.f.write(off, zeros[:Align])
	if err == nil {
		err = sc.g.f.SyncData()
	}
	if err != nil {
		return fmt.Errorf("wiping a damaged record of segment %d at %d: %w", sc.g.no, off, err)
	}
	return nil
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
