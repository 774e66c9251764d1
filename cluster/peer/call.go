package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// Bounds of the pause between attempts to connect.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
)

// A remote is a peer's address and the connections to it: slot 0 for small
// calls, the others for bulk.
type remote struct {
	slots []connSlot
	next  atomic.Uint32
}

// A connSlot holds a connection, which it makes again when it was lost.
type connSlot struct {
	cur atomic.Pointer[clientConn]

	mu       sync.Mutex
	dialing  chan struct{} // closed when the attempt under way has ended; nil if none is
	failures int
	retryAt  time.Time
	err      error
}

// Call calls service s of group g at addr and waits for the answer. body is
// not copied and not used after Call returns. The context's deadline travels
// with the call. The error is a cluster.Errno (or a RemoteError around one) from
// the other side, the context's, or one that wraps ErrUnreachable (the call was
// not sent), ErrConnection (its outcome is not known), ErrTooLarge or ErrClosed.
func (e *Endpoint) Call(ctx context.Context, addr string, s Service, g cluster.GroupID, head []byte, body ...[]byte) (*Response, error) {
	return e.CallUntil(ctx, nil, addr, s, g, head, body...)
}

// CallUntil is Call, but returns ErrStopped when stop is closed.
func (e *Endpoint) CallUntil(ctx context.Context, stop <-chan struct{}, addr string, s Service, g cluster.GroupID, head []byte, body ...[]byte) (*Response, error) {
	size := 0
	for _, b := range body {
		size += len(b)
	}
	if len(head) > MaxHead || size > MaxBody {
		return nil, fmt.Errorf("%w: %d + %d bytes", ErrTooLarge, len(head), size)
	}
	h := header{typ: frameRequest, service: s, group: uint32(g)}
	if deadline, ok := ctx.Deadline(); ok {
		h.timeout = timeoutMillis(deadline)
	}
	c, err := e.connection(ctx, stop, addr, s.bulk())
	if err != nil {
		return nil, err
	}
	return c.call(ctx, stop, &h, head, body, size)
}

// connection returns a live connection to addr, and makes one if need be.
func (e *Endpoint) connection(ctx context.Context, stop <-chan struct{}, addr string, bulk bool) (*clientConn, error) {
	v, ok := e.peers.Load(addr)
	if !ok {
		v, _ = e.peers.LoadOrStore(addr, &remote{slots: make([]connSlot, 1+e.cfg.BulkConns)})
	}
	r := v.(*remote)
	slot := &r.slots[0]
	if bulk {
		slot = &r.slots[1+int(r.next.Add(1)%uint32(e.cfg.BulkConns))]
	}
	if c := slot.cur.Load(); c != nil {
		return c, nil
	}
	slot.mu.Lock()
	if c := slot.cur.Load(); c != nil {
		slot.mu.Unlock()
		return c, nil
	}
	if slot.dialing == nil {
		if time.Now().Before(slot.retryAt) {
			err := slot.err
			slot.mu.Unlock()
			return nil, err
		}
		dialing := make(chan struct{})
		slot.dialing = dialing
		if !e.spawn(func() { e.connect(slot, addr, dialing) }) {
			slot.dialing = nil
			slot.mu.Unlock()
			return nil, ErrClosed
		}
	}
	dialing := slot.dialing
	slot.mu.Unlock()
	select {
	case <-dialing:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-stop:
		return nil, ErrStopped
	}
	if c := slot.cur.Load(); c != nil {
		return c, nil
	}
	slot.mu.Lock()
	err := slot.err
	slot.mu.Unlock()
	if err == nil {
		err = fmt.Errorf("%w: %s: connection lost at once", ErrUnreachable, addr)
	}
	return nil, err
}

// connect makes a slot's connection. Until the pause after a failure is over,
// calls fail with its error.
func (e *Endpoint) connect(slot *connSlot, addr string, dialing chan struct{}) {
	conn, a, err := e.dial(e.ctx, addr, useCalls, 0)
	var c *clientConn
	if err == nil {
		var ok bool
		if c, ok = newClientConn(e, slot, addr, conn, &a); !ok {
			err = ErrClosed
		}
	}
	slot.mu.Lock()
	defer slot.mu.Unlock()
	slot.dialing = nil
	if err != nil {
		if !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %s: %w", ErrUnreachable, addr, err)
		}
		slot.err = err
		slot.retryAt = time.Now().Add(min(minBackoff<<min(slot.failures, 10), maxBackoff))
		slot.failures++
	} else {
		slot.failures, slot.err = 0, nil
		slot.cur.Store(c)
		if c.failure() != nil { // it failed before it was in its slot
			slot.cur.CompareAndSwap(c, nil)
		}
	}
	close(dialing)
}
