package nfs4

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a Program over memfs behind a server on the loopback.
type rig struct {
	t     testing.TB
	p     *Program
	fs    *memfs.FS
	clock atomic.Int64
	ln    net.Listener

	callbacks []oncrpc.Program // what the clients that dial serve
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, fs: memfs.New(memfs.Options{})}
	r.clock.Store(int64(time.Hour))
	cfg := Config{
		FS: r.fs, ServerOwner: "owner", Scope: "scope", Lease: 10 * time.Second, Courtesy: time.Minute,
		Now: func() cluster.Time { return cluster.Time(r.clock.Load()) },
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.p, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := r.p.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	srv := oncrpc.NewServer(oncrpc.Config{
		Programs:  []oncrpc.Program{{Number: proto.Program, MinVersion: 4, MaxVersion: 4, Handler: r.p}},
		MaxRecord: 2 << 20,
	})
	if r.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(r.ln) }()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return r
}

func (r *rig) advance(d time.Duration) { r.clock.Add(int64(d)) }

// A wire is a connection of a client.
type wire struct {
	t     testing.TB
	c     *oncrpc.Conn
	cred  oncrpc.Cred
	minor uint32
}

func (r *rig) dial() *wire {
	r.t.Helper()
	return r.dialFrom("127.0.0.1")
}

// dialFrom connects from an address of the loopback.
func (r *rig) dialFrom(ip string) *wire {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	nc, err := d.Dial("tcp", r.ln.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	peer := oncrpc.NewServer(oncrpc.Config{MaxRecord: 2 << 20, Programs: r.callbacks})
	c, err := peer.Attach(nc)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(peer.Close)
	return &wire{t: r.t, c: c, cred: user(0), minor: 2}
}

func user(uid uint32) oncrpc.Cred {
	return oncrpc.Cred{Flavor: oncrpc.AuthSysF, Sys: &oncrpc.AuthSys{Machine: []byte("test"), UID: uid, GID: uid}}
}

// An op appends one operation with its arguments.
type op func(e *xdr.Encoder)

// A reply is the results of a COMPOUND.
type reply struct {
	t      testing.TB
	status proto.Status
	n      uint32
	d      *xdr.Decoder
	raw    []byte
}

func (w *wire) send(ops ...op) *oncrpc.Pending {
	w.t.Helper()
	p, err := w.c.Start(&oncrpc.Request{
		Program: proto.Program, Version: 4, Procedure: proto.ProcCompound, Cred: w.cred,
		Encode: func(e *xdr.Encoder) {
			e.String("tag")
			e.Uint32(w.minor)
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

func (w *wire) wait(p *oncrpc.Pending) *reply {
	w.t.Helper()
	r, err := w.waitFor(p)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// waitFor is wait where a call may be refused.
func (w *wire) waitFor(p *oncrpc.Pending) (*reply, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	raw := append([]byte(nil), r.Results.FixedOpaque(r.Results.Remaining())...)
	r.Release()
	d := xdr.NewDecoder(raw)
	out := &reply{t: w.t, status: proto.Status(d.Uint32()), d: d, raw: raw}
	if tag := d.String(10); tag != "tag" {
		w.t.Fatalf("tag is %q", tag)
	}
	out.n = d.Uint32()
	return out, nil
}

func (w *wire) compound(ops ...op) *reply {
	w.t.Helper()
	return w.wait(w.send(ops...))
}

// next takes the head of the next result.
func (r *reply) next(want proto.Op) proto.Status {
	r.t.Helper()
	if got := proto.Op(r.d.Uint32()); got != want {
		r.t.Fatalf("result is of %v, not %v", got, want)
	}
	return proto.Status(r.d.Uint32())
}

func (r *reply) ok(want proto.Op) *xdr.Decoder {
	r.t.Helper()
	if st := r.next(want); st != proto.OK {
		r.t.Fatalf("%v: %v", want, st)
	}
	return r.d
}

func (r *reply) is(want proto.Status) {
	r.t.Helper()
	if r.status != want {
		r.t.Fatalf("COMPOUND is %v, want %v", r.status, want)
	}
}

// A sess is a client with a session.
type sess struct {
	*wire
	r        *rig
	clientID uint64
	id       state.SessionID
	seq      [64]uint32
	slot     uint32
	cache    bool
	down     bool // SEQUENCE may say that there is no path for callbacks
}

func exchangeID(owner string, verifier uint64, flags uint32) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpExchangeID))
		e.Uint64(verifier)
		e.String(owner)
		e.Uint32(flags)
		e.Uint32(proto.SP4None)
		e.Uint32(0)
	}
}

type fore struct{ size, cached, ops, slots uint32 }

var linuxFore = fore{size: 1<<20 + 1024, cached: 4096, ops: 8, slots: 64}

func createSession(id uint64, seq uint32, f fore) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreateSession))
		e.Uint64(id)
		e.Uint32(seq)
		e.Uint32(proto.CreateSessionFlagPersist | proto.CreateSessionFlagConnBackChan)
		for _, a := range []fore{f, {size: 4096, cached: 0, ops: 2, slots: 16}} {
			e.Uint32(0)
			e.Uint32(a.size)
			e.Uint32(a.size)
			e.Uint32(a.cached)
			e.Uint32(a.ops)
			e.Uint32(a.slots)
			e.Uint32(0)
		}
		e.Uint32(proto.CBProgram)
		e.Uint32(1)
		e.Uint32(uint32(oncrpc.AuthSysF))
		e.Uint32(0)
		e.String("test")
		e.Uint32(0)
		e.Uint32(0)
		e.Uint32(0)
	}
}

