package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

const (
	// InlineLimit is how many bytes a file may have in its extents for good:
	// those of larger files are moved into blobs.
	InlineLimit = 1 << 10
	// shortExtent is the length below which a part of a blob in the middle of a
	// file may be one of many.
	shortExtent = 256 << 10
)

// A file is marked when it gets extents that may be better elsewhere: bytes
// of its own, or a short part of a blob that is not the first. The mark is the
// index of the last such command, and is written without being read. It may
// be of a file that is gone.

func appendMarkKey(dst []byte, ino cluster.Ino) []byte {
	return codec.AppendUint64(append(dst, prefixMark), uint64(ino))
}

func parseMarkKey(key []byte) (cluster.Ino, bool) {
	d := codec.NewDec(key)
	if d.Uint8() != prefixMark {
		return 0, false
	}
	ino := cluster.Ino(d.Uint64())
	return ino, d.Done() == nil
}

// marks reports whether a file of size bytes that gets an extent is marked.
func marks(size, off uint64, n uint32, inline bool) bool {
	return size > InlineLimit && (inline || n < shortExtent && off > 0)
}

func mark(tx *fsm.Tx, ino cluster.Ino) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = codec.AppendUvarint(s.val[:0], tx.Index())
	tx.Set(appendMarkKey(s.key[:0], ino), s.val)
}

// unmark takes a file's mark away, unless it was made after index.
func unmark(tx *fsm.Tx, ino cluster.Ino, index uint64) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	key := appendMarkKey(s.key[:0], ino)
	val, ok := tx.Get(s.val[:0], key)
	if !ok {
		return
	}
	s.val = val[:0]
	d := codec.NewDec(val)
	if at := d.Uvarint(); on(ruleMarked) && (d.Done() != nil || at != index) {
		return
	}
	tx.Delete(key)
}

func deleteMark(tx *fsm.Tx, ino cluster.Ino) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Delete(appendMarkKey(s.key[:0], ino))
}

// Marks calls fn for each file from inode `from` on that has got extents that
// may be better elsewhere, with the index of the last command that has given it
// one, until it returns false. A file may be gone.
func (v View) Marks(from cluster.Ino, fn func(ino cluster.Ino, index uint64) bool) {
	v.Ascend(appendMarkKey(nil, from), []byte{prefixMark + 1}, func(key, val []byte) bool {
		ino, ok := parseMarkKey(key)
		d := codec.NewDec(val)
		index := d.Uvarint()
		if !ok || d.Done() != nil {
			damaged("the mark of inode", uint64(ino))
		}
		return fn(ino, index)
	})
}
