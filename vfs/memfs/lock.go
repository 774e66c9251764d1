package memfs

import (
	"context"
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

// Lock implements vfs.FS.
func (fs *FS) Lock(_ *vfs.Request, f vfs.File, l vfs.Lock) (*vfs.Lock, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
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
	l.Wire = append([]byte(nil), l.Wire...)
	n.locks = append(n.locks, l)
	return nil, nil
}

// Unlock implements vfs.FS.
func (fs *FS) Unlock(_ *vfs.Request, f vfs.File, l vfs.Lock) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return errno
	}
	if l.Start > l.End {
		return cluster.EINVAL
	}
	n.release(l.Owner, l.Start, l.End)
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

// ReleaseClient implements vfs.FS.
func (fs *FS) ReleaseClient(_ context.Context, client uint64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, v := range fs.volumes {
		for _, n := range v.nodes {
			var left []vfs.Lock
			for _, l := range n.locks {
				if l.Client != client {
					left = append(left, l)
				}
			}
			n.locks = left
		}
	}
	return nil
}
