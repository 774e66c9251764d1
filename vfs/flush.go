package vfs

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/vfs/dirty"
	"github.com/hawserfs/hawser/vfs/writer"
)

// flush commits all that is held of a file and was acknowledged before.
func (m *mount) flush(ctx context.Context, ino Ino) error {
	h := m.held.get(ino, false)
	if h == nil {
		return nil
	}
	defer m.held.put(h)
	return m.flushFile(ctx, h, false)
}

// A batch is what a flush has taken up of a file.
type batch struct {
	ino     Ino
	session *writer.Session
	data    *dirty.Map
	pieces  []*piece
	mtime   cluster.Time
	kill    bool
	writes  int
	class   cluster.Class
}

// flushFile is flush of h. Once it has begun it goes on without ctx. behind:
// nobody waits for it, so that an error that may go away is not the end.
func (m *mount) flushFile(ctx context.Context, h *heldFile, behind bool) error {
	if err := h.acquire(ctx); err != nil {
		return err
	}
	defer h.release()

	h.mu.Lock()
	if h.lost {
		h.mu.Unlock()
		if err := m.moveOn(h); err != nil {
			return err
		}
		h.mu.Lock()
	}
	if h.active.Empty() {
		h.mu.Unlock()
		return nil
	}
	b := batch{
		ino: h.ino, session: h.session, data: h.active, pieces: h.pieces,
		mtime: h.mtime, kill: h.kill, writes: h.writes,
	}
	h.flushing, h.active, h.pieces = h.active, &dirty.Map{}, nil
	h.taken, h.writes, h.kill, h.killing = h.charged, 0, false, h.kill
	h.mu.Unlock()

	index, err := m.commit(&b)
	if err == nil {
		// Readers take what is held first and the stored state then: that must
		// have it before this has not.
		err = m.Group.WaitApplied(m.sys.base, index)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killing = false
	if transient(err, behind) && !b.session.Fenced() {
		// Nothing is lost: it is tried again later.
		h.flushing.Cover(h.active)
		h.active, h.flushing, h.taken = h.flushing, nil, 0
		h.kill, h.writes = h.kill || b.kill, h.writes+b.writes
		for i := range h.active.Runs() {
			if r := &h.active.Runs()[i]; r.Piece != nil && !holds(h.pieces, r.Piece) {
				r.Piece = nil // put again
			}
		}
		return again("committing unstable data", err)
	}
	m.sys.held.Release(h.taken)
	h.charged -= h.taken
	h.flushing, h.taken = nil, 0
	if err != nil {
		if errors.Is(err, cluster.ESTALE) {
			return cluster.ESTALE // nothing is lost that anyone could look at
		}
		h.lost = true
		if b.session.Fenced() {
			return cluster.EAGAIN
		}
		// What was acknowledged is gone: clients that hear of it write again,
		// and are told then why it can't be.
		m.losses.Add(1)
		m.sys.cfg.Logger.Error("unstable data lost", "volume", m.Name, "inode", h.ino, "error", err)
	}
	return err
}

func holds(pieces []*piece, p any) bool {
	for _, q := range pieces {
		if p == q {
			return true
		}
	}
	return false
}

// transient reports whether an error may go away by itself. Space may, but
// whoever waits wants to know.
func transient(err error, behind bool) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[cluster.Errno](err)
	return !ok || e == cluster.EAGAIN || e == cluster.ERETRY || behind && (e == cluster.ENOSPC || e == cluster.EDQUOT)
}

// moveOn makes a file's change attribute grow beyond what was shown of data
// that is lost.
func (m *mount) moveOn(h *heldFile) error {
	s, err := m.writer.Session(m.sys.base)
	if err != nil {
		return err
	}
	r := NewRequest(m.sys.base, Cred{})
	_, index, err := m.proposeBy(s, r, volume.SetAttr{Ino: h.ino, Attr: SetAttr{Mask: cluster.SetMtimeNow}})
	if err != nil && !errors.Is(err, cluster.ESTALE) {
		return again("changing a file after a loss", err)
	}
	if err := m.Group.WaitApplied(m.sys.base, index); err != nil {
		return again("waiting for an index", err)
	}
	h.mu.Lock()
	h.lost = false
	h.mu.Unlock()
	return nil
}

