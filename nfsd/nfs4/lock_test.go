package nfs4

import (
	"context"
	"errors"
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

type lockArgs struct {
	kind     uint32
	reclaim  bool
	off, len uint64
	owner    string        // of a new lock owner: sid is the open's
	sid      state.Stateid // else: sid is the lock's
}

func (s *sess) lockOp(l lockArgs) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpLock))
		e.Uint32(l.kind)
		e.Bool(l.reclaim)
		e.Uint64(l.off)
		e.Uint64(l.len)
		e.Bool(l.owner != "")
		if l.owner != "" {
			e.Uint32(0)
			l.sid.Encode(e)
			e.Uint32(0)
			e.Uint64(s.clientID)
			e.String(l.owner)
			return
		}
		l.sid.Encode(e)
		e.Uint32(0)
	}
}

func (s *sess) lock(fh []byte, l lockArgs) (state.Stateid, proto.Status) {
	s.t.Helper()
	st, d := s.one(fh, proto.OpLock, s.lockOp(l))
	if st == proto.OK {
		return state.DecodeStateid(d), st
	}
	return state.Stateid{}, st
}

func unlockOp(sid state.Stateid, off, n uint64) op {
	return stateidOp(proto.OpLocku, func(e *xdr.Encoder) { e.Uint32(proto.WriteLt); e.Uint32(0) }, sid,
		func(e *xdr.Encoder) { e.Uint64(off); e.Uint64(n) })
}

func (s *sess) lockt(kind uint32, off, n uint64, owner string) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpLockt))
		e.Uint32(kind)
		e.Uint64(off)
		e.Uint64(n)
		e.Uint64(s.clientID)
		e.String(owner)
	}
}

func TestLocks(t *testing.T) {
	r := newRig(t, nil)
	s, s2 := r.newSession("a"), r.newSession("b")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	o2 := s2.mustOpen(root, openHow{name: "f"})
	sid, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 10, len: 20, owner: "p1", sid: o.sid})
	if st != proto.OK || sid.Seq != 1 || sid.ID == o.sid.ID {
		t.Fatal(st, sid)
	}
	// The same owner again, by the open's stateid and by its own.
	again, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 100, len: math.MaxUint64, owner: "p1", sid: o.sid})
	if st != proto.OK || again.ID != sid.ID || again.Seq != 2 {
		t.Fatal(st, again)
	}
	again, st = s.lock(o.fh, lockArgs{kind: proto.ReadLt, off: 0, len: 5, sid: again})
	if st != proto.OK || again.Seq != 3 {
		t.Fatal(st, again)
	}
	// Another client is told whose lock is in the way.
	st, d := s2.one(o.fh, proto.OpLock, s2.lockOp(lockArgs{kind: proto.ReadLt, off: 15, len: 1, owner: "q", sid: o2.sid}))
	if st != proto.ErrDenied {
		t.Fatal(st)
	}
	if off, n, kind, id, owner := d.Uint64(), d.Uint64(), d.Uint32(), d.Uint64(), d.String(100); off != 10 || n != 20 || kind != proto.WriteLt || id != s.clientID || owner != "p1" {
		t.Fatal(off, n, kind, id, owner)
	}
	st, d = s2.one(o.fh, proto.OpLockt, s2.lockt(proto.WriteLt, 200, 1, "q"))
	if off, n := d.Uint64(), d.Uint64(); st != proto.ErrDenied || off != 100 || n != math.MaxUint64 {
		t.Fatal(st, off, n)
	}
	if st, _ := s2.one(o.fh, proto.OpLockt, s2.lockt(proto.ReadLt, 0, 5, "q")); st != proto.OK {
		t.Fatal(st)
	}
	if st, _ := s.one(o.fh, proto.OpLockt, s.lockt(proto.WriteLt, 10, 1, "p1")); st != proto.OK {
		t.Fatal(st) // one's own lock is not in the way
	}
	for _, bad := range []lockArgs{{kind: 1, off: 1}, {kind: 1, off: 2, len: math.MaxUint64 - 1}} {
		bad.sid = again
		if _, st := s.lock(o.fh, bad); st != proto.ErrInval {
			t.Fatal(st)
		}
	}
	free := func(sid state.Stateid) op { return stateidOp(proto.OpFreeStateid, nil, sid, nil) }
	s.do(free(again)).is(proto.ErrLocksHeld)
	// Released in parts.
	for _, u := range []struct{ off, n uint64 }{{0, 15}, {15, 100}, {115, math.MaxUint64}} {
		st, d := s.one(o.fh, proto.OpLocku, unlockOp(again, u.off, u.n))
		if st != proto.OK {
			t.Fatal(st)
		}
		again = state.DecodeStateid(d)
	}
	if st, _ := s2.one(o.fh, proto.OpLockt, s2.lockt(proto.WriteLt, 0, math.MaxUint64, "q")); st != proto.OK {
		t.Fatal(st)
	}
	s.do(free(again)).is(proto.OK)
	s.do(free(again)).is(proto.ErrBadStateid)
	// CLOSE releases what is held through the open.
	if _, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p2", sid: o.sid}); st != proto.OK {
		t.Fatal(st)
	}
	s.do(putfh(o.fh), closeOp(o.sid)).is(proto.OK)
	if _, st := s2.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q", sid: o2.sid}); st != proto.OK {
		t.Fatal(st)
	}
	ro := s.mustOpen(root, openHow{name: "f", access: proto.ShareAccessRead})
	if _, st := s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 50, len: 10, owner: "p", sid: ro.sid}); st != proto.ErrOpenmode {
		t.Fatal(st)
	}
}

