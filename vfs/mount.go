package vfs

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs/writer"
)

// A mount is a volume as a System serves it.
type mount struct {
	Mount
	sys    *System
	writer *writer.Writer
	cancel func() // ends the subscription

	own     atomic.Uint64 // index of this front-end's last command
	contact atomic.Int64  // when the group last confirmed an index, in nanoseconds
	losses  atomic.Uint32 // how often unstable data was lost: part of the verifier

	fencedID atomic.Uint32 // the last session known to be fenced

	held    heldTable
	opens   openTable
	touches touchSet
	reaper  reaper
	streams streamTable
	near    neighbours

	drops   dropQueue
	woken   fileSet // locks or states of theirs were released
	changes fileSet // they are open here and were changed: no more than are open
}

func newMount(s *System, v Mount) *mount {
	m := &mount{Mount: v, sys: s}
	m.writer = writer.New(writer.Config{
		Group: v.Group, Node: s.cfg.Node, Nonce: s.cfg.Nonce, Now: s.cfg.Now, Logger: s.cfg.Logger, Base: s.base,
	})
	m.held.files = make(map[Ino]*heldFile)
	m.opens.init()
	m.drops.init()
	m.woken.init(maxWoken)
	m.changes.init(math.MaxInt)
	m.touches.inos = make(map[Ino]struct{})
	m.streams.streams = make(map[Ino]*stream)
	return m
}

// start begins the background work.
func (m *mount) start() {
	// Events first: a writer that is told of no unlinked file would hold it for ever.
	m.cancel = m.Subscribe(m.event)
	s := m.sys
	s.every(min(s.cfg.HoldFor/4+1, time.Second), s.kick, m.flushOld)
	s.every(s.cfg.TouchEvery, nil, m.touchAll)
	s.every(s.cfg.ReleaseEvery, m.opens.wake, m.releaseUnlinked)
	s.every(s.cfg.ReleaseEvery, nil, m.reap)
	s.every(dropEvery, m.drops.wake, func() { m.dropAll(s.base) })
	s.every(time.Minute, m.woken.wake, m.tellUnlocked)
	s.every(time.Minute, m.changes.wake, m.tellChanged)
}

// propose executes a command for r. EAGAIN if it had no effect because this
// front-end was fenced: whoever asked may have gone elsewhere and have changed
// the same there meanwhile, so it is for him to ask again.
func (m *mount) propose(r *Request, b fsm.Body) ([]byte, error) {
	s, err := m.writer.Session(r.ctx)
	if err != nil {
		return nil, err
	}
	body, _, err := m.proposeBy(s, r, b)
	if errors.Is(err, cluster.EFENCED) {
		err = cluster.EAGAIN
	}
	return body, err
}

// proposeBy executes a command of session s, for r.
func (m *mount) proposeBy(s *writer.Session, r *Request, b fsm.Body) ([]byte, uint64, error) {
	return m.proposeFrom(s, r, &fsm.Origin{}, b)
}

// proposeFrom executes a command of session s with an origin, for r.
func (m *mount) proposeFrom(s *writer.Session, r *Request, o *fsm.Origin, b fsm.Body) ([]byte, uint64, error) {
	index, body, err := s.ProposeFrom(r.ctx, o, b)
	if errors.Is(err, cluster.EFENCED) {
		m.fenced(s)
		return nil, 0, err
	}
	if index > 0 {
		m.executed(index)
		r.changed(m.ID, index)
	}
	return body, index, err
}

// executed notes the index of an own command.
func (m *mount) executed(index uint64) {
	for {
		old := m.own.Load()
		if old >= index || m.own.CompareAndSwap(old, index) {
			break
		}
	}
	m.contact.Store(int64(m.sys.cfg.Now()))
}

// fenced gives up all that was done under session s and is not committed: the
// clients see it by the verifier, which names the session.
func (m *mount) fenced(s *writer.Session) {
	s.Fence()
	m.held.drop(m, s)
	if m.fencedID.Swap(uint32(s.ID())) != uint32(s.ID()) {
		m.sys.cfg.Logger.Warn("writer fenced", "volume", m.Name, "writer", s.ID())
		if m.sys.cfg.Fenced != nil {
			m.sys.cfg.Fenced(m.ID)
		}
	}
}

// verifier tells whether unstable data held under session s may be lost.
func (m *mount) verifier(s *writer.Session) Verifier {
	return Verifier(s.ID())<<32 | Verifier(m.losses.Load())
}

// event is called in the apply goroutine, with what a batch of commands did.
func (m *mount) event(_ uint64, events []any) {
	for _, e := range events {
		switch e := e.(type) {
		case volume.EventReapable:
			m.reaper.wake()
		case volume.EventUnlinked:
			m.opens.unlinked(e.Ino)
		case volume.EventUnlocked:
			m.woken.add(e.Ino)
		case volume.EventChanged:
			m.changed(e.Ino)
		case fsm.WriterFenced:
			m.reaper.wake() // it may have had unlinked files open
			if s := m.writer.Current(); s != nil && s.ID() == e.Writer.ID {
				m.fenced(s)
			}
		case fsm.Restored:
			m.reaper.wake()
			m.opens.lookAll()
			m.changedAll()
		}
	}
}