// A unit is a run of a batch as it is committed: a blob with the extents that
// refer to it, or inline bytes.
type unit struct {
	runs   []dirty.Run // they touch, or are parts of one piece
	n      int         // bytes in runs
	piece  *piece
	placed placement.Placed
	inline bool
	err    error
}

// commit makes a batch visible, and returns the index of the last command.
func (m *mount) commit(b *batch) (index uint64, err error) {
	a, ok := m.View.Inode(b.ino)
	if !ok {
		m.finishPieces(b.pieces)
		return 0, cluster.ESTALE
	}
	b.class = a.Class
	unused := make(map[*piece]struct{}, len(b.pieces))
	for _, p := range b.pieces {
		unused[p] = struct{}{}
	}
	defer func() {
		for p := range unused {
			m.finishPieces([]*piece{p})
		}
	}()
	runs := b.data.Runs()
	for range retries {
		units := plan(runs, b.session)
		m.putUnits(b, units)
		runs = nil
		for len(units) > 0 {
			n := bounded(units)
			var again []dirty.Run
			index, again, err = m.commitUnits(b, units[:n], unused)
			runs = append(runs, again...)
			if err != nil {
				for i := range units[n:] {
					units[n+i].abandon(b.session)
				}
				return index, err
			}
			units = units[n:]
		}
		if len(runs) == 0 {
			return index, nil
		}
	}
	return index, fmt.Errorf("vfs: replica sets change all the time: %w", cluster.ERETRY)
}

// plan divides runs into units. Pieces that were put away are as they are.
func plan(runs []dirty.Run, s *writer.Session) []unit {
	var units []unit
	byPiece := make(map[*piece]int)
	for _, r := range runs {
		if p, _ := r.Piece.(*piece); p != nil {
			<-p.done
			if p.err == nil && p.session == s {
				i, ok := byPiece[p]
				if !ok {
					i = len(units)
					byPiece[p] = i
					units = append(units, unit{piece: p, placed: p.placed})
				}
				units[i].add(r)
				continue
			}
			r.Piece, r.Skip = nil, 0
		}
		for len(r.Bytes) > 0 {
			var u *unit
			if n := len(units); n > 0 && units[n-1].piece == nil && units[n-1].end() == r.Off && units[n-1].n < cluster.MaxBlob {
				u = &units[n-1]
			} else {
				units = append(units, unit{})
				u = &units[len(units)-1]
			}
			k := min(len(r.Bytes), cluster.MaxBlob-u.n)
			u.add(dirty.Run{Off: r.Off, Bytes: r.Bytes[:k]})
			r.Off, r.Bytes = r.Off+uint64(k), r.Bytes[k:]
		}
	}
	for i := range units {
		units[i].inline = units[i].piece == nil && units[i].n <= cluster.MaxInline
	}
	return units
}

func (u *unit) add(r dirty.Run) {
	u.runs = append(u.runs, r)
	u.n += len(r.Bytes)
}

func (u *unit) end() uint64 { return u.runs[len(u.runs)-1].End() }

// abandon says that u's blob will not be committed.
func (u *unit) abandon(s *writer.Session) {
	if !u.inline && u.piece == nil && u.err == nil {
		s.Finish(u.placed.Blob)
	}
}

// putUnits puts the blobs of units that have none yet, several at a time.
func (m *mount) putUnits(b *batch, units []unit) {
	const parallel = 8
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range units {
		u := &units[i]
		if u.inline || u.piece != nil {
			continue
		}
		data := make([][]byte, len(u.runs))
		for j := range u.runs {
			data[j] = u.runs[j].Bytes
		}
		g.Go(func() error {
			u.placed, u.err = m.put(m.sys.base, b.session, b.class, data, func() {})
			return nil
		})
	}
	_ = g.Wait()
}

// bounded returns how many of units fit into one command; at least one.
func bounded(units []unit) int {
	const limit = 256 << 10
	size := 0
	for i := range units {
		if units[i].inline {
			size += units[i].n
		}
		if size += 64 + 32*len(units[i].runs); size > limit && i > 0 {
			return i
		}
	}
	return len(units)
}

