package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// Options say how a Client behaves. Zero fields mean the defaults.
type Options struct {
	Minor    uint32          // minor version: 1 or 2 (default 2)
	V40      bool            // NFSv4.0 instead: no session, and owners whose requests are numbered
	Conns    int             // TCP connections (default 1)
	Slots    int             // requests under way (default 64)
	MaxIO    int             // bytes of data in a READ or WRITE (default 1 MiB)
	Owner    []byte          // co_ownerid (default: one of its own for each Client)
	Verifier uint64          // co_verifier: this incarnation of the owner (default random)
	UID, GID uint32          // of the AUTH_SYS credential
	GIDs     []uint32        // its supplementary groups, at most 16
	Callback *oncrpc.Program // serves the back channel; nil: none is asked for
	// Callbacks has the client answer the callbacks of a session itself, which
	// LockWait and Copies profit from.
	Callbacks bool
	// CallbackAddr is where an NFSv4.0 server reaches the client (default: nowhere).
	CallbackAddr CallbackAddr
	// Dial connects (default: TCP; with NFSv4.0, from the same port again).
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// NoRetry has DELAY and GRACE returned instead of waited out.
	NoRetry bool
}

func (o *Options) defaults() {
	switch {
	case o.V40:
		o.Minor = 0
	case o.Minor == 0:
		o.Minor = 2
	}
	if o.Conns == 0 {
		o.Conns = 1
	}
	if o.Slots == 0 {
		o.Slots = 64
	}
	if o.MaxIO == 0 {
		o.MaxIO = 1 << 20
	}
	if o.Verifier == 0 {
		o.Verifier = random64()
	}
	if len(o.Owner) == 0 {
		o.Owner = fmt.Appendf(nil, "hawser client %d %x", os.Getpid(), random64())
	}
	if o.Dial == nil && !o.V40 {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
}

func random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}

// ioOverhead is what a message may have beyond the data of a READ or WRITE.
const ioOverhead = 16 << 10

// A Client is one NFSv4 client: one client id, and one session but for NFSv4.0.
type Client struct {
	opt   Options
	addr  string
	cred  oncrpc.Cred
	rpc   *oncrpc.Server // its connections, and the callbacks on them
	conns []*link
	names atomic.Uint64 // numbers owners
	xid   atomic.Uint32 // numbers the calls of NFSv4.0
	stats struct{ retries, sessions, reboots atomic.Uint64 }

	state sync.Mutex // making sessions
	mu    sync.Mutex
	sess  *session
	id    clientID
	files map[*File]struct{} // to be reclaimed

	owners map[string]*owner // of NFSv4.0

	cb      *callbackService
	binding atomic.Bool // a connection is being bound for callbacks
}

// A clientID is what EXCHANGE_ID gave.
type clientID struct {
	id       uint64
	sequence uint32 // of the next CREATE_SESSION
}

// A link is a connection that is made again when it is lost.
type link struct {
	c  *Client
	mu sync.Mutex
	cn *oncrpc.Conn

	local net.Addr // of the connection before
	same  bool     // this one is from there, too
}

// Dial connects to a server and makes a session. ctx is for that alone.
func Dial(ctx context.Context, addr string, opt Options) (*Client, error) {
	c := DialRaw(addr, opt)
	establish := c.establish40
	if !opt.V40 {
		establish = func(ctx context.Context) error { return c.establish(ctx, nil) }
	}
	if err := establish(ctx); err != nil {
		_ = c.Abort()
		return nil, err
	}
	return c, nil
}

// DialRaw returns a Client without a session, for Raw alone. It connects when
// it is used.
func DialRaw(addr string, opt Options) *Client {
	opt.defaults()
	cfg := oncrpc.Config{MaxRecord: opt.MaxIO + 1<<20, IdleTimeout: -1}
	if opt.Callback != nil {
		cfg.Programs = []oncrpc.Program{*opt.Callback}
	}
	cb := newCallbackService()
	if opt.Callbacks {
		cfg.Programs = append(cfg.Programs, cb.program())
	}
	host, _ := os.Hostname()
	c := &Client{
		cb:   cb,
		opt:  opt,
		addr: addr,
		cred: oncrpc.Cred{Flavor: oncrpc.AuthSysF, Sys: &oncrpc.AuthSys{
			Machine: []byte(host[:min(len(host), 255)]), UID: opt.UID, GID: opt.GID, GIDs: opt.GIDs,
		}},
		rpc:   oncrpc.NewServer(cfg),
		files: make(map[*File]struct{}),
	}
	c.xid.Store(uint32(random64()))
	for range opt.Conns {
		c.conns = append(c.conns, &link{c: c})
	}
	return c
}

// ID returns the client id.
func (c *Client) ID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id.id
}

// Slots returns how many requests the session may have under way, 0 without a session.
func (c *Client) Slots() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sess == nil {
		return 0
	}
	return c.sess.n
}

