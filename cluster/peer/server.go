package peer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
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
	Head  []byte // valid until the reply is written, or what Keep returned is released
	Body  []byte // likewise

	buf *Buffer
}

// Keep takes the request's memory over from the handler: Head and Body stay
// valid until the returned buffer, which may be nil, is released. It is to be
// called once, before the handler returns.
func (r *Request) Keep() *Buffer {
	b := r.buf
	r.buf = nil
	return b
}

// A Reply is a handler's answer.
type Reply struct {
	Head []byte   // copied when the handler returns; at most MaxHead bytes
	Body [][]byte // sent without being copied if large; must not change until Done is called; at most MaxBody bytes
	Done func()   // called once, when Body was written or never will be; may be nil
}

// A serverConn is a connection that a peer dialed for calls.
type serverConn struct {
	e    *Endpoint
	from cluster.NodeID
	conn net.Conn
	w    frameWriter
	ctx  context.Context
	stop context.CancelFunc
	once sync.Once
	wg   sync.WaitGroup // handlers and writer
	read atomic.Int64   // bytes

	// Of the keeper.
	lastRead int64
	missed   int

	calls atomic.Int32 // under way
	bytes atomic.Int64 // of their bodies

	mu      sync.Mutex
	cancels map[uint32]context.CancelFunc
}

// serve serves a peer's connection until it ends and its handlers have
// returned.
func (e *Endpoint) serve(conn net.Conn, from cluster.NodeID) {
	s := &serverConn{e: e, from: from, conn: conn, cancels: make(map[uint32]context.CancelFunc)}
	s.ctx, s.stop = context.WithCancel(e.ctx)
	s.w.init(conn)
	if !e.register(s) {
		_ = conn.Close()
		s.stop()
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		s.w.run(s.ctx.Done())
	}()
	err := s.readLoop()
	s.fail(err)
	s.wg.Wait()
	e.cfg.Logger.Debug("connection from a peer ended", "peer", from, "why", err)
}

// fail ends the connection. Handlers that still run see their context end.
func (s *serverConn) fail(err error) {
	s.once.Do(func() {
		s.stop()
		_ = s.conn.Close()
		s.w.fail(lost(s.conn.RemoteAddr().String(), err))
		s.e.unregister(s)
	})
}

// tick is called each PingInterval. The dialer pings when it is idle, so that
// silence means that it, or the network, is gone.
func (s *serverConn) tick() {
	read := s.read.Load()
	if read != s.lastRead {
		s.lastRead, s.missed = read, 0
		return
	}
	if s.missed++; s.missed > silentTicks {
		s.fail(errSilent)
	}
}

// readLoop reads requests until the connection ends. It never waits for a
// handler: the dialer keeps to the limits of the hello.
func (s *serverConn) readLoop() error {
	r := bufio.NewReaderSize(meter{s.conn, &s.read}, readBuffer)
	for {
		var h header
		head, body, buf, err := readFrame(r, &h)
		if err != nil {
			return err
		}
		switch h.typ {
		case framePing:
			buf.Release()
			s.w.sendLater(newFrame(&header{typ: framePong}, nil, nil))
		case frameCancel:
			buf.Release()
			s.mu.Lock()
			cancel := s.cancels[h.id]
			s.mu.Unlock()
			if cancel != nil {
				cancel()
			}
		case frameRequest:
			req := &Request{From: s.from, Group: cluster.GroupID(h.group), Head: head, Body: body, buf: buf}
			if err := s.start(&h, req); err != nil {
				buf.Release()
				return err
			}
		default:
			buf.Release()
			return fmt.Errorf("%w: a frame of type %d", errProtocol, h.typ)
		}
	}
}

// start starts a request's handler.
func (s *serverConn) start(h *header, req *Request) error {
	calls, bytes := s.calls.Add(1), s.bytes.Add(int64(h.bodyLen))
	if int(calls) > s.e.cfg.MaxCalls || bytes > s.e.cfg.MaxBytes+int64(s.e.cfg.MaxCalls)*windowed {
		return fmt.Errorf("%w: more calls under way than allowed", errProtocol)
	}
	handler := s.e.handler(h.service, req.Group)
	if handler == nil {
		handler = unserved
	}
	var ctx context.Context
	var cancel context.CancelFunc
	if h.timeout > 0 {
		ctx, cancel = context.WithTimeout(s.ctx, time.Duration(h.timeout)*time.Millisecond)
	} else {
		ctx, cancel = context.WithCancel(s.ctx)
	}
	id, service, size := h.id, h.service, int64(h.bodyLen)
	s.mu.Lock()
	if s.cancels[id] != nil {
		s.mu.Unlock()
		cancel()
		return fmt.Errorf("%w: a call's id is in use", errProtocol)
	}
	s.cancels[id] = cancel
	s.mu.Unlock()
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		reply, err := handler(ctx, req)
		cancel()
		s.mu.Lock()
		delete(s.cancels, id)
		s.mu.Unlock()
		s.calls.Add(-1)
		s.bytes.Add(-size)
		s.reply(id, service, req, reply, err)
	}()
	return nil
}

func unserved(context.Context, *Request) (Reply, error) { return Reply{}, cluster.EAGAIN }

// reply sends an answer and releases the request, which it may refer to.
func (s *serverConn) reply(id uint32, service Service, req *Request, reply Reply, err error) {
	h := header{typ: frameResponse, service: service, id: id}
	size := 0
	for _, b := range reply.Body {
		size += len(b)
	}
	if err == nil && (len(reply.Head) > MaxHead || size > MaxBody) {
		err = fmt.Errorf("%w: an answer of %d + %d bytes", ErrTooLarge, len(reply.Head), size)
	}
	head, body, done := reply.Head, reply.Body, reply.Done
	if err != nil {
		status, text := errorStatus(err)
		h.status = uint16(status)
		head, body = nil, [][]byte{[]byte(text)}
	}
	f := newFrame(&h, head, body)
	buf := req.buf
	req.buf = nil
	if len(f.bodies) > 0 {
		f.done = func() {
			buf.Release()
			if done != nil {
				done()
			}
		}
		_ = s.w.send(f)
		return
	}
	buf.Release()
	if done != nil {
		done()
	}
	_ = s.w.send(f)
}
