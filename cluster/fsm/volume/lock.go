package volume

import (
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

func init() {
	register(KindLock, command(applyLock))
	register(KindUnlock, command(applyUnlock))
	register(KindReleaseClient, command(applyReleaseClient))
}

// maxLocks is the most locks on one inode: each is looked at for each new one. Only
// tests change it.
var maxLocks = 16384

// overlaps reports whether l has a byte of [start, end].
func (l *LockInfo) overlaps(start, end uint64) bool { return l.Start <= end && start <= l.End }

// touches reports whether l ends or begins right beside [start, end].
func (l *LockInfo) touches(start, end uint64) bool {
	return l.End != math.MaxUint64 && l.End+1 == start || end != math.MaxUint64 && end+1 == l.Start
}

// same reports whether l and o, of one owner, may be one lock.
func (l *LockInfo) same(o *LockInfo) bool {
	return l.Exclusive == o.Exclusive && l.Client == o.Client && string(l.Wire) == string(o.Wire)
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
	if c.Start > c.End || len(c.Wire) > maxWire {
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
	// A lock that splits another of its owner makes two more.
	if locks+2 > maxLocks {
		return dst, cluster.ENOSPC
	}
	if c.State != nil {
		if errno := recordState(tx, c.Ino, c.State); errno != cluster.OK {
			return dst, errno
		}
	}
	freed := false
	for i := range own {
		o := &own[i]
		freed = freed || o.Exclusive && !l.Exclusive
		switch {
		case o.same(&l):
			deleteLock(tx, o)
			l.Start, l.End = min(l.Start, o.Start), max(l.End, o.End)
		case o.overlaps(c.Start, c.End):
			carve(tx, o, c.Start, c.End)
		}
	}
	putLock(tx, &l)
	if freed {
		tx.Emit(EventUnlocked{Ino: c.Ino})
	}
	return dst, cluster.OK
}

// applyUnlock runs Unlock. There is nothing to unlock on an inode that is gone.
func applyUnlock(tx *fsm.Tx, _ *fsm.Envelope, c *Unlock, dst []byte) ([]byte, cluster.Errno) {
	if c.Start > c.End {
		return dst, cluster.EINVAL
	}
	own := ownLocks(tx, &LockInfo{Ino: c.Ino, Owner: c.Owner, Start: c.Start, End: c.End})
	if splits(own, c.Start, c.End) && countLocks(tx, c.Ino) >= maxLocks {
		return dst, cluster.ENOSPC // fcntl(2) says ENOLCK then, also for an unlock
	}
	freed := false
	for i := range own {
		if o := &own[i]; o.overlaps(c.Start, c.End) {
			carve(tx, o, c.Start, c.End)
			freed = true
		}
	}
	if freed {
		tx.Emit(EventUnlocked{Ino: c.Ino})
	}
	return dst, cluster.OK
}

// splits reports whether taking [start, end] out of an owner's locks leaves one more.
func splits(own []LockInfo, start, end uint64) bool {
	return len(own) == 1 && own[0].Start < start && end < own[0].End
}

func countLocks(tx *fsm.Tx, ino cluster.Ino) (n int) {
	ascendLocks(tx, ino, func(*LockInfo) bool { n++; return true })
	return n
}
