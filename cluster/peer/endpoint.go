package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// An Endpoint is this node's end of all connections to and from its peers. Its
// methods may be called at any time from any goroutine.
type Endpoint struct {
	cfg     Config
	ln      net.Listener
	cluster atomic.Pointer[string]
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	handlers atomic.Pointer[handlerTable]

	peers sync.Map // addr string -> *remote

	mu       sync.Mutex
	closed   bool
	accepted int                   // accepted connections that are open
	conns    map[liveConn]struct{} // all open connections
	streams  map[cluster.GroupID]*streamListener
}

// A liveConn is a connection that the endpoint closes with itself and watches
// for silence.
type liveConn interface {
	fail(err error)
	tick()
}

type handlerKey struct {
	service Service
	group   cluster.GroupID
}

// A handlerTable is immutable; changes make a new one.
type handlerTable struct {
	services map[Service]Handler
	groups   map[handlerKey]Handler
}

// Listen opens the endpoint's listener.
func Listen(cfg Config) (*Endpoint, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("peer: cannot listen on %s: %w", cfg.Listen, err)
	}
	e := &Endpoint{
		cfg: cfg, ln: ln,
		conns:   make(map[liveConn]struct{}),
		streams: make(map[cluster.GroupID]*streamListener),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.cluster.Store(&cfg.ClusterID)
	e.handlers.Store(&handlerTable{})
	e.wg.Add(2)
	go e.acceptLoop()
	go e.keeper()
	return e, nil
}

// Addr returns the listener's address.
func (e *Endpoint) Addr() net.Addr { return e.ln.Addr() }

// Self returns the node's name.
func (e *Endpoint) Self() cluster.NodeID { return e.cfg.Self }

// SetClusterID sets the cluster's identity for connections made from now on.
// It must be at most 64 bytes long.
func (e *Endpoint) SetClusterID(id string) {
	if len(id) > maxClusterID {
		panic("peer: cluster id too long")
	}
	e.cluster.Store(&id)
}

func (e *Endpoint) clusterID() string { return *e.cluster.Load() }

// Handle makes h serve s; nil stops serving it. A service without a handler
// answers EAGAIN.
func (e *Endpoint) Handle(s Service, h Handler) {
	e.changeHandlers(func(t *handlerTable) {
		if h == nil {
			delete(t.services, s)
		} else {
			t.services[s] = h
		}
	})
}

// HandleGroup makes h serve s for one group, in place of the handler of Handle;
// nil stops that.
func (e *Endpoint) HandleGroup(s Service, g cluster.GroupID, h Handler) {
	e.changeHandlers(func(t *handlerTable) {
		if h == nil {
			delete(t.groups, handlerKey{s, g})
		} else {
			t.groups[handlerKey{s, g}] = h
		}
	})
}

func (e *Endpoint) changeHandlers(change func(*handlerTable)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.handlers.Load()
	t := &handlerTable{services: make(map[Service]Handler), groups: make(map[handlerKey]Handler)}
	for k, v := range old.services {
		t.services[k] = v
	}
	for k, v := range old.groups {
		t.groups[k] = v
	}
	change(t)
	e.handlers.Store(t)
}

// handler returns the handler for a request, or nil.
func (e *Endpoint) handler(s Service, g cluster.GroupID) Handler {
	t := e.handlers.Load()
	if h := t.groups[handlerKey{s, g}]; h != nil {
		return h
	}
	return t.services[s]
}

// register adds an open connection. It reports false once the endpoint is
// closed.
func (e *Endpoint) register(c liveConn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.conns[c] = struct{}{}
	return true
}

func (e *Endpoint) unregister(c liveConn) {
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
}

// spawn runs f in a goroutine that Close waits for. It reports false once the
// endpoint is closed.
func (e *Endpoint) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		f()
	}()
	return true
}

