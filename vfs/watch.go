package vfs

import (
	"slices"
	"sync"
	"sync/atomic"
)

// watchList has the watchers of a System.
type watchList struct {
	changes atomic.Int32 // watchers of changes

	mu   sync.RWMutex // held while watchers are called, for reading
	list []*Watcher
}

// Watch implements FS.
func (s *System) Watch(w Watcher) (cancel func()) {
	p := &w
	s.watchers.mu.Lock()
	s.watchers.list = append(s.watchers.list, p)
	s.watchers.mu.Unlock()
	_, changes := w.(ChangeWatcher)
	if changes {
		s.watchers.changes.Add(1)
	}
	return func() {
		s.watchers.mu.Lock()
		defer s.watchers.mu.Unlock()
		s.watchers.list = slices.DeleteFunc(s.watchers.list, func(o *Watcher) bool { return o == p })
		if changes {
			s.watchers.changes.Add(-1)
		}
	}
}

// A wakeSet has the files of which the watchers must be told that locks or
// states were released.
type wakeSet struct {
	wake chan struct{}

	mu   sync.Mutex
	inos map[Ino]struct{}
}

// maxWoken bounds a wakeSet. What is beyond is not told: who waits for a lock
// asks now and then by himself.
const maxWoken = 65536

func (w *wakeSet) init() {
	w.wake = make(chan struct{}, 1)
	w.inos = make(map[Ino]struct{})
}

// add is called in the apply goroutine.
func (w *wakeSet) add(ino Ino) {
	w.mu.Lock()
	if len(w.inos) < maxWoken {
		w.inos[ino] = struct{}{}
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *wakeSet) take() map[Ino]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.inos) == 0 {
		return nil // and not the map that add goes on writing to
	}
	inos := w.inos
	w.inos = make(map[Ino]struct{})
	return inos
}

// tellUnlocked tells the watchers.
func (m *mount) tellUnlocked() {
	for ino := range m.woken.take() {
		a, ok := m.View.Inode(ino)
		if !ok {
			continue
		}
		s := &m.sys.watchers
		s.mu.RLock()
		for _, w := range s.list {
			(*w).Unlocked(m.file(&a))
		}
		s.mu.RUnlock()
	}
}

// A changeSet has the files that are open here and were changed, of which the watchers
// of changes must be told. There are no more of them than files that are open.
type changeSet struct {
	wake chan struct{}

	mu   sync.Mutex
	inos map[Ino]struct{}
}

func (c *changeSet) init() {
	c.wake = make(chan struct{}, 1)
	c.inos = make(map[Ino]struct{})
}

// changed is called in the apply goroutine, of every file that is changed.
func (m *mount) changed(ino Ino) {
	if m.sys.watchers.changes.Load() == 0 || !m.opens.has(ino) {
		return
	}
	m.changes.add(ino)
}

// changedAll is changed of all files: it is not known which were.
func (m *mount) changedAll() {
	if m.sys.watchers.changes.Load() == 0 {
		return
	}
	for _, ino := range m.opens.all() {
		m.changes.add(ino)
	}
}

func (c *changeSet) add(ino Ino) {
	c.mu.Lock()
	c.inos[ino] = struct{}{}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *changeSet) take() map[Ino]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inos) == 0 {
		return nil
	}
	inos := c.inos
	c.inos = make(map[Ino]struct{})
	return inos
}

// tellChanged tells the watchers of changes.
func (m *mount) tellChanged() {
	for ino := range m.changes.take() {
		a, ok := m.View.Inode(ino)
		if !ok {
			continue
		}
		s := &m.sys.watchers
		s.mu.RLock()
		for _, w := range s.list {
			if w, ok := (*w).(ChangeWatcher); ok {
				w.Changed(m.file(&a))
			}
		}
		s.mu.RUnlock()
	}
}

// openStates asks the watchers for their opens of an unlinked file.
func (m *mount) openStates(f File) (states []State) {
	s := &m.sys.watchers
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, w := range s.list {
		states = append(states, (*w).Unlinked(f)...)
	}
	return states
}
