package nfs4

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

func lookupMain() []op { return []op{simple(proto.OpPutrootfh), named(proto.OpLookup, "main")} }

func close40(seq uint32, sid state.Stateid) op {
	return stateidOp(proto.OpClose, func(e *xdr.Encoder) { e.Uint32(seq) }, sid, nil)
}

// more40 opens one more file by a confirmed owner.
func (w *wire) more40(client uint64, owner string, seq uint32, name string) (fh []byte, sid state.Stateid) {
	w.t.Helper()
	r := w.do40(append(lookupMain(), open40(client, owner, seq, name, proto.ShareAccessBoth, 0), simple(proto.OpGetfh))...)
	r.is(proto.OK)
	r.ok(proto.OpPutrootfh)
	r.ok(proto.OpLookup)
	d := r.ok(proto.OpOpen)
	sid = state.DecodeStateid(d)
	d.Skip(4 + 8 + 8 + 4)
	for range d.Uint32() {
		d.Uint32()
	}
	d.Uint32()
	return append([]byte(nil), r.ok(proto.OpGetfh).Opaque(proto.FHSize)...), sid
}

// TestNumberOfUnansweredRequest kills a front-end after an OPEN has taken effect and
// before it is answered, or before it has any. The client repeats it at the next one
// under its number, and counts on from there (RFC 7530 §9.1.7).
func TestNumberOfUnansweredRequest(t *testing.T) {
	for name, when := range map[string]func(*fencedFS) *atomic.Int32{
		"no effect": func(f *fencedFS) *atomic.Int32 { return &f.before },
		"executed":  func(f *fencedFS) *atomic.Int32 { return &f.after },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, port := w.r.dialPort(0)
			id := a.client40("a", 1, "0.0.0.0.0.0")
			fh, sid := a.opened40(id, "o", "f", proto.ShareAccessBoth, 0)
			when(w.fnc).Store(w.fnc.calls.Load() + 1)
			ops := append(lookupMain(), open40(id, "o", 3, "g", proto.ShareAccessBoth, 0))
			if r, err := a.waitFor(a.call40(99, ops...)); err == nil {
				t.Fatalf("a request was answered %v by who does not serve the identity", r.status)
			}
			w.takeover()
			b, _ := w.r.dialPort(port)
			b.wait(b.call40(99, ops...)).is(proto.OK)
			b.wait(b.call40(99, ops...)).is(proto.OK) // and again, from the reply cache
			b.do40(putfh(fh), close40(5, sid)).is(proto.ErrBadSeqid)
			b.do40(putfh(fh), close40(4, sid)).is(proto.OK)
		})
	}
}

// TestEachOfManyAgain40 takes over from a front-end that has executed many requests, side
// by side, and answered none. What it had for results is known of each, however the
// client's machine counts.
func TestEachOfManyAgain40(t *testing.T) {
	for name, xid := range map[string]func(i uint32) uint32{
		"big-endian":    func(i uint32) uint32 { return 0x63f6e9c5 + i },
		"little-endian": func(i uint32) uint32 { return bits.ReverseBytes32(0xc5e9f663 + i) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, port := w.r.dialPort(0)
			const many = 200
			do := func(w *wire, i uint32) {
				w.wait(w.call40(xid(i), append(lookupMain(), mkdirOp(fmt.Sprint("d", i)))...)).is(proto.OK)
			}
			for i := range uint32(many) {
				do(a, i)
			}
			a.c.Close()
			w.takeover()
			b, _ := w.r.dialPort(port)
			for i := range uint32(many) {
				do(b, i)
			}
		})
	}
}

// A forgetfulFS fails to say what is recorded of files, while it is told to.
type forgetfulFS struct {
	vfs.FS
	fails atomic.Bool
}

func (f *forgetfulFS) States(r *vfs.Request, x vfs.File) ([]vfs.State, error) {
	if f.fails.Load() {
		return nil, cluster.EAGAIN
	}
	return f.FS.States(r, x)
}

