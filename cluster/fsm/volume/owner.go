package volume

import (
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// Which files refer to a blob is known without looking at all files: most blobs
// are of the one file in their record. Of others there are owner records: one
// of inode 0 with a list, of the files that a pack was made of, and one of each
// file that it was cloned to, up to a bound. They stay until the blob goes, so that a file that
// is in them may not refer to it any more; but who refers to it is in them.

func appendOwnerKey(dst []byte, id cluster.BlobID, ino cluster.Ino) []byte {
	dst = codec.AppendUint64(append(dst, prefixOwner), uint64(id))
	return codec.AppendUint64(dst, uint64(ino))
}

func parseOwnerKey(key []byte) (id cluster.BlobID, ino cluster.Ino, ok bool) {
	d := codec.NewDec(key)
	if d.Uint8() != prefixOwner {
		return 0, 0, false
	}
	id, ino = cluster.BlobID(d.Uint64()), cluster.Ino(d.Uint64())
	return id, ino, d.Done() == nil
}

// appendOwners appends a list of files, in order and without repetitions: each
// as its distance from the one before. It reorders inos.
func appendOwners(dst []byte, inos []cluster.Ino) []byte {
	slices.Sort(inos)
	last := cluster.Ino(0)
	for _, ino := range inos {
		if ino != last {
			dst = codec.AppendUvarint(dst, uint64(ino-last))
			last = ino
		}
	}
	return dst
}

// decodeOwners appends the files of a list to dst.
func decodeOwners(dst []cluster.Ino, val []byte) ([]cluster.Ino, bool) {
	d := codec.NewDec(val)
	for last := cluster.Ino(0); d.Len() > 0 && d.Err() == nil; {
		step := cluster.Ino(d.Uvarint())
		if step == 0 || last+step < last {
			return dst, false
		}
		last += step
		dst = append(dst, last)
	}
	return dst, d.Done() == nil
}

func storeOwners(tx *fsm.Tx, id cluster.BlobID, inos []cluster.Ino) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendOwners(s.val[:0], inos)
	tx.Set(appendOwnerKey(s.key[:0], id, 0), s.val)
}

const (
	// maxShares bounds a blob's owner records, and so what it takes to delete
	// them with it.
	maxShares = 64
	// tooShared is Blob.Shares where it is referred to by more files than that.
	tooShared = 255
)

// addOwner notes one more file that refers to a blob.
func addOwner(tx *fsm.Tx, b *Blob, ino cluster.Ino) {
	if b.Shares == tooShared {
		return
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	key := appendOwnerKey(s.key[:0], b.ID, ino)
	if _, there := tx.Get(s.val[:0], key); there {
		return
	}
	if b.Shares == maxShares {
		b.Shares = tooShared
		return
	}
	b.Shares++
	tx.Set(key, nil)
}

// dropOwners deletes the owner records of a blob: there are few.
func dropOwners(tx *fsm.Tx, id cluster.BlobID) {
	tx.Ascend(appendOwnerKey(nil, id, 0), appendOwnerKey(nil, id+1, 0), func(key, _ []byte) bool {
		tx.Delete(key)
		return true
	})
}

// appendOwnersOf appends the files that may refer to a blob, and reports
// whether all are known.
func appendOwnersOf(r fsm.Reader, dst []cluster.Ino, b *Blob) ([]cluster.Ino, bool) {
	if !b.Counted {
		return dst, false
	}
	if b.Ino != 0 {
		dst = append(dst, b.Ino)
	}
	ok := b.Shares != tooShared
	if b.Shares > 0 {
		r.Ascend(appendOwnerKey(nil, b.ID, 0), appendOwnerKey(nil, b.ID+1, 0), func(key, val []byte) bool {
			_, ino, whole := parseOwnerKey(key)
			if whole && ino == 0 {
				dst, whole = decodeOwners(dst, val)
			} else if whole {
				dst = append(dst, ino)
			}
			ok = ok && whole
			return true
		})
	}
	return dst, ok
}

// Thin blobs are listed, for the packer to move out what is left in them.

func appendThinKey(dst []byte, id cluster.BlobID) []byte {
	return codec.AppendUint64(append(dst, prefixThin), uint64(id))
}

func setThin(tx *fsm.Tx, id cluster.BlobID) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Set(appendThinKey(s.key[:0], id), nil)
}

func deleteThin(tx *fsm.Tx, id cluster.BlobID) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Delete(appendThinKey(s.key[:0], id))
}

// Thin calls fn for each blob from id `from` on of which less than half is
// referred to, by id, until it returns false.
func (v View) Thin(from cluster.BlobID, fn func(id cluster.BlobID) bool) {
	v.Ascend(appendThinKey(nil, from), []byte{prefixThin + 1}, func(key, _ []byte) bool {
		d := codec.NewDec(key[1:])
		id := cluster.BlobID(d.Uint64())
		if d.Done() != nil {
			damaged("the list of thin blobs at", uint64(id))
		}
		return fn(id)
	})
}

// Owners returns the files that may refer to a blob, and whether all are known:
// of blobs from before that was noted they are not.
func (v View) Owners(b *Blob) ([]cluster.Ino, bool) { return appendOwnersOf(v.Reader, nil, b) }
