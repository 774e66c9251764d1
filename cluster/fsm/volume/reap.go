package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A reapCursor says where Reap goes on in the lists of unlinked inodes. To
// begin at the start each time would be to pass over all that it has deleted.
type reapCursor struct {
	held, ready cluster.Ino
}

func loadReapCursor(r fsm.Reader) (c reapCursor) {
	if val, ok := r.Get(nil, appendUnlinkedBound(nil, unlinkedCursor)); ok {
		d := codec.NewDec(val)
		c.held, c.ready = cluster.Ino(d.Uint64()), cluster.Ino(d.Uint64())
	}
	return c
}

func storeReapCursor(tx *fsm.Tx, c reapCursor) {
	val := codec.AppendUint64(codec.AppendUint64(nil, uint64(c.held)), uint64(c.ready))
	tx.Set(appendUnlinkedBound(nil, unlinkedCursor), val)
}

// applyReap runs Reap: a bounded step of freeing unlinked inodes. It takes
// them up where the last one stopped, even in the middle of a file.
func applyReap(tx *fsm.Tx, _ *fsm.Envelope, c *Reap, dst []byte) ([]byte, cluster.Errno) {
	at := loadReapCursor(tx)
	was := at
	if !hasReady(tx, at.ready) {
		lookAtHeld(tx, &at.held)
	}
	left := int(min(c.Max, maxReap))
	var r ReapResult
	for _, from := range [...]cluster.Ino{at.ready, 0} {
		var errno cluster.Errno
		ascendReady(tx, from, func(ino cluster.Ino, off uint64) bool {
			if left == 0 {
				return false
			}
			var n int
			var done bool
			if n, done, errno = reapInode(tx, ino, off, left); errno != cluster.OK {
				return false
			}
			r.Freed += uint32(n)
			left -= n
			at.ready = ino
			if done {
				at.ready++
			}
			return done
		})
		if errno != cluster.OK {
			return dst, errno
		}
		if left == 0 {
			break
		}
	}
	if at != was {
		storeReapCursor(tx, at)
	}
	// With some of the step left, all that was ready has been passed over.
	r.More = left == 0 && hasReady(tx, at.ready)
	return r.AppendTo(dst), cluster.OK
}

// ascendReady calls fn for the inodes that can be reaped from ino on, with the
// offset up to which their extents are gone, until it returns false.
func ascendReady(r fsm.Reader, from cluster.Ino, fn func(ino cluster.Ino, off uint64) bool) {
	r.Ascend(appendUnlinkedKey(nil, unlinkedReady, from), appendUnlinkedBound(nil, unlinkedReady+1), func(key, val []byte) bool {
		_, ino, ok := parseUnlinkedKey(key)
		d := codec.NewDec(val)
		var off uint64
		if len(val) > 0 {
			off = d.Uvarint()
		}
		if !ok || d.Done() != nil {
			damaged("the unlinked inode", uint64(ino))
		}
		return fn(ino, off)
	})
}

// hasReady reports whether there is an inode that can be reaped. It looks from
// ino on first.
func hasReady(r fsm.Reader, ino cluster.Ino) (ready bool) {
	for _, from := range [...]cluster.Ino{ino, 0} {
		ascendReady(r, from, func(cluster.Ino, uint64) bool {
			ready = true
			return false
		})
		if ready {
			break
		}
	}
	return ready
}

// reapInode frees up to limit of an inode's extents, from offset off on where
// they begin, and the inode itself if none are left. It returns how many of both.
func reapInode(tx *fsm.Tx, ino cluster.Ino, off uint64, limit int) (freed int, done bool, errno cluster.Errno) {
	n, ok := loadInode(tx, ino)
	if !ok || n.Nlink != 0 {
		return 0, false, cluster.EINTERNAL
	}
	m := beginMap(tx, &n.Attr)
	done = true
	ascendExtents(tx, ino, off, maxOffset, func(e *Extent) bool {
		if freed == limit {
			done = false
			return false
		}
		off = e.End()
		m.drop(e, 0, maxOffset)
		freed++
		return true
	})
	if errno := m.end(&n.Attr); errno != cluster.OK {
		return 0, false, errno
	}
	if !done || freed == limit {
		storeInode(tx, &n)
		tx.Set(appendUnlinkedKey(nil, unlinkedReady, ino), codec.AppendUvarint(nil, off))
		return freed, false, cluster.OK
	}
	dropLocks(tx, ino)
	if n.Size > InlineLimit {
		deleteMark(tx, ino)
	}
	dropInode(tx, ino)
	deleteUnlinked(tx, unlinkedReady, ino)
	return freed + 1, true, cluster.OK
}

// lookAtHeld goes on through the held inodes, for those whose holders are gone
// without having released them, and notes where it stopped.
func lookAtHeld(tx *fsm.Tx, at *cluster.Ino) {
	var holders []cluster.WriterID
	looked := 0
	next := cluster.Ino(0)
	tx.Ascend(appendUnlinkedKey(nil, unlinkedHeld, *at), appendUnlinkedBound(nil, unlinkedReady), func(key, val []byte) bool {
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
		refreshHolders(tx, ino, holders)
		return true
	})
	*at = next
}
