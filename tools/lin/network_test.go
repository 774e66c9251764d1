package lin

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A network stands between the nodes: each is known to the others by the
// address of a relay, which can lose what is sent. Clients do not go through
// it, so that a node that is cut off from the others still has its own.
type network struct {
	listeners [3]net.Listener
	targets   [3]string
	in, out   [3]atomic.Bool // what is sent to, or by, a node is lost
	wg        sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{}
}

// A link is a connection of two nodes.
type link struct {
	from, to int
	a, b     net.Conn // from's and to's side; b may be nil
}

func (l *link) close() {
	_ = l.a.Close()
	if l.b != nil {
		_ = l.b.Close()
	}
}

// newNetwork returns a network whose relays listen on an address of this machine.
func newNetwork(t *testing.T, host string) *network {
	n := &network{links: map[*link]struct{}{}}
	for i := range n.listeners {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		n.listeners[i] = ln
	}
	return n
}

// addr is what the others know node i by.
func (n *network) addr(i int) string { return n.listeners[i].Addr().String() }

// start relays to the nodes' own addresses.
func (n *network) start() {
	for i, ln := range n.listeners {
		n.wg.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				n.wg.Go(func() { n.serve(c, i) })
			}
		})
	}
}

func (n *network) close() {
	for _, ln := range n.listeners {
		_ = ln.Close()
	}
	n.mu.Lock()
	n.closed = true
	for l := range n.links {
		l.close()
	}
	n.mu.Unlock()
	n.wg.Wait()
}

// cut loses what is sent to node i, or by it, until heal.
func (n *network) cut(i int, in, out bool) {
	n.in[i].Store(in)
	n.out[i].Store(out)
}

// heal ends a cut. Connections that have lost something are of no more use.
func (n *network) heal(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		if l.from == i || l.to == i {
			l.close()
		}
	}
	n.in[i].Store(false)
	n.out[i].Store(false)
}

func (n *network) loses(from, to int) bool { return n.out[from].Load() || n.in[to].Load() }

// enter adds a link, unless the network is closed.
func (n *network) enter(l *link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[l] = struct{}{}
	return !n.closed
}

func (n *network) leave(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l)
}

func (n *network) serve(a net.Conn, to int) {
	l := &link{a: a, from: -1, to: to}
	defer func() { l.close() }()
	if !n.enter(l) {
		return
	}
	// What it begins with says who it is.
	hello, from, err := readHello(a)
	n.leave(l)
	if err != nil {
		return
	}
	b, err := net.Dial("tcp", n.targets[to])
	if err != nil {
		return
	}
	l = &link{from: from, to: to, a: a, b: b}
	defer n.leave(l)
	if !n.enter(l) {
		return
	}
	if !n.loses(from, to) {
		if _, err := b.Write(hello); err != nil {
			return
		}
	}
	var back sync.WaitGroup
	back.Go(func() { n.relay(a, b, to, from) })
	n.relay(b, a, from, to)
	back.Wait()
}

// relay copies from src to dst what node from sends to node to, and ends both
// when one ends.
func (n *network) relay(dst, src net.Conn, from, to int) {
	defer dst.Close()
	defer src.Close()
	p := make([]byte, 64<<10)
	for {
		k, err := src.Read(p)
		if k > 0 && !n.loses(from, to) {
			if _, err := dst.Write(p[:k]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readHello reads the hello of a connection, which has the names of the
// cluster and of the node at its end.
func readHello(r io.Reader) (all []byte, from int, err error) {
	const fixed, sum = 28, 4
	all = make([]byte, fixed)
	if _, err := io.ReadFull(r, all); err != nil {
		return nil, 0, err
	}
	names := int(all[24]) + int(all[25])
	all = append(all, make([]byte, names+sum)...)
	if _, err := io.ReadFull(r, all[fixed:]); err != nil {
		return nil, 0, err
	}
	name := string(all[fixed+int(all[24]) : fixed+names])
	from = slices.Index([]string{"n1", "n2", "n3"}, strings.TrimSpace(name))
	if from < 0 {
		return nil, 0, io.ErrUnexpectedEOF
	}
	return all, from, nil
}
