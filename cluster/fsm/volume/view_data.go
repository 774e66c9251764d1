package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// Extents calls fn for each extent of ino in [off, end), cut to it, in order,
// until it returns false. What is between them is a hole. Bytes is valid
// during the call.
func (v View) Extents(ino cluster.Ino, off, end uint64, fn func(e *Extent) bool) {
	ascendExtents(v.Reader, ino, off, end, func(e *Extent) bool {
		if e.Off >= end {
			return false
		}
		c := e.cut(off, end)
		return fn(&c)
	})
}

// Blob returns the record of a blob, and whether any extent refers to it. id
// is what extents call it, or what stores do.
func (v View) Blob(id cluster.BlobID) (Blob, bool) {
	b, ok := loadRaw(v.Reader, id)
	if ok && b.Kind == standIn {
		return loadStored(v.Reader, id)
	}
	return b, ok
}

// StoredBlob returns the record of the blob that stores know by id, and whether
// there is one: SetBlobs and Garbage have such ids. Its ID is what extents call it.
func (v View) StoredBlob(id cluster.BlobID) (Blob, bool) { return loadStored(v.Reader, id) }

// ReplicaSet returns a replica set, and whether there is one.
func (v View) ReplicaSet(id cluster.ReplicaSetID) (ReplicaSet, bool) { return loadSet(v.Reader, id) }

// ReplicaSets returns all replica sets, by id.
func (v View) ReplicaSets() []ReplicaSet {
	var sets []ReplicaSet
	v.Ascend([]byte{prefixSet}, []byte{prefixSet + 1}, func(_, val []byte) bool {
		sets = append(sets, mustDecodeSet(val))
		return true
	})
	return sets
}

// SetBlobs calls fn for each blob on a replica set above after, by id, until
// it returns false.
func (v View) SetBlobs(set cluster.ReplicaSetID, after cluster.BlobID, fn func(id cluster.BlobID) bool) {
	if after == ^cluster.BlobID(0) {
		return
	}
	v.ascendSetBlobs(prefixSetBlob, set, after+1, func(id cluster.BlobID, _ []byte) bool { return fn(id) })
}

// HasBlobs reports whether there is any blob on a replica set.
func (v View) HasBlobs(set cluster.ReplicaSetID) bool { return hasBlobs(v.Reader, set) }

func (v View) ascendSetBlobs(prefix byte, set cluster.ReplicaSetID, from cluster.BlobID, fn func(id cluster.BlobID, val []byte) bool) {
	v.Ascend(appendSetBlobKey(nil, prefix, set, from), appendSetBlobKey(nil, prefix, set+1, 0), func(key, val []byte) bool {
		_, id, ok := parseSetBlobKey(key)
		if !ok {
			damaged("a blob of replica set", uint64(set))
		}
		return fn(id, val)
	})
}

// Garbage is a blob that nothing refers to any more.
type Garbage struct {
	Set   cluster.ReplicaSetID
	Blob  cluster.BlobID
	Index uint64       // of the command that took its last reference
	Time  cluster.Time // of that command
}

// Garbage calls fn for each blob of a replica set's delete queue that may be
// deleted from the members, by id, beginning with from, until it returns
// false. Those that their writer is not past yet are left out: it is soon.
func (v View) Garbage(set cluster.ReplicaSetID, from cluster.BlobID, fn func(g Garbage) bool) {
	// Writers are looked up as they are met: there may be many more. They may be
	// read after the queue, since what is in it is never committed again.
	met := make(map[cluster.WriterID]writerOf)
	v.ascendSetBlobs(prefixGarbage, set, from, func(id cluster.BlobID, val []byte) bool {
		w, ok := met[id.Writer()]
		if !ok {
			w.Writer, w.known = fsm.LoadWriter(v.Reader, id.Writer())
			met[id.Writer()] = w
		}
		if !final(id, w.Writer, w.known) {
			return true
		}
		g, ok := decodeGarbage(val)
		if !ok {
			damaged("garbage blob", uint64(id))
		}
		return fn(Garbage{Set: set, Blob: id, Index: g.Index, Time: g.Time})
	})
}