// A lock of a client whose lease has ended does not keep others out.
func TestLockOfLapsedClient(t *testing.T) {
	r := newRig(t, nil)
	s, s2 := r.newSession("a"), r.newSession("b")
	root := s.root()
	o := s.mustOpen(root, openHow{create: true, name: "f"})
	s.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: o.sid})
	r.advance(30 * time.Second)
	o2 := s2.mustOpen(root, openHow{name: "f"})
	if _, st := s2.lock(o.fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "q", sid: o2.sid}); st != proto.OK {
		t.Fatal(st)
	}
	s.seq[0]++
	s.compound(s.sequence(0, s.seq[0])).is(proto.ErrBadsession)
}

// A memStore is a vfs.ClientStore in memory.
type memStore struct {
	mu     sync.Mutex
	owners map[string]bool
	fail   atomic.Bool
}

func (m *memStore) Clients(context.Context) (all [][]byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o := range m.owners {
		all = append(all, []byte(o))
	}
	return all, nil
}

func (m *memStore) PutClient(_ context.Context, owner []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail.Load() {
		return errors.New("no leader")
	}
	m.owners[string(owner)] = true
	return nil
}

func (m *memStore) DeleteClient(_ context.Context, owner []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owners, string(owner))
	return nil
}

func (m *memStore) list() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o := range m.owners {
		all = append(all, o)
	}
	sort.Strings(all)
	return all
}

func TestClientRecords(t *testing.T) {
	store := &memStore{owners: map[string]bool{}}
	store.fail.Store(true)
	r := newRig(t, func(c *Config) { c.Clients = store })
	w := r.dial()
	x, _ := w.exchange("a", 1, 0)
	w.compound(createSession(x.id, x.seq, linuxFore)).is(proto.ErrDelay)
	store.fail.Store(false)
	w.compound(createSession(x.id, x.seq, linuxFore)).is(proto.OK)
	if l := store.list(); len(l) != 1 {
		t.Fatal(l)
	}
	r.mount(w, "a", 2) // restarted: still on record
	if l := store.list(); len(l) != 1 {
		t.Fatal(l)
	}
	r.advance(time.Hour)
	r.p.Tick(t.Context(), r.p.cfg.Now())
	if l := store.list(); len(l) != 0 {
		t.Fatal(l)
	}
}

