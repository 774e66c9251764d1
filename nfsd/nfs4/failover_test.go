package nfs4

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A world is an identity that front-ends take over from each other, over one file
// system and one store.
type world struct {
	t   *testing.T
	reg *memRegistry
	fs  vfs.FS
	r   *rig      // who serves now
	fnc *fencedFS // its way to the file system

	also func(*Config) // what all front-ends are told, too
}

func newWorld(t *testing.T) *world { return newWorldWith(t, nil, nil) }

// newWorldWith is newWorld where all front-ends are told what also says, and the first
// what first says.
func newWorldWith(t *testing.T, also, first func(*Config)) *world {
	w := &world{t: t, reg: newRegistry(), also: also}
	w.r = newRig(t, func(c *Config) {
		if first != nil {
			first(c)
		}
		w.fs = c.FS
		w.join(c)
	})
	return w
}

func (w *world) join(c *Config) {
	if w.also != nil {
		w.also(c)
	}
	w.reg.with(c)
	w.fnc = &fencedFS{FS: w.fs, opens: map[vfs.File]int{}}
	c.FS = w.fnc
}

// takeover has another front-end take over: the old one is fenced, as if its node
// were gone.
func (w *world) takeover(clients ...*sess) {
	w.t.Helper()
	w.fnc.die()
	old := w.r
	w.r = newRig(w.t, w.join)
	w.r.fs = old.fs
	w.r.clock.Store(old.clock.Load())
	w.r.callbacks = old.callbacks
	for _, s := range clients {
		s.c.Close()
		s.wire, s.r, s.down = w.r.dial(), w.r, true
		s.wire.minor = 2
	}
}

// A fencedFS is a front-end's way to the file system, until it is fenced: from
// then on nothing changes through it. before, if it is not 0, is the number of the
// call that changes something and finds it fenced; after, of that which is the last.
type fencedFS struct {
	vfs.FS
	fenced        atomic.Bool
	calls         atomic.Int32
	before, after atomic.Int32

	mu    sync.Mutex
	opens map[vfs.File]int // files that are held
	dead  bool
}

func (f *fencedFS) Open(r *vfs.Request, x vfs.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errGone
	}
	err := f.FS.Open(r, x)
	if err == nil {
		f.opens[x]++
	}
	return err
}

func (f *fencedFS) Close(x vfs.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dead {
		f.opens[x]--
		f.FS.Close(x)
	}
}

// die ends the front-end: what it held, it holds no more.
func (f *fencedFS) die() {
	f.fenced.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	for x, n := range f.opens {
		for range n {
			f.FS.Close(x)
		}
	}
}

var errGone = fmt.Errorf("fenced: %w", cluster.EFENCED)

// change is called around each change.
func (f *fencedFS) change(do func() error) error {
	n := f.calls.Add(1)
	if n == f.before.Load() {
		f.fenced.Store(true)
	}
	if f.fenced.Load() {
		return errGone
	}
	err := do()
	if n == f.after.Load() {
		f.fenced.Store(true)
		return errGone
	}
	return err
}

func (f *fencedFS) Setattr(r *vfs.Request, x vfs.File, set vfs.SetAttr, opened bool) (a vfs.Attr, err error) {
	err = f.change(func() (err error) { a, err = f.FS.Setattr(r, x, set, opened); return err })
	return a, err
}

func (f *fencedFS) Create(r *vfs.Request, dir vfs.File, name string, args vfs.CreateArgs) (c vfs.Created, err error) {
	err = f.change(func() (err error) { c, err = f.FS.Create(r, dir, name, args); return err })
	return c, err
}

func (f *fencedFS) Link(r *vfs.Request, x, dir vfs.File, name string) (a vfs.Attr, i vfs.ChangeInfo, err error) {
	err = f.change(func() (err error) { a, i, err = f.FS.Link(r, x, dir, name); return err })
	return a, i, err
}

func (f *fencedFS) Remove(r *vfs.Request, dir vfs.File, name string) (i vfs.ChangeInfo, err error) {
	err = f.change(func() (err error) { i, err = f.FS.Remove(r, dir, name); return err })
	return i, err
}

func (f *fencedFS) Rename(r *vfs.Request, from vfs.File, a string, to vfs.File, b string) (i, j vfs.ChangeInfo, err error) {
	err = f.change(func() (err error) { i, j, err = f.FS.Rename(r, from, a, to, b); return err })
	return i, j, err
}