type exchanged struct {
	id         uint64
	seq, flags uint32
}

func (w *wire) exchange(owner string, verifier uint64, flags uint32) (x exchanged, st proto.Status) {
	w.t.Helper()
	r := w.compound(exchangeID(owner, verifier, flags))
	if st := r.next(proto.OpExchangeID); st != proto.OK {
		return x, st
	}
	x = exchanged{r.d.Uint64(), r.d.Uint32(), r.d.Uint32()}
	return x, proto.OK
}

// newSession is what a client does first: EXCHANGE_ID, CREATE_SESSION, RECLAIM_COMPLETE.
func (r *rig) newSession(owner string) *sess {
	r.t.Helper()
	s := r.mount(r.dial(), owner, 1)
	s.do(reclaimComplete()).is(proto.OK)
	return s
}

func (r *rig) mount(w *wire, owner string, verifier uint64) *sess {
	r.t.Helper()
	x, st := w.exchange(owner, verifier, 0)
	if st != proto.OK {
		r.t.Fatal(st)
	}
	s := &sess{wire: w, r: r, clientID: x.id}
	s.create(x.seq)
	return s
}

func (s *sess) create(seq uint32) {
	s.t.Helper()
	d := s.compound(createSession(s.clientID, seq, linuxFore)).ok(proto.OpCreateSession)
	copy(s.id[:], d.FixedOpaque(16))
	s.seq = [64]uint32{}
}

func (s *sess) sequence(slot, seq uint32) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpSequence))
		e.FixedOpaque(s.id[:])
		e.Uint32(seq)
		e.Uint32(slot)
		e.Uint32(63)
		e.Bool(s.cache)
	}
}

func (s *sess) start(ops ...op) *oncrpc.Pending {
	s.t.Helper()
	s.seq[s.slot]++
	return s.send(append([]op{s.sequence(s.slot, s.seq[s.slot])}, ops...)...)
}

// do sends a request on the session and checks the result of SEQUENCE.
func (s *sess) do(ops ...op) *reply {
	s.t.Helper()
	r := s.wait(s.start(ops...))
	d := r.ok(proto.OpSequence)
	var id state.SessionID
	copy(id[:], d.FixedOpaque(16))
	if seq, slot := d.Uint32(), d.Uint32(); id != s.id || seq != s.seq[s.slot] || slot != s.slot {
		s.t.Fatalf("SEQUENCE answered %x %d %d", id, seq, slot)
	}
	if high, target := d.Uint32(), d.Uint32(); high != 63 || target != 63 {
		s.t.Fatalf("highest slots are %d and %d: that throttles the client", high, target)
	}
	flags := d.Uint32()
	if s.down {
		flags &^= proto.Seq4StatusCBPathDown | proto.Seq4StatusCBPathDownSession
	}
	if flags != 0 {
		s.t.Fatalf("status flags %#x", flags)
	}
	return r
}

func simple(o proto.Op) op { return func(e *xdr.Encoder) { e.Uint32(uint32(o)) } }

func reclaimComplete() op {
	return func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpReclaimComplete)); e.Bool(false) }
}

func named(o proto.Op, names ...string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(o))
		for _, n := range names {
			e.String(n)
		}
	}
}

func putfh(h []byte) op {
	return func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpPutfh)); e.Opaque(h) }
}

func getattr(attrs ...int) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpGetattr))
		encodeBitmap(e, attrSet(attrs...))
	}
}

// root returns the handle of the volume "main".
func (s *sess) root() []byte {
	s.t.Helper()
	r := s.do(simple(proto.OpPutrootfh), named(proto.OpLookup, "main"), simple(proto.OpGetfh))
	r.ok(proto.OpPutrootfh)
	r.ok(proto.OpLookup)
	return append([]byte(nil), r.ok(proto.OpGetfh).Opaque(128)...)
}