// Stats returns how often a request was sent again, a session was made, and the
// server was found restarted.
func (c *Client) Stats() (retries, sessions, reboots uint64) {
	return c.stats.retries.Load(), c.stats.sessions.Load(), c.stats.reboots.Load()
}

// Abort closes the connections and leaves all state behind at the server, like
// a client that dies.
func (c *Client) Abort() error {
	c.rpc.Close()
	return nil
}

// Close closes the files that are open, gives the session and the client id
// back, and closes the connections.
func (c *Client) Close(ctx context.Context) error {
	defer c.rpc.Close()
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.files))
	c.mu.Unlock()
	for _, f := range open {
		if err := f.Close(ctx); err != nil && !outdated(err) {
			return err
		}
	}
	c.mu.Lock()
	s, id := c.sess, c.id
	c.sess = nil
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	destroy := NewCompound()
	destroy.Op(proto.OpDestroySession).FixedOpaque(s.id[:])
	if err := c.rawOK(ctx, destroy, proto.OpDestroySession); err != nil {
		return err
	}
	forget := NewCompound()
	forget.Op(proto.OpDestroyClientid).Uint64(id.id)
	return c.rawOK(ctx, forget, proto.OpDestroyClientid)
}

// get returns the connection, made anew if it was lost.
func (l *link) get(ctx context.Context) (*oncrpc.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cn != nil && l.cn.Err() == nil {
		return l.cn, nil
	}
	var nc net.Conn
	var err error
	if l.c.opt.Dial != nil {
		nc, err = l.c.opt.Dial(ctx, l.c.addr)
	} else {
		nc, err = samePort(ctx, l.c.addr, l.local)
	}
	if err != nil {
		return nil, err
	}
	if tc, ok := nc.(*net.TCPConn); ok && l.c.opt.V40 {
		_ = tc.SetLinger(0) // so that the port can be used again at once
	}
	cn, err := l.c.rpc.Attach(nc)
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	l.same = l.local != nil && l.local.String() == nc.LocalAddr().String()
	l.cn, l.local = cn, nc.LocalAddr()
	return cn, nil
}

// Drop closes connection i, as a network would; it is made again when needed.
func (c *Client) Drop(i int) {
	l := c.conns[i]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cn != nil {
		l.cn.Close()
	}
}

// RPC calls any procedure of any program over connection i.
func (c *Client) RPC(ctx context.Context, i int, r *oncrpc.Request) (*oncrpc.Reply, error) {
	cn, err := c.conns[i].get(ctx)
	if err != nil {
		return nil, err
	}
	return cn.Call(ctx, r)
}

// Null calls the null procedure.
func (c *Client) Null(ctx context.Context) error {
	r, err := c.RPC(ctx, 0, &oncrpc.Request{Program: proto.Program, Version: proto.Version})
	if err == nil {
		r.Release()
	}
	return err
}

// Raw sends a compound as it is over connection i, without SEQUENCE or
// anything else of the session, once.
func (c *Client) Raw(ctx context.Context, i int, minor uint32, ops *Compound) (*Results, error) {
	return c.send(ctx, i, minor, ops, nil)
}

// rawOK sends a compound of one operation, over the first connection, again
// after a lost connection.
func (c *Client) rawOK(ctx context.Context, ops *Compound, op proto.Op) error {
	r, err := c.rawRetry(ctx, ops)
	if err != nil {
		return err
	}
	defer r.Release()
	_, err = r.OK(op)
	return err
}

// rawRetry is Raw on the first connection, again after a lost connection and
// while the server says DELAY.
func (c *Client) rawRetry(ctx context.Context, ops *Compound) (*Results, error) {
	for b := (backoff{}); ; {
		r, err := c.Raw(ctx, 0, c.opt.Minor, ops)
		switch {
		case err == nil && (r.Status != proto.ErrDelay || c.opt.NoRetry):
			return r, nil
		case err == nil:
			r.Release()
		case !lost(err):
			return nil, err
		}
		c.stats.retries.Add(1)
		if werr := b.wait(ctx); werr != nil {
			if err != nil {
				return nil, err
			}
			return nil, werr
		}
	}
}

// send sends a compound, with sequence's operation before it if it is not nil.
func (c *Client) send(ctx context.Context, i int, minor uint32, ops *Compound, sequence func(*xdr.Encoder)) (*Results, error) {
	cn, err := c.conns[i].get(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := cn.Call(ctx, &oncrpc.Request{
		Program: proto.Program, Version: proto.Version, Procedure: proto.ProcCompound,
		Cred:   c.cred,
		Encode: func(e *xdr.Encoder) { ops.appendTo(e, minor, sequence) },
	})
	if err != nil {
		return nil, err
	}
	return parse(reply)
}

// A backoff waits longer each time: 5 ms, doubling to 1 s.
type backoff struct{ d time.Duration }

// wait waits, or returns ctx's error.
func (b *backoff) wait(ctx context.Context) error {
	b.d = min(max(2*b.d, 5*time.Millisecond), time.Second)
	t := time.NewTimer(b.d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