// writerOf is a writer, if it is known.
type writerOf struct {
	fsm.Writer
	known bool
}

// Deletable reports whether what stores have under a blob's id may be deleted,
// wherever it is: nothing refers to it, and its writer is fenced or past it, so that nothing
// ever will. Once true it stays so. It must be asked at a read index that is
// taken after the copy was seen.
func (v View) Deletable(id cluster.BlobID) bool {
	// The writer first: what is below its mark then is decided in what is
	// read next.
	w, known := fsm.LoadWriter(v.Reader, id.Writer())
	if !final(id, w, known) {
		return false
	}
	return !isStored(v.Reader, id)
}

// Unlinked is an inode without a name.
type Unlinked struct {
	Ino     cluster.Ino
	Holders []cluster.WriterID // that may have it open and have not said so yet
	Ready   bool               // it can be reaped; otherwise Holders or states hold it
}

// Unlinked calls fn for each inode without a name, until it returns false.
func (v View) Unlinked(fn func(u Unlinked) bool) {
	v.Ascend(appendUnlinkedBound(nil, unlinkedHeld), appendUnlinkedBound(nil, unlinkedReady+1), func(key, val []byte) bool {
		list, ino, ok := parseUnlinkedKey(key)
		if !ok {
			damaged("the unlinked inode", uint64(ino))
		}
		u := Unlinked{Ino: ino, Ready: list == unlinkedReady}
		if list == unlinkedHeld {
			u.Holders = appendHolders(nil, ino, val)
		}
		return fn(u)
	})
}

// Held reports whether an inode is without a name and not to be reaped: an open
// of it is recorded, or a front-end may have it open.
func (v View) Held(ino cluster.Ino) bool { return isHeld(v.Reader, ino) }

// HeldOver reports whether a front-end that is gone may have had an inode without
// a name open, so that its clients may come with it to another one.
func (v View) HeldOver(ino cluster.Ino) bool {
	val, ok := v.Reader.Get(nil, appendUnlinkedKey(nil, unlinkedHeld, ino))
	if !ok {
		return false
	}
	for _, id := range appendHolders(nil, ino, val) {
		if w, ok := fsm.LoadWriter(v.Reader, id); ok && w.Fenced {
			return true
		}
	}
	return false
}

// Reapable reports whether a Reap of time now would find anything to do: an
// inode that can be reaped, or one whose holders are gone.
func (v View) Reapable(now cluster.Time) bool {
	if hasReady(v.Reader, loadReapCursor(v.Reader).ready) {
		return true
	}
	expired := make(map[cluster.WriterID]bool)
	fsm.LoadWriters(v.Reader, func(w fsm.Writer) bool {
		expired[w.ID] = holdExpired(&w, now)
		return true
	})
	found := false
	v.Unlinked(func(u Unlinked) bool {
		for _, w := range u.Holders {
			gone, known := expired[w]
			found = found || gone || !known
		}
		return !found
	})
	return found
}

// Locks calls fn for each lock on ino by where it starts, until it returns
// false. Wire is valid during the call.
func (v View) Locks(ino cluster.Ino, fn func(l *LockInfo) bool) { ascendLocks(v.Reader, ino, fn) }

// Conflict returns a lock that keeps owner from getting [start, end] of ino.
func (v View) Conflict(ino cluster.Ino, owner LockOwner, start, end uint64, exclusive bool) (LockInfo, bool) {
	want := LockInfo{Ino: ino, Owner: owner, Start: start, End: end, Exclusive: exclusive}
	var found LockInfo
	has := false
	ascendLocks(v.Reader, ino, func(l *LockInfo) bool {
		if l.Start > end {
			return false
		}
		if l.conflicts(&want) {
			found, has = *l, true
			found.Wire = append([]byte(nil), l.Wire...)
			return false
		}
		return true
	})
	return found, has
}
