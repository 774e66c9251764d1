package volume

import (
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// An Extent is a run of a file's bytes: a part of a blob, or the bytes
// themselves. What no extent covers is a hole. Extents of an inode never
// overlap; they are as long and begin where they were written, down to bytes.
type Extent struct {
	Off     uint64
	Len     uint32
	Blob    cluster.BlobID // 0: the bytes are in Bytes
	BlobOff uint32
	Bytes   []byte // valid during the call that it was given to
}

// End returns the offset behind the extent.
func (e *Extent) End() uint64 { return e.Off + uint64(e.Len) }

// inline reports whether the extent has its bytes itself.
func (e *Extent) inline() bool { return e.Blob == 0 }

// cut returns the part of e in [off, end), which must not be empty.
func (e *Extent) cut(off, end uint64) Extent {
	c := *e
	if c.Off < off {
		skip := uint32(off - c.Off)
		c.Off, c.Len = off, c.Len-skip
		if c.inline() {
			c.Bytes = c.Bytes[skip:]
		} else {
			c.BlobOff += skip
		}
	}
	if c.End() > end {
		c.Len = uint32(end - c.Off)
		if c.inline() {
			c.Bytes = c.Bytes[:c.Len]
		}
	}
	return c
}

// The first byte of a stored extent.
const (
	extentInline = 1 // the rest is the bytes
	extentBlob   = 2 // blob blobOff len
)

// appendExtent appends the stored form of e. The key has where it ends.
func appendExtent(dst []byte, e *Extent) []byte {
	if e.inline() {
		return append(append(dst, extentInline), e.Bytes...)
	}
	dst = codec.AppendUint64(append(dst, extentBlob), uint64(e.Blob))
	return codec.AppendUint32(codec.AppendUint32(dst, e.BlobOff), e.Len)
}

// decodeExtent decodes an extent that ends at end. Its Bytes alias val.
func decodeExtent(end uint64, val []byte) (e Extent, ok bool) {
	d := codec.NewDec(val)
	switch d.Uint8() {
	case extentInline:
		e.Bytes = d.Rest()
		e.Len = uint32(len(e.Bytes))
	case extentBlob:
		e.Blob = cluster.BlobID(d.Uint64())
		e.BlobOff, e.Len = d.Uint32(), d.Uint32()
		if e.Blob == 0 {
			return e, false
		}
	default:
		return e, false
	}
	e.Off = end - uint64(e.Len)
	return e, d.Done() == nil && e.Len > 0 && uint64(e.Len) <= end
}

// ascendExtents calls fn for the extents of ino that end behind from, in
// order, until it returns false or the next one begins behind to.
//
// It does not look further than such an extent can end, as what was deleted
// there would cost time to pass over.
func ascendExtents(r fsm.Reader, ino cluster.Ino, from, to uint64, fn func(e *Extent) bool) {
	if from == maxOffset {
		return
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	lower := appendExtentBound(s.key[:0], ino, from+1)
	upper := s.key[len(lower):len(lower)]
	if to < maxOffset-cluster.MaxBlob {
		upper = appendExtentBound(upper, ino, to+cluster.MaxBlob+1)
	} else {
		upper = appendExtentBound(upper, ino+1, 0)
	}
	r.Ascend(lower, upper, func(key, val []byte) bool {
		_, end, ok := parseExtentKey(key)
		e, whole := decodeExtent(end, val)
		if !ok || !whole {
			damaged("an extent of inode", uint64(ino))
		}
		return e.Off <= to && fn(&e)
	})
}

// putExtent stores e.
func putExtent(tx *fsm.Tx, ino cluster.Ino, e *Extent) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendExtent(s.val[:0], e)
	tx.Set(appendExtentKey(s.key[:0], ino, e.End()), s.val)
}

// deleteExtent deletes the record of the extent that ends at end.
func deleteExtent(tx *fsm.Tx, ino cluster.Ino, end uint64) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Delete(appendExtentKey(s.key[:0], ino, end))
}

// damaged panics: the store has checked what it read, so a bug has written
// it, on every replica alike. A command fails by it; a View does not return.
func damaged(what string, id uint64) {
	panic(fmt.Sprintf("volume: the record of %s %d is damaged: restore this replica from another", what, id))
}
