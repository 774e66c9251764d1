package pack

import (
	"hash/crc32"
	"slices"

	"github.com/hawserfs/hawser/cluster"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A piece is a run of a file that is to be moved.
type piece struct {
	Move
	bytes  []byte // of the file's own; nil: they are in Blob
	joined bool   // it is moved to be joined with others
}

// maxPieces bounds what one look at a file plans, as what it reads is held.
const maxPieces = 8 * MaxMoves

// A planner says what is to be moved of a file.
type planner struct {
	volume Volume
	ino    cluster.Ino
	pieces []piece
	full   bool // there is more

	win   []piece // short extents and own bytes of the present window
	at    uint64  // its number
	count int     // extents in it
	runs  int     // that they are, where they follow each other without a hole
	end   uint64  // of the last of them
}

func unique(inos []cluster.Ino) []cluster.Ino {
	slices.Sort(inos)
	return slices.Compact(inos)
}

func (pl *planner) piece(e *Extent) piece {
	m := Move{Ino: pl.ino, Off: e.Off, Len: e.Len, Blob: e.Blob, BlobOff: e.BlobOff}
	if e.Blob != 0 {
		return piece{Move: m}
	}
	m.Sum = crc32.Checksum(e.Bytes, castagnoli)
	return piece{Move: m, bytes: append([]byte(nil), e.Bytes...)}
}

// plan picks the file's own bytes, and short extents where there are too many.
func (pl *planner) plan() {
	pl.volume.Extents(pl.ino, 0, func(e *Extent) bool {
		if w := e.Off / window; w != pl.at {
			pl.close()
			pl.at = w
		}
		if len(pl.pieces) >= maxPieces {
			pl.full = true
			return false
		}
		pl.count++
		if e.Blob == 0 || e.Len < shortExtent {
			if e.Off != pl.end || len(pl.win) == 0 {
				pl.runs++
			}
			pl.end = e.Off + uint64(e.Len)
			pl.win = append(pl.win, pl.piece(e))
		}
		return true
	})
	pl.close()
}

// close ends a window. Parts of blobs move only if that makes far fewer of
// them, and if no other file refers to the blob: it would not share any more.
func (pl *planner) close() {
	join := pl.count > manyExtents && pl.runs*2 <= len(pl.win)
	for i := range pl.win {
		w := &pl.win[i]
		if w.Blob != 0 {
			if !join {
				continue
			}
			if b, ok := pl.volume.Blob(w.Blob); !ok || b.Fixed || b.Only != pl.ino {
				continue
			}
		}
		w.joined = join
		pl.pieces = append(pl.pieces, *w)
	}
	clear(pl.win)
	pl.win, pl.count, pl.runs, pl.end = pl.win[:0], 0, 0, 0
}

// pick picks what is in some blobs.
func (pl *planner) pick(blobs map[cluster.BlobID]bool) {
	pl.volume.Extents(pl.ino, 0, func(e *Extent) bool {
		if e.Blob != 0 && blobs[e.Blob] {
			pl.pieces = append(pl.pieces, pl.piece(e))
		}
		return len(pl.pieces) < maxPieces
	})
}
