package nfs4

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

const (
	probeTimeout = 3 * time.Second
	maxProbing   = 8   // at the same time
	maxProbes    = 256 // that wait; the client makes do without callbacks beyond
	callbackSize = 64 << 10
)

// probes finds out which NFSv4.0 clients can be called back: CB_NULL over a new
// connection (RFC 7530 §15.1 of the callback program; §10.2.1), after each SETCLIENTID_CONFIRM.
type probes struct {
	p *Program

	mu      sync.Mutex
	waiting []uint64 // client ids
	running int
	up      map[uint64]bool
}

func (x *probes) init(p *Program) { x.p, x.up = p, make(map[uint64]bool) }

// add has a client probed, whose path counts as down until then.
func (x *probes) add(id uint64, cb state.Callback) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.up, id)
	if _, err := callbackAddr(cb); err != nil || len(x.waiting) >= maxProbes {
		return
	}
	x.waiting = append(x.waiting, id)
	x.p.wake()
}

// run begins what waits, and forgets clients that are gone.
func (x *probes) run(ctx context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.waiting) > 0 && x.running < maxProbing {
		id := x.waiting[0]
		x.waiting = x.waiting[1:]
		x.running++
		go x.probe(ctx, id)
	}
}

func (x *probes) probe(ctx context.Context, id uint64) {
	up := false
	if c := x.p.state.Client(id); c != nil {
		err := callback40(ctx, x.p.state.Callback40(c), c.Peer, nil, nil)
		up = err == nil
		x.p.log.Debug("path for callbacks probed", "client", c.Owner, "err", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running--
	if len(x.waiting) > 0 {
		x.p.wake()
	}
	if up {
		x.up[id] = true
	}
}

// isUp reports whether a client could be called.
func (x *probes) isUp(id uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.up[id]
}

// keep forgets clients that are gone.
func (x *probes) keep(there func(id uint64) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.up {
		if !there(id) {
			delete(x.up, id)
		}
	}
}

// callbackAddr reads a universal address (RFC 5665 §5.2.3.3).
func callbackAddr(cb state.Callback) (netip.AddrPort, error) {
	bad := fmt.Errorf("nfs4: no callback address: %q %q", cb.Netid, cb.Addr)
	if cb.Netid != "tcp" && cb.Netid != "tcp6" {
		return netip.AddrPort{}, bad
	}
	host, low, ok := cutLast(cb.Addr)
	host, high, ok2 := cutLast(host)
	h, err := strconv.ParseUint(high, 10, 8)
	l, err2 := strconv.ParseUint(low, 10, 8)
	a, err3 := netip.ParseAddr(host)
	if !ok || !ok2 || err != nil || err2 != nil || err3 != nil || a.IsUnspecified() || h|l == 0 {
		return netip.AddrPort{}, bad
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(h<<8|l)), nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// callback40 makes a call to a client over a new connection: CB_NULL if encode is nil,
// otherwise CB_COMPOUND. It connects to nobody but the machine that the client speaks
// from: others would be made to look like attacked by this server.
func callback40(ctx context.Context, cb state.Callback, peer string, encode func(*xdr.Encoder), take func(*xdr.Decoder) error) error {
	to, err := callbackAddr(cb)
	if err != nil {
		return err
	}
	if from, err := netip.ParseAddr(peer); err != nil || from.Unmap() != to.Addr() {
		return fmt.Errorf("nfs4: the client at %s wants callbacks to %s, another machine", peer, to)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	srv := oncrpc.NewServer(oncrpc.Config{MaxRecord: callbackSize})
	defer srv.Close()
	conn, err := srv.Attach(nc)
	if err != nil {
		_ = nc.Close()
		return err
	}
	req := &oncrpc.Request{Program: cb.Program, Version: cbVersion40, Cred: oncrpc.Cred{Flavor: oncrpc.AuthNone}}
	if encode != nil {
		req.Procedure = proto.ProcCompound
		req.Cred = oncrpc.Cred{Flavor: oncrpc.AuthSysF, Sys: &oncrpc.AuthSys{}}
		req.Encode = encode
	}
	r, err := conn.Call(ctx, req)
	if err != nil {
		return err
	}
	defer r.Release()
	if take == nil {
		return nil
	}
	return take(&r.Results)
}

// cbVersion40 is the version of the callback program (RFC 7531).
const cbVersion40 = 1

// A caller40 calls an NFSv4.0 client back.
type caller40 struct {
	p *Program
	c *state.Client
}

// caller is as in v40Handler.
func (h *handler40) caller(c *state.Client) caller {
	if !h.probes.isUp(c.ID) {
		return nil
	}
	return &caller40{h.p, c}
}

// Call is as in caller.
func (x *caller40) Call(ctx context.Context, ops ...callbackOp) (st proto.Status, err error) {
	cb := x.p.state.Callback40(x.c)
	err = callback40(ctx, cb, x.c.Peer, func(e *xdr.Encoder) {
		e.String("")
		e.Uint32(0) // minor version
		e.Uint32(cb.Ident)
		e.Uint32(uint32(len(ops)))
		for _, o := range ops {
			e.Uint32(uint32(o.Op))
			if o.Args != nil {
				o.Args(e)
			}
		}
	}, func(d *xdr.Decoder) error {
		st, err = decodeReply40(d, ops)
		return err
	})
	if err != nil && err != errCallback {
		err = fmt.Errorf("%w: %w", errNoPath, err)
	}
	return st, err
}

// decodeReply40 takes the reply to a CB_COMPOUND of NFSv4.0, and returns the status of
// the last operation that was executed.
func decodeReply40(d *xdr.Decoder, ops []callbackOp) (proto.Status, error) {
	whole := proto.Status(d.Uint32())
	d.Opaque(maxTag)
	n := d.Uint32()
	switch {
	case d.Err() != nil || n > uint32(len(ops)):
		return whole, errCallback
	case n == 0 && whole != proto.OK:
		return whole, nil // MINOR_VERS_MISMATCH or the like
	}
	return decodeCallbacks(d, ops, int(n))
}
