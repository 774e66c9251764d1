package pack

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// batches are the blobs that a pass is filling, one for each class, and the
// marks that go.
type batches struct {
	p          *Packer
	now        time.Time
	compacting bool
	open       map[Class]*batch
	marks      []Mark         // that go with no move
	unripe     uint64         // files that wait for others
	bad        map[Class]bool // classes for which no blob can be made now
}

// errNotLeading ends a pass.
var errNotLeading = errors.New("another node packs this volume now")

// A batch is a blob that is being filled.
type batch struct {
	class  Class
	data   []byte
	moves  []Move
	done   []Mark
	oldest time.Time       // when the file was changed that waits longest
	placed map[Move]uint32 // where a part of a blob is that several files share

	packed, joined uint64 // bytes
}

func (p *Packer) newBatches(now time.Time) *batches {
	return &batches{p: p, now: now, open: make(map[Class]*batch), bad: make(map[Class]bool)}
}

// done takes a mark away for which there is nothing to be moved.
func (b *batches) done(m Mark) { b.marks = append(b.marks, m) }

// add puts a file's pieces into the blob of its class. last says that the mark
// goes with them.
func (b *batches) add(ctx context.Context, f *File, pieces []piece, m Mark, last bool) error {
	if len(pieces) == 0 {
		if last {
			b.done(m)
		}
		return nil
	}
	whole := last // all of its moves are in one command
	for len(pieces) > 0 && !b.bad[f.Class] {
		x := b.open[f.Class]
		if x == nil {
			x = &batch{class: f.Class, oldest: f.Changed, placed: make(map[Move]uint32)}
			b.open[f.Class] = x
		}
		n, room := 0, b.p.cfg.Max-len(x.data)
		for n < len(pieces) && len(x.moves)+n < MaxMoves && int(pieces[n].Len) <= room {
			room -= int(pieces[n].Len)
			n++
		}
		if n < len(pieces) && len(x.moves) > 0 {
			// A file is not divided where it need not be.
			if err := b.flush(ctx, x); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			return nil // longer than a blob may be: it is of one already
		}
		whole = whole && n == len(pieces)
		if err := x.fill(ctx, b.p.cfg.Mover, pieces[:n]); err != nil {
			if ctx.Err() != nil {
				return err
			}
			// It was written or moved meanwhile; or it can't be read, which is for
			// others to repair.
			if !errors.Is(err, cluster.ENOBLOB) {
				b.p.errors.Add(1)
				b.p.cfg.Logger.Debug("reading what is to be moved", "inode", uint64(m.Ino), "err", err)
			}
			return nil
		}
		if pieces = pieces[n:]; len(pieces) == 0 {
			if f.Changed.Before(x.oldest) {
				x.oldest = f.Changed
			}
			if whole {
				x.done = append(x.done, m)
			}
		}
		if len(x.data) >= b.p.cfg.Max || len(x.moves) >= MaxMoves {
			if err := b.flush(ctx, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill appends pieces, which fit.
func (x *batch) fill(ctx context.Context, mover Mover, pieces []piece) error {
	from, moves := len(x.data), len(x.moves)
	for i := range pieces {
		w := &pieces[i]
		m := w.Move
		part := Move{Blob: m.Blob, BlobOff: m.BlobOff, Len: m.Len}
		if at, ok := x.placed[part]; ok && m.Blob != 0 {
			m.NewOff = at
			x.moves = append(x.moves, m)
			continue
		}
		m.NewOff = uint32(len(x.data))
		if m.Blob == 0 {
			x.data = append(x.data, w.bytes...)
		} else {
			x.data = append(x.data, make([]byte, m.Len)...)
			if err := mover.Read(ctx, m.Blob, m.BlobOff, x.data[m.NewOff:]); err != nil {
				x.data, x.moves = x.data[:from], x.moves[:moves]
				maps.DeleteFunc(x.placed, func(_ Move, at uint32) bool { return int(at) >= from })
				return err
			}
			x.placed[part] = m.NewOff
		}
		x.moves = append(x.moves, m)
	}
	for i := range pieces {
		if w := &pieces[i]; w.joined {
			x.joined += uint64(w.Len)
		} else {
			x.packed += uint64(w.Len)
		}
	}
	return nil
}

// flush puts a blob and moves what is in it.
func (b *batches) flush(ctx context.Context, x *batch) error {
	p := b.p
	delete(b.open, x.class)
	if len(x.moves) == 0 {
		return nil
	}
	if !p.cfg.Lead() {
		return errNotLeading
	}
	if err := p.cfg.Wait(ctx, len(x.data)); err != nil {
		return err
	}
	placed, err := p.cfg.Mover.Put(ctx, x.class, x.data)
	if err != nil {
		return b.failed(ctx, x.class, err)
	}
	did, err := p.cfg.Mover.Relocate(ctx, []Placed{placed}, x.moves, x.done)
	if err != nil {
		return b.failed(ctx, x.class, err)
	}
	p.blobs.Add(1)
	p.moves.Add(uint64(did))
	p.leftOut.Add(uint64(len(x.moves) - did))
	if b.compacting {
		p.compacted.Add(x.packed)
	} else {
		p.packed.Add(x.packed)
	}
	p.joined.Add(x.joined)
	return nil
}

// failed leaves a class alone for the rest of the pass: the others go on.
func (b *batches) failed(ctx context.Context, class Class, err error) error {
	if ctx.Err() != nil {
		return err
	}
	b.bad[class] = true
	b.p.errors.Add(1)
	b.p.cfg.Logger.Debug("making a blob of what is to be moved", "copies", class.Copies, "err", err)
	return nil
}

// flushMarks takes away marks that go with no move.
func (b *batches) flushMarks(ctx context.Context) error {
	for len(b.marks) > 0 {
		n := min(len(b.marks), MaxMoves)
		if !b.p.cfg.Lead() {
			return errNotLeading
		}
		if _, err := b.p.cfg.Mover.Relocate(ctx, nil, nil, b.marks[:n]); err != nil {
			return err
		}
		b.marks = b.marks[n:]
	}
	return nil
}

// end puts what is left: with all set, also what is little and may wait for more.
func (b *batches) end(ctx context.Context, all bool) error {
	classes := slices.SortedFunc(maps.Keys(b.open), func(a, b Class) int {
		return cmp.Or(cmp.Compare(a.Copies, b.Copies), cmp.Compare(a.Code.K, b.Code.K), cmp.Compare(a.Code.M, b.Code.M))
	})
	for _, class := range classes {
		x := b.open[class]
		if !all && len(x.data) < b.p.cfg.Min && b.now.Sub(x.oldest) < b.p.cfg.Linger {
			b.unripe += uint64(len(x.done))
			continue
		}
		if err := b.flush(ctx, x); err != nil {
			return err
		}
	}
	return b.flushMarks(ctx)
}
