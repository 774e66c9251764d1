package sim

import (
	"context"
	"errors"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/pack"
	"github.com/hawserfs/hawser/vfs/packing"
)

// packer returns a step that packs, as whoever leads the group does it, and
// forgets now and then what it knew.
func (n *node) packer() func(t *task) {
	fresh := func() *pack.Packer {
		return pack.New(pack.Config{
			Volume: packedView{packing.View{View: n.replica.view}, n.w}, Mover: packMover{n}, After: time.Nanosecond, Min: 1, Max: maxBlob,
		})
	}
	p := fresh()
	return func(*task) {
		if n.w.oneIn(8) {
			p = fresh()
		}
		now := time.Unix(0, int64(n.w.time())).Add(time.Second)
		_ = p.Pack(context.Background(), now) // it is tried again
		_ = p.Compact(context.Background(), now)
	}
}

// packedView has every file marked and large enough: here they are small.
type packedView struct {
	packing.View
	w *World
}

// Marks implements pack.Volume.
func (v packedView) Marks(from cluster.Ino, n int) (marks []pack.Mark) {
	if v.w.calm {
		return nil // else they would be looked at for ever: a mark goes with the look
	}
	const gap = 50 // inodes in a row that are gone
	for ino, gone := max(from, cluster.RootIno+1), 0; len(marks) < n && gone < gap; ino++ {
		if _, ok := v.View.File(ino); ok {
			marks, gone = append(marks, pack.Mark{Ino: ino}), 0
		} else {
			gone++
		}
	}
	return marks
}

// File implements pack.Volume.
func (v packedView) File(ino cluster.Ino) (pack.File, bool) {
	f, ok := v.View.File(ino)
	f.Size += pack.InlineLimit + 1
	return f, ok
}

// packMover is a node's front-end as the packer has it.
type packMover struct{ n *node }

// Read implements pack.Mover.
func (m packMover) Read(_ context.Context, id cluster.BlobID, off uint32, dst []byte) error {
	view := m.n.replica.view
	b, ok := view.Blob(id)
	if !ok {
		return cluster.ENOBLOB
	}
	set, ok := view.ReplicaSet(b.Set)
	if !ok {
		return cluster.ENOBLOB
	}
	p, err := m.n.fe.fetch(m.n.w.cur, found{blob: id, blobOff: off, n: len(dst), members: set.Members})
	if err != nil {
		return err
	}
	copy(dst, p)
	return nil
}

// Put implements pack.Mover.
func (m packMover) Put(_ context.Context, _ pack.Class, data []byte) (pack.Placed, error) {
	t := m.n.w.cur
	if !m.n.w.calm {
		t.sleep(m.n.w.between(0, 300*time.Millisecond)) // the pace
	}
	p, err := m.n.fe.put(t, m.n.fe.session(t), append([]byte(nil), data...))
	if err != nil {
		return pack.Placed{}, err
	}
	return packing.Placed(p.newBlob()), nil
}

// Relocate implements pack.Mover.
func (m packMover) Relocate(_ context.Context, blobs []pack.Placed, moves []pack.Move, _ []pack.Mark) (int, error) {
	if len(moves) == 0 {
		return 0, nil // there are no marks here
	}
	s := m.n.fe.session(m.n.w.cur)
	_, body, err := m.n.fe.proposeBy(s, packing.Command(blobs, moves, nil))
	for _, b := range blobs {
		if !errors.Is(err, cluster.EAGAIN) {
			s.Finish(b.ID)
		}
	}
	if err != nil {
		return 0, err
	}
	return packing.Did(body, len(moves))
}

// relocate: bytes move, and nothing that a reader sees changes.
func (r *rules) relocate(e *logEntry, c *volume.Relocate, w *writerBook, body []byte) {
	res, err := volume.DecodeRelocateResult(body)
	if err != nil {
		r.w.failf("entry %d: %v", e.Index, err)
	}
	for i := range c.Blobs {
		r.commitBlob(e, &c.Blobs[i], w)
	}
	for i := range c.Moves {
		m := &c.Moves[i]
		if !res.Did(i) {
			r.w.count.leftOut++
			continue
		}
		r.w.count.relocated++
		f := r.files[m.Ino]
		if f == nil || int(m.Off)+int(m.Len) > len(f.cells) {
			r.w.failf("entry %d moves bytes of inode %d that are not there", e.Index, m.Ino)
		}
		data := r.blobs[m.NewBlob].data[m.NewOff:]
		for j := range int(m.Len) {
			at := int(m.Off) + j
			if f.cells[at].b != data[j] {
				r.missf("entry %d: byte %d of inode %d changes by being moved", e.Index, at, m.Ino)
			}
			r.set(f, at, cell{m.NewBlob, f.cells[at].b})
		}
	}
}
