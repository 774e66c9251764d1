package nfs4

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// A slowFS lets each Create wait for the gate, and counts them.
type slowFS struct {
	*memfs.FS
	gate    chan struct{}
	started chan struct{}
	creates atomic.Int32
}

func (s *slowFS) Create(r *vfs.Request, dir vfs.File, name string, a vfs.CreateArgs) (vfs.Created, error) {
	s.creates.Add(1)
	s.started <- struct{}{}
	<-s.gate
	return s.FS.Create(r, dir, name, a)
}

// call40 starts a COMPOUND of NFSv4.0 under a number.
func (w *wire) call40(xid uint32, ops ...op) *oncrpc.Pending {
	w.t.Helper()
	p, err := w.c.Start(&oncrpc.Request{
		Program: proto.Program, Version: 4, Procedure: proto.ProcCompound, Cred: w.cred, XID: xid,
		Encode: func(e *xdr.Encoder) {
			e.String("tag")
			e.Uint32(0)
			e.Uint32(uint32(len(ops)))
			for _, o := range ops {
				o(e)
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *wire) do40(ops ...op) *reply {
	w.t.Helper()
	return w.wait(w.call40(0, ops...))
}

func mkdirOp(name string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeDir)
		e.String(name)
		e.Uint32(0)
		e.Uint32(0)
	}
}

// dialPort connects from a port, 0 for any, and returns which.
func (r *rig) dialPort(port int) (*wire, int) {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
	var nc net.Conn
	var err error
	for range 100 {
		if nc, err = d.Dial("tcp", r.ln.Addr().String()); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	_ = nc.(*net.TCPConn).SetLinger(0) // so that the port can be used again
	peer := oncrpc.NewServer(oncrpc.Config{MaxRecord: 2 << 20})
	c, err := peer.Attach(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(peer.Close)
	return &wire{t: r.t, c: c, cred: user(0)}, nc.LocalAddr().(*net.TCPAddr).Port
}

// TestRetransmissionWaits sends a CREATE again from the same port while the first is
// being executed: it is executed once, and both are answered by that.
func TestRetransmissionWaits(t *testing.T) {
	fs := &slowFS{FS: memfs.New(memfs.Options{}), gate: make(chan struct{}), started: make(chan struct{}, 9)}
	r := newRig(t, func(c *Config) { c.FS = fs })
	w, port := r.dialPort(0)
	ops := []op{simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), mkdirOp("x")}
	w.call40(99, ops...)
	<-fs.started
	w.c.Close()
	again, _ := r.dialPort(port)
	p := again.call40(99, ops...)
	time.Sleep(20 * time.Millisecond)
	close(fs.gate)
	again.wait(p).is(proto.OK)
	again.wait(again.call40(99, ops...)).is(proto.OK) // and now from the cache
	if n := fs.creates.Load(); n != 1 {
		t.Fatalf("CREATE was executed %d times", n)
	}
	again.wait(again.call40(100, ops...)).is(proto.ErrExist)
}

// TestRetransmissionAfterTakeover sends a CREATE again to another front-end: the file
// system knows what it had for a result.
func TestRetransmissionAfterTakeover(t *testing.T) {
	fs := memfs.New(memfs.Options{})
	reg := newRegistry()
	serve := func() *rig {
		s := reg.serve()
		return newRig(t, func(c *Config) { c.FS, c.Clients, c.Identity, c.Epoch, c.StateKey = fs, s, 1, s.epoch, [32]byte{1} })
	}
	w, port := serve().dialPort(0)
	ops := func(name string) []op {
		return []op{simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), mkdirOp(name)}
	}
	w.wait(w.call40(99, ops("x")...)).is(proto.OK)
	w.c.Close()
	next := serve()
	again, _ := next.dialPort(port)
	again.wait(again.call40(99, ops("x")...)).is(proto.OK)
	other, _ := next.dialPort(0)
	other.wait(other.call40(99, ops("x")...)).is(proto.ErrExist) // another port is another client
	again.wait(again.call40(99, ops("y")...)).is(proto.OK)       // and another request another request
	next.advance(time.Hour)
	again.wait(again.call40(98, ops("x")...)).is(proto.ErrExist)
}

// TestReplayCacheIsBounded fills a cache: the oldest replies go, and those under way stay.
func TestReplayCacheIsBounded(t *testing.T) {
	var c replayCache
	key := func(i int) replayKey { return replayKey{netip.AddrPort{}, uint32(i) * replayShards, 0} } // all of one shard
	_, _, busy := c.begin(key(0), 0)
	for i := 1; i <= 3*maxReplays; i++ {
		_, _, x := c.begin(key(i), 0)
		c.end(x, 0, []byte("reply"), nil)
	}
	if n := len(c.shard(key(0)).m); n != maxReplays+1 {
		t.Fatalf("%d replies are kept", n)
	}
	if _, wait, _ := c.begin(key(0), 0); wait == nil {
		t.Fatal("a request under way is forgotten")
	}
	c.end(busy, 0, nil, nil)
	if b, _, _ := c.begin(key(3*maxReplays), 0); string(b) != "reply" {
		t.Fatalf("the last reply is %q", b)
	}
	if _, _, x := c.begin(key(3*maxReplays), replayAge+1); x == nil {
		t.Fatal("a reply is kept for ever")
	}
	big := make([]byte, maxReplay)
	for i := 1; i <= 2*maxReplayBytes/maxReplay; i++ {
		_, _, x := c.begin(key(-i), 0)
		c.end(x, 0, big, nil)
	}
	if n := c.shard(key(0)).bytes; n > maxReplayBytes {
		t.Fatalf("%d bytes are kept", n)
	}
}

func setclientidOp(id string, verifier uint64, addr string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpSetclientid))
		e.Uint64(verifier)
		e.String(id)
		e.Uint32(0x40000123)
		e.String("tcp")
		e.String(addr)
		e.Uint32(77)
	}
}