type opened struct {
	sid  state.Stateid
	fh   []byte
	attr bitmap
	dir  vfs.ChangeInfo
}

type openHow struct {
	owner        string
	access, deny uint32
	create       bool
	mode         uint32
	verifier     uint64
	truncate     bool // instead of setting the mode
	claim        uint32
	name         string
	delegation   state.Stateid // of CLAIM_DELEGATE_CUR
}

func openOp(clientID uint64, h openHow) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpOpen))
		e.Uint32(0)
		e.Uint32(h.access)
		e.Uint32(h.deny)
		e.Uint64(clientID)
		e.String(h.owner)
		if h.create {
			e.Uint32(proto.OpenCreate)
			e.Uint32(h.mode)
			if h.mode >= proto.Exclusive {
				e.Uint64(h.verifier)
			}
			switch {
			case h.truncate:
				encodeBitmap(e, attrSet(proto.AttrSize))
				e.Uint32(8)
				e.Uint64(0)
			case h.mode != proto.Exclusive:
				encodeBitmap(e, attrSet(proto.AttrMode))
				e.Uint32(4)
				e.Uint32(0o644)
			}
		} else {
			e.Uint32(proto.OpenNoCreate)
		}
		e.Uint32(h.claim)
		switch h.claim {
		case proto.ClaimNull:
			e.String(h.name)
		case proto.ClaimPrevious:
			e.Uint32(0)
		case proto.ClaimDelegateCur:
			h.delegation.Encode(e)
			e.String(h.name)
		case proto.ClaimDelegCurFH:
			h.delegation.Encode(e)
		}
	}
}

// tryOpen opens in (or, by handle, of) fh.
func (s *sess) tryOpen(fh []byte, h openHow) (o opened, st proto.Status) {
	s.t.Helper()
	if h.owner == "" {
		h.owner = "owner"
	}
	if h.access == 0 {
		h.access = proto.ShareAccessBoth
	}
	r := s.do(putfh(fh), openOp(s.clientID, h), simple(proto.OpGetfh))
	r.ok(proto.OpPutfh)
	if st = r.next(proto.OpOpen); st != proto.OK {
		return o, st
	}
	o.sid = state.DecodeStateid(r.d)
	if !r.d.Bool() {
		s.t.Fatal("the change of the directory is not atomic")
	}
	o.dir = vfs.ChangeInfo{Before: r.d.Uint64(), After: r.d.Uint64()}
	if flags := r.d.Uint32(); flags&^proto.OpenResultMayNotifyLock != proto.OpenResultLocktypePosix|proto.OpenResultPreserveUnlinked {
		s.t.Fatalf("rflags %#x", flags)
	}
	o.attr, _ = decodeBitmap(r.d)
	if r.d.Uint32() != proto.OpenDelegateNone {
		s.t.Fatal("a delegation")
	}
	o.fh = append([]byte(nil), r.ok(proto.OpGetfh).Opaque(128)...)
	return o, proto.OK
}

func (s *sess) mustOpen(fh []byte, h openHow) opened {
	s.t.Helper()
	o, st := s.tryOpen(fh, h)
	if st != proto.OK {
		s.t.Fatal(st)
	}
	return o
}

func stateidOp(o proto.Op, before func(*xdr.Encoder), sid state.Stateid, after func(*xdr.Encoder)) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(o))
		if before != nil {
			before(e)
		}
		sid.Encode(e)
		if after != nil {
			after(e)
		}
	}
}

func closeOp(sid state.Stateid) op {
	return stateidOp(proto.OpClose, func(e *xdr.Encoder) { e.Uint32(0) }, sid, nil)
}

func readOp(sid state.Stateid, off uint64, n uint32) op {
	return stateidOp(proto.OpRead, nil, sid, func(e *xdr.Encoder) { e.Uint64(off); e.Uint32(n) })
}

func writeOp(sid state.Stateid, off uint64, how uint32, p []byte) op {
	return stateidOp(proto.OpWrite, nil, sid, func(e *xdr.Encoder) {
		e.Uint64(off)
		e.Uint32(how)
		e.Opaque(p)
	})
}

// one does a single operation on fh and returns its status, the decoder at its body.
func (s *sess) one(fh []byte, o proto.Op, ops ...op) (proto.Status, *xdr.Decoder) {
	s.t.Helper()
	r := s.do(append([]op{putfh(fh)}, ops...)...)
	r.ok(proto.OpPutfh)
	st := r.next(o)
	return st, r.d
}
