package group

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
)

// transportTimeout bounds one of Raft's calls; one that sends a snapshot gets
// as much for each 256 KiB.
const transportTimeout = 10 * time.Second

// A streamLayer carries Raft's connections over the node's peer endpoint. To
// Raft, a node's address is its name.
type streamLayer struct {
	net.Listener
	group   cluster.GroupID
	self    cluster.NodeID
	peer    *peer.Endpoint
	resolve func(cluster.NodeID) (string, bool)

	ended chan struct{} // closed by Close

	mu     sync.Mutex
	conns  map[*trackedConn]struct{}
	closed bool
}

func newStreamLayer(cfg *Config) *streamLayer {
	return &streamLayer{
		Listener: cfg.Peer.Streams(cfg.ID), group: cfg.ID, self: cfg.Self, peer: cfg.Peer,
		resolve: cfg.Resolve, ended: make(chan struct{}), conns: make(map[*trackedConn]struct{}),
	}
}

// A trackedConn is closed with its layer: Raft leaves idle connections open.
type trackedConn struct {
	net.Conn
	layer *streamLayer
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.conns, c)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}

func (l *streamLayer) track(conn net.Conn) (net.Conn, error) {
	c := &trackedConn{Conn: conn, layer: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// Accept waits for a connection from another member.
func (l *streamLayer) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.track(conn)
}

// Dial connects to another member. It goes on trying while the other is not
// there: after a failed call Raft waits up to ten seconds before the next, and
// a member that returns would be without the leader for as long.
func (l *streamLayer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		conn, err := l.dial(ctx, cluster.NodeID(to))
		if err == nil {
			return l.track(conn)
		}
		select {
		case <-time.After(redialEvery):
		case <-ctx.Done():
			return nil, err
		case <-l.ended:
			return nil, net.ErrClosed
		}
	}
}

// redialEvery is the pause between attempts to reach a member.
const redialEvery = 100 * time.Millisecond

func (l *streamLayer) dial(ctx context.Context, to cluster.NodeID) (net.Conn, error) {
	addr, ok := l.resolve(to)
	if !ok {
		return nil, fmt.Errorf("the address of node %s is not known", to)
	}
	conn, err := l.peer.DialStream(ctx, addr, l.group)
	if err != nil {
		return nil, err
	}
	// A node that took over another's address must not vote and acknowledge in
	// the other's name: it has not the other's log.
	if node := peer.StreamNode(conn); node != to {
		_ = conn.Close()
		return nil, fmt.Errorf("node %s is not at its address %s: node %s is", to, addr, node)
	}
	return conn, nil
}

// Close stops accepting and closes every connection.
func (l *streamLayer) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	if !l.closed {
		close(l.ended)
	}
	l.closed = true
	conns := make([]*trackedConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Addr returns the node's name.
func (l *streamLayer) Addr() net.Addr { return nodeAddr(l.self) }

// A nodeAddr is a node's name as an address.
type nodeAddr cluster.NodeID

// Network returns "hawser".
func (nodeAddr) Network() string { return "hawser" }

// String returns the node's name.
func (a nodeAddr) String() string { return string(a) }
