package peer

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// Config says who an endpoint is and what it may use.
type Config struct {
	Self      cluster.NodeID
	ClusterID string // sent in the hello; "" (not yet a member) accepts and is accepted by any
	Listen    string // host:port; port 0 takes a free one
	Logger    *slog.Logger
	TLS       *tls.Config // nil: no TLS

	MaxCalls       int           // calls under way on a connection; default 256
	MaxBytes       int64         // bytes of request bodies under way on a connection; default 32 MiB
	BulkConns      int           // connections an address for ServiceBlob; default 2
	MaxConnections int           // accepted connections; default 4096
	DialTimeout    time.Duration // connect and hello; default 3 s
	PingInterval   time.Duration // a connection silent for three of them is dead; default 1 s
}

// Limits of a frame, in bytes.
const (
	MaxHead = 64 << 10
	MaxBody = cluster.MaxBlob + 64<<10
)

// A Handler serves one request. It runs in its own goroutine. ctx ends with the
// caller's deadline, when the caller gave up, and with the connection. An error
// that is (or wraps) a cluster.Errno travels as that, others as EINTERNAL with
// their text.
type Handler func(ctx context.Context, req *Request) (Reply, error)

// A Request is a call as its handler sees it.
type Request struct {
	From  cluster.NodeID
	Group cluster.GroupID
	Head  []byte // valid until the handler returns, or what Keep returned is released
	Body  []byte // likewise

	buf *Buffer
}

// A Reply is a handler's answer.
type Reply struct {
	Head []byte   // copied when the handler returns
	Body [][]byte // sent without being copied; must not change until Done is called
	Done func()   // called once, when Body was written or never will be; may be nil
}

// A Response is the answer to a call.
type Response struct {
	Head []byte // valid until Release
	Body []byte // valid until Release

	buf *Buffer
}

// An Endpoint is this node's end of all connections to and from its peers.
type Endpoint struct{ stub }

type stub struct{}

// Listen opens the endpoint's listener.
func Listen(cfg Config) (*Endpoint, error) { panic("being written") }

// Addr returns the listener's address.
func (e *Endpoint) Addr() net.Addr { panic("being written") }

// Close closes the listener and every connection, and waits for the handlers.
func (e *Endpoint) Close() error { panic("being written") }

// SetClusterID sets the cluster's identity for connections made from now on.
func (e *Endpoint) SetClusterID(id string) { panic("being written") }

// Handle makes h serve s; nil stops serving it. A service without a handler
// answers EAGAIN.
func (e *Endpoint) Handle(s Service, h Handler) { panic("being written") }

// HandleGroup makes h serve s for one group, before the handler of Handle; nil
// stops serving it.
func (e *Endpoint) HandleGroup(s Service, g cluster.GroupID, h Handler) { panic("being written") }

// Call calls service s at addr and waits for the answer.
func (e *Endpoint) Call(ctx context.Context, addr string, s Service, g cluster.GroupID, head []byte, body ...[]byte) (*Response, error) {
	panic("being written")
}

// DialStream opens a raw stream to group g at addr.
func (e *Endpoint) DialStream(ctx context.Context, addr string, g cluster.GroupID) (net.Conn, error) {
	panic("being written")
}

// Streams returns the listener for raw streams to group g.
func (e *Endpoint) Streams(g cluster.GroupID) net.Listener { panic("being written") }

// A Buffer is a pooled receive buffer.
type Buffer struct{}

// Release gives the buffer back.
func (b *Buffer) Release() {}

// Keep takes the request's memory over from the handler: Head and Body stay
// valid until the returned buffer is released.
func (r *Request) Keep() *Buffer { panic("being written") }

// Release gives the response's memory back.
func (r *Response) Release() {}