// client40 makes a client, which is called back at addr.
func (w *wire) client40(id string, verifier uint64, addr string) uint64 {
	w.t.Helper()
	d := w.do40(setclientidOp(id, verifier, addr)).ok(proto.OpSetclientid)
	n, confirm := d.Uint64(), d.Uint64()
	w.do40(func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpSetclientidConfirm))
		e.Uint64(n)
		e.Uint64(confirm)
	}).is(proto.OK)
	return n
}

// TestCallbackPath40 checks that a client is probed with CB_NULL on a connection to
// where it says, and can be called then; and that nobody else is connected to.
func TestCallbackPath40(t *testing.T) {
	r := newRig(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	calls := make(chan uint32, 10)
	ident := make(chan uint32, 1)
	srv := oncrpc.NewServer(oncrpc.Config{Programs: []oncrpc.Program{{
		Number: 0x40000123, MinVersion: 1, MaxVersion: 1,
		Handler: oncrpc.HandlerFunc(func(call *oncrpc.Call, reply *xdr.Encoder) oncrpc.AcceptStat {
			calls <- call.Procedure
			if call.Procedure == proto.ProcCompound {
				call.Args.String(100)
				call.Args.Uint32()
				ident <- call.Args.Uint32()
				reply.Uint32(0)
				reply.String("")
				reply.Uint32(1)
				reply.Uint32(uint32(proto.CBRecall))
				reply.Uint32(0)
			}
			return oncrpc.Success
		}),
	}}})
	done := make(chan struct{})
	go func() { _ = srv.Serve(ln); close(done) }()
	t.Cleanup(func() { srv.Close(); <-done })
	port := ln.Addr().(*net.TCPAddr).Port
	w := r.dial()
	up := func(id uint64) caller { return r.p.caller(r.p.state.Client(id)) }
	id := w.client40("a", 1, fmt.Sprintf("127.0.0.1.%d.%d", port>>8, port&255))
	if up(id) != nil {
		t.Fatal("the path is up before it was tried")
	}
	r.p.Tick(context.Background(), cluster.Time(r.clock.Load()))
	if got := <-calls; got != proto.ProcNull {
		t.Fatalf("the first call is procedure %d", got)
	}
	var to caller
	for range 200 {
		if to = up(id); to != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if to == nil {
		t.Fatal("the path is not up after CB_NULL was answered")
	}
	st, err := to.Call(context.Background(), callbackOp{Op: proto.CBRecall})
	if err != nil || st != proto.OK {
		t.Fatal(st, err)
	}
	if <-calls; <-ident != 77 {
		t.Fatal("the callback does not have the client's callback_ident")
	}

	// The same place, from another machine: it is not connected to.
	other := r.dialFrom("127.0.0.2")
	id = other.client40("b", 1, fmt.Sprintf("127.0.0.1.%d.%d", port>>8, port&255))
	r.p.Tick(context.Background(), cluster.Time(r.clock.Load()))
	time.Sleep(50 * time.Millisecond)
	if len(calls) != 0 || up(id) != nil {
		t.Fatal("a client had another machine connected to")
	}
}

// TestCallbackAddr reads universal addresses.
func TestCallbackAddr(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.5.8.1":    "192.0.2.5:2049",
		"2001:db8::1.3.2":  "[2001:db8::1]:770",
		"0.0.0.0.0.0":      "",
		"192.0.2.5.8":      "",
		"192.0.2.5.256.1":  "",
		"192.0.2.5.0.0":    "",
		"host.example.8.1": "",
		"":                 "",
	} {
		got, err := callbackAddr(state.Callback{Netid: "tcp", Addr: addr})
		if want == "" != (err != nil) || err == nil && got.String() != want {
			t.Errorf("%q is %v, %v; want %q", addr, got, err, want)
		}
	}
	if _, err := callbackAddr(state.Callback{Netid: "udp", Addr: "192.0.2.5.8.1"}); err == nil {
		t.Error("UDP is taken for TCP")
	}
}

func open40(client uint64, owner string, seq uint32, name string, access, deny uint32) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpOpen))
		e.Uint32(seq)
		e.Uint32(access)
		e.Uint32(deny)
		e.Uint64(client)
		e.String(owner)
		e.Uint32(proto.OpenCreate)
		e.Uint32(proto.Unchecked)
		e.Uint32(0)
		e.Uint32(0)
		e.Uint32(proto.ClaimNull)
		e.String(name)
	}
}

