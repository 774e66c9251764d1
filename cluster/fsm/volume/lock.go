package volume

import (
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func init() {
	register(KindLock, command(applyLock))
	register(KindUnlock, command(applyUnlock))
	register(KindReleaseClient, command(applyReleaseClient))
	register(KindReleaseNode, command(applyReleaseNode))
}

// maxLocks is the most locks on one inode.
const maxLocks = 16384

// overlaps reports whether l has a byte of [start, end].
func (l *LockInfo) overlaps(start, end uint64) bool { return l.Start <= end && start <= l.End }

// touches reports whether l ends or begins right beside [start, end].
func (l *LockInfo) touches(start, end uint64) bool {
	return l.End != math.MaxUint64 && l.End+1 == start || end != math.MaxUint64 && end+1 == l.Start
}

// same reports whether l and o, of one owner, may be one lock.
func (l *LockInfo) same(o *LockInfo) bool {
	return l.Exclusive == o.Exclusive && l.Writer == o.Writer && l.Client == o.Client && string(l.Wire) == string(o.Wire)
}

// conflicts reports whether l keeps o from being granted.
func (l *LockInfo) conflicts(o *LockInfo) bool {
	return l.Owner != o.Owner && (l.Exclusive || o.Exclusive) && l.overlaps(o.Start, o.End)
}

// ownLocks returns the locks of an owner that overlap or touch [start, end].
// They alias nothing.
func ownLocks(tx *fsm.Tx, want *LockInfo) []LockInfo {
	var own []LockInfo
	ascendLocks(tx, want.Ino, func(l *LockInfo) bool {
		if l.Owner == want.Owner && (l.overlaps(want.Start, want.End) || l.touches(want.Start, want.End)) {
			c := *l
			c.Wire = append([]byte(nil), l.Wire...)
			own = append(own, c)
		}
		return true
	})
	return own
}

// carve takes [start, end] out of a lock that overlaps it, leaving what is on
// both sides.
func carve(tx *fsm.Tx, l *LockInfo, start, end uint64) {
	deleteLock(tx, l)
	if l.Start < start {
		left := *l
		left.End = start - 1
		putLock(tx, &left)
	}
	if l.End > end {
		right := *l
		right.Start = end + 1
		putLock(tx, &right)
	}
}

// applyLock runs Lock as POSIX has it: the owner's own locks in the range give
// way, and locks of one kind that touch become one.
func applyLock(tx *fsm.Tx, env *fsm.Envelope, c *Lock, dst []byte) ([]byte, cluster.Errno) {
	w, ok := tx.Writer(env.Writer)
	if !ok || c.Start > c.End || len(c.Wire) > maxWire {
		return dst, cluster.EINVAL
	}
	if _, errno := loadFile(tx, c.Ino); errno != cluster.OK {
		return dst, errno
	}
	l := LockInfo{
		Ino: c.Ino, Owner: c.Owner, Writer: env.Writer, Client: c.Client, Wire: c.Wire,
		Start: c.Start, End: c.End, Exclusive: c.Exclusive,
	}
	locks := 0
	conflict := false
	ascendLocks(tx, c.Ino, func(h *LockInfo) bool {
		locks++
		if on(ruleConflict) && h.conflicts(&l) {
			conflict = true
			dst = LockResult{Conflict: *h}.AppendTo(dst)
			return false
		}
		return true
	})
	if conflict {
		return dst, cluster.ELOCKED
	}
	own := ownLocks(tx, &l)
	if c.Reclaim && on(ruleReclaim) {
		for i := range own {
			if own[i].overlaps(l.Start, l.End) && !reclaims(tx, &w, own[i].Writer) {
				return dst, cluster.ECONFLICT
			}
		}
	}
	// A lock that splits another of its owner makes two more.
	if locks+2 > maxLocks {
		return dst, cluster.ENOSPC
	}
	for i := range own {
		o := &own[i]
		switch {
		case o.same(&l):
			deleteLock(tx, o)
			l.Start, l.End = min(l.Start, o.Start), max(l.End, o.End)
		case o.overlaps(c.Start, c.End):
			carve(tx, o, c.Start, c.End)
		}
	}
	putLock(tx, &l)
	return dst, cluster.OK
}

// reclaims reports whether w may take over what was held through holder: its
// own, or an earlier incarnation of the same front-end.
func reclaims(tx *fsm.Tx, w *fsm.Writer, holder cluster.WriterID) bool {
	if holder == w.ID {
		return true
	}
	h, known := tx.Writer(holder)
	return !known || h.Fenced && h.Node == w.Node
}

// applyUnlock runs Unlock. There is nothing to unlock on an inode that is gone.
func applyUnlock(tx *fsm.Tx, _ *fsm.Envelope, c *Unlock, dst []byte) ([]byte, cluster.Errno) {
	if c.Start > c.End {
		return dst, cluster.EINVAL
	}
	own := ownLocks(tx, &LockInfo{Ino: c.Ino, Owner: c.Owner, Start: c.Start, End: c.End})
	for i := range own {
		if o := &own[i]; o.overlaps(c.Start, c.End) {
			carve(tx, o, c.Start, c.End)
		}
	}
	return dst, cluster.OK
}

// applyReleaseClient runs ReleaseClient.
func applyReleaseClient(tx *fsm.Tx, env *fsm.Envelope, c *ReleaseClient, dst []byte) ([]byte, cluster.Errno) {
	lower := appendClientBound(nil, env.Writer, c.Client)
	if c.Ino != 0 {
		lower = codec.AppendUint64(lower, uint64(c.Ino))
	}
	releaseLocks(tx, lower)
	return dst, cluster.OK
}

// applyReleaseNode runs ReleaseNode: locks and held inodes alike.
func applyReleaseNode(tx *fsm.Tx, _ *fsm.Envelope, c *ReleaseNode, dst []byte) ([]byte, cluster.Errno) {
	for w := cluster.WriterID(0); ; w++ {
		// The next writer that holds a lock.
		found := false
		tx.Ascend(appendHolderBound(nil, w), appendLockBound(nil, 1), func(key, _ []byte) bool {
			l, ok := parseHolderKey(key)
			if !ok {
				damaged("the lock index of writer", uint64(w))
			}
			w, found = l.Writer, true
			return false
		})
		if !found {
			break
		}
		if h, known := tx.Writer(w); !known || h.Fenced && h.Node == c.Node {
			releaseLocks(tx, appendHolderBound(nil, w))
		}
		if w == math.MaxUint32 {
			break
		}
	}
	releaseHeld(tx, c.Node)
	return dst, cluster.OK
}

// releaseLocks deletes the locks whose index keys begin with prefix.
func releaseLocks(tx *fsm.Tx, prefix []byte) {
	tx.Ascend(prefix, codec.AppendUpper(nil, prefix), func(key, _ []byte) bool {
		l, ok := parseHolderKey(key)
		if !ok {
			damaged("the lock index of writer", uint64(l.Writer))
		}
		deleteLock(tx, &l)
		return true
	})
}
