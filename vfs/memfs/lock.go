package memfs

import (
	"math"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// conflict returns a lock of another owner that keeps l from being taken.
func (n *node) conflict(l *vfs.Lock) *vfs.Lock {
	for i := range n.locks {
		h := n.locks[i]
		if h.Owner != l.Owner && (h.Exclusive || l.Exclusive) && h.Start <= l.End && l.Start <= h.End {
			return &h
		}
	}
	return nil
}

// release takes [start, end] out of the owner's locks.
func (n *node) release(owner vfs.LockOwner, start, end uint64) {
	var left []vfs.Lock
	for _, h := range n.locks {
		if h.Owner != owner || h.Start > end || start > h.End {
			left = append(left, h)
			continue
		}
		if h.Start < start {
			l := h
			l.End = start - 1
			left = append(left, l)
		}
		if h.End > end && end < math.MaxUint64 {
			l := h
			l.Start = end + 1
			left = append(left, l)
		}
	}
	n.locks = left
}

func (fs *FS) lock(_ *vfs.Request, f vfs.File, l vfs.Lock) (*vfs.Lock, error) {
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return nil, errno
	}
	if l.Start > l.End {
		return nil, cluster.EINVAL
	}
	if c := n.conflict(&l); c != nil {
		return c, cluster.ELOCKED
	}
	n.release(l.Owner, l.Start, l.End)
	if l.State != nil {
		if errno := fs.putState(n, l.State); errno != cluster.OK {
			return nil, errno
		}
	}
	l.Wire, l.State = append([]byte(nil), l.Wire...), nil
	n.locks = append(n.locks, l)
	fs.free = append(fs.free, f) // an exclusive one may have become a shared one
	return nil, nil
}

func (fs *FS) unlock(_ *vfs.Request, f vfs.File, l vfs.Lock) error {
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return errno
	}
	if l.Start > l.End {
		return cluster.EINVAL
	}
	n.release(l.Owner, l.Start, l.End)
	fs.free = append(fs.free, f)
	return nil
}

// TestLock implements vfs.FS.
func (fs *FS) TestLock(_ *vfs.Request, f vfs.File, l vfs.Lock) (*vfs.Lock, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return nil, errno
	}
	if l.Start > l.End {
		return nil, cluster.EINVAL
	}
	return n.conflict(&l), nil
}
