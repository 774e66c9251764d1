package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs/dirty"
	"github.com/hawserfs/hawser/vfs/writer"
)

// A heldFile has what was written Unstable and is not committed (vfs: heldFile).
type heldFile struct {
	ino      cluster.Ino
	busy     bool // a flush is under way
	session  *writer.Session
	active   *dirty.Map
	flushing *dirty.Map
	pieces   []*piece
	lost     bool
}

// A piece was put away before its commit.
type piece struct {
	session *writer.Session
	done    bool
	placed  placed
	err     error
}

func (fe *frontEnd) heldInos() []cluster.Ino {
	inos := make([]cluster.Ino, 0, len(fe.held))
	for ino := range fe.held {
		inos = append(inos, ino)
	}
	slices.Sort(inos)
	return inos
}

// hold keeps p (vfs: mount.hold).
func (fe *frontEnd) hold(s *writer.Session, ino cluster.Ino, off uint64, p []byte) error {
	h := fe.held[ino]
	if h == nil {
		h = &heldFile{ino: ino, active: &dirty.Map{}}
		fe.held[ino] = h
	}
	if h.session != s && h.session != nil {
		fe.abandon(h)
	}
	if s.Fenced() {
		return cluster.EAGAIN
	}
	h.session = s
	h.active.Write(off, append([]byte(nil), p...))
	fe.stream(h, off)
	return nil
}

// abandon drops all that no flush has taken up.
func (fe *frontEnd) abandon(h *heldFile) {
	if !h.active.Empty() {
		h.lost = true
	}
	h.active, h.session = &dirty.Map{}, nil
	fe.finishPieces(h.pieces)
	h.pieces = nil
}

// stream puts away full blobs around off, in the background.
func (fe *frontEnd) stream(h *heldFile, off uint64) {
	for {
		lo, hi := h.active.Around(off)
		if hi-lo < maxBlob || fe.w.oneIn(3) {
			return
		}
		p := &piece{session: h.session}
		data := slices.Concat(h.active.Mark(lo, lo+maxBlob, p)...)
		h.pieces = append(h.pieces, p)
		fe.w.spawn(fe.n.proc, func(t *task) {
			p.placed, p.err = fe.put(t, p.session, data)
			p.done = true
		})
	}
}

// finishPieces makes the ids of pieces final that no command will name.
func (fe *frontEnd) finishPieces(pieces []*piece) {
	for _, p := range pieces {
		fe.w.spawn(fe.n.proc, func(t *task) {
			for !p.done {
				t.sleep(10 * time.Millisecond)
			}
			if p.err == nil {
				p.session.Finish(p.placed.id)
			}
		})
	}
}

// flush commits what is held of a file (vfs: mount.flushFile).
func (fe *frontEnd) flush(t *task, ino cluster.Ino) error {
	h := fe.held[ino]
	if h == nil {
		return nil
	}
	defer fe.use(ino)()
	for h.busy {
		t.sleep(3 * time.Millisecond)
	}
	h.lost = false
	if h.active.Empty() {
		return nil
	}
	h.busy = true
	defer func() { h.busy = false }()
	s, data, pieces := h.session, h.active, h.pieces
	h.flushing, h.active, h.pieces = data, &dirty.Map{}, nil
	err := fe.commit(t, s, ino, data, pieces)
	if err != nil && !errors.Is(err, cluster.ESTALE) && !s.Fenced() {
		// Nothing is lost: it is tried again later.
		h.flushing.Cover(h.active)
		h.active, h.flushing = h.flushing, nil
		for i := range h.active.Runs() {
			r := &h.active.Runs()[i]
			if p, _ := r.Piece.(*piece); p != nil && !slices.Contains(h.pieces, p) {
				r.Piece = nil // put again
			}
		}
		return cluster.EAGAIN
	}
	h.flushing = nil
	if errors.Is(err, cluster.ESTALE) {
		return err
	}
	if err != nil {
		h.lost = true
		if s.Fenced() {
			return cluster.EAGAIN
		}
		fe.losses++
	}
	return err
}

// A unit is a run of a batch as it is committed.
type unit struct {
	runs   []dirty.Run
	n      int
	piece  *piece
	placed placed
	inline bool
	err    error
}

func (u *unit) end() uint64 { return u.runs[len(u.runs)-1].End() }

func (u *unit) join() []byte {
	var p []byte
	for i := range u.runs {
		p = append(p, u.runs[i].Bytes...)
	}
	return p
}

