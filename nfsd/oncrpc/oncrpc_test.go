package oncrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The program that tests serve, and its procedures.
const (
	testProg  = 200001
	procNull  = 0
	procEcho  = 1 // the arguments come back
	procWho   = 2 // uid, gid and groups of the caller
	procPanic = 3
	procBad   = 4 // GARBAGE_ARGS after some results
	procRead  = 5 // as many bytes as asked for, by reference
	procWait  = 6 // waits for the test's gate, then echoes
	procBack  = 7 // calls procEcho of the caller over the same connection, and returns what it said
)

// A service is a test program.
type service struct {
	gate    chan struct{}
	started chan uint32
	refs    chan struct{} // one for each reference handed out and not released
	payload []byte
}

func newService() *service {
	return &service{
		gate:    make(chan struct{}),
		started: make(chan uint32, 10000),
		refs:    make(chan struct{}, 1000),
		payload: bytes.Repeat([]byte("payload "), 1<<20/8),
	}
}

func (s *service) ServeRPC(call *Call, reply *xdr.Encoder) AcceptStat {
	switch call.Procedure {
	case procNull:
	case procEcho:
		reply.Raw(call.Args.FixedOpaque(call.Args.Remaining()))
	case procWho:
		reply.Uint32(uint32(call.Cred.Flavor))
		if a := call.Cred.Sys; a != nil {
			reply.Uint32(a.UID)
			reply.Uint32(a.GID)
			reply.Opaque(a.Machine)
			for _, g := range a.GIDs {
				reply.Uint32(g)
			}
		}
	case procPanic:
		reply.Uint32(1)
		panic("told to")
	case procBad:
		reply.Uint32(1)
		s.ref(reply, 8)
		return GarbageArgs
	case procRead:
		n := int(call.Args.Uint32())
		reply.Uint32(uint32(n))
		s.ref(reply, n)
		reply.Pad(n)
	case procWait:
		s.started <- call.XID
		<-s.gate
		reply.Raw(call.Args.FixedOpaque(call.Args.Remaining()))
	case procBack:
		r, err := call.Conn.Call(call.Context(), &Request{
			Program: testProg, Version: 1, Procedure: procEcho,
			Encode: func(e *xdr.Encoder) { e.Uint32(call.Args.Uint32() + 1) },
		})
		if err != nil {
			return SystemErr
		}
		reply.Uint32(r.Results.Uint32())
		r.Release()
	default:
		return ProcUnavail
	}
	if call.Args.Err() != nil {
		return GarbageArgs
	}
	return Success
}

func (s *service) ref(reply *xdr.Encoder, n int) {
	s.refs <- struct{}{}
	reply.Ref(s.payload[:n], func() { <-s.refs })
}

// serve starts a server of s, of which cfg says the rest, and returns it and its address.
func serve(t testing.TB, s *service, cfg Config) (*Server, string) {
	t.Helper()
	cfg.Programs = []Program{{Number: testProg, MinVersion: 1, MaxVersion: 2, Handler: s}}
	srv := NewServer(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if n := len(s.refs); n != 0 {
			t.Errorf("%d references were not released", n)
		}
		if st := srv.Stats(); st.RequestMemory != 0 || st.ReplyMemory != 0 || st.Conns != 0 {
			t.Errorf("left over after Close: %+v", st)
		}
	})
	return srv, ln.Addr().String()
}

// dialRaw connects without a client, to send wrong things.
func dialRaw(t testing.TB, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	return nc
}

// dial connects with a client that serves s for callbacks.
func dial(t testing.TB, addr string, s *service) *Conn {
	t.Helper()
	cfg := Config{MaxRecord: 4 << 20, IdleTimeout: -1}
	if s != nil {
		cfg.Programs = []Program{{Number: testProg, MinVersion: 1, MaxVersion: 1, Handler: s}}
	}
	cl := NewServer(cfg)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cl.Attach(nc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return c
}

func words(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

// record returns body as a record cut into fragments of the given sizes; the
// last fragment has the rest.
func record(body []byte, sizes ...int) (b []byte) {
	for _, n := range sizes {
		b = append(append(b, words(uint32(n))...), body[:n]...)
		body = body[n:]
	}
	return append(append(b, words(lastFrag|uint32(len(body)))...), body...)
}

// callBody returns a call without credentials.
func callBody(xid, prog, vers, proc uint32, args ...uint32) []byte {
	return words(append([]uint32{xid, msgCall, 2, prog, vers, proc, 0, 0, 0, 0}, args...)...)
}

// readRecord reads a record of one fragment.
func readRecord(t testing.TB, r io.Reader) []byte {
	t.Helper()
	var mark [4]byte
	if _, err := io.ReadFull(r, mark[:]); err != nil {
		t.Fatalf("reading a reply: %v", err)
	}
	n := binary.BigEndian.Uint32(mark[:])
	if n&lastFrag == 0 {
		t.Fatalf("a reply of several fragments: %x", n)
	}
	body := make([]byte, n&^lastFrag)
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatalf("reading a reply: %v", err)
	}
	return body
}

// wantClosed checks that the server closes the connection without a word.
func wantClosed(t testing.TB, nc net.Conn) {
	t.Helper()
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	var b [64]byte
	n, err := nc.Read(b[:])
	if n > 0 {
		t.Fatalf("an answer where the connection should be closed: %x", b[:n])
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("the connection stays open without an answer")
	}
}

// echo calls procEcho with v.
func echo(t testing.TB, c *Conn, v uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := c.Call(ctx, &Request{
		Program: testProg, Version: 1, Procedure: procEcho,
		Encode: func(e *xdr.Encoder) { e.Uint32(v) },
	})
	if err != nil {
		t.Fatalf("echo: %v", err)
	}
	defer r.Release()
	if got := r.Results.Uint32(); got != v {
		t.Fatalf("echo of %d is %d", v, got)
	}
}
