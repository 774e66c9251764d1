package vfs

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/vfs/dirty"
	"github.com/hawserfs/hawser/vfs/writer"
)

// maxHeldWrites is how many writes to a file may come between two flushes. It
// is half of what the low bits of the change attribute can count: writes are
// held while a flush is under way, too.
const maxHeldWrites = 1<<(changeShift-1) - 1

// A heldFile is a relaxed file with data that was written Unstable and is not
// committed yet. All of it is held under one session of the writer: if that is
// fenced the data is dropped, as its client may have written it again, and
// more, through another front-end.
type heldFile struct {
	ino  Ino
	refs int           // of those who use it; guarded by heldTable.mu
	busy chan struct{} // holds a token while a flush is under way

	mu       sync.Mutex
	session  *writer.Session
	active   *dirty.Map // what no flush has taken up
	flushing *dirty.Map // what one has: below active
	pieces   []*piece   // of active
	charged  int64      // bytes counted in System.held
	taken    int64      // of charged, what the flush has taken up
	writes   int        // since the last flush took up
	change   uint64     // that was shown last, or is above it
	mtime    cluster.Time
	since    cluster.Time // when the oldest of active was written
	kill     bool         // a write of active was an unprivileged user's
	killing  bool         // one of flushing was
	lost     bool         // data that was shown is gone: the change attribute must move on
}

// A piece is a run of held data that was put away as a blob before its commit.
type piece struct {
	session *writer.Session
	done    chan struct{}
	placed  placement.Placed
	err     error
}

// heldTable has a volume's held files.
type heldTable struct {
	count atomic.Int32
	mu    sync.Mutex
	files map[Ino]*heldFile
}

// any reports whether any file is held.
func (t *heldTable) any() bool { return t.count.Load() > 0 }

// get returns the held file of ino for use until put. create: makes it if it
// is not there; nil otherwise.
func (t *heldTable) get(ino Ino, create bool) *heldFile {
	if !create && !t.any() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.files[ino]
	if h == nil {
		if !create {
			return nil
		}
		h = &heldFile{ino: ino, busy: make(chan struct{}, 1), active: &dirty.Map{}}
		t.files[ino] = h
		t.count.Add(1)
	}
	h.refs++
	return h
}

// put ends the use of h, if it is not nil, which is forgotten if it holds nothing any more.
func (t *heldTable) put(h *heldFile) {
	if h == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h.refs--
	if h.refs > 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active.Empty() && h.flushing.Empty() && !h.lost {
		delete(t.files, h.ino)
		t.count.Add(-1)
	}
}

// all returns all held files, for use until put.
func (t *heldTable) all() []*heldFile {
	if !t.any() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*heldFile, 0, len(t.files))
	for _, h := range t.files {
		h.refs++
		list = append(list, h)
	}
	return list
}

// overlay makes a, which is shown, what it is with the data held.
func (h *heldFile) overlay(a *Attr, view volume.View) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A flush may have moved data from here to the state since a was read, and
	// a write may have seen a newer state.
	if n, ok := view.Inode(a.Ino); ok && n.Change<<changeShift > a.Change {
		*a = n
		a.Change <<= changeShift
	}
	a.Change = max(a.Change, h.change)
	end := max(h.active.End(), h.flushing.End())
	if end == 0 {
		return
	}
	a.Size = max(a.Size, end)
	if h.kill || h.killing {
		// Nobody may run what a user wrote with the rights of the file's owner.
		a.Mode = volume.KillPriv(a.Mode)
	}
	a.Used += uint64(h.charged)
	a.Mtime = max(a.Mtime, h.mtime)
	a.Ctime = max(a.Ctime, h.mtime)
}

// acquire waits until no flush of h is under way.
func (h *heldFile) acquire(ctx context.Context) error {
	select {
	case h.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return again("waiting for a flush", ctx.Err())
	}
}

func (h *heldFile) release() { <-h.busy }

// drop gives up what is held under session s.
func (t *heldTable) drop(m *mount, s *writer.Session) {
	for _, h := range t.all() {
		h.mu.Lock()
		if h.session == s {
			h.abandon(m)
		}
		h.mu.Unlock()
		t.put(h)
	}
}

// abandon drops all that no flush has taken up. h.mu is held.
func (h *heldFile) abandon(m *mount) {
	if !h.active.Empty() {
		h.lost = true
	}
	h.active, h.session = &dirty.Map{}, nil
	m.finishPieces(h.pieces)
	h.pieces = nil
	m.sys.held.Release(h.charged - h.taken)
	h.charged = h.taken
	h.writes = 0
}
