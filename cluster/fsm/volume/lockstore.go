package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func appendLockValue(dst []byte, l *LockInfo) []byte {
	dst = codec.AppendUint64(dst, l.End)
	dst = codec.AppendBool(dst, l.Exclusive)
	dst = codec.AppendUint32(dst, uint32(l.Writer))
	dst = codec.AppendUint64(dst, l.Client)
	return codec.AppendBytes(dst, l.Wire)
}

// decodeLock decodes a stored lock. Its Wire aliases val.
func decodeLock(key, val []byte) (l LockInfo, ok bool) {
	d := codec.NewDec(key)
	d.Uint8()
	l.Ino, l.Start = cluster.Ino(d.Uint64()), d.Uint64()
	copy(l.Owner[:], d.Fixed(len(l.Owner)))
	if d.Done() != nil {
		return l, false
	}
	d = codec.NewDec(val)
	l.End, l.Exclusive = d.Uint64(), d.Bool()
	l.Writer, l.Client = cluster.WriterID(d.Uint32()), d.Uint64()
	l.Wire = d.Bytes(maxWire)
	return l, d.Done() == nil && l.Start <= l.End
}

// ascendLocks calls fn for the locks on ino by where they start, until it
// returns false. Their Wire is valid during the call.
func ascendLocks(r fsm.Reader, ino cluster.Ino, fn func(l *LockInfo) bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	lower := appendLockBound(s.key[:0], ino)
	upper := appendLockBound(s.key[len(lower):len(lower)], ino+1)
	r.Ascend(lower, upper, func(key, val []byte) bool {
		l, ok := decodeLock(key, val)
		if !ok {
			damaged("a lock on inode", uint64(ino))
		}
		return fn(&l)
	})
}

// putLock stores a lock and its index key.
func putLock(tx *fsm.Tx, l *LockInfo) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendLockValue(s.val[:0], l)
	tx.Set(appendLockKey(s.key[:0], l.Ino, l.Start, &l.Owner), s.val)
	tx.Set(appendHolderKey(s.key[:0], l), nil)
}

// deleteLock deletes a lock and its index key.
func deleteLock(tx *fsm.Tx, l *LockInfo) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Delete(appendLockKey(s.key[:0], l.Ino, l.Start, &l.Owner))
	tx.Delete(appendHolderKey(s.key[:0], l))
}

// dropLocks deletes all locks on an inode that goes.
func dropLocks(tx *fsm.Tx, ino cluster.Ino) {
	ascendLocks(tx, ino, func(l *LockInfo) bool {
		deleteLock(tx, l)
		return true
	})
}
