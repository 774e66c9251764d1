package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// applyReap runs Reap: a bounded step of freeing unlinked inodes. It takes
// them up where the last one stopped, even in the middle of a file.
func applyReap(tx *fsm.Tx, _ *fsm.Envelope, c *Reap, dst []byte) ([]byte, cluster.Errno) {
	lookAtHeld(tx)
	left := int(min(c.Max, maxReap))
	var r ReapResult
	for left > 0 {
		ino, ok := firstReady(tx)
		if !ok {
			break
		}
		n, done, errno := reapInode(tx, ino, left)
		if errno != cluster.OK {
			return dst, errno
		}
		r.Freed += uint32(n)
		left -= n
		if !done {
			break
		}
	}
	_, r.More = firstReady(tx)
	return r.AppendTo(dst), cluster.OK
}

// firstReady returns the first inode that can be reaped.
func firstReady(r fsm.Reader) (ino cluster.Ino, ok bool) {
	r.Ascend(appendUnlinkedBound(nil, unlinkedReady), appendUnlinkedBound(nil, unlinkedReady+1), func(key, _ []byte) bool {
		_, ino, ok = parseUnlinkedKey(key)
		if !ok {
			damaged("the unlinked inode", uint64(ino))
		}
		return false
	})
	return ino, ok
}

// reapInode frees up to limit of an inode's extents, and the inode itself if
// none are left. It returns how many of both.
func reapInode(tx *fsm.Tx, ino cluster.Ino, limit int) (freed int, done bool, errno cluster.Errno) {
	n, ok := loadInode(tx, ino)
	if !ok || n.Nlink != 0 {
		return 0, false, cluster.EINTERNAL
	}
	m := beginMap(tx, &n.Attr)
	done = true
	ascendExtents(tx, ino, 0, func(e *Extent) bool {
		if freed == limit {
			done = false
			return false
		}
		m.drop(e, 0, maxOffset)
		freed++
		return true
	})
	if errno := m.end(&n.Attr); errno != cluster.OK {
		return 0, false, errno
	}
	if !done || freed == limit {
		storeInode(tx, &n)
		return freed, false, cluster.OK
	}
	dropLocks(tx, ino)
	dropInode(tx, ino)
	deleteUnlinked(tx, unlinkedReady, ino)
	return freed + 1, true, cluster.OK
}

// lookAtHeld goes on through the held inodes, for those whose holders are gone
// without having released them, and remembers where it stopped.
func lookAtHeld(tx *fsm.Tx) {
	cursor := appendUnlinkedBound(nil, unlinkedCursor)
	var from cluster.Ino
	val, was := tx.Get(nil, cursor)
	if was {
		d := codec.NewDec(val)
		from = cluster.Ino(d.Uint64())
	}
	var holders []cluster.WriterID
	looked := 0
	next := cluster.Ino(0)
	tx.Ascend(appendUnlinkedKey(nil, unlinkedHeld, from), appendUnlinkedBound(nil, unlinkedReady), func(key, val []byte) bool {
		_, ino, ok := parseUnlinkedKey(key)
		if !ok {
			damaged("the unlinked inode", uint64(ino))
		}
		if looked == maxLook {
			next = ino
			return false
		}
		looked++
		holders = appendHolders(holders[:0], ino, val)
		refreshHolders(tx, ino, holders, func(w fsm.Writer) bool { return holdExpired(tx, w) })
		return true
	})
	if next != from {
		if next == 0 {
			tx.Delete(cursor)
		} else {
			tx.Set(cursor, codec.AppendUint64(nil, uint64(next)))
		}
	}
}

// holdExpired reports whether the clients of a fenced writer have had their
// time to reclaim: its node has opened none since, or long ago.
func holdExpired(tx *fsm.Tx, w fsm.Writer) bool {
	heir, ok := liveWriter(tx, w.Node)
	return !ok || tx.Time() > heir.Opened+reclaimTime
}
