package vfs

import (
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// reap frees unlinked files that nobody holds, step by step, while this node
// leads the group.
func (m *mount) reap() {
	const step = 4096
	for m.sys.base.Err() == nil && m.Group.IsLeader() && m.View.Reapable(m.sys.cfg.Now()) {
		body, err := m.propose(NewRequest(m.sys.base, Cred{}), volume.Reap{Max: step})
		if err != nil {
			m.sys.cfg.Logger.Warn("unlinked files not freed", "volume", m.Name, "error", err)
			return
		}
		res, err := volume.DecodeReapResult(body)
		if err != nil || !res.More {
			return
		}
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