// opened40 opens and confirms.
func (w *wire) opened40(client uint64, owner, name string, access, deny uint32) (fh []byte, sid state.Stateid) {
	w.t.Helper()
	r := w.do40(simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), open40(client, owner, 1, name, access, deny), simple(proto.OpGetfh))
	r.ok(proto.OpPutrootfh)
	r.ok(proto.OpLookup)
	d := r.ok(proto.OpOpen)
	sid = state.DecodeStateid(d)
	d.Skip(4 + 8 + 8)
	if flags := d.Uint32(); flags != proto.OpenResultConfirm|proto.OpenResultLocktypePosix {
		w.t.Fatalf("rflags are %#x", flags)
	}
	for range d.Uint32() {
		d.Uint32()
	}
	d.Uint32()
	fh = append([]byte(nil), r.ok(proto.OpGetfh).Opaque(proto.FHSize)...)
	r = w.do40(putfh(fh), stateidOp(proto.OpOpenConfirm, nil, sid, func(e *xdr.Encoder) { e.Uint32(2) }))
	r.ok(proto.OpPutfh)
	return fh, state.DecodeStateid(r.ok(proto.OpOpenConfirm))
}

// TestLease40 checks that a lease is renewed by what RFC 7530 §9.5 says, that a
// silent client keeps what nobody wants, and what it is told when it has lost it.
func TestLease40(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.dial(), r.dialFrom("127.0.0.2")
	ida, idb := a.client40("a", 1, "0.0.0.0.0.0"), b.client40("b", 1, "0.0.0.0.0.0")
	fh, sid := a.opened40(ida, "o", "f", proto.ShareAccessBoth, proto.ShareDenyBoth)
	renew := func(id uint64) op {
		return func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpRenew)); e.Uint64(id) }
	}
	wants := func(seq uint32) *reply {
		return b.do40(simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), open40(idb, "o", seq, "f", proto.ShareAccessRead, 0))
	}
	for i, use := range []op{renew(ida), readOp(sid, 0, 1), writeOp(sid, 0, proto.FileSync, []byte("x"))} {
		r.advance(8 * time.Second)
		b.do40(renew(idb)).is(proto.OK)
		a.do40(putfh(fh), use).is(proto.OK)
		r.advance(8 * time.Second)
		wants(uint32(i + 1)).is(proto.ErrShareDenied)
	}
	r.advance(30 * time.Second) // silent, and nobody wants it
	a.do40(renew(ida)).is(proto.OK)
	a.do40(putfh(fh), readOp(sid, 0, 1)).is(proto.OK)
	r.advance(30 * time.Second)
	wants(4).is(proto.OK)
	a.do40(renew(ida)).is(proto.ErrExpired)
	a.do40(putfh(fh), readOp(sid, 0, 1)).is(proto.ErrExpired)
	a.do40(putfh(fh), stateidOp(proto.OpClose, func(e *xdr.Encoder) { e.Uint32(3) }, sid, nil)).is(proto.ErrExpired)
}

// TestUnconfirmedOpenGoes checks that an OPEN that is not confirmed within a lease is
// closed, although its client lives (RFC 7530 §16.18.5).
func TestUnconfirmedOpenGoes(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	id := w.client40("a", 1, "0.0.0.0.0.0")
	open := func(owner string, deny uint32) *reply {
		return w.do40(simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), open40(id, owner, 1, "f", proto.ShareAccessBoth, deny))
	}
	open("stray", proto.ShareDenyBoth).is(proto.OK)
	open("other", 0).is(proto.ErrShareDenied)
	r.advance(11 * time.Second)
	w.do40(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpRenew)); e.Uint64(id) }).is(proto.OK)
	r.p.Tick(context.Background(), cluster.Time(r.clock.Load()))
	open("third", 0).is(proto.OK)
}
