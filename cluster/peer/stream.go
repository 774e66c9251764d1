package peer

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/hawserfs/hawser/cluster"
)

// streamBacklog is how many accepted streams may wait for Accept.
const streamBacklog = 64

// A streamConn is a raw stream that is closed with its endpoint.
type streamConn struct {
	net.Conn
	node     cluster.NodeID // on the other side
	e        *Endpoint
	accepted bool
	once     sync.Once
}

func newStreamConn(e *Endpoint, conn net.Conn, node cluster.NodeID, accepted bool) *streamConn {
	return &streamConn{Conn: conn, node: node, e: e, accepted: accepted}
}

// StreamNode returns which node is on the other side of a stream that
// DialStream or a Streams listener returned: an address can have changed hands.
func StreamNode(conn net.Conn) cluster.NodeID {
	if c, ok := conn.(*streamConn); ok {
		return c.node
	}
	return ""
}

// Close closes the stream.
func (c *streamConn) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		c.e.unregister(c)
		if c.accepted {
			c.e.released()
		}
	})
	return err
}

func (c *streamConn) fail(error) { _ = c.Close() }

// tick does nothing: streams' users have deadlines and heartbeats of their own.
func (c *streamConn) tick() {}

// DialStream opens a raw stream to group g at addr.
func (e *Endpoint) DialStream(ctx context.Context, addr string, g cluster.GroupID) (net.Conn, error) {
	conn, a, err := e.dial(ctx, addr, useStream, g)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreachable, addr, err)
	}
	c := newStreamConn(e, conn, a.node, false)
	if !e.register(c) {
		_ = c.Close()
		return nil, ErrClosed
	}
	return c, nil
}

// A streamListener accepts one group's streams.
type streamListener struct {
	e     *Endpoint
	group cluster.GroupID
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Streams returns the listener for raw streams to group g, of which there is
// one at a time: until it is closed, Streams returns the same one.
func (e *Endpoint) Streams(g cluster.GroupID) net.Listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.streams[g]; s != nil {
		return s
	}
	s := &streamListener{e: e, group: g, conns: make(chan net.Conn, streamBacklog), done: make(chan struct{})}
	if e.closed {
		close(s.done)
		s.once.Do(func() {})
		return s
	}
	e.streams[g] = s
	return s
}

func (e *Endpoint) hasStreams(g cluster.GroupID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.streams[g] != nil
}

// deliver hands an accepted stream to its group's listener, or closes it.
func (e *Endpoint) deliver(c *streamConn, g cluster.GroupID) {
	e.mu.Lock()
	s := e.streams[g]
	ok := s != nil && !e.closed
	if ok {
		e.conns[c] = struct{}{}
		select {
		case s.conns <- c:
		default:
			ok = false
		}
	}
	e.mu.Unlock()
	if !ok {
		_ = c.Close()
	}
}

// Accept waits for the next stream.
func (s *streamListener) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close stops accepting streams and closes those that nobody took.
func (s *streamListener) Close() error {
	s.once.Do(func() {
		s.e.mu.Lock()
		if s.e.streams[s.group] == s {
			delete(s.e.streams, s.group)
		}
		s.e.mu.Unlock()
		close(s.done)
		for {
			select {
			case c := <-s.conns:
				_ = c.Close()
				continue
			default:
			}
			return
		}
	})
	return nil
}

// Addr returns the endpoint's address.
func (s *streamListener) Addr() net.Addr { return s.e.Addr() }
