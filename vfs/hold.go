package vfs

import (
	"context"
	"errors"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/vfs/writer"
)

// put puts data as one blob under an id of session s, which is final only
// after Finish; the ids of attempts that failed are. If release is not nil the
// data is given away, and released when nothing refers to it any more.
//
// A blob of the largest size is put as shards at once, where the class has a
// code and there are stores for it; else it is copies, and coded later.
func (m *mount) put(ctx context.Context, s *writer.Session, class cluster.Class, data [][]byte, release func()) (placement.Placed, error) {
	var placed placement.Placed
	var abandoned []cluster.BlobID
	var err error
	if !class.Code.IsZero() && length(data) == cluster.MaxBlob {
		placed, err = m.putCoded(ctx, s, class.Code, data, release)
		if err == nil {
			return placed, nil
		}
		if ctx.Err() != nil || errors.Is(err, cluster.EFENCED) {
			if release != nil {
				release()
			}
			return placed, err
		}
	}
	copies := class.Copies
	if release != nil {
		placed, abandoned, err = m.sys.cfg.Placer.PutOwned(ctx, m.ID, max(1, copies), s.Alloc, data, release)
	} else {
		placed, abandoned, err = m.sys.cfg.Placer.Put(ctx, m.ID, max(1, copies), s.Alloc, data)
	}
	s.Finish(abandoned...)
	return placed, err
}

// putCoded is put of shards. If it fails no store refers to data any more, and
// it was not released: copies can be made of it.
func (m *mount) putCoded(ctx context.Context, s *writer.Session, code cluster.Code, data [][]byte, release func()) (placement.Placed, error) {
	unused := make(chan struct{})
	placed, abandoned, err := m.sys.cfg.Placer.PutCoded(ctx, m.ID, code, s.Alloc, data, func() { close(unused) })
	s.Finish(abandoned...)
	if err != nil || release == nil {
		<-unused
		return placed, err
	}
	select {
	case <-unused:
		release()
	default: // a store that hangs holds on to it
		m.sys.tasks.Go(func() {
			<-unused
			release()
		})
	}
	return placed, nil
}

func length(data [][]byte) (n int) {
	for _, p := range data {
		n += len(p)
	}
	return n
}

// hold keeps a copy of p as unstable data of the file.
func (m *mount) hold(r *Request, s *writer.Session, a *Attr, off uint64, p []byte) error {
	h := m.held.get(a.Ino, true)
	defer m.held.put(h)
	for {
		h.mu.Lock()
		n, writes := h.charged, h.writes
		h.mu.Unlock()
		if n+int64(len(p)) <= m.sys.cfg.HeldFile && writes < maxHeldWrites || n == 0 {
			break
		}
		if err := m.flushFile(r.ctx, h, false); err != nil {
			return err
		}
	}
	if err := m.reserve(r.ctx, int64(len(p))); err != nil {
		return err
	}
	own := append([]byte(nil), p...)
	now := m.sys.cfg.Now()

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != s && h.session != nil {
		// The old session is fenced, though nobody has noticed yet.
		h.abandon(m)
	}
	if s.Fenced() {
		m.sys.held.Release(int64(len(p)))
		return cluster.EAGAIN
	}
	h.session = s
	if h.active.Empty() {
		h.since = now
	}
	h.active.Write(off, own)
	h.charged += int64(len(p))
	h.writes++
	// The stored change is read here, where no flush can be forgetting what
	// it has committed: the new value is above all that was shown without p.
	h.change = max(h.change, m.storedChange(a)) + 1
	h.mtime = max(h.mtime, now)
	h.kill = h.kill || !r.cred.Root()
	m.stream(h, a.Class, off)
	return nil
}

// storedChange returns the change attribute that the file has without what is held.
func (m *mount) storedChange(a *Attr) uint64 {
	if now, ok := m.View.Inode(a.Ino); ok {
		return now.Change << changeShift
	}
	return a.Change << changeShift
}

// reserve waits until n more bytes may be held.
func (m *mount) reserve(ctx context.Context, n int64) error {
	if n > m.sys.cfg.HeldTotal {
		return fmt.Errorf("vfs: a write of %d bytes: HeldTotal must be larger: %w", n, cluster.EINVAL)
	}
	if m.sys.held.TryAcquire(n) {
		return nil
	}
	select {
	case m.sys.kick <- struct{}{}:
	default:
	}
	if err := m.sys.held.Acquire(ctx, n); err != nil {
		return again("waiting for room for unstable data", err)
	}
	return nil
}

// stream puts away full blobs around off, so that the commit has less to wait
// for. It does so in the background as long as there is not too much of that.
// h.mu is held.
func (m *mount) stream(h *heldFile, class cluster.Class, off uint64) {
	for {
		lo, hi := h.active.Around(off)
		if hi-lo < cluster.MaxBlob || !m.sys.ahead.TryAcquire(1) {
			return
		}
		p := &piece{session: h.session, done: make(chan struct{})}
		data := h.active.Mark(lo, lo+cluster.MaxBlob, p)
		h.pieces = append(h.pieces, p)
		m.sys.tasks.Go(func() {
			defer m.sys.ahead.Release(1)
			defer close(p.done)
			p.placed, p.err = m.put(m.sys.base, p.session, class, data, func() {})
		})
	}
}

// finishPieces makes the ids of pieces final that no command will name.
func (m *mount) finishPieces(pieces []*piece) {
	for _, p := range pieces {
		select {
		case <-p.done:
			p.finish()
		default:
			m.sys.tasks.Go(func() {
				<-p.done
				p.finish()
			})
		}
	}
}

func (p *piece) finish() {
	if p.err == nil {
		p.session.Finish(p.placed.Blob)
	}
}