// TestDelayOfUnknownStateidUsesANumber has a front-end that has just taken over fail
// to find out what a stateid stands for. The client counts its request (RFC 7530 §9.1.7),
// and so must the front-end, where it knows the owner.
func TestDelayOfUnknownStateidUsesANumber(t *testing.T) {
	w := newWorld(t)
	a := w.r.dial()
	id := a.client40("a", 1, "0.0.0.0.0.0")
	f, onF := a.opened40(id, "o", "f", proto.ShareAccessBoth, 0)
	g, onG := a.more40(id, "o", 3, "g")
	d := a.do40(putfh(g), lock40(id, onG, 4, "l", 0, 0))
	d.ok(proto.OpPutfh)
	locked := state.DecodeStateid(d.ok(proto.OpLock))
	flaky := &forgetfulFS{FS: w.fs}
	w.fs = flaky
	w.takeover()
	a = w.r.dial()
	d = a.do40(putfh(f), lock40(id, onF, 5, "l", 7, 0)) // both owners are known from here on
	d.is(proto.OK)
	unlock := func(seq uint32) op {
		return func(e *xdr.Encoder) {
			e.Uint32(uint32(proto.OpLocku))
			e.Uint32(proto.WriteLt)
			e.Uint32(seq)
			locked.Encode(e)
			e.Uint64(0)
			e.Uint64(10)
		}
	}
	flaky.fails.Store(true)
	a.do40(putfh(g), unlock(8)).is(proto.ErrDelay)
	a.do40(putfh(g), lock40(id, onG, 6, "m", 0, 50)).is(proto.ErrDelay)
	a.do40(putfh(g), close40(7, onG)).is(proto.ErrDelay)
	flaky.fails.Store(false)
	a.do40(putfh(g), unlock(9)).is(proto.OK)
	a.do40(putfh(g), close40(8, onG)).is(proto.OK)
	a.do40(putfh(f), close40(9, onF)).is(proto.OK)
}

// TestCloseOfUnlinkedFileAgain40 repeats a CLOSE that has ended a file without names,
// and was not answered, at the next front-end: it has succeeded.
func TestCloseOfUnlinkedFileAgain40(t *testing.T) {
	w := newWorld(t)
	a, port := w.r.dialPort(0)
	id := a.client40("a", 1, "0.0.0.0.0.0")
	fh, sid := a.opened40(id, "o", "f", proto.ShareAccessBoth, 0)
	a.do40(append(lookupMain(), named(proto.OpRemove, "f"))...).is(proto.OK)
	w.fnc.after.Store(w.fnc.calls.Load() + 1)
	if r, err := a.waitFor(a.call40(99, putfh(fh), close40(3, sid))); err == nil {
		r.is(proto.OK) // dropping the record is the last that it does
	}
	w.takeover()
	b, _ := w.r.dialPort(port)
	b.wait(b.call40(99, putfh(fh), close40(3, sid))).is(proto.OK)
	b.more40(id, "o", 4, "g")
}

// TestCutShortIsNotAnswered ends the server under requests: what they are answered then
// says nothing of what has become of them, and is not sent.
func TestCutShortIsNotAnswered(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	call := func() oncrpc.AcceptStat {
		e := xdr.NewEncoder(nil)
		e.String("tag")
		e.Uint32(0)
		e.Uint32(1)
		simple(proto.OpPutrootfh)(e)
		c := &oncrpc.Call{Procedure: proto.ProcCompound, Cred: user(0), Args: xdr.NewDecoder(e.Bytes())}
		return r.p.ServeRPC(c.WithContext(ctx), xdr.NewEncoder(nil))
	}
	if got := call(); got != oncrpc.Success {
		t.Fatal(got)
	}
	cancel()
	if got := call(); got == oncrpc.Success {
		t.Error("a request that may have been cut short is answered")
	}
}