func (f *fencedFS) Write(r *vfs.Request, x vfs.File, off uint64, p []byte, how vfs.Stability) (s vfs.Stability, v vfs.Verifier, err error) {
	err = f.change(func() (err error) { s, v, err = f.FS.Write(r, x, off, p, how); return err })
	return s, v, err
}

func (f *fencedFS) Lock(r *vfs.Request, x vfs.File, l vfs.Lock) (c *vfs.Lock, err error) {
	err = f.change(func() (err error) { c, err = f.FS.Lock(r, x, l); return err })
	return c, err
}

func (f *fencedFS) Unlock(r *vfs.Request, x vfs.File, l vfs.Lock) error {
	return f.change(func() error { return f.FS.Unlock(r, x, l) })
}

func (f *fencedFS) PutState(r *vfs.Request, x vfs.File, s vfs.State) error {
	return f.change(func() error { return f.FS.PutState(r, x, s) })
}

func (f *fencedFS) DropState(r *vfs.Request, x vfs.File, o vfs.StateID, wait bool) error {
	return f.change(func() error { return f.FS.DropState(r, x, o, wait) })
}

func (f *fencedFS) ReleaseClient(ctx context.Context, id uint64) error {
	return f.change(func() error { return f.FS.ReleaseClient(ctx, id) })
}

// lost sends a request on the session and does not wait for the reply.
func (s *sess) lost(ops ...op) []op {
	s.t.Helper()
	p := s.start(ops...)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if rep, err := p.Wait(ctx); err == nil {
		rep.Release()
	}
	return ops
}

// again sends the last request once more.
func (s *sess) again(ops ...op) *reply {
	s.t.Helper()
	return s.compound(append([]op{s.sequence(s.slot, s.seq[s.slot])}, ops...)...)
}

// A step is a request of a script: ops are made of what the steps before have left.
type step struct {
	name string
	ops  func(x *script) []op
	take func(x *script, r *reply) // of a reply whose SEQUENCE has been taken
}

// A script is a client's work, with what it knows.
type script struct {
	*sess
	root, fh []byte
	sid, lk  state.Stateid
}

func seqDone(r *reply) *reply {
	r.t.Helper()
	r.ok(proto.OpSequence).FixedOpaque(16 + 5*4)
	return r
}

func takeOpen(x *script, r *reply) {
	r.ok(proto.OpPutfh)
	x.sid = state.DecodeStateid(r.ok(proto.OpOpen))
	r.d.FixedOpaque(4 + 8 + 8 + 4)
	decodeBitmap(r.d)
	r.d.Uint32()
	x.fh = append([]byte(nil), r.ok(proto.OpGetfh).Opaque(128)...)
}

func skipTo(r *reply, o proto.Op) *xdr.Decoder {
	r.ok(proto.OpPutfh)
	return r.ok(o)
}

