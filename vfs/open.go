package vfs

import (
	"slices"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs/writer"
)

// An unlinked file lives on while a state of it is recorded, and until every
// front-end has said whether it has it open: it records the opens that it has,
// or lets the file go. openTable knows what this one has open, and what it has
// yet to answer for.
type openTable struct {
	wake chan struct{} // there is something to answer

	mu      sync.Mutex
	open    map[Ino]int
	gone    map[Ino]struct{} // unlinked and open here: its opens are to be recorded
	release map[Ino]struct{} // unlinked and not open here: to be let go, or being so
	look    bool             // events may have been missed
}

// maxRelease is how many files one command lets go.
const maxRelease = 1000

func (t *openTable) init() {
	t.wake = make(chan struct{}, 1)
	t.open = make(map[Ino]int)
	t.gone = make(map[Ino]struct{})
	t.release = make(map[Ino]struct{})
	t.look = true
}

// unlinked notes that the last name of a file is gone.
func (t *openTable) unlinked(ino Ino) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[ino] > 0 {
		t.gone[ino] = struct{}{}
		t.hurry()
		return
	}
	t.letGo(ino)
}

// letGo queues a file to be let go. t.mu is held.
func (t *openTable) letGo(ino Ino) {
	t.release[ino] = struct{}{}
	if len(t.release) >= maxRelease {
		t.hurry()
	}
}

func (t *openTable) hurry() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// answered says that the opens of a file were recorded.
func (t *openTable) answered(inos []volume.FileStates) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range inos {
		delete(t.gone, inos[i].Ino)
	}
}

func (t *openTable) lookAll() {
	t.mu.Lock()
	t.look = true
	t.mu.Unlock()
}

// add counts one more open, and reports whether the file is being let go.
func (t *openTable) add(ino Ino) (released, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.release[ino]; ok {
		return true, false
	}
	t.open[ino]++
	return false, t.open[ino] == 1
}

// readd counts one more open of a file that is being let go, which is recorded,
// and reports whether it is the first.
func (t *openTable) readd(ino Ino) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[ino]++
	return t.open[ino] == 1
}

// has reports whether the file is open here.
func (t *openTable) has(ino Ino) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[ino] > 0
}

// all returns the files that are open here.
func (t *openTable) all() []Ino {
	t.mu.Lock()
	defer t.mu.Unlock()
	inos := make([]Ino, 0, len(t.open))
	for ino := range t.open {
		inos = append(inos, ino)
	}
	return inos
}

// remove ends one open, and reports whether it was the last.
func (t *openTable) remove(ino Ino) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.open[ino]
	if n > 1 {
		t.open[ino] = n - 1
		return false
	}
	delete(t.open, ino)
	if _, ok := t.gone[ino]; ok {
		delete(t.gone, ino)
		t.letGo(ino)
	}
	return true
}

// Open implements FS.
func (s *System) Open(r *Request, f File) error {
	if f == Root {
		return cluster.EISDIR
	}
	m, err := s.mount(f)
	if err != nil {
		return err
	}
	// Counted first: if the last name goes meanwhile, the event finds it open.
	released, first := m.opens.add(f.Ino)
	if released {
		// An open that was recorded as the file was created keeps it, although
		// its name was removed before it was counted here.
		recorded := false
		m.View.States(f.Ino, func(s *volume.State) bool {
			recorded = s.Kind == volume.StateOpen
			return !recorded
		})
		if !recorded {
			return cluster.ESTALE
		}
		first = m.opens.readd(f.Ino)
	}
	a, err := m.attr(r, f)
	if err == nil {
		err = isRegular(&a)
	}
	if err == nil && a.Nlink == 0 && first {
		// It lives, so somebody has it open: a client that comes back to its
		// own open, which its front-end had no time to record. Now it is.
		if m.View.Held(f.Ino) {
			m.opens.unlinked(f.Ino)
		} else {
			err = cluster.ESTALE
		}
	}
	if err != nil {
		m.opens.remove(f.Ino)
	}
	return err
}

// Close implements FS.
func (s *System) Close(f File) {
	m, err := s.mount(f)
	if err != nil {
		return
	}
	if m.opens.remove(f.Ino) && m.held.any() {
		m.flushSoon(f.Ino)
	}
}

// releaseUnlinked lets go of unlinked files that are not open here, and
// records the opens of those that are.
func (m *mount) releaseUnlinked() {
	session, err := m.writer.Session(m.sys.base)
	if err != nil {
		return
	}
	m.lookForUnlinked(session)
	m.recordOpens(session)
	for m.sys.base.Err() == nil {
		m.opens.mu.Lock()
		inos := make([]Ino, 0, min(len(m.opens.release), maxRelease))
		for ino := range m.opens.release {
			if len(inos) == maxRelease {
				break
			}
			inos = append(inos, ino)
		}
		m.opens.mu.Unlock()
		if len(inos) == 0 {
			return
		}
		index, _, err := session.Propose(m.sys.base, volume.ReleaseUnlinked{Inos: inos})
		if err != nil {
			if session.Fenced() {
				m.fenced(session)
			}
			m.opens.lookAll()
			return
		}
		m.executed(index)
		// Until this node has applied it, an Open could still find the file.
		if m.Group.WaitApplied(m.sys.base, index) != nil {
			return
		}
		m.opens.mu.Lock()
		for _, ino := range inos {
			delete(m.opens.release, ino)
		}
		m.opens.mu.Unlock()
	}
}

// recordOpens records the opens of unlinked files that are open here.
func (m *mount) recordOpens(session *writer.Session) {
	m.opens.mu.Lock()
	gone := make([]Ino, 0, len(m.opens.gone))
	for ino := range m.opens.gone {
		gone = append(gone, ino)
	}
	m.opens.mu.Unlock()
	for part := range slices.Chunk(gone, maxRelease) {
		var files []volume.FileStates
		for _, ino := range part {
			a, ok := m.View.Inode(ino)
			if !ok {
				continue
			}
			fs := volume.FileStates{Ino: ino}
			for _, st := range m.openStates(m.file(&a)) {
				fs.States = append(fs.States, *storedState(&st))
			}
			if len(fs.States) > 0 {
				files = append(files, fs)
			}
		}
		if len(files) == 0 {
			continue
		}
		index, _, err := session.Propose(m.sys.base, volume.PutStates{Files: files})
		if err != nil {
			if session.Fenced() {
				m.fenced(session)
			}
			return
		}
		m.executed(index)
		m.opens.answered(files)
	}
}

// lookForUnlinked finds files that wait for this front-end, whose events it
// may not have seen: before it began, or when its state was replaced.
func (m *mount) lookForUnlinked(session *writer.Session) {
	m.opens.mu.Lock()
	look := m.opens.look
	m.opens.look = false
	m.opens.mu.Unlock()
	if !look {
		return
	}
	m.View.Unlinked(func(u volume.Unlinked) bool {
		for _, id := range u.Holders {
			if id == session.ID() {
				m.opens.unlinked(u.Ino)
			}
		}
		return true
	})
}