// keeper looks for silent connections.
func (e *Endpoint) keeper() {
	defer e.wg.Done()
	t := time.NewTicker(e.cfg.PingInterval)
	defer t.Stop()
	var conns []liveConn
	for {
		select {
		case <-t.C:
		case <-e.ctx.Done():
			return
		}
		e.mu.Lock()
		for c := range e.conns {
			conns = append(conns, c)
		}
		e.mu.Unlock()
		for _, c := range conns {
			c.tick()
		}
		clear(conns)
		conns = conns[:0]
	}
}

// acceptLoop accepts connections.
func (e *Endpoint) acceptLoop() {
	defer e.wg.Done()
	for {
		conn, err := e.ln.Accept()
		if err != nil {
			if e.ctx.Err() != nil {
				return
			}
			// Out of file descriptors, most likely: it passes.
			e.cfg.Logger.Warn("cannot accept a peer's connection", "err", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-e.ctx.Done():
				return
			}
			continue
		}
		tune(conn)
		e.mu.Lock()
		e.accepted++
		accept := e.accepted <= e.cfg.MaxConnections
		refuse := e.accepted > e.cfg.MaxConnections+64
		e.mu.Unlock()
		if refuse || !e.spawn(func() { e.accept(conn, accept) }) {
			e.released()
			_ = conn.Close()
		}
	}
}

// released counts an accepted connection as closed.
func (e *Endpoint) released() {
	e.mu.Lock()
	e.accepted--
	e.mu.Unlock()
}

// accept greets a dialer and serves its connection.
func (e *Endpoint) accept(raw net.Conn, ok bool) {
	conn := raw
	if e.cfg.TLS != nil {
		conn = tls.Server(raw, e.cfg.TLS)
	}
	// A connection that says nothing is closed with the endpoint, too.
	stop := context.AfterFunc(e.ctx, func() { _ = raw.Close() })
	_ = conn.SetDeadline(time.Now().Add(e.cfg.DialTimeout))
	h, err := readHello(conn)
	var a hello
	if err == nil {
		a = e.answer(&h, ok)
		_, err = conn.Write(a.append(nil))
	}
	_ = conn.SetDeadline(time.Time{})
	stop()
	if err != nil || a.status != helloOK {
		if err == nil {
			level := slog.LevelWarn
			if a.status == helloNoGroup { // it is starting, or about to be added
				level = slog.LevelDebug
			}
			e.cfg.Logger.Log(e.ctx, level, "refused a peer", "peer", h.node, "addr", raw.RemoteAddr().String(), "why", a.status.String())
		}
		_ = conn.Close()
		e.released()
		return
	}
	if h.use == useStream {
		e.deliver(newStreamConn(e, conn, h.node, true), h.group)
		return
	}
	e.serve(conn, h.node)
	e.released()
}

// Close closes the listener and every connection, and waits for the handlers.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.wg.Wait()
		return nil
	}
	e.closed = true
	conns := make([]liveConn, 0, len(e.conns))
	for c := range e.conns {
		conns = append(conns, c)
	}
	var streams []*streamListener
	for _, s := range e.streams {
		streams = append(streams, s)
	}
	e.mu.Unlock()
	e.cancel()
	err := e.ln.Close()
	for _, s := range streams {
		_ = s.Close()
	}
	for _, c := range conns {
		c.fail(ErrClosed)
	}
	e.wg.Wait()
	return err
}

// tune sets a TCP connection's options.
func tune(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetNoDelay(true)
		_ = c.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
		})
	}
}

// dial connects to addr and greets.
func (e *Endpoint) dial(ctx context.Context, addr string, use connUse, g cluster.GroupID) (net.Conn, hello, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, hello{}, err
	}
	tune(raw)
	conn := raw
	if e.cfg.TLS != nil {
		conf := e.cfg.TLS
		if conf.ServerName == "" && !conf.InsecureSkipVerify {
			conf = conf.Clone()
			conf.ServerName, _, _ = net.SplitHostPort(addr)
		}
		conn = tls.Client(raw, conf)
	}
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	a, err := e.greet(conn, use, g)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, hello{}, err
	}
	return conn, a, nil
}
