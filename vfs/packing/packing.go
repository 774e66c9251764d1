// Package packing shows datastore/pack a volume's state machine, and makes
// commands of what it asks for.
package packing

import (
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/pack"
)

// A View is a volume as the packer sees it: pack.Volume.
type View struct{ volume.View }

// Marks implements pack.Volume.
func (v View) Marks(from cluster.Ino, n int) (marks []pack.Mark) {
	v.View.Marks(from, func(ino cluster.Ino, index uint64) bool {
		marks = append(marks, pack.Mark{Ino: ino, Index: index})
		return len(marks) < n
	})
	return marks
}

// File implements pack.Volume.
func (v View) File(ino cluster.Ino) (pack.File, bool) {
	a, ok := v.Inode(ino)
	if !ok || a.Type != cluster.TypeRegular {
		return pack.File{}, false
	}
	return pack.File{Size: a.Size, Changed: time.Unix(0, int64(a.Ctime)), Class: pack.Class{Copies: max(1, a.Class.Copies), Code: a.Class.Code}}, true
}

// Extents implements pack.Volume.
func (v View) Extents(ino cluster.Ino, off uint64, fn func(e *pack.Extent) bool) {
	v.View.Extents(ino, off, cluster.MaxFileSize, func(e *volume.Extent) bool {
		return fn(&pack.Extent{Off: e.Off, Len: e.Len, Blob: e.Blob, BlobOff: e.BlobOff, Bytes: e.Bytes})
	})
}

// Blob implements pack.Volume.
func (v View) Blob(id cluster.BlobID) (pack.Blob, bool) {
	b, ok := v.View.Blob(id)
	if !ok {
		return pack.Blob{}, false
	}
	_, known := v.View.Owners(&b)
	out := pack.Blob{Len: b.Len, Bytes: b.Bytes, Fixed: !known || b.Kind != volume.Copies}
	if b.Shares == 0 {
		out.Only = b.Ino
	}
	return out, true
}

// Thin implements pack.Volume.
func (v View) Thin(from cluster.BlobID, n int) (ids []cluster.BlobID) {
	v.View.Thin(from, func(id cluster.BlobID) bool {
		ids = append(ids, id)
		return len(ids) < n
	})
	return ids
}

// Owners implements pack.Volume.
func (v View) Owners(id cluster.BlobID) []cluster.Ino {
	b, ok := v.View.Blob(id)
	if !ok {
		return nil
	}
	inos, _ := v.View.Owners(&b)
	return inos
}

// Placed is a blob that was put, as the packer has it.
func Placed(b volume.NewBlob) pack.Placed {
	return pack.Placed{ID: b.ID, Set: b.Set, Epoch: b.Epoch, Len: b.Len, CRC: b.CRC}
}

// Command returns the command of moves into blobs, of which there is one at most.
func Command(blobs []pack.Placed, moves []pack.Move, done []pack.Mark) volume.Relocate {
	c := volume.Relocate{Moves: make([]volume.Move, len(moves)), Done: make([]volume.Mark, len(done))}
	for _, b := range blobs {
		c.Blobs = append(c.Blobs, volume.NewBlob{ID: b.ID, Set: b.Set, Epoch: b.Epoch, Len: b.Len, CRC: b.CRC})
	}
	for i := range moves {
		m := &moves[i]
		c.Moves[i] = volume.Move{
			Ino: m.Ino, Off: m.Off, Len: m.Len, Blob: m.Blob, BlobOff: m.BlobOff, CRC: m.Sum, NewBlob: blobs[0].ID, NewOff: m.NewOff,
		}
	}
	for i, d := range done {
		c.Done[i] = volume.Mark{Ino: d.Ino, Index: d.Index}
	}
	return c
}

// Did returns how many of n moves were done, by the command's result.
func Did(body []byte, n int) (int, error) {
	r, err := volume.DecodeRelocateResult(body)
	did := 0
	for i := range n {
		if r.Did(i) {
			did++
		}
	}
	return did, err
}
