package volume

import (
	"hash/crc32"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

func init() {
	register(KindRelocate, command(applyRelocate))
}

// The bounds of one Relocate: other commands wait for it.
const (
	MaxMoves      = 2048
	maxMoveBlobs  = 64
	maxMoveInline = 8 << 20 // bytes of extents that are compared by their checksum
)

// castagnoli is the table of crc32c.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// InlineSum is the checksum of an extent's bytes in a Move.
func InlineSum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// applyRelocate runs Relocate. A blob that nothing ends up referring to is
// garbage.
func applyRelocate(tx *fsm.Tx, env *fsm.Envelope, c *Relocate, dst []byte) ([]byte, cluster.Errno) {
	w, ok := tx.Writer(env.Writer)
	if !ok || len(c.Moves) > MaxMoves || len(c.Done) > MaxMoves || len(c.Blobs) > maxMoveBlobs {
		return dst, cluster.EINVAL
	}
	for i := range c.Blobs {
		if errno := checkNewBlob(tx, &w, &c.Blobs[i]); errno != cluster.OK {
			return dst, errno
		}
	}
	r := relocation{mapper: beginMap(tx, &cluster.Attr{}), moved: make([]byte, (len(c.Moves)+7)/8)}
	if !r.led.enter(c.Blobs) {
		r.abandon()
		return dst, cluster.EINVAL
	}
	inline := 0
	for i := range c.Moves {
		mv := &c.Moves[i]
		if mv.Blob == 0 {
			inline += int(mv.Len)
		}
		if !r.wellFormed(mv) || inline > maxMoveInline {
			r.abandon()
			return dst, cluster.EINVAL
		}
	}
	for i := range c.Moves {
		if r.move(&c.Moves[i]) {
			r.moved[i/8] |= 1 << (i % 8)
		} else {
			r.left = append(r.left, c.Moves[i].Ino)
		}
	}
	errno, delta := r.led.settle(), r.delta
	r.abandon()
	if errno != cluster.OK {
		return dst, errno
	}
	if delta != 0 {
		return dst, cluster.EINTERNAL // a move is of as many bytes as it replaces
	}
	for _, d := range c.Done {
		if !slices.Contains(r.left, d.Ino) {
			unmark(tx, d.Ino, d.Index)
		}
	}
	return RelocateResult{Moved: r.moved}.AppendTo(dst), cluster.OK
}

// A relocation is a Relocate under way.
type relocation struct {
	*mapper               // of the file of the present move
	there   bool          // that file is there
	last    Extent        // what the move before has made; Len 0: nothing
	lastIno cluster.Ino   // in this file
	moved   []byte        // RelocateResult.Moved
	left    []cluster.Ino // files of moves that were left out
}

// wellFormed reports whether a move makes sense by itself.
func (r *relocation) wellFormed(mv *Move) bool {
	if mv.Len == 0 || mv.Off > cluster.MaxFileSize || uint64(mv.Len) > cluster.MaxFileSize-mv.Off {
		return false
	}
	if mv.Blob == 0 && mv.Len > cluster.MaxInline {
		return false
	}
	i := r.led.find(mv.NewBlob)
	if i < 0 || r.led.entries[i].fresh == nil {
		return false
	}
	b := r.led.entries[i].fresh
	return !on(ruleBlobBounds) || mv.NewOff <= b.Len && mv.Len <= b.Len-mv.NewOff
}

// move does one move and reports whether it did.
func (r *relocation) move(mv *Move) bool {
	if r.ino != mv.Ino {
		n, errno := loadFile(r.tx, mv.Ino)
		r.ino, r.there = mv.Ino, errno == cluster.OK
		if r.there {
			r.led.code = n.Class.Code // the files of one blob have one class
		}
	}
	if !r.there {
		return false
	}
	e, same := r.find(mv)
	if !same {
		return false
	}
	end := mv.Off + uint64(mv.Len)
	left, right := r.drop(&e, mv.Off, end)
	if left.Len > 0 {
		putExtent(r.tx, r.ino, &left)
	}
	if right.Len > 0 {
		putExtent(r.tx, r.ino, &right)
	}
	r.delta += int64(mv.Len)
	x := Extent{Off: mv.Off, Len: mv.Len, Blob: mv.NewBlob, BlobOff: mv.NewOff}
	refs := int64(1)
	if r.continues(&x) {
		// One extent with what the move before has made.
		deleteExtent(r.tx, r.ino, x.Off)
		x.Off, x.BlobOff, x.Len = r.last.Off, r.last.BlobOff, r.last.Len+x.Len
		refs = 0
	}
	r.led.entry(mv.NewBlob, refs, int64(mv.Len)).owned(mv.Ino)
	putExtent(r.tx, r.ino, &x)
	r.last = x
	r.lastIno = r.ino
	return true
}

// continues reports whether x goes on where the move before has ended, in the
// file as in the blob.
func (r *relocation) continues(x *Extent) bool {
	l := &r.last
	return l.Len > 0 && r.lastIno == r.ino && l.Blob == x.Blob && l.End() == x.Off && l.BlobOff+l.Len == x.BlobOff
}

// find returns the extent that a move is from, without its bytes, and whether
// it is what the move says.
func (r *relocation) find(mv *Move) (found Extent, same bool) {
	end := mv.Off + uint64(mv.Len)
	ascendExtents(r.tx, r.ino, mv.Off, mv.Off, func(e *Extent) bool {
		if e.Off > mv.Off || e.End() < end {
			return false
		}
		found = *e
		found.Bytes = nil
		switch {
		case e.inline():
			same = mv.Blob == 0 && e.Off == mv.Off && e.End() == end && (!on(ruleSameBytes) || InlineSum(e.Bytes) == mv.CRC)
		case on(ruleSameExtent):
			same = e.Blob == mv.Blob && uint64(e.BlobOff)+(mv.Off-e.Off) == uint64(mv.BlobOff)
		default:
			same = mv.Blob != 0
		}
		return false
	})
	return found, same
}
