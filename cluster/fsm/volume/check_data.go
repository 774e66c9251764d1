package volume

import (
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func (c *checker) setf(id cluster.ReplicaSetID, format string, args ...any) {
	c.problem(Problem{Set: id, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) checkSets() {
	c.each(prefixSet, func(key, val []byte) {
		c.Sets++
		dk, dv := codec.NewDec(key[1:]), codec.NewDec(val)
		id := cluster.ReplicaSetID(dk.Uint32())
		var set ReplicaSet
		decodeSet(&dv, &set)
		switch {
		case dk.Done() != nil || dv.Done() != nil || set.ID != id:
			c.setf(id, "the record is damaged")
			return
		case !validSet(&set) || set.Epoch == 0:
			c.setf(id, "has members %v, copies %d, epoch %d, state %d", set.Members, set.Copies, set.Epoch, set.State)
		case id == 0 || id >= c.rec.NextSet:
			c.setf(id, "is not below the next one, %d", c.rec.NextSet)
		}
		c.sets[id] = set
	})
}

// checkExtents looks at the extents of each file (I6): they lie side by side,
// within the file and their blobs, and make up what it uses.
func (c *checker) checkExtents() {
	var ino cluster.Ino
	var used, last, inline uint64
	finish := func() {
		if ino == 0 {
			return
		}
		n, ok := c.inode(ino)
		switch {
		case !ok || n.Type != cluster.TypeRegular:
			c.inodef(ino, "has extents, but is no file")
		case last > n.Size:
			c.inodef(ino, "has an extent up to %d, behind its end at %d", last, n.Size)
		case n.Used != used:
			c.inodef(ino, "says it uses %d bytes, its extents have %d", n.Used, used)
		case inline > InlineLimit && !hasMark(c.Reader, ino):
			c.inodef(ino, "has %d bytes in its extents that nobody would move: it is not marked", inline)
		}
	}
	c.each(prefixExtent, func(key, val []byte) {
		c.Extents++
		of, end, ok := parseExtentKey(key)
		e, whole := decodeExtent(end, val)
		if !ok || !whole {
			c.inodef(of, "the extent that ends at %d is damaged", end)
			return
		}
		if of != ino {
			finish()
			ino, used, last, inline = of, 0, 0, 0
		}
		if e.Off < last {
			c.inodef(ino, "the extent [%d, %d) overlaps the one that ends at %d", e.Off, end, last)
		}
		if e.inline() && e.Len > cluster.MaxInline {
			c.inodef(ino, "the extent [%d, %d) has %d bytes itself", e.Off, end, e.Len)
		}
		last = end
		used += uint64(e.Len)
		if e.inline() {
			inline += uint64(e.Len)
		}
	})
	finish()
	c.each(prefixInode, func(_, val []byte) {
		n, err := decodeInode(val)
		if err != nil || n.Used == 0 {
			return
		}
		has := false
		c.Ascend(appendExtentBound(nil, n.Ino, 0), appendExtentBound(nil, n.Ino+1, 0), func(_, _ []byte) bool {
			has = true
			return false
		})
		if !has {
			c.inodef(n.Ino, "says it uses %d bytes, but has no extent", n.Used)
		}
	})
}

// checkBlobs looks at each blob by itself.
func (c *checker) checkBlobs() {
	c.each(prefixBlob, func(key, val []byte) {
		d := codec.NewDec(key[1:])
		id := cluster.BlobID(d.Uint64())
		b, ok := decodeBlob(id, val)
		if d.Done() != nil || !ok {
			c.Blobs++
			c.blobf(id, "the record is damaged")
			return
		}
		if b.Kind == standIn {
			c.checkStandIn(&b)
			return
		}
		c.Blobs++
		set, there := c.sets[b.Set]
		switch {
		case b.Kind != Copies && b.Kind != Coded:
			c.blobf(id, "is of the unknown kind %d", b.Kind)
		case b.Len == 0 || b.Len > cluster.MaxBlob:
			c.blobf(id, "has %d bytes", b.Len)
		case b.Refs == 0:
			c.blobf(id, "has no references, but is not in the delete queue")
		case !there:
			c.blobf(id, "its replica set %d is not there", b.Set)
		case set.State == Retired:
			c.blobf(id, "its replica set %d is retired", b.Set)
		case !hasSetBlob(c.Reader, prefixSetBlob, b.Set, b.Stored):
			c.blobf(id, "is not among the blobs of its replica set %d", b.Set)
		case hasSetBlob(c.Reader, prefixGarbage, b.Set, b.Stored):
			c.blobf(id, "is in use and in the delete queue")
		default:
			c.checkForm(&b, &set)
		}
		c.checkMaker(id)
	})
}

// checkRefs compares each blob's references with the extents that there are (I5).
func (c *checker) checkRefs() {
	n := parts(c.Blobs)
	for part := range n {
		refs := make(map[cluster.BlobID]uint64)
		bytes := make(map[cluster.BlobID]uint64)
		ends := make(map[cluster.BlobID]uint64) // the furthest that extents reach in it
		c.each(prefixExtent, func(key, val []byte) {
			_, end, _ := parseExtentKey(key)
			e, ok := decodeExtent(end, val)
			if !ok || e.inline() || uint64(e.Blob)%n != part {
				return
			}
			refs[e.Blob]++
			bytes[e.Blob] += uint64(e.Len)
			ends[e.Blob] = max(ends[e.Blob], uint64(e.BlobOff)+uint64(e.Len))
		})
		c.each(prefixBlob, func(key, val []byte) {
			d := codec.NewDec(key[1:])
			id := cluster.BlobID(d.Uint64())
			b, ok := decodeBlob(id, val)
			if !ok || b.Kind == standIn || uint64(id)%n != part {
				return
			}
			if uint64(b.Refs) != refs[id] {
				c.blobf(id, "says it has %d references, it has %d", b.Refs, refs[id])
			}
			if b.Counted && b.Bytes != bytes[id] {
				c.blobf(id, "says that %d bytes of files are in it, there are %d", b.Bytes, bytes[id])
			}
			if ends[id] > uint64(b.Len) {
				c.blobf(id, "has %d bytes, but an extent reaches to %d", b.Len, ends[id])
			}
			delete(refs, id)
		})
		for id, count := range refs {
			c.blobf(id, "is not there, but %d extents refer to it", count)
		}
	}
}

func (c *checker) checkSetBlobs() {
	c.each(prefixSetBlob, func(key, _ []byte) {
		set, id, ok := parseSetBlobKey(key)
		if !ok {
			c.setf(set, "the key %x is damaged", key)
			return
		}
		if b, ok := c.storedBlob(id); !ok || b.Set != set {
			c.problem(Problem{Blob: id, Set: set, Text: "is among the set's blobs, but is not on it"})
		}
	})
}

// blob returns the blob that extents call id.
func (c *checker) blob(id cluster.BlobID) (Blob, bool) {
	b, ok := c.rawBlob(id)
	return b, ok && b.Kind != standIn
}

// storedBlob returns the blob that stores know by id.
func (c *checker) storedBlob(id cluster.BlobID) (Blob, bool) {
	b, ok := c.rawBlob(id)
	if ok && b.Kind == standIn {
		b, ok = c.rawBlob(b.Stored)
	}
	return b, ok && b.Kind != standIn && b.Stored == id
}

func (c *checker) rawBlob(id cluster.BlobID) (Blob, bool) {
	val, ok := c.Get(nil, appendBlobKey(nil, id))
	if !ok {
		return Blob{}, false
	}
	return decodeBlob(id, val)
}

func (c *checker) checkGarbage() {
	c.each(prefixGarbage, func(key, val []byte) {
		c.Garbage++
		set, id, ok := parseSetBlobKey(key)
		if _, whole := decodeGarbage(val); !ok || !whole {
			c.problem(Problem{Blob: id, Set: set, Text: "the delete queue's record is damaged"})
			return
		}
		if _, there := c.sets[set]; !there {
			c.problem(Problem{Blob: id, Set: set, Text: "is in the delete queue of a set that is not there"})
		}
		if b, used := c.storedBlob(id); used {
			c.problem(Problem{Blob: id, Set: set, Text: fmt.Sprintf("is in the delete queue, but has %d references", b.Refs)})
		}
	})
}

// isUnlinked reports whether an inode is in one of the lists of unlinked ones.
func (c *checker) isUnlinked(ino cluster.Ino) bool {
	_, held := c.Get(nil, appendUnlinkedKey(nil, unlinkedHeld, ino))
	_, ready := c.Get(nil, appendUnlinkedKey(nil, unlinkedReady, ino))
	return held || ready
}

func (c *checker) checkUnlinked() {
	c.each(prefixUnlinked, func(key, val []byte) {
		if len(key) == 2 && key[1] == unlinkedCursor {
			return
		}
		c.Unlinked++
		list, ino, ok := parseUnlinkedKey(key)
		if !ok || list > unlinkedReady {
			c.inodef(ino, "the unlinked list's key %x is damaged", key)
			return
		}
		if n, ok := c.inode(ino); !ok {
			c.inodef(ino, "is among the unlinked, but is not there")
		} else if n.Type != cluster.TypeRegular {
			c.inodef(ino, "is among the unlinked, but is no regular file")
		}
		_, ready := c.Get(nil, appendUnlinkedKey(nil, unlinkedReady, ino))
		if list == unlinkedHeld && ready {
			c.inodef(ino, "is held and ready to be reaped")
		}
		if list != unlinkedHeld {
			return
		}
		d := codec.NewDec(val)
		seen := make(map[cluster.WriterID]bool)
		for d.Len() > 0 && d.Err() == nil {
			w := cluster.WriterID(d.Uint32())
			if _, known := c.writers[w]; !known || seen[w] {
				c.inodef(ino, "is held by writer %d, which is not there or twice", w)
			}
			seen[w] = true
		}
		if d.Done() != nil || len(seen) == 0 && !hasStates(c.Reader, ino) {
			c.inodef(ino, "is held by a damaged list, or by none")
		}
	})
}
