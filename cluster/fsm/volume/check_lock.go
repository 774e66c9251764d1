package volume

import (
	"slices"

	"github.com/hawserfs/hawser/cluster"
)

// checkLocks looks at the locks of each file: two of one owner do not overlap,
// two of different owners only if both are shared.
func (c *checker) checkLocks() {
	var ino cluster.Ino
	var active []LockInfo // those that may overlap the next
	c.Ascend(appendLockBound(nil, 1), []byte{prefixLock + 1}, func(key, val []byte) bool {
		c.Locks++
		l, ok := decodeLock(key, val)
		if !ok {
			c.inodef(l.Ino, "the lock %x is damaged", key)
			return true
		}
		if l.Ino != ino {
			ino, active = l.Ino, active[:0]
			if n, ok := c.inode(ino); !ok || n.Type != cluster.TypeRegular {
				c.inodef(ino, "has locks, but is no file")
			}
		}
		active = slices.DeleteFunc(active, func(o LockInfo) bool { return o.End < l.Start })
		for i := range active {
			if o := &active[i]; o.Owner == l.Owner || o.Exclusive || l.Exclusive {
				c.inodef(ino, "the locks [%d, %d] of %x and [%d, %d] of %x overlap", o.Start, o.End, o.Owner, l.Start, l.End, l.Owner)
			}
		}
		if _, ok := c.Get(nil, appendHolderKey(nil, &l)); !ok {
			c.inodef(ino, "the lock [%d, %d] of %x is not in the index", l.Start, l.End, l.Owner)
		}
		if _, known := c.writers[l.Writer]; !known {
			c.inodef(ino, "the lock [%d, %d] of %x is held through writer %d, which is not there", l.Start, l.End, l.Owner, l.Writer)
		}
		l.Wire = nil
		active = append(active, l)
		return true
	})
}

func (c *checker) checkLockIndex() {
	c.Ascend(appendLockBound(nil, 0), appendLockBound(nil, 1), func(key, _ []byte) bool {
		i, ok := parseHolderKey(key)
		if !ok {
			c.inodef(i.Ino, "the lock index's key %x is damaged", key)
			return true
		}
		k := appendLockKey(nil, i.Ino, i.Start, &i.Owner)
		val, ok := c.Get(nil, k)
		l, whole := decodeLock(k, val)
		if !ok || !whole || l.Client != i.Client {
			c.inodef(i.Ino, "the index has a lock at %d of %x that is not there", i.Start, i.Owner)
		}
		return true
	})
}