// work is what a client does: each request changes something, so that it shows if it
// is executed twice, or not at all.
var work = []step{
	{"mkdir", func(x *script) []op { return []op{putfh(x.root), mkdir("d")} }, nil},
	{"create", func(x *script) []op {
		return []op{
			putfh(x.root), openOp(x.clientID, openHow{owner: "o", access: 3, create: true, mode: proto.Guarded, name: "f"}), simple(proto.OpGetfh),
		}
	}, takeOpen},
	{"write", func(x *script) []op {
		return []op{putfh(x.fh), writeOp(x.sid, 0, proto.FileSync, []byte("hello"))}
	}, nil},
	{"lock", func(x *script) []op {
		return []op{putfh(x.fh), x.lockOp(lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: x.sid})}
	}, func(x *script, r *reply) { x.lk = state.DecodeStateid(skipTo(r, proto.OpLock)) }},
	{"lock more", func(x *script) []op {
		return []op{putfh(x.fh), x.lockOp(lockArgs{kind: proto.WriteLt, off: 20, len: 10, sid: x.lk})}
	}, func(x *script, r *reply) { x.lk = state.DecodeStateid(skipTo(r, proto.OpLock)) }},
	{"write under the lock", func(x *script) []op {
		return []op{putfh(x.fh), writeOp(x.lk, 5, proto.FileSync, []byte(" world"))}
	}, nil},
	{"open again", func(x *script) []op {
		return []op{
			putfh(x.root), openOp(x.clientID, openHow{owner: "o", access: 1, name: "f"}), simple(proto.OpGetfh),
		}
	}, takeOpen},
	{"rename", func(x *script) []op {
		return []op{putfh(x.root), simple(proto.OpSavefh), named(proto.OpRename, "f", "g")}
	}, nil},
	{"link", func(x *script) []op {
		return []op{putfh(x.fh), simple(proto.OpSavefh), putfh(x.root), named(proto.OpLink, "h")}
	}, nil},
	{"unlock", func(x *script) []op {
		return []op{putfh(x.fh), stateidOp(proto.OpLocku, func(e *xdr.Encoder) { e.Uint32(proto.WriteLt); e.Uint32(0) }, x.lk,
			func(e *xdr.Encoder) { e.Uint64(0); e.Uint64(10) })}
	}, func(x *script, r *reply) { x.lk = state.DecodeStateid(skipTo(r, proto.OpLocku)) }},
	{"downgrade", func(x *script) []op {
		return []op{putfh(x.fh), stateidOp(proto.OpOpenDowngrade, nil, x.sid, func(e *xdr.Encoder) { e.Uint32(0); e.Uint32(3); e.Uint32(0) })}
	}, func(x *script, r *reply) { x.sid = state.DecodeStateid(skipTo(r, proto.OpOpenDowngrade)) }},
	{"truncate", func(x *script) []op {
		return []op{putfh(x.fh), stateidOp(proto.OpSetattr, nil, x.sid, func(e *xdr.Encoder) {
			encodeBitmap(e, attrSet(proto.AttrSize))
			e.Uint32(8)
			e.Uint64(8)
		})}
	}, nil},
	{"remove", func(x *script) []op { return []op{putfh(x.root), named(proto.OpRemove, "g")} }, nil},
	{"remove the other", func(x *script) []op { return []op{putfh(x.root), named(proto.OpRemove, "h")} }, nil},
	{"read what is unlinked", func(x *script) []op { return []op{putfh(x.fh), readOp(x.sid, 0, 100)} }, func(x *script, r *reply) {
		d := skipTo(r, proto.OpRead)
		if eof, p := d.Bool(), d.String(100); !eof || p != "hello wo" {
			x.t.Fatalf("read %q, %v", p, eof)
		}
	}},
	{"close", func(x *script) []op { return []op{putfh(x.fh), closeOp(x.sid)} }, nil},
	{"remove the directory", func(x *script) []op { return []op{putfh(x.root), named(proto.OpRemove, "d")} }, nil},
}

// A front-end that dies anywhere in a client's work is taken over, and the client,
// which sends its last request again, does not notice: every request had one effect,
// its stateids stay good, its locks stay its own.
//
// The front-end dies before, in the middle of (before or after each change of the file
// system) or after each request, whose reply is lost; once, or at each request.
func TestTakeoverAtEveryPoint(t *testing.T) {
	const whole, first, last = 0, 1, 3 // of what the request changes
	for _, every := range []bool{false, true} {
		for at := range work {
			if every && at > 0 {
				break
			}
			for cut := whole; cut <= last; cut++ {
				for _, done := range []bool{false, true} {
					if cut == whole && !done {
						continue
					}
					name := fmt.Sprintf("%s/%d/%v", work[at].name, cut, done)
					if every {
						name = fmt.Sprintf("every/%d/%v", cut, done)
					}
					t.Run(name, func(t *testing.T) {
						runWork(t, func(i int) bool { return every || i == at }, int32(cut), done)
					})
				}
			}
		}
	}
}

func runWork(t *testing.T, dies func(int) bool, cut int32, done bool) {
	w := newWorld(t)
	x := &script{sess: w.r.newSession("a")}
	rival := w.r.newSession("rival")
	x.root = x.sess.root()
	for i, s := range work {
		ops := s.ops(x)
		var rep *reply
		if dies(i) {
			if cut > 0 {
				at := w.fnc.calls.Load() + cut
				if done {
					w.fnc.after.Store(at)
				} else {
					w.fnc.before.Store(at)
				}
			}
			x.lost(ops...)
			w.takeover(x.sess, rival)
			rep = x.again(ops...)
		} else {
			rep = x.wait(x.start(ops...))
		}
		if rep.status != proto.OK {
			t.Fatalf("%s: %v", s.name, rep.status)
		}
		if s.take != nil {
			s.take(x, seqDone(rep))
		}
		if i > 4 && i < 9 { // what is locked is locked
			st, _ := rival.one(x.fh, proto.OpLockt, rival.lockt(proto.WriteLt, 25, 1, "q"))
			if st != proto.ErrDenied {
				t.Fatalf("after %s: the lock is gone: %v", s.name, st)
			}
		}
	}
	// Nothing is left, and nobody has been forgotten.
	if st, _ := x.one(x.fh, proto.OpGetattr, getattr(proto.AttrType)); st != proto.ErrStale {
		t.Fatalf("the file is kept after its last close: %v", st)
	}
	x.compound(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroySession)); e.FixedOpaque(x.id[:]) }).is(proto.OK)
	x.compound(func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpDestroyClientid)); e.Uint64(x.clientID) }).is(proto.OK)
	if n := w.reg.count(); n != 1 {
		t.Fatalf("%d client records", n)
	}
}