// commit makes a batch visible (vfs: mount.commit).
func (fe *frontEnd) commit(t *task, s *writer.Session, ino cluster.Ino, data *dirty.Map, pieces []*piece) error {
	unused := slices.Clone(pieces)
	defer func() { fe.finishPieces(unused) }()
	runs := data.Runs()
	for range retries {
		units := fe.plan(t, runs, s)
		for i := range units {
			if u := &units[i]; !u.inline && u.piece == nil {
				u.placed, u.err = fe.put(t, s, u.join())
			}
		}
		runs = nil
		for len(units) > 0 {
			n := min(len(units), 1+fe.w.rng.IntN(6))
			again, err := fe.commitUnits(s, ino, units[:n], &unused)
			runs = append(runs, again...)
			if err != nil {
				for i := range units[n:] {
					if u := &units[n+i]; !u.inline && u.piece == nil && u.err == nil {
						s.Finish(u.placed.id)
					}
				}
				return err
			}
			units = units[n:]
		}
		if len(runs) == 0 {
			return nil
		}
	}
	return cluster.ERETRY
}

// plan divides runs into units (vfs: plan).
func (fe *frontEnd) plan(t *task, runs []dirty.Run, s *writer.Session) []unit {
	var units []unit
	byPiece := map[*piece]int{}
	for _, r := range runs {
		if p, _ := r.Piece.(*piece); p != nil {
			for !p.done {
				t.sleep(5 * time.Millisecond)
			}
			if p.err == nil && p.session == s {
				i, ok := byPiece[p]
				if !ok {
					i = len(units)
					byPiece[p] = i
					units = append(units, unit{piece: p, placed: p.placed})
				}
				units[i].runs = append(units[i].runs, r)
				units[i].n += len(r.Bytes)
				continue
			}
			r.Piece, r.Skip = nil, 0
		}
		for len(r.Bytes) > 0 {
			var u *unit
			if n := len(units); n > 0 && units[n-1].piece == nil && units[n-1].end() == r.Off && units[n-1].n < maxBlob {
				u = &units[n-1]
			} else {
				units = append(units, unit{})
				u = &units[len(units)-1]
			}
			k := min(len(r.Bytes), maxBlob-u.n)
			u.runs = append(u.runs, dirty.Run{Off: r.Off, Bytes: r.Bytes[:k]})
			u.n += k
			r.Off, r.Bytes = r.Off+uint64(k), r.Bytes[k:]
		}
	}
	for i := range units {
		units[i].inline = units[i].piece == nil && units[i].n <= maxInline
	}
	return units
}

// commitUnits commits units in one command (vfs: mount.commitUnits).
func (fe *frontEnd) commitUnits(s *writer.Session, ino cluster.Ino, units []unit, unused *[]*piece) (again []dirty.Run, err error) {
	c := volume.CommitExtents{Ino: ino, Mtime: cluster.Time(fe.w.nextOp())}
	var ids []cluster.BlobID
	for i := range units {
		u := &units[i]
		if u.err != nil {
			err = u.err
			continue
		}
		if u.inline {
			c.Extents = append(c.Extents, volume.NewExtent{Off: u.runs[0].Off, Len: uint32(u.n), Bytes: u.join()})
			continue
		}
		ids = append(ids, u.placed.id)
		c.Blobs = append(c.Blobs, u.placed.newBlob())
		if u.piece == nil {
			c.Extents = append(c.Extents, volume.NewExtent{Off: u.runs[0].Off, Len: uint32(u.n), Blob: u.placed.id})
			continue
		}
		*unused = slices.DeleteFunc(*unused, func(p *piece) bool { return p == u.piece })
		for j := range u.runs {
			r := &u.runs[j]
			c.Extents = append(c.Extents, volume.NewExtent{Off: r.Off, Len: uint32(len(r.Bytes)), Blob: u.placed.id, BlobOff: r.Skip})
		}
	}
	if err != nil {
		s.Finish(ids...)
		return nil, err
	}
	_, _, err = fe.proposeBy(s, c)
	s.Finish(ids...)
	if errors.Is(err, cluster.ERETRY) {
		for i := range units {
			for _, r := range units[i].runs {
				again = append(again, dirty.Run{Off: r.Off, Bytes: r.Bytes})
			}
		}
		return again, nil
	}
	return nil, err
}
