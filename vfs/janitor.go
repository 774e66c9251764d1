package vfs

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A reaper says when to look for unlinked files that can be freed: a look goes
// over all that were freed since the state machine's memory was last written
// out, so it is not taken each second for nothing.
type reaper struct {
	looked cluster.Time // when reap last looked; the janitor's
	// idle: nothing has become reapable since a look of this node found
	// nothing. Events say when that ends, on followers as well, so that a node
	// that comes to lead knows.
	idle atomic.Bool
}

// lookAnyway is how long no look is taken while nothing happens. Some files can
// be freed because of the time alone: those that a writer held that was fenced
// long ago.
const lookAnyway = cluster.Time(30 * time.Second)

// wake is called by events: something may be reapable.
func (r *reaper) wake() { r.idle.Store(false) }

// reap frees unlinked files that nobody holds, step by step, while this node
// leads the group.
func (m *mount) reap() {
	const step = 4096
	now := m.sys.cfg.Now()
	if !m.Group.IsLeader() || m.reaper.idle.Load() && now < m.reaper.looked+lookAnyway {
		return
	}
	m.reaper.looked = now
	// Before the look: what comes during it is for the next one.
	m.reaper.idle.Store(true)
	for more := true; more && m.View.Reapable(m.sys.cfg.Now()); {
		// Until a look finds nothing there may be more: a step is bounded in
		// what it looks at, too.
		m.reaper.wake()
		if m.sys.base.Err() != nil || !m.Group.IsLeader() {
			return
		}
		body, err := m.propose(NewRequest(m.sys.base, Cred{}), volume.Reap{Max: step})
		if err != nil {
			m.sys.cfg.Logger.Warn("unlinked files not freed", "volume", m.Name, "error", err)
			return
		}
		res, err := volume.DecodeReapResult(body)
		more = err == nil && res.More
	}
}

// touchSet has the files whose access times are to be set, at the next round.
type touchSet struct {
	mu   sync.Mutex
	inos map[Ino]struct{}
}

const (
	maxTouch   = 8192 // per round and command; what is beyond is left out
	atimeOlder = cluster.Time(24 * time.Hour)
)

// touch notes that a file was read, if its access time should show it: as
// relatime has it, when it is not after the last change, or is a day old.
func (m *mount) touch(a *Attr) {
	now := m.sys.cfg.Now()
	if a.Atime > a.Mtime && a.Atime > a.Ctime && now-a.Atime < atimeOlder {
		return
	}
	t := &m.touches
	t.mu.Lock()
	if len(t.inos) < maxTouch {
		t.inos[a.Ino] = struct{}{}
	}
	t.mu.Unlock()
}

// touchAll commits the access times.
func (m *mount) touchAll() {
	t := &m.touches
	t.mu.Lock()
	inos := make([]Ino, 0, len(t.inos))
	for ino := range t.inos {
		inos = append(inos, ino)
	}
	clear(t.inos)
	t.mu.Unlock()
	if len(inos) == 0 {
		return
	}
	_, err := m.propose(NewRequest(m.sys.base, Cred{}), volume.Touch{Inos: inos, Atime: m.sys.cfg.Now()})
	if err != nil {
		m.sys.cfg.Logger.Debug("access times not set", "volume", m.Name, "error", err)
	}
}
