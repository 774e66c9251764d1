package oncrpc

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// An exchange is a call being served, and its reply until that is written.
type exchange struct {
	conn *Conn
	buf  *buffer // the call
	cost int     // what was taken from the budget for it
	call Call
	args xdr.Decoder
	sys  AuthSys
	enc  xdr.Encoder
}

// keepReply is the largest reply buffer that is kept for reuse.
const keepReply = 64 << 10

var exchanges sync.Pool

func getExchange() *exchange {
	if x, _ := exchanges.Get().(*exchange); x != nil {
		return x
	}
	x := &exchange{}
	x.enc.Init(make([]byte, 0, 512))
	return x
}

// freeRequest gives back the call's buffer and budget.
func (x *exchange) freeRequest() {
	x.buf.free()
	x.conn.s.requests.release(x.cost)
	x.buf, x.cost = nil, 0
	x.args.Init(nil)
	x.call = Call{}
	x.sys.Machine, x.sys.GIDs = nil, nil
}

// free returns x to its pool. Its encoder has been released.
func (x *exchange) free() {
	buf := x.enc.Buffer()
	if cap(buf) > keepReply {
		buf = nil
	}
	x.enc.Init(buf[:0])
	x.conn = nil
	exchanges.Put(x)
}

// abandon ends x without a reply.
func (x *exchange) abandon(err error) {
	c := x.conn
	c.close(err)
	x.freeRequest()
	x.enc.Release()
	x.free()
	c.mu.Lock()
	c.inflight--
	c.room.Broadcast()
	c.finish()
	c.mu.Unlock()
}

// serve decodes the call's header, has the program execute it, and sends the reply.
func (x *exchange) serve() {
	c := x.conn
	call := &x.call
	call.Args, call.Conn, call.ctx = &x.args, c, c.s.ctx
	v, auth := decodeCall(call, &x.sys)
	xid := call.XID
	switch v {
	case malformed, wrongObject:
		x.abandon(errBadHeader)
		return
	case badVersion, badCred:
		c.s.stats.rejected.Add(1)
		x.freeRequest()
		x.enc.Init(append(x.enc.Buffer()[:0], 0, 0, 0, 0))
		encodeDenied(&x.enc, xid, v, auth)
		c.send(x, &x.enc)
		return
	}
	x.enc.Init(append(x.enc.Buffer()[:0], blankReply[:]...))
	stat := c.s.dispatch(call, &x.enc)
	x.freeRequest()
	putReplyHeader(x.enc.Prefix(), x.enc.Len()+replyHeader-markSize, xid, stat)
	c.send(x, &x.enc)
}

// dispatch has the call executed. The reply has results only for Success and ProgMismatch.
func (s *Server) dispatch(call *Call, reply *xdr.Encoder) AcceptStat {
	p := s.programs[call.Program]
	if p == nil {
		s.stats.rejected.Add(1)
		return ProgUnavail
	}
	if call.Version < p.MinVersion || call.Version > p.MaxVersion {
		s.stats.rejected.Add(1)
		reply.Uint32(p.MinVersion)
		reply.Uint32(p.MaxVersion)
		return ProgMismatch
	}
	stat := s.handle(p.Handler, call, reply)
	if stat != Success {
		reply.Truncate(0)
		if stat == ProgMismatch {
			reply.Uint32(p.MinVersion)
			reply.Uint32(p.MaxVersion)
		}
	}
	return stat
}

// handle calls the handler, and survives it.
func (s *Server) handle(h Handler, call *Call, reply *xdr.Encoder) (stat AcceptStat) {
	defer func() {
		if e := recover(); e != nil {
			s.stats.panics.Add(1)
			s.cfg.Logger.Error("a handler panicked; the call is answered SYSTEM_ERR",
				"peer", call.Conn.RemoteAddr(), "program", call.Program, "procedure", call.Procedure,
				"panic", fmt.Sprint(e), "stack", string(debug.Stack()))
			stat = SystemErr
		}
	}()
	return h.ServeRPC(call, reply)
}
