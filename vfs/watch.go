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

// maxWoken bounds the files whose locks or states were released that wait for
// watchers to be told. What is beyond is not told: who waits for a lock asks now
// and then by himself.
const maxWoken = 65536

// A fileSet has files of which the watchers must be told something.
type fileSet struct {
	wake  chan struct{}
	limit int

	mu   sync.Mutex
	inos map[Ino]struct{}
}

// init makes it one of at most limit files.
func (s *fileSet) init(limit int) {
	s.limit = limit
	s.wake = make(chan struct{}, 1)
	s.inos = make(map[Ino]struct{})
}

// add is called in the apply goroutine.
func (s *fileSet) add(ino Ino) {
	s.mu.Lock()
	if len(s.inos) < s.limit {
		s.inos[ino] = struct{}{}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *fileSet) take() map[Ino]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inos) == 0 {
		return nil // and not the map that add goes on writing to
	}
	inos := s.inos
	s.inos = make(map[Ino]struct{})
	return inos
}

// tell calls fn for each watcher and each file of a set, which is empty then.
func (m *mount) tell(set *fileSet, fn func(w Watcher, f File)) {
	for ino := range set.take() {
		a, ok := m.View.Inode(ino)
		if !ok {
			continue
		}
		s := &m.sys.watchers
		s.mu.RLock()
		for _, w := range s.list {
			fn(*w, m.file(&a))
		}
		s.mu.RUnlock()
	}
}

// tellUnlocked tells the watchers that locks or states were released.
func (m *mount) tellUnlocked() { m.tell(&m.woken, Watcher.Unlocked) }

// tellChanged tells the watchers of changes.
func (m *mount) tellChanged() {
	m.tell(&m.changes, func(w Watcher, f File) {
		if w, ok := w.(ChangeWatcher); ok {
			w.Changed(f)
		}
	})
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
