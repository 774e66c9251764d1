package sim

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs/writer"
)

// A frontEnd is one incarnation of a node's front-end: what vfs does for a
// volume, step by step, with its writer.
type frontEnd struct {
	w       *World
	n       *node
	writer  *writer.Writer
	opening bool
	losses  uint32
	lastID  cluster.BlobID
	held    map[cluster.Ino]*heldFile
	busy    map[cluster.Ino]int // operations under way
}

func newFrontEnd(n *node) *frontEnd {
	w := n.w
	return &frontEnd{
		w: w, n: n, held: map[cluster.Ino]*heldFile{}, busy: map[cluster.Ino]int{},
		writer: writer.New(writer.Config{
			Group: proposer{n}, Node: n.id, Nonce: w.rng.Uint64, Now: w.time, Lanes: 256,
			Base: context.Background(), Logger: slog.New(slog.DiscardHandler),
		}),
	}
}

// time is the wall clock of all nodes.
func (w *World) time() cluster.Time { return cluster.Time(w.now) + 1 }

// session returns the writer's session. Only one task opens one: another would
// wait outside of the simulated world.
func (fe *frontEnd) session(t *task) *writer.Session {
	for {
		if s := fe.writer.Current(); s != nil {
			return s
		}
		if fe.opening {
			t.sleep(5 * time.Millisecond)
			continue
		}
		fe.opening = true
		fe.w.body = &fsm.OpenWriter{Node: fe.n.id}
		s, err := fe.writer.Session(context.Background())
		fe.opening = false
		if err != nil {
			fe.w.failf("node %s: opening a writer: %v", fe.n.id, err)
		}
		fe.w.notef("node %s opens writer %d", fe.n.id, s.ID())
		return s
	}
}

// proposeBy executes a command of session s.
func (fe *frontEnd) proposeBy(s *writer.Session, b fsm.Body) (uint64, []byte, error) {
	fe.w.body = b
	index, body, err := s.Propose(context.Background(), b)
	if errors.Is(err, cluster.EFENCED) {
		fe.fenced(s)
	}
	return index, body, err
}

// propose executes a command of the present session.
func (fe *frontEnd) propose(t *task, b fsm.Body) (uint64, []byte, error) {
	index, body, err := fe.proposeBy(fe.session(t), b)
	if errors.Is(err, cluster.EFENCED) {
		err = cluster.EAGAIN
	}
	return index, body, err
}

// fenced gives up all that was done under session s and is not committed.
func (fe *frontEnd) fenced(s *writer.Session) {
	fe.w.notef("node %s finds writer %d fenced", fe.n.id, s.ID())
	s.Fence()
	for _, ino := range fe.heldInos() {
		if h := fe.held[ino]; h.session == s {
			fe.abandon(h)
		}
	}
}

// A verifier changes whenever unstable data may have been lost.
type verifier struct {
	writer cluster.WriterID
	losses uint32
}

func (fe *frontEnd) verifier(s *writer.Session) verifier {
	if fe.w.broken(BreakVerifier) {
		return verifier{}
	}
	return verifier{s.ID(), fe.losses}
}

// use keeps an inode from being released while an operation is under way.
func (fe *frontEnd) use(ino cluster.Ino) func() {
	fe.busy[ino]++
	return func() {
		if fe.busy[ino]--; fe.busy[ino] == 0 {
			delete(fe.busy, ino)
		}
	}
}

// open keeps a file open, sometimes for a while. stays says whether it has to
// be there still: it had a name, and the front-end's writer was there before
// that went and has not been fenced.
func (fe *frontEnd) open(t *task, ino cluster.Ino) (stays func() bool) {
	s := fe.writer.Current()
	// As of now: what went before the writer was there is not kept for it.
	fe.n.replica.waitApplied(t, fe.w.readIndex(t, fe.n))
	a, ok := fe.n.replica.view.Inode(ino)
	if fe.w.oneIn(10) {
		t.sleep(fe.w.between(time.Millisecond, 4*time.Second))
	}
	return func() bool {
		if !ok || a.Nlink == 0 || s == nil || fe.w.rules.writers[s.ID()].fenced {
			return false
		}
		// Who fenced it may not have heard that it is done.
		w, known := fe.n.replica.m.Writer(s.ID())
		return known && !w.Fenced
	}
}

// A piece of a file is as a read finds it.
type found struct {
	off     int
	n       int
	bytes   []byte
	blob    cluster.BlobID
	blobOff uint32
	members []cluster.StoreID
}

// mapOf returns where a file's bytes are, and its size, as the replica has it now.
func mapOf(view volume.View, ino cluster.Ino) (list []found, size int, ok bool) {
	a, ok := view.Inode(ino)
	if !ok {
		return nil, 0, false
	}
	ok = true
	view.Extents(ino, 0, a.Size, func(e *volume.Extent) bool {
		x := found{off: int(e.Off), n: int(e.Len), blob: e.Blob, blobOff: e.BlobOff}
		if e.Blob == 0 {
			x.bytes = append([]byte(nil), e.Bytes...)
		} else {
			b, has := view.Blob(e.Blob)
			set, known := view.ReplicaSet(b.Set)
			if !has || !known {
				ok = false
				return false
			}
			x.members = set.Members
		}
		list = append(list, x)
		return true
	})
	return list, int(a.Size), ok
}

// read reads a whole file strictly, and holds it against the books.
func (fe *frontEnd) read(t *task, ino cluster.Ino) error {
	defer fe.use(ino)()
	w := fe.w
	floor := w.rules.acked
	stays := fe.open(t, ino)
	const tries = 3
	for range tries {
		index := w.readIndex(t, fe.n)
		fe.n.replica.waitApplied(t, index)
		at := fe.n.replica.applied
		if at < floor {
			w.failf("a read on node %s is of index %d, but %d was acknowledged before it began", fe.n.id, at, floor)
		}
		list, size, ok := mapOf(fe.n.replica.view, ino)
		if !ok {
			if stays() {
				w.failf("inode %d is gone, but node %s has it open", ino, fe.n.id)
			}
			return cluster.ESTALE
		}
		want, known := w.rules.files[ino].at(at)
		if a, _ := fe.n.replica.view.Inode(ino); a.Nlink == 0 && !stays() {
			known = false // it may be half freed
		}
		if known && len(want) != size {
			w.failf("inode %d has %d bytes on node %s at index %d, want %d", ino, size, fe.n.id, at, len(want))
		}
		got := make([]byte, size)
		missing := false
		for _, x := range list {
			p, err := fe.fetch(t, x)
			if err != nil {
				missing = true
				break
			}
			copy(got[x.off:], p)
		}
		if missing {
			continue // the map has changed
		}
		if known && string(got) != string(want) {
			w.failf("inode %d has another content on node %s at index %d", ino, fe.n.id, at)
		}
		w.count.reads++
		return nil
	}
	return cluster.EIO
}

// fetch gets a piece from one member after the other.
func (fe *frontEnd) fetch(t *task, x found) ([]byte, error) {
	if x.blob == 0 {
		return x.bytes, nil
	}
	start := fe.w.rng.IntN(len(x.members))
	for i := range x.members {
		s := fe.w.store(x.members[(start+i)%len(x.members)])
		p, ok := call(t, fe.n, s.n, 2*time.Second, func(reply func([]byte)) {
			if s.lost {
				reply(nil)
				return
			}
			p, err := s.disk.get(x.blob)
			if err != nil {
				p = nil
			}
			reply(p)
		})
		if ok && len(p) >= int(x.blobOff)+x.n {
			return p[x.blobOff:][:x.n], nil
		}
	}
	return nil, cluster.ENOBLOB
}
