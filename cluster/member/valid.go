package member

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// validity says whether this node may answer clients: whether no other node can
// have been given its identities by force. The leader of group 0 takes them
// away once it has not heard the node for Config.TakeoverAfter, so the node
// stops after validPart of that, counted from when it sent the last heartbeat
// that was acknowledged. A node that was frozen, or is cut off, finds itself
// invalid when it looks at its clock, before it knows anything else.
type validity struct {
	start time.Time    // what until counts from, on the monotonic clock
	until atomic.Int64 // nanoseconds since start

	mu      sync.Mutex
	waiting chan struct{} // closed at the next acknowledgement; nil if nobody waits
}

// validPart is how much of TakeoverAfter an acknowledgement holds: the rest is
// for clocks that run at different speeds.
const validPart = 0.8

// Valid reports whether the leader of group 0 has acknowledged, so lately that
// nobody else can serve what this node serves, a heartbeat of this node. If it
// is, every assignment by force of an identity of this node was told to
// OnIdentity. It costs a look at the clock.
func (n *Node) Valid() bool {
	return int64(time.Since(n.valid.start)) < n.valid.until.Load()
}

// Revalidated returns a channel that is closed when the node is valid, or
// becomes so. It may be invalid again when that is seen.
func (n *Node) Revalidated() <-chan struct{} {
	v := &n.valid
	v.mu.Lock()
	defer v.mu.Unlock()
	if n.Valid() {
		return closedChan
	}
	if v.waiting == nil {
		v.waiting = make(chan struct{})
	}
	return v.waiting
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// acknowledged notes that a heartbeat that was sent at sent was acknowledged.
func (v *validity) acknowledged(sent time.Time, hold time.Duration) {
	until := int64(sent.Sub(v.start) + hold)
	v.mu.Lock()
	defer v.mu.Unlock()
	if until > v.until.Load() {
		v.until.Store(until)
	}
	if v.waiting != nil && int64(time.Since(v.start)) < v.until.Load() {
		close(v.waiting)
		v.waiting = nil
	}
}

// An ack acknowledges a heartbeat. Applied is what the leader had applied of
// group 0 then: the node counts the ack once it has applied as much, so that it
// knows of everything that was taken from it before.
type ack struct {
	Applied uint64 `json:"applied"`
}

// acknowledge returns the ack of a heartbeat that was heard, on the leader; nil
// if it can't give one now.
func (n *Node) acknowledge(ctx context.Context, zero *groupMember, b *heartbeat) *ack {
	round, err := n.confirm(ctx, zero)
	if err != nil {
		return nil
	}
	n.watchMu.Lock()
	defer n.watchMu.Unlock()
	// Before lead.term is this one, assignments of earlier leaders may still be
	// applied. What is withheld is being taken away from the node right now.
	if n.lead.term != round.term || n.lead.withheld[b.Node] > 0 {
		return nil
	}
	return &ack{Applied: zero.group.Applied()}
}

// acknowledged takes an ack of a heartbeat that this node sent.
func (n *Node) acknowledged(zero *groupMember, sent time.Time, a *ack) {
	hold := time.Duration(float64(n.cfg.TakeoverAfter) * validPart)
	ctx, cancel := context.WithDeadline(n.ctx, sent.Add(hold))
	defer cancel()
	if zero.group.WaitApplied(ctx, a.Applied) != nil {
		return
	}
	n.tellIdentities()
	n.valid.acknowledged(sent, hold)
}
