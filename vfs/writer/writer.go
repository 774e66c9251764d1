// Package writer is a front-end's pen in a group: the incarnation that numbers
// its commands and blobs, so that every command is executed exactly once and
// no blob id is ever used twice.
package writer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// A Group is what commands are proposed to.
type Group interface {
	// Propose commits cmd and returns its index and result. An error says
	// that the outcome is unknown. It keeps cmd.
	Propose(ctx context.Context, cmd []byte) (index uint64, result []byte, err error)
}

// Config says for whom a Writer writes.
type Config struct {
	Group  Group
	Node   cluster.NodeID
	Nonce  func() uint64 // a random number, another one each time
	Now    func() cluster.Time
	Logger *slog.Logger
	// Base ends when the front-end stops: until then a command under way is
	// repeated until its outcome is known.
	Base context.Context
	// Lanes is how many commands may be under way; 0: fsm.MaxLanes.
	Lanes int
}

// A Writer opens sessions: one, and another one when that is fenced.
type Writer struct {
	cfg Config

	mu      sync.Mutex // of session; opening is a mutex that can be waited for with a context
	session *Session
	opening chan struct{}
}

// New returns a writer without a session.
func New(cfg Config) *Writer {
	if cfg.Lanes <= 0 || cfg.Lanes > fsm.MaxLanes {
		cfg.Lanes = fsm.MaxLanes
	}
	return &Writer{cfg: cfg, opening: make(chan struct{}, 1)}
}

// Current returns the present session, or nil if there is none that is not
// known to be fenced.
func (w *Writer) Current() *Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.session; s != nil && !s.Fenced() {
		return s
	}
	return nil
}

// Session returns the present session. It opens one if there is none, or if
// the last one is fenced, which fences all earlier ones of this node.
func (w *Writer) Session(ctx context.Context) (*Session, error) {
	if s := w.Current(); s != nil {
		return s, nil
	}
	select {
	case w.opening <- struct{}{}:
		defer func() { <-w.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("writer: no session yet: %w", cluster.EAGAIN)
	}
	if s := w.Current(); s != nil {
		return s, nil
	}
	// One nonce for all attempts, so that a repeated one opens no second session.
	open := &fsm.OpenWriter{Node: w.cfg.Node, Nonce: w.cfg.Nonce()}
	cmd := fsm.AppendCommand(nil, fsm.Envelope{Time: w.cfg.Now()}, open)
	_, result, err := w.cfg.propose(cmd)
	if err != nil {
		return nil, err
	}
	body, err := fsm.SplitResult(result)
	if err != nil {
		return nil, fmt.Errorf("writer: opening one for node %s: %w", w.cfg.Node, err)
	}
	id, err := fsm.DecodeOpenWriter(body)
	if err != nil {
		return nil, fmt.Errorf("writer: opening one for node %s: %w", w.cfg.Node, err)
	}
	s := newSession(&w.cfg, id)
	w.mu.Lock()
	w.session = s
	w.mu.Unlock()
	return s, nil
}

// propose proposes the same bytes until the outcome is known.
func (c *Config) propose(cmd []byte) (uint64, []byte, error) {
	const first, most = 10 * time.Millisecond, time.Second
	for wait := first; ; wait = min(2*wait, most) {
		index, result, err := c.Group.Propose(c.Base, cmd)
		if err == nil {
			return index, result, nil
		}
		if c.Base.Err() != nil {
			return 0, nil, fmt.Errorf("writer: stopping: %w", cluster.EAGAIN)
		}
		c.Logger.Debug("command repeated", "error", err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-c.Base.Done():
			t.Stop()
		}
	}
}
