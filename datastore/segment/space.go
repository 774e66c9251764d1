package segment

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/cluster"
)

const (
	segPrefix  = "seg-"
	freePrefix = "free-"
	maxFree    = 4 // free segments that are kept
)

func fileName(prefix string, no uint32) string { return fmt.Sprintf("%s%08x", prefix, no) }

func parseName(name, prefix string) (uint32, bool) {
	h, ok := strings.CutPrefix(name, prefix)
	if !ok || len(h) != 8 {
		return 0, false
	}
	n, err := strconv.ParseUint(h, 16, 32)
	return uint32(n), err == nil
}

// prepare makes the segment after the active one, from a free one if there is
// one. force goes beyond the store's capacity.
func (s *Store) prepare(force bool) error {
	s.makeMu.Lock()
	defer s.makeMu.Unlock()
	s.mu.Lock()
	if s.next != nil {
		s.mu.Unlock()
		return nil
	}
	if err := s.Failed(); err != nil {
		s.mu.Unlock()
		return err
	}
	var f *file
	from := ""
	forced := false
	if n := len(s.free); n > 0 {
		f, from = s.free[n-1], s.freeNames[n-1]
		s.free, s.freeNames = s.free[:n-1], s.freeNames[:n-1]
	} else if forced = s.room() < uint64(s.segSize); forced && !force {
		s.mu.Unlock()
		return s.fullError()
	}
	s.lastNo++
	no := s.lastNo
	s.mu.Unlock()

	f, err := s.newSegment(no, f, from)
	if err != nil {
		return err
	}
	g := &seg{no: no, f: f, end: Align, forced: forced}
	s.mu.Lock()
	s.segs[no], s.next = g, g
	s.files.Store(no, f)
	s.mu.Unlock()
	return nil
}

// newSegment makes a segment's file durable: a new one, or the free one f.
func (s *Store) newSegment(no uint32, f *file, from string) (*file, error) {
	name := s.fs.PathJoin(s.dir, fileName(segPrefix, no))
	var err error
	if f == nil {
		f, err = openFile(s.fs, name, s.opts.Buffered)
	} else if err = s.fs.Rename(s.fs.PathJoin(s.dir, from), name); err != nil {
		f.drop()
	}
	if err != nil {
		return nil, s.ioError("making a segment", err)
	}
	// The old name must be gone for good before the mark that the segment is
	// free is: under that name, its old records would be the log's again.
	if err = syncDir(s.fs, s.dir); err != nil {
		f.drop()
		return nil, s.fail("syncing the folder", err)
	}
	// A free segment has holes, so it is allocated as well.
	if err = f.allocate(s.segSize); err == nil {
		var h [Align]byte
		encodeSegmentHeader(h[:], segmentMagic, no, &s.super.uuid)
		err = f.write(0, h[:])
	}
	if err != nil {
		// It has no records; what is left of the file goes away.
		f.drop()
		_ = s.fs.Remove(name)
		return nil, s.ioError("making a segment", err)
	}
	if err = f.Sync(); err != nil {
		f.drop()
		return nil, s.fail("syncing a new segment", err)
	}
	return f, nil
}

func (s *Store) fullError() error {
	return fmt.Errorf("segment: store %s is full: %w", s.dir, cluster.ENOSPC)
}

// ioError makes an error of the file system the store's: out of space is
// ENOSPC; anything else takes the store out of service.
func (s *Store) ioError(what string, err error) error {
	if outOfSpace(err) {
		return fmt.Errorf("segment: store %s: %s: %w: %w", s.dir, what, err, cluster.ENOSPC)
	}
	return s.fail(what, err)
}

func outOfSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// disk returns the size of the file system, and how much of it is available to
// the store beyond what it has. The caller holds mu.
func (s *Store) disk() (capacity, avail uint64) {
	const unknown = 1 << 60
	capacity, avail = unknown, unknown
	if u, err := s.fs.GetDiskUsage(s.dir); err == nil && u.TotalBytes > 0 {
		reserve := s.opts.Reserve
		if reserve == 0 {
			reserve = min(max(u.TotalBytes/100, 64<<20), 4<<30)
		}
		capacity = u.TotalBytes - min(u.TotalBytes, reserve)
		avail = u.AvailBytes - min(u.AvailBytes, reserve)
	}
	if c := s.opts.Capacity; c != 0 && c < capacity {
		capacity = c
	}
	return capacity, avail
}

// room returns how many bytes of new segments the store may make.
func (s *Store) room() uint64 {
	capacity, avail := s.disk()
	have := s.allocated()
	return min(avail, capacity-min(capacity, have))
}

// over reports whether the segments, and more bytes, are more than the store
// may have.
func (s *Store) over(more int64) bool {
	capacity, avail := s.disk()
	return avail == 0 || s.allocated()+uint64(more) > capacity
}

// allocated returns how many bytes the segments take. Holes are not counted.
func (s *Store) allocated() uint64 {
	n := int64(len(s.free)) * s.segSize
	for _, g := range s.segs {
		if g.sealed {
			n += Align + g.live + g.dead + g.tombs + s.segSize - g.end
		} else {
			n += s.segSize
		}
	}
	return uint64(n)
}

// Usage returns how full the store is.
func (s *Store) Usage() Usage {
	if s.enter() != nil {
		return Usage{}
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	capacity, _ := s.disk()
	u := Usage{Capacity: capacity, Used: s.used.Load(), Blobs: s.blobs.Load()}
	if s.Failed() != nil {
		return u
	}
	size := uint64(s.segSize)
	u.Free = s.room()/size*size + uint64(len(s.free))*size
	if g := s.active; g != nil {
		u.Free += uint64(max(0, s.segSize-s.spare-g.end))
	}
	if s.next != nil {
		u.Free += uint64(s.segSize)
	}
	return u
}