// There is no grace period: nothing is refused because others may reclaim. What a
// taken-over client holds already, it may reclaim until it says that it is done, and
// nothing else (RFC 8881 §8.4.2 and §18.51.3).
func TestReclaim(t *testing.T) {
	w := newWorld(t)
	done := w.r.newSession("done")                                       // has sent RECLAIM_COMPLETE
	s, n := w.r.mount(w.r.dial(), "a", 1), w.r.mount(w.r.dial(), "b", 1) // Trap 3: these have not
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f", owner: "o"})
	lock := lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: o.sid}
	if _, st := s.lock(o.fh, lock); st != proto.OK {
		t.Fatal(st)
	}
	theirs := n.mustOpen(root, openHow{name: "f", owner: "o"})
	his := done.mustOpen(root, openHow{name: "f", owner: "o"})
	claim := openHow{owner: "o", access: proto.ShareAccessBoth, claim: proto.ClaimPrevious}
	refused := func(when string, s *sess, sid state.Stateid) {
		t.Helper()
		if _, st := s.tryOpen(o.fh, claim); st != proto.ErrNoGrace {
			t.Errorf("%s: OPEN: %v", when, st)
		}
		l := lock
		l.reclaim, l.sid = true, state.Stateid{Other: sid.Other}
		if _, st := s.lock(o.fh, l); st != proto.ErrNoGrace {
			t.Errorf("%s: LOCK: %v", when, st)
		}
	}
	refused("without a take-over", s, o.sid)
	w.takeover(s, n, done)
	refused("after RECLAIM_COMPLETE", done, his.sid)
	for _, k := range []struct {
		name string
		s    *sess
		how  openHow
		want proto.Status
	}{
		{"what it has", s, openHow{owner: "o", access: proto.ShareAccessBoth}, proto.OK},
		{"less", s, openHow{owner: "o", access: proto.ShareAccessRead}, proto.OK},
		{"a deny mode", s, openHow{owner: "o", access: proto.ShareAccessRead, deny: proto.ShareDenyWrite}, proto.ErrNoGrace},
		{"another owner", s, openHow{owner: "x"}, proto.ErrNoGrace},
		{"another client", n, openHow{owner: "o"}, proto.OK},
	} {
		k.how.claim = proto.ClaimPrevious
		if _, st := k.s.tryOpen(o.fh, k.how); st != k.want {
			t.Errorf("%s: %v, want %v", k.name, st, k.want)
		}
	}
	for _, k := range []struct {
		name string
		s    *sess
		l    lockArgs
		want proto.Status
	}{
		{"what it has", s, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p"}, proto.OK},
		{"a part", s, lockArgs{kind: proto.WriteLt, off: 3, len: 2, owner: "p"}, proto.OK},
		{"more", s, lockArgs{kind: proto.WriteLt, off: 0, len: 11, owner: "p"}, proto.ErrNoGrace},
		{"all", s, lockArgs{kind: proto.ReadLt, off: 0, len: math.MaxUint64, owner: "p"}, proto.ErrNoGrace},
		{"another owner", s, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q"}, proto.ErrNoGrace},
		{"another client", n, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p"}, proto.ErrNoGrace},
	} {
		k.l.reclaim, k.l.sid = true, o.sid
		k.l.sid.Seq = 0
		if k.s == n {
			k.l.sid = theirs.sid
			k.l.sid.Seq = 0
		}
		if _, st := k.s.lock(o.fh, k.l); st != k.want {
			t.Errorf("lock of %s: %v, want %v", k.name, st, k.want)
		}
	}
	s.do(reclaimComplete()).is(proto.OK)
	refused("after its RECLAIM_COMPLETE", s, o.sid)
}