// commitUnits commits units in one command. again is what has to be put anew.
func (m *mount) commitUnits(b *batch, units []unit, unused map[*piece]struct{}) (index uint64, again []dirty.Run, err error) {
	c := volume.CommitExtents{Ino: b.ino, Mtime: b.mtime, KillPriv: b.kill}
	var ids []cluster.BlobID
	for i := range units {
		u := &units[i]
		if u.err != nil {
			err = u.err
			continue
		}
		if u.inline {
			c.Extents = append(c.Extents, volume.NewExtent{Off: u.runs[0].Off, Len: uint32(u.n), Bytes: join(u)})
			continue
		}
		ids = append(ids, u.placed.Blob)
		c.Blobs = append(c.Blobs, newBlob(&u.placed))
		if u.piece == nil {
			c.Extents = append(c.Extents, volume.NewExtent{Off: u.runs[0].Off, Len: uint32(u.n), Blob: u.placed.Blob})
			continue
		}
		delete(unused, u.piece)
		for j := range u.runs {
			r := &u.runs[j]
			c.Extents = append(c.Extents, volume.NewExtent{
				Off: r.Off, Len: uint32(len(r.Bytes)), Blob: u.placed.Blob, BlobOff: r.Skip,
			})
		}
	}
	if err != nil {
		b.session.Finish(ids...)
		if errors.Is(err, cluster.EFENCED) {
			m.fenced(b.session)
		}
		return 0, nil, err
	}
	index, _, err = b.session.Propose(m.sys.base, c)
	if errors.Is(err, cluster.EAGAIN) {
		return 0, nil, err // stopping: the blobs may still be committed
	}
	b.session.Finish(ids...)
	switch {
	case errors.Is(err, cluster.EFENCED):
		m.fenced(b.session)
	case errors.Is(err, cluster.ERETRY):
		for i := range units {
			for _, r := range units[i].runs {
				again = append(again, dirty.Run{Off: r.Off, Bytes: r.Bytes})
			}
		}
		return index, again, nil
	case err == nil:
		m.executed(index)
	}
	return index, nil, err
}

// join returns the bytes of a unit in one piece.
func join(u *unit) []byte {
	if len(u.runs) == 1 {
		return u.runs[0].Bytes
	}
	p := make([]byte, 0, u.n)
	for i := range u.runs {
		p = append(p, u.runs[i].Bytes...)
	}
	return p
}

// flushOld commits what has been held for long, or everything if there is no
// room for more.
func (m *mount) flushOld() {
	full := !m.sys.held.TryAcquire(m.sys.cfg.HeldTotal / 4)
	if !full {
		m.sys.held.Release(m.sys.cfg.HeldTotal / 4)
	}
	now := m.sys.cfg.Now()
	const parallel = 8
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, h := range m.held.all() {
		h.mu.Lock()
		old := h.lost || !h.active.Empty() && (full || now-h.since >= cluster.Time(m.sys.cfg.HoldFor))
		h.mu.Unlock()
		if !old {
			m.held.put(h)
			continue
		}
		g.Go(func() error {
			defer m.held.put(h)
			if err := m.flushFile(m.sys.base, h, true); err != nil {
				m.sys.cfg.Logger.Debug("unstable data not committed", "volume", m.Name, "inode", h.ino, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// flushAll commits all that is held.
func (m *mount) flushAll(ctx context.Context) error {
	var first error
	for _, h := range m.held.all() {
		if err := m.flushFile(ctx, h, false); err != nil && first == nil && !errors.Is(err, cluster.ESTALE) {
			first = err
		}
		m.held.put(h)
	}
	return first
}

// flushSoon makes the next look at what is held commit the file.
func (m *mount) flushSoon(ino Ino) {
	h := m.held.get(ino, false)
	if h == nil {
		return
	}
	h.mu.Lock()
	h.since = 0
	h.mu.Unlock()
	m.held.put(h)
	select {
	case m.sys.kick <- struct{}{}:
	default:
	}
}
