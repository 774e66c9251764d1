package nfsd

import (
	"net"
	"net/netip"
	"sync"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// routes says which programs a connection gets. A client that connects to a
// floating address is served by that address's programs, which know its client
// ids and sessions, and never by those of another address, to which they would
// mean nothing: the client would take its state for lost.
type routes struct {
	byConn sync.Map // *oncrpc.Conn -> *service: reading takes no lock

	mu       sync.Mutex
	own      *service                // of all addresses but the floating ones
	floating map[netip.Addr]*service // nil: not served here
}

// A service is what is served on an address.
type service struct {
	handlers []oncrpc.Handler // in the order of Config.Programs
	conns    map[*oncrpc.Conn]struct{}
	ln       net.Listener // nil: Config.Listen covers the address
}

func newService(handlers []oncrpc.Handler) *service {
	return &service{handlers: handlers, conns: map[*oncrpc.Conn]struct{}{}}
}

func (r *routes) init(own []oncrpc.Handler) {
	r.own, r.floating = newService(own), map[netip.Addr]*service{}
}

// A router serves the program at an index by handing its calls on.
type router struct {
	routes *routes
	i      int
}

// ServeRPC implements oncrpc.Handler.
func (h *router) ServeRPC(call *oncrpc.Call, reply *xdr.Encoder) oncrpc.AcceptStat {
	v, ok := h.routes.byConn.Load(call.Conn)
	if !ok {
		// The connection's first call, or one that was late: it is closed.
		x := h.routes.join(call.Conn)
		if x == nil {
			call.Conn.Close() // the reply is not sent
			return oncrpc.SystemErr
		}
		return x.handlers[h.i].ServeRPC(call, reply)
	}
	return v.(*service).handlers[h.i].ServeRPC(call, reply)
}

// accepted has the kernel keep nothing of a connection to a floating address when
// it is closed, by us or with the process. Closing it in the usual way leaves it
// there until the client has acknowledged that; but the client may be another
// node's by then. If the address came back meanwhile, what the client sends on
// the connection that it has there would find what was kept, which answers it
// with acknowledgements of its own, instead of nothing, which resets it: the
// client would be stuck for seconds, and no tickle would wake it.
func (r *routes) accepted(nc net.Conn) {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	r.mu.Lock()
	_, floating := r.floating[addrPort(nc.LocalAddr()).Addr()]
	r.mu.Unlock()
	if floating {
		_ = t.SetLinger(0)
	}
}

// join finds the service of a connection; nil if it was made to a floating
// address that is not served here.
func (r *routes) join(c *oncrpc.Conn) *service {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, floating := r.floating[addrPort(c.LocalAddr()).Addr()]
	if !floating {
		x = r.own
	}
	if x == nil {
		return nil
	}
	if _, there := x.conns[c]; there {
		return x
	}
	x.conns[c] = struct{}{}
	r.byConn.Store(c, x)
	c.OnClose(func() { r.leave(c, x) })
	return x
}

func (r *routes) leave(c *oncrpc.Conn, x *service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(x.conns, c)
	r.byConn.CompareAndDelete(c, x)
}

// set has a floating address served by x, or by nobody here if x is nil, and
// returns what served it before.
func (r *routes) set(addr netip.Addr, x *service) (old *service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = r.floating[addr]
	r.floating[addr] = x
	return old
}

// drop closes the connections of a service that is in r no more.
func (r *routes) drop(x *service) {
	r.mu.Lock()
	conns := make([]*oncrpc.Conn, 0, len(x.conns))
	for c := range x.conns {
		conns = append(conns, c)
		r.byConn.CompareAndDelete(c, x)
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// addrPort is a TCP address as netip has it.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}
