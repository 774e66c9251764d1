package writer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// A Session is one incarnation of a writer. Once it is fenced none of its
// commands has an effect any more.
type Session struct {
	cfg    *Config
	id     cluster.WriterID
	fenced atomic.Bool
	slots  chan struct{} // one for each command under way

	mu    sync.Mutex
	free  []uint16 // lanes that were used and are free
	seqs  []uint64 // last sequence number of each lane
	blobs counters
}

func newSession(cfg *Config, id cluster.WriterID) *Session {
	return &Session{cfg: cfg, id: id, slots: make(chan struct{}, cfg.Lanes), blobs: counters{next: 1, low: 1}}
}

// ID returns the session's number in the group.
func (s *Session) ID() cluster.WriterID { return s.id }

// Fenced reports whether the session is known to be fenced.
func (s *Session) Fenced() bool { return s.fenced.Load() }

// Fence notes that the session is of no use any more.
func (s *Session) Fence() { s.fenced.Store(true) }

// Propose executes a command exactly once and returns its index and the body
// of its result. It gives up with ctx only before the command is under way
// (EAGAIN); then it waits until the outcome is known, or the front-end stops.
// EFENCED says that the command had no effect and that another session is needed.
func (s *Session) Propose(ctx context.Context, b fsm.Body) (index uint64, body []byte, err error) {
	return s.ProposeFrom(ctx, &fsm.Origin{}, b)
}

// ProposeFrom is Propose of a command with an origin, unless that is zero: if
// it was executed for the same origin before, by whatever writer, it is not
// executed again, and has the result that it had.
func (s *Session) ProposeFrom(ctx context.Context, o *fsm.Origin, b fsm.Body) (index uint64, body []byte, err error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return 0, nil, fmt.Errorf("writer: too many commands under way: %w", cluster.EAGAIN)
	}
	if s.Fenced() {
		return 0, nil, cluster.EFENCED
	}
	env := fsm.Envelope{Writer: s.id, Time: s.cfg.Now(), Origin: *o}
	s.mu.Lock()
	env.Lane, env.Seq = s.lane()
	env.LowWater = s.blobs.low
	s.mu.Unlock()

	cmd := fsm.AppendCommand(nil, env, b)
	if len(cmd) > cluster.MaxCommand {
		s.release(env.Lane)
		return 0, nil, fmt.Errorf("writer: a command of %d bytes: %w", len(cmd), cluster.EINVAL)
	}
	index, result, err := s.cfg.propose(cmd)
	if err != nil {
		// The front-end stops. The lane stays taken: its command may still be
		// executed, and must not be overtaken by another one.
		return 0, nil, err
	}
	s.release(env.Lane)
	body, err = fsm.SplitResult(result)
	if errors.Is(err, cluster.EFENCED) {
		s.Fence()
	}
	return index, body, err
}

// lane takes a lane and its next sequence number.
func (s *Session) lane() (uint16, uint64) {
	var l uint16
	if n := len(s.free); n > 0 {
		l, s.free = s.free[n-1], s.free[:n-1]
	} else {
		l = uint16(len(s.seqs))
		s.seqs = append(s.seqs, 0)
	}
	s.seqs[l]++
	return l, s.seqs[l]
}

func (s *Session) release(lane uint16) {
	s.mu.Lock()
	s.free = append(s.free, lane)
	s.mu.Unlock()
}

// Alloc returns a new blob id. It holds the low-water mark down until Finish.
func (s *Session) Alloc() (cluster.BlobID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Fenced() {
		return 0, cluster.EFENCED
	}
	if s.blobs.next == math.MaxUint32 {
		s.Fence() // all used: the next session has new ones
		return 0, cluster.EFENCED
	}
	return cluster.MakeBlobID(s.id, s.blobs.alloc()), nil
}

// Finish says that the blobs are final: committed by a command whose result is
// known, or given up, so that no command will ever name them again.
func (s *Session) Finish(ids ...cluster.BlobID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if id.Writer() == s.id {
			s.blobs.finish(id.Counter())
		}
	}
}

// LowWater returns the counter below which all blobs are final.
func (s *Session) LowWater() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blobs.low
}
