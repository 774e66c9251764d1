package nfs4

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/nfsd/state"
)

// A door lets requests in while the identity is served here, and their replies out
// while it is sure to be.
type door struct {
	inside atomic.Int64 // requests
	state  atomic.Int32
	mu     sync.Mutex
	moved  chan struct{} // closed when state changes; under mu
	idle   chan struct{} // has room for one; filled when the last one leaves a door that is not open
}

// States of a door.
const (
	doorOpen  = iota
	doorQuiet // requests wait
	doorLost  // nothing is executed or answered any more
)

func (d *door) init() {
	d.moved = make(chan struct{})
	d.idle = make(chan struct{}, 1)
}

// enter lets a request in, when it may. It reports false if that will never be.
func (d *door) enter(ctx context.Context) bool {
	for {
		d.inside.Add(1)
		if d.state.Load() == doorOpen {
			return true
		}
		d.leave()
		d.mu.Lock()
		moved, now := d.moved, d.state.Load()
		d.mu.Unlock()
		switch now {
		case doorLost:
			return false
		case doorOpen:
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

func (d *door) leave() {
	if d.inside.Add(-1) == 0 && d.state.Load() != doorOpen {
		select {
		case d.idle <- struct{}{}:
		default:
		}
	}
}

// move changes the state; nothing follows doorLost. It reports whether it has.
func (d *door) move(to int32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.state.Load(); now == to || now == doorLost {
		return false
	}
	d.state.Store(to)
	close(d.moved)
	d.moved = make(chan struct{})
	return true
}

// wait waits until nobody is inside.
func (d *door) wait(ctx context.Context) error {
	for d.inside.Load() != 0 {
		select {
		case <-d.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// recheck is how often a reply that is held looks whether it may go.
const recheck = 5 * time.Millisecond

// out waits until a reply may be sent: only while the identity is certainly
// served here, for another node may have taken it over and answered. It reports
// false if the reply must not be sent.
func (d *door) out(ctx context.Context, valid func() bool) bool {
	if d.state.Load() != doorLost && (valid == nil || valid()) {
		return true
	}
	t := time.NewTicker(recheck)
	defer t.Stop()
	for d.state.Load() != doorLost {
		if valid() {
			return d.state.Load() != doorLost
		}
		d.mu.Lock()
		moved := d.moved
		d.mu.Unlock()
		select {
		case <-t.C:
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// Quiesce has no further request of the identity executed: those under way end, and
// are answered, before it returns; later ones wait unanswered, until Resume or
// Abandon. It is the first step of a hand-over. An error is that of ctx: some
// requests have not ended.
func (p *Program) Quiesce(ctx context.Context) error {
	p.door.move(doorQuiet)
	err := p.door.wait(ctx)
	if err == nil {
		p.waiters.leaving()
	}
	return err
}

// Resume undoes Quiesce: the hand-over has failed.
func (p *Program) Resume() {
	if p.door.state.Load() == doorQuiet {
		p.door.move(doorOpen)
	}
}

// Abandon says that the identity is not served here any more. Nothing is executed
// or answered from now on; connections on which requests wait or arrive, and those
// of back channels, are closed. The caller closes the others.
func (p *Program) Abandon() {
	if !p.door.move(doorLost) {
		return
	}
	p.stopWatching()
	p.state.EachSession(func(s *state.Session) { channelOf(s).close() })
}

// lose is Abandon because somebody else serves the identity, as its epoch or a
// fenced command shows.
func (p *Program) lose() {
	if p.door.state.Load() == doorLost {
		return
	}
	p.log.Warn("this identity is served elsewhere now: its clients' connections are closed", "identity", p.cfg.Identity)
	p.Abandon()
	if p.cfg.Lost != nil {
		p.lostOnce.Do(func() { go p.cfg.Lost() })
	}
}

// Lost reports whether the identity is not served here any more.
func (p *Program) Lost() bool { return p.door.state.Load() == doorLost }
