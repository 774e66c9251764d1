package nfs4

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A callbackOp is an operation of a CB_COMPOUND.
type callbackOp struct {
	Op   proto.CBOp
	Args func(e *xdr.Encoder) // appends the arguments; nil: none
	// Result takes the result after the status, which is OK. nil: there is none.
	Result func(d *xdr.Decoder)
}

// A caller calls a client back.
type caller interface {
	// Call has the client execute ops. Its status is that of the last that was. The
	// error is errNoPath if the client can't be reached now, or ctx's; whether it
	// has executed them is unknown then.
	Call(ctx context.Context, ops ...callbackOp) (proto.Status, error)
}

var (
	errNoPath   = errors.New("nfs4: there is no connection for callbacks to the client")
	errCallback = errors.New("nfs4: the client answers a callback with nonsense")
)

// caller returns what calls a client back, or nil if there is no path to it: then
// nothing may be promised to the client that needs one.
func (p *Program) caller(c *state.Client) caller {
	if c.Minor == 0 {
		if p.v40 == nil {
			return nil
		}
		return p.v40.caller(c)
	}
	for _, s := range p.state.Sessions(c) {
		if b := channelOf(s); b.up.Load() {
			return b
		}
	}
	return nil
}

// channelOf returns a session's back channel.
func channelOf(s *state.Session) *backChannel { return s.Attached.(*backChannel) }

// Limits of back channels.
const (
	maxBackConns = 16               // connections bound to one
	maxBackSlots = 16               // of those that a client offers, in use
	callTimeout  = 10 * time.Second // until a callback that is not answered counts as lost
	retryDelay   = 100 * time.Millisecond
	maxDelays    = 20 // times that a client may answer DELAY
	maxFaults    = 3  // callbacks in a row that fail before the client is left in peace
)

// A backChannel calls the client of a session over the connections that are bound to
// its back channel (RFC 8881 §2.10.3.1).
type backChannel struct {
	p *Program
	s *state.Session

	up    atomic.Bool   // there is a connection
	flags atomic.Uint32 // what SEQUENCE says of it: 0, or the path of this session is down

	mu     sync.Mutex
	conns  []*oncrpc.Conn // the last is preferred
	wanted bool           // the client has asked for one
	faults int            // failures since the last success
	closed bool
	slots  []backSlot
	free   chan int // slots that are not in use
}

// A backSlot is a slot of the back channel, whose reply cache the client has.
type backSlot struct {
	seq  uint32 // the last that was answered
	used bool   // the client has answered there: seq is right
}

func newBackChannel(p *Program, s *state.Session) *backChannel {
	n := int(min(s.Back.MaxRequests, maxBackSlots))
	b := &backChannel{p: p, s: s, wanted: s.BackAsked, slots: make([]backSlot, n), free: make(chan int, n)}
	// Which slots an earlier front-end used is not known: each begins with another.
	for i := range n {
		b.free <- (i + int(p.cfg.Epoch)) % n
	}
	b.say()
	return b
}

// say sets the flags. b.mu is held, or b is not shared yet.
func (b *backChannel) say() {
	b.up.Store(len(b.conns) > 0)
	switch {
	case !b.wanted || len(b.conns) > 0 || b.faults >= maxFaults:
		// A client that binds and does not answer is not asked to bind for ever.
		b.flags.Store(0)
	default:
		b.flags.Store(proto.Seq4StatusCBPathDownSession)
	}
	if len(b.slots) > 0 && cap(b.free) > 0 && b.wanted && b.exhausted() {
		b.flags.Store(proto.Seq4StatusBackchannelFault)
	}
}

// exhausted reports whether no slot can be used any more: the client makes a new session.
func (b *backChannel) exhausted() bool { return b.slots == nil }

// status returns the flags of SEQUENCE that are about callbacks (RFC 8881 §18.46.3).
func (b *backChannel) status() uint32 {
	f := b.flags.Load()
	if f&proto.Seq4StatusCBPathDownSession != 0 && b.p.caller(b.s.Client) == nil {
		f |= proto.Seq4StatusCBPathDown
	}
	return f
}

// bind binds a connection to the back channel.
func (b *backChannel) bind(conn *oncrpc.Conn) {
	if conn == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = true
	for _, c := range b.conns {
		if c == conn {
			return
		}
	}
	if len(b.conns) >= maxBackConns {
		b.conns = b.conns[1:]
	}
	b.conns = append(b.conns, conn)
	b.say()
	conn.OnClose(func() { b.unbind(conn) })
}

// unbind says that a connection is of no use for callbacks.
func (b *backChannel) unbind(conn *oncrpc.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, c := range b.conns {
		if c == conn {
			b.conns = append(b.conns[:i:i], b.conns[i+1:]...)
			break
		}
	}
	b.say()
}

// close closes the connections.
func (b *backChannel) close() {
	b.mu.Lock()
	conns := b.conns
	b.closed = true
	b.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// Call is as in caller.
func (b *backChannel) Call(ctx context.Context, ops ...callbackOp) (proto.Status, error) {
	return 0, errNoPath
}
