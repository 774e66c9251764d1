package memfs

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// A slotKey names a slot of a session, whose last request's results are kept.
type slotKey struct {
	session [16]byte
	slot    uint32
}

type slot struct {
	seq, sum uint32
	results  map[callKey]any
}

type callKey struct{ op, number uint16 }

type result[T any] struct {
	value T
	err   error
}

// once returns what fn does for the present call of r: now, or when it was
// called for the same origin before.
func once[T any](fs *FS, r *vfs.Request, fn func() (T, error)) (T, error) {
	value, err := func() (T, error) {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		c := r.NextCall()
		if c.Session == [16]byte{} {
			return fn()
		}
		key := slotKey{c.Session, c.Slot}
		s := fs.slots[key]
		if s == nil || s.seq != c.Seq || s.sum != c.Sum {
			if s != nil && c.Ordered && int32(c.Seq-s.seq) <= 0 {
				var none T
				return none, cluster.EREPLAY
			}
			s = &slot{seq: c.Seq, sum: c.Sum, results: map[callKey]any{}}
			fs.slots[key] = s
		}
		call := callKey{c.Op, c.Number}
		if old, ok := s.results[call]; ok {
			r, ok := old.(result[T])
			if !ok {
				return r.value, cluster.EREPLAY // another call than the first time
			}
			return r.value, r.err
		}
		value, err := fn()
		s.results[call] = result[T]{value, err}
		return value, err
	}()
	fs.tell()
	return value, err
}

// DropSessions implements vfs.FS.
func (fs *FS) DropSessions(_ context.Context, sessions [][16]byte) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, id := range sessions {
		for key := range fs.slots {
			if key.session == id {
				delete(fs.slots, key)
			}
		}
	}
	return nil
}

type none struct{}

// Setattr implements vfs.FS.
func (fs *FS) Setattr(r *vfs.Request, f vfs.File, set vfs.SetAttr, opened bool) (vfs.Attr, error) {
	return once(fs, r, func() (vfs.Attr, error) { return fs.setattr(r, f, set, opened) })
}

// Create implements vfs.FS.
func (fs *FS) Create(r *vfs.Request, dir vfs.File, name string, args vfs.CreateArgs) (vfs.Created, error) {
	return once(fs, r, func() (vfs.Created, error) { return fs.create(r, dir, name, args) })
}

// Link implements vfs.FS.
func (fs *FS) Link(r *vfs.Request, f, dir vfs.File, name string) (vfs.Attr, vfs.ChangeInfo, error) {
	type linked struct {
		attr vfs.Attr
		dir  vfs.ChangeInfo
	}
	l, err := once(fs, r, func() (l linked, err error) {
		l.attr, l.dir, err = fs.link(r, f, dir, name)
		return l, err
	})
	return l.attr, l.dir, err
}

// Remove implements vfs.FS.
func (fs *FS) Remove(r *vfs.Request, dir vfs.File, name string) (vfs.ChangeInfo, error) {
	return once(fs, r, func() (vfs.ChangeInfo, error) { return fs.remove(r, dir, name) })
}

// Rename implements vfs.FS.
func (fs *FS) Rename(r *vfs.Request, fromDir vfs.File, fromName string, toDir vfs.File, toName string) (from, to vfs.ChangeInfo, err error) {
	type renamed struct{ from, to vfs.ChangeInfo }
	m, err := once(fs, r, func() (m renamed, err error) {
		m.from, m.to, err = fs.rename(r, fromDir, fromName, toDir, toName)
		return m, err
	})
	return m.from, m.to, err
}

// Write implements vfs.FS.
func (fs *FS) Write(r *vfs.Request, f vfs.File, off uint64, p []byte, how vfs.Stability) (vfs.Stability, vfs.Verifier, error) {
	type written struct {
		how vfs.Stability
		v   vfs.Verifier
	}
	w, err := once(fs, r, func() (w written, err error) {
		w.how, w.v, err = fs.write(r, f, off, p, how)
		return w, err
	})
	return w.how, w.v, err
}

// Allocate implements vfs.FS.
func (fs *FS) Allocate(r *vfs.Request, f vfs.File, off, count uint64) error {
	_, err := once(fs, r, func() (none, error) { return none{}, fs.allocate(r, f, off, count) })
	return err
}

// Deallocate implements vfs.FS.
func (fs *FS) Deallocate(r *vfs.Request, f vfs.File, off, count uint64) error {
	_, err := once(fs, r, func() (none, error) { return none{}, fs.deallocate(r, f, off, count) })
	return err
}

// Clone implements vfs.FS.
func (fs *FS) Clone(r *vfs.Request, src vfs.File, srcOff uint64, dst vfs.File, dstOff, count uint64) error {
	_, err := once(fs, r, func() (none, error) { return none{}, fs.clone(r, src, srcOff, dst, dstOff, count) })
	return err
}

// Lock implements vfs.FS.
func (fs *FS) Lock(r *vfs.Request, f vfs.File, l vfs.Lock) (*vfs.Lock, error) {
	return once(fs, r, func() (*vfs.Lock, error) { return fs.lock(r, f, l) })
}

// Unlock implements vfs.FS.
func (fs *FS) Unlock(r *vfs.Request, f vfs.File, l vfs.Lock) error {
	_, err := once(fs, r, func() (none, error) { return none{}, fs.unlock(r, f, l) })
	return err
}

// PutState implements vfs.FS.
func (fs *FS) PutState(r *vfs.Request, f vfs.File, s vfs.State) error {
	_, err := once(fs, r, func() (none, error) {
		_, n, errno := fs.regular(f)
		if errno == cluster.OK {
			errno = fs.putState(n, &s)
		}
		return none{}, errno.Err()
	})
	return err
}

// DropState implements vfs.FS.
func (fs *FS) DropState(r *vfs.Request, f vfs.File, other vfs.StateID, _ bool) error {
	_, err := once(fs, r, func() (none, error) {
		if v, n, errno := fs.node(f); errno == cluster.OK {
			n.dropState(other)
			fs.free = append(fs.free, f)
			v.forget(n)
		}
		return none{}, nil
	})
	return err
}

// Setxattr implements vfs.FS.
func (fs *FS) Setxattr(r *vfs.Request, f vfs.File, name string, value []byte, how vfs.CreateHow) (vfs.ChangeInfo, error) {
	return once(fs, r, func() (vfs.ChangeInfo, error) { return fs.setxattr(r, f, name, value, how) })
}

// Removexattr implements vfs.FS.
func (fs *FS) Removexattr(r *vfs.Request, f vfs.File, name string) (vfs.ChangeInfo, error) {
	return once(fs, r, func() (vfs.ChangeInfo, error) { return fs.removexattr(r, f, name) })
}
