package vfs

import (
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs/dirty"
)

// A segment is a run of a file's bytes as a read finds it: in a blob, in
// memory, or a hole.
type segment struct {
	off     uint64
	n       uint32
	bytes   []byte         // in memory, if not nil
	blob    cluster.BlobID // in a blob, if not 0
	blobOff uint32
	// Of the blob:
	blobLen uint32
	stored  cluster.BlobID // what stores know it by
	members []cluster.StoreID
	code    cluster.Code // if it is one, the members have shards
}

func (s *segment) end() uint64 { return s.off + uint64(s.n) }

// cut returns the part of s in [off, end), which lies within it.
func (s segment) cut(off, end uint64) segment {
	skip := uint32(off - s.off)
	s.off, s.n = off, uint32(end-off)
	if s.bytes != nil {
		s.bytes = s.bytes[skip : skip+s.n]
	} else if s.blob != 0 {
		s.blobOff += skip
	}
	return s
}

// stored appends what is stored in [off, end) to dst: no holes, just gaps. The
// bytes of extents that carry them are copied.
func stored(view volume.View, dst []segment, ino Ino, off, end uint64) []segment {
	if off >= end {
		return dst
	}
	view.Extents(ino, off, end, func(e *volume.Extent) bool {
		s := segment{off: e.Off, n: e.Len, blob: e.Blob, blobOff: e.BlobOff}
		if e.Blob == 0 {
			s.bytes = slices.Clone(e.Bytes)
		}
		dst = append(dst, s)
		return true
	})
	return dst
}

// locate finds where the blobs of segments are. It reports whether all were
// found: if not, the segments are of a state that is gone.
func locate(view volume.View, segs []segment) bool {
	var b volume.Blob
	var set volume.ReplicaSet
	for i := range segs {
		s := &segs[i]
		if s.blob == 0 {
			continue
		}
		ok := true
		if b.ID != s.blob {
			if b, ok = view.Blob(s.blob); !ok {
				return false
			}
		}
		if set.ID != b.Set {
			if set, ok = view.ReplicaSet(b.Set); !ok {
				return false
			}
		}
		s.blobLen, s.stored, s.members, s.code = b.Len, b.Stored, set.Members, set.Code
	}
	return true
}

// snapshot appends what is held of [off, end) to dst, and returns the end of
// all that is held.
func (h *heldFile) snapshot(dst []segment, off, end uint64) ([]segment, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	add := func(r dirty.Run) {
		dst = append(dst, segment{off: r.Off, n: uint32(len(r.Bytes)), bytes: r.Bytes})
	}
	h.flushing.Slice(off, end, add)
	if h.flushing.Empty() {
		h.active.Slice(off, end, add)
		return dst, h.active.End()
	}
	lower := dst
	dst = nil
	h.active.Slice(off, end, add)
	return compose(lower, dst), max(h.active.End(), h.flushing.End())
}

// compose returns lower with upper on top of it. Both are in order and without
// overlaps.
func compose(lower, upper []segment) []segment {
	if len(upper) == 0 {
		return lower
	}
	out := make([]segment, 0, len(lower)+2*len(upper))
	i := 0
	for j := range upper {
		u := upper[j]
		for i < len(lower) && lower[i].off < u.off {
			l := lower[i]
			if l.end() <= u.off {
				out = append(out, l)
				i++
				continue
			}
			out = append(out, l.cut(l.off, u.off))
			lower[i] = l.cut(u.off, l.end())
		}
		for i < len(lower) && lower[i].off < u.end() {
			if l := lower[i]; l.end() > u.end() {
				lower[i] = l.cut(u.end(), l.end())
				break
			}
			i++
		}
		out = append(out, u)
	}
	return append(out, lower[i:]...)
}
