package memfs

import (
	"bytes"
	"context"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// putState records s on n, if no other open conflicts.
func (fs *FS) putState(n *node, s *vfs.State) vfs.Errno {
	if s.Kind == vfs.StateOpen {
		for i := range n.states {
			o := &n.states[i]
			if o.Kind == vfs.StateOpen && o.Other != s.Other && (o.Deny&s.Access != 0 || s.Deny&o.Access != 0) &&
				(o.Client != s.Client || !bytes.Equal(o.Owner, s.Owner)) {
				return cluster.ESHARE
			}
		}
	}
	if s.Disturbs() {
		fs.tellChanged(n)
	}
	n.dropState(s.Other)
	c := *s
	c.Owner = bytes.Clone(s.Owner)
	n.states = append(n.states, c)
	slices.SortFunc(n.states, func(a, b vfs.State) int { return bytes.Compare(a.Other[:], b.Other[:]) })
	return cluster.OK
}

func (n *node) dropState(other vfs.StateID) {
	n.states = slices.DeleteFunc(n.states, func(o vfs.State) bool { return o.Other == other })
}

// States implements vfs.FS.
func (fs *FS) States(_ *vfs.Request, f vfs.File) ([]vfs.State, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return nil, errno
	}
	return slices.Clone(n.states), nil
}

// ClientStates implements vfs.FS.
func (fs *FS) ClientStates(_ *vfs.Request, client uint64, fn func(f vfs.File, s vfs.State) bool) error {
	type found struct {
		f vfs.File
		s vfs.State
	}
	var all []found
	fs.mu.Lock()
	for _, v := range fs.volumes {
		for _, n := range v.nodes {
			for _, s := range n.states {
				if s.Client == client {
					all = append(all, found{v.file(n), s})
				}
			}
		}
	}
	fs.mu.Unlock()
	slices.SortFunc(all, func(a, b found) int {
		if a.f.Volume != b.f.Volume {
			return int(a.f.Volume) - int(b.f.Volume)
		}
		if a.f.Ino != b.f.Ino {
			return int(a.f.Ino) - int(b.f.Ino)
		}
		return bytes.Compare(a.s.Other[:], b.s.Other[:])
	})
	for _, x := range all {
		if !fn(x.f, x.s) {
			break
		}
	}
	return nil
}

// Denied implements vfs.FS.
func (fs *FS) Denied(_ *vfs.Request, f vfs.File, self vfs.StateID, access uint32) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.node(f)
	if errno != cluster.OK {
		return errno
	}
	for i := range n.states {
		if s := &n.states[i]; s.Kind == vfs.StateOpen && s.Other != self && s.Denies(access) {
			return cluster.ELOCKED
		}
	}
	return nil
}

// Locks implements vfs.FS.
func (fs *FS) Locks(_ *vfs.Request, f vfs.File, client uint64) ([]vfs.Lock, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	_, n, errno := fs.regular(f)
	if errno != cluster.OK {
		return nil, errno
	}
	var list []vfs.Lock
	for _, l := range n.locks {
		if l.Client == client {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b vfs.Lock) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return bytes.Compare(a.Owner[:], b.Owner[:])
	})
	return list, nil
}

// ReleaseClient implements vfs.FS.
func (fs *FS) ReleaseClient(_ context.Context, client uint64) error {
	fs.mu.Lock()
	for _, v := range fs.volumes {
		for _, n := range v.nodes {
			had := len(n.locks) + len(n.states)
			n.locks = slices.DeleteFunc(n.locks, func(l vfs.Lock) bool { return l.Client == client })
			n.states = slices.DeleteFunc(n.states, func(s vfs.State) bool { return s.Client == client })
			if len(n.locks)+len(n.states) != had {
				fs.free = append(fs.free, v.file(n))
				v.forget(n)
			}
		}
	}
	fs.mu.Unlock()
	fs.tell()
	return nil
}

// Watch implements vfs.FS.
func (fs *FS) Watch(w vfs.Watcher) (cancel func()) {
	fs.watchMu.Lock()
	defer fs.watchMu.Unlock()
	fs.watchers[&w] = w
	return func() {
		fs.watchMu.Lock()
		defer fs.watchMu.Unlock()
		delete(fs.watchers, &w)
	}
}

// tell tells the watchers what has happened. fs.mu is not held: they may ask.
func (fs *FS) tell() {
	fs.mu.Lock()
	gone, free, changed := fs.gone, fs.free, fs.changed
	fs.gone, fs.free, fs.changed = nil, nil, nil
	fs.mu.Unlock()
	if len(gone)+len(free)+len(changed) == 0 {
		return
	}
	fs.watchMu.Lock()
	defer fs.watchMu.Unlock()
	for _, w := range fs.watchers {
		for _, f := range gone {
			states := w.Unlinked(f)
			fs.mu.Lock()
			if _, n, errno := fs.node(f); errno == cluster.OK {
				for i := range states {
					n.dropState(states[i].Other)
					n.states = append(n.states, states[i])
				}
			}
			fs.mu.Unlock()
		}
		for _, f := range free {
			w.Unlocked(f)
		}
		if w, ok := w.(vfs.ChangeWatcher); ok {
			for _, f := range changed {
				w.Changed(f)
			}
		}
	}
}
