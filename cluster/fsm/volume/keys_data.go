package volume

import (
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// appendExtentBound appends the smallest key of an extent of ino that ends at
// end or behind it: a bound for Ascend.
func appendExtentBound(dst []byte, ino cluster.Ino, end uint64) []byte {
	dst = codec.AppendUint64(append(dst, prefixExtent), uint64(ino))
	return codec.AppendUint64(dst, end)
}

func appendExtentKey(dst []byte, ino cluster.Ino, end uint64) []byte {
	return appendGen(appendExtentBound(dst, ino, end))
}

func parseExtentKey(key []byte) (ino cluster.Ino, end uint64, ok bool) {
	d := codec.NewDec(key)
	if d.Uint8() != prefixExtent {
		return 0, 0, false
	}
	ino, end = cluster.Ino(d.Uint64()), d.Uint64()
	d.Uint32()
	return ino, end, d.Done() == nil
}

func appendBlobKey(dst []byte, id cluster.BlobID) []byte {
	return codec.AppendUint64(append(dst, prefixBlob), uint64(id))
}

// appendSetBlobKey appends the key of a blob among its set's blobs
// (prefixSetBlob) or in its set's delete queue (prefixGarbage).
func appendSetBlobKey(dst []byte, prefix byte, set cluster.ReplicaSetID, id cluster.BlobID) []byte {
	dst = codec.AppendUint32(append(dst, prefix), uint32(set))
	return codec.AppendUint64(dst, uint64(id))
}

func parseSetBlobKey(key []byte) (set cluster.ReplicaSetID, id cluster.BlobID, ok bool) {
	d := codec.NewDec(key)
	d.Uint8()
	set, id = cluster.ReplicaSetID(d.Uint32()), cluster.BlobID(d.Uint64())
	return set, id, d.Done() == nil
}

func appendSetKey(dst []byte, set cluster.ReplicaSetID) []byte {
	return codec.AppendUint32(append(dst, prefixSet), uint32(set))
}

// appendLockBound appends what the keys of all locks on ino begin with.
func appendLockBound(dst []byte, ino cluster.Ino) []byte {
	return codec.AppendUint64(append(dst, prefixLock), uint64(ino))
}

func appendLockKey(dst []byte, ino cluster.Ino, start uint64, owner *LockOwner) []byte {
	dst = codec.AppendUint64(appendLockBound(dst, ino), start)
	return append(dst, owner[:]...)
}

// The locks of inode 0, which is none, are an index of all locks by who
// holds them: client ino start owner.
func appendClientLocks(dst []byte, client uint64) []byte {
	return codec.AppendUint64(appendLockBound(dst, 0), client)
}

func appendHolderKey(dst []byte, l *LockInfo) []byte {
	dst = codec.AppendUint64(appendClientLocks(dst, l.Client), uint64(l.Ino))
	dst = codec.AppendUint64(dst, l.Start)
	return append(dst, l.Owner[:]...)
}

// parseHolderKey returns the members of a lock that its index key names.
func parseHolderKey(key []byte) (l LockInfo, ok bool) {
	d := codec.NewDec(key)
	d.Uint8()
	d.Uint64()
	l.Client = d.Uint64()
	l.Ino = cluster.Ino(d.Uint64())
	l.Start = d.Uint64()
	copy(l.Owner[:], d.Fixed(len(l.Owner)))
	return l, d.Done() == nil
}

// The unlinked inodes come in two lists: those that live writers may have
// open, and those that can be reaped.
const (
	unlinkedHeld   byte = 0
	unlinkedReady  byte = 1
	unlinkedCursor byte = 2 // not a list: where Reap looks at held ones next
)

func appendUnlinkedBound(dst []byte, list byte) []byte {
	return append(dst, prefixUnlinked, list)
}

func appendUnlinkedKey(dst []byte, list byte, ino cluster.Ino) []byte {
	return codec.AppendUint64(appendUnlinkedBound(dst, list), uint64(ino))
}

func parseUnlinkedKey(key []byte) (list byte, ino cluster.Ino, ok bool) {
	d := codec.NewDec(key)
	d.Uint8()
	list, ino = d.Uint8(), cluster.Ino(d.Uint64())
	return list, ino, d.Done() == nil
}

// maxOffset is beyond the end of every extent.
const maxOffset uint64 = math.MaxUint64