// After a restart, clients on record reclaim; others wait; it ends early when all
// have said that they are done.
func TestGrace(t *testing.T) {
	store := &memStore{owners: map[string]bool{"a": true, "b": true}}
	r := newRig(t, func(c *Config) { c.Clients = store })
	root := r.p.fs.AppendHandle(nil, mainRoot(t, r))
	s, n := r.mount(r.dial(), "a", 1), r.mount(r.dial(), "new", 1)
	if _, st := n.tryOpen(root, openHow{create: true, name: "f"}); st != proto.ErrGrace {
		t.Fatal(st)
	}
	// The file that is reclaimed was there before.
	made, err := r.fs.Create(rootRequest(t), mainRoot(t, r), "f", regular())
	if err != nil {
		t.Fatal(err)
	}
	fh := r.fs.AppendHandle(nil, made.File)
	if _, st := n.tryOpen(fh, openHow{claim: proto.ClaimPrevious}); st != proto.ErrNoGrace {
		t.Fatal(st) // it was not there before
	}
	o, st := s.tryOpen(fh, openHow{claim: proto.ClaimPrevious})
	if st != proto.OK {
		t.Fatal(st)
	}
	if _, st := s.lock(fh, lockArgs{kind: proto.WriteLt, off: 0, len: 10, owner: "p", sid: o.sid}); st != proto.ErrGrace {
		t.Fatal(st)
	}
	if _, st := s.lock(fh, lockArgs{kind: proto.WriteLt, reclaim: true, off: 0, len: 10, owner: "p", sid: o.sid}); st != proto.OK {
		t.Fatal(st)
	}
	s.do(reclaimComplete()).is(proto.OK)
	s.do(reclaimComplete()).is(proto.ErrCompleteAlready)
	if _, st := s.tryOpen(fh, openHow{claim: proto.ClaimPrevious}); st != proto.ErrNoGrace {
		t.Fatal(st)
	}
	r.p.Tick(t.Context(), r.p.cfg.Now())
	if _, st := s.tryOpen(root, openHow{name: "f"}); st != proto.ErrGrace {
		t.Fatal(st) // b has not come back yet
	}
	b := r.mount(r.dial(), "b", 1)
	b.do(reclaimComplete()).is(proto.OK)
	r.p.Tick(t.Context(), r.p.cfg.Now())
	// Trap 3: "new" has never sent RECLAIM_COMPLETE, and that does not matter.
	if _, st := n.tryOpen(root, openHow{name: "f"}); st != proto.OK {
		t.Fatal(st)
	}
	if _, st := s.lock(fh, lockArgs{kind: proto.WriteLt, reclaim: true, off: 20, len: 10, owner: "p", sid: o.sid}); st != proto.ErrNoGrace {
		t.Fatal(st)
	}
	if l := store.list(); len(l) != 3 {
		t.Fatal(l)
	}
}

func TestGraceTimesOut(t *testing.T) {
	store := &memStore{owners: map[string]bool{"gone": true}}
	r := newRig(t, func(c *Config) { c.Clients = store })
	s := r.newSession("a")
	root := s.root()
	if _, st := s.tryOpen(root, openHow{create: true, name: "f"}); st != proto.ErrGrace {
		t.Fatal(st)
	}
	r.advance(10 * time.Second)
	r.p.Tick(t.Context(), r.p.cfg.Now())
	s.mustOpen(root, openHow{create: true, name: "f"})
	if l := store.list(); len(l) != 1 || l[0] != "a" {
		t.Fatal(l)
	}
}

// endFS counts the ends of grace periods, the first of which fails.
type endFS struct {
	vfs.FS
	ends *atomic.Int32
}

func (f endFS) EndGrace(context.Context) error {
	if f.ends.Add(1) == 1 {
		return errors.New("no leader")
	}
	return nil
}

// What is left of before is released also if nobody can reclaim and the cluster
// can't be reached at the start; serving does not wait for it.
func TestLeftovers(t *testing.T) {
	var ends atomic.Int32
	r := newRig(t, func(c *Config) {
		c.FS = endFS{c.FS, &ends}
		c.Clients = &memStore{owners: map[string]bool{}}
	})
	s := r.newSession("a")
	s.mustOpen(s.root(), openHow{create: true, name: "f"})
	for range 4 {
		r.p.Tick(t.Context(), r.p.cfg.Now())
	}
	if n := ends.Load(); n != 2 {
		t.Fatalf("EndGrace was called %d times", n)
	}
}
