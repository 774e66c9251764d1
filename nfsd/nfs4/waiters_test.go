package nfs4

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// run has the Program do what it does in the background.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.p.Run(ctx) })
	r.t.Cleanup(func() { cancel(); wg.Wait() })
}

// mounted is a client that answers callbacks.
func (r *rig) mounted(opt client.Options) *client.Client {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, r.ln.Addr().String(), opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Abort() })
	return c
}

// file opens a file of the volume, and makes it if need be.
func file(t testing.TB, c *client.Client, path ...string) *client.File {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dir, err := c.Walk(ctx, path[0])
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.CreateFile(ctx, dir, path[1], 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
	}
}

var whole = client.Range{Type: proto.WriteLt, Length: ^uint64(0)}

// Who waits for a lock is told at once when it is free, through whichever front-end it
// was released (RFC 8881 §20.11). The clients here ask by themselves every 10 s.
func TestNotifyLock(t *testing.T) {
	first := newRig(t, nil)
	second := newRig(t, func(c *Config) { c.FS, c.Identity, c.Epoch, c.ServerOwner = first.fs, 2, 1, "other" })
	first.run()
	second.run()
	for name, at := range map[string]*rig{"same": first, "another": second} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			holder, waiter := at.mounted(client.Options{}), first.mounted(client.Options{Callbacks: true})
			held, wanted := file(t, holder, "main", name), file(t, waiter, "main", name)
			for i := range 20 {
				if err := held.Lock(ctx, "h", whole); err != nil {
					t.Fatal(err)
				}
				got := make(chan error, 1)
				go func() { got <- wanted.LockWait(ctx, "w", whole) }()
				until(t, "the waiter is listed", func() bool { return first.p.waiters.n.Load() == 1 })
				began := time.Now()
				if err := held.Unlock(ctx, "h", whole); err != nil {
					t.Fatal(err)
				}
				if err := <-got; err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d > 3*time.Second {
					t.Fatalf("the lock came after %v", d)
				}
				if n := waiter.Executed(proto.CBNotifyLock); n != i+1 {
					t.Fatalf("told %d times of %d locks", n, i+1)
				}
				if err := wanted.Unlock(ctx, "w", whole); err != nil {
					t.Fatal(err)
				}
				if n := first.p.waiters.n.Load(); n != 0 {
					t.Fatalf("%d wait still", n)
				}
			}
		})
	}
}

// A client's end wakes those who wait for its locks.
func TestNotifyLockOfTheDead(t *testing.T) {
	r := newRig(t, nil)
	r.run()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	holder, waiter := r.mounted(client.Options{}), r.mounted(client.Options{Callbacks: true})
	held, wanted := file(t, holder, "main", "f"), file(t, waiter, "main", "f")
	if err := held.Lock(ctx, "h", whole); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- wanted.LockWait(ctx, "w", whole) }()
	until(t, "the waiter is listed", func() bool { return r.p.waiters.n.Load() == 1 })
	_ = holder.Abort()
	r.advance(11 * time.Second) // its lease has ended
	waiter.Null(ctx)
	if _, err := waiter.Walk(ctx, "main"); err != nil { // the waiter's lease is renewed
		t.Fatal(err)
	}
	if !r.p.ExpireClient(ctx, holder.ID()) {
		t.Fatal("the holder is not expired")
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// OPEN says that waiters are told only if they can be.
func TestMayNotifyLock(t *testing.T) {
	r, s, _ := cbRig(t, nil)
	root := s.root()
	flags := func() uint32 {
		t.Helper()
		rep := s.wait(s.start(putfh(root), openOp(s.clientID, openHow{owner: "o", access: 1, create: true, name: "f"})))
		d := rep.ok(proto.OpSequence)
		d.FixedOpaque(16 + 5*4)
		rep.ok(proto.OpPutfh)
		d = rep.ok(proto.OpOpen)
		d.FixedOpaque(16 + 4 + 8 + 8)
		return d.Uint32()
	}
	if f := flags(); f&proto.OpenResultMayNotifyLock == 0 {
		t.Fatalf("%#x with a back channel", f)
	}
	before := s.c
	s.wire = r.dial()
	before.Close()
	until(t, "the path is down", func() bool { return r.p.caller(r.p.state.Client(s.clientID)) == nil })
	if f := flags(); f&proto.OpenResultMayNotifyLock != 0 {
		t.Fatalf("%#x without a back channel", f)
	}
	// Nobody is listed who can't be told.
	s.down = true
	other := r.newSession("b")
	ob := other.mustOpen(root, openHow{name: "f"})
	if _, st := other.lock(ob.fh, lockArgs{kind: proto.WriteLt, len: 10, owner: "p", sid: ob.sid}); st != proto.OK {
		t.Fatal(st)
	}
	oa := s.mustOpen(root, openHow{name: "f"})
	for _, kind := range []uint32{proto.WritewLt, proto.WriteLt} {
		if _, st := s.lock(oa.fh, lockArgs{kind: kind, len: 10, owner: "q", sid: oa.sid}); st != proto.ErrDenied {
			t.Fatal(st)
		}
	}
	if n := r.p.waiters.n.Load(); n != 0 {
		t.Fatalf("%d are listed", n)
	}
	// Nor who does not wait.
	s.compound(bindOp(s.id, proto.CDFCForeOrBoth)).is(proto.OK)
	s.lock(oa.fh, lockArgs{kind: proto.WriteLt, len: 10, owner: "q", sid: oa.sid})
	if n := r.p.waiters.n.Load(); n != 0 {
		t.Fatalf("%d are listed", n)
	}
	s.lock(oa.fh, lockArgs{kind: proto.ReadwLt, len: 10, owner: "q", sid: oa.sid})
	if n := r.p.waiters.n.Load(); n != 1 {
		t.Fatalf("%d are listed", n)
	}
}

// A lateFS releases a lock just after another was denied because of it.
type lateFS struct {
	vfs.FS
	after atomic.Pointer[func()]
}

func (f *lateFS) Lock(r *vfs.Request, file vfs.File, l vfs.Lock) (*vfs.Lock, error) {
	c, err := f.FS.Lock(r, file, l)
	if fn := f.after.Load(); fn != nil && err != nil {
		f.after.Store(nil)
		(*fn)()
	}
	return c, err
}

// A lock that is released while its waiter is being listed does not go unnoticed.
func TestNotifyLockRace(t *testing.T) {
	late := &lateFS{}
	r := newRig(t, func(c *Config) { late.FS, c.FS = c.FS, late })
	r.run()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	holder, waiter := r.mounted(client.Options{}), r.mounted(client.Options{Callbacks: true})
	held, wanted := file(t, holder, "main", "f"), file(t, waiter, "main", "f")
	if err := held.Lock(ctx, "h", whole); err != nil {
		t.Fatal(err)
	}
	release := func() {
		if err := held.Unlock(ctx, "h", whole); err != nil {
			t.Error(err)
		}
	}
	late.after.Store(&release)
	began := time.Now()
	if err := wanted.LockWait(ctx, "w", whole); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Fatalf("the lock came after %v", d)
	}
}

func aWaiter(owner byte, start, end uint64, excl bool, now cluster.Time) *waiter {
	return &waiter{file: vfs.File{Volume: 1, Ino: 5}, asked: now, lock: vfs.Lock{
		Owner: vfs.LockOwner{owner}, Client: uint64(owner), Start: start, End: end, Exclusive: excl,
	}}
}

// Those who wait are told in the order in which they came, and one at a time of those
// who can't have their locks at once; who does not come back makes room for the next.
func TestWaitersInTurn(t *testing.T) {
	var l waiters
	l.init()
	const sec = cluster.Time(time.Second)
	now := 100 * sec
	f := vfs.File{Volume: 1, Ino: 5}
	for _, w := range []*waiter{
		aWaiter(1, 0, 9, true, now), aWaiter(2, 0, 9, false, now), aWaiter(3, 5, 20, false, now), aWaiter(4, 30, 40, true, now),
	} {
		if !l.add(w) {
			t.Fatal("not listed")
		}
	}
	told := func(want ...byte) {
		t.Helper()
		var got []byte
		for _, w := range l.list(f) {
			if l.tell(w, now) {
				got = append(got, w.lock.Owner[0])
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d were told, want %d", got, want)
		}
	}
	told(1, 4)
	told() // nobody twice
	now += sec / 2
	l.tick(now)
	told()
	// 1 has not come back: 2 and 3 can both have theirs.
	now += sec
	l.tick(now)
	if got := l.takeFreed(); !slices.Equal(got, []vfs.File{f}) {
		t.Fatalf("freed: %v", got)
	}
	told(2, 3)
	// 3 asks again, and is denied: it waits on, and has kept its place.
	l.add(aWaiter(9, 0, 100, true, now))
	l.add(aWaiter(3, 5, 20, false, now))
	told(3)
	l.remove(f, func(w *waiter) bool { return w.lock.Client != 9 })
	told(9)
	// Who has not asked for long does not wait.
	l.add(aWaiter(8, 0, 0, true, now))
	now += waitAfter + 1
	l.tick(now)
	if n := l.n.Load(); n != 0 || len(l.files) != 0 || len(l.clients) != 0 {
		t.Fatalf("%d wait", n)
	}
}

// The list is bounded, for each client and in all.
func TestWaitersBounded(t *testing.T) {
	var l waiters
	l.init()
	for i := range uint64(maxClientWaiters) {
		if !l.add(aWaiter(1, i, i, true, 1)) {
			t.Fatalf("number %d is refused", i)
		}
	}
	if l.add(aWaiter(1, 1<<40, 1<<40, true, 1)) || !l.add(aWaiter(1, 3, 3, true, 2)) || !l.add(aWaiter(2, 0, 0, true, 1)) {
		t.Fatal("one client is bounded, and it alone")
	}
	l.n.Store(maxWaiters)
	if l.add(aWaiter(3, 0, 0, true, 1)) {
		t.Fatal("there is no bound")
	}
}

// Who can't be told makes room for the next at once.
func TestNotifyLockNobodyThere(t *testing.T) {
	r := newRig(t, nil)
	r.run()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	holder := r.mounted(client.Options{})
	gone, waiter := r.mounted(client.Options{Callbacks: true}), r.mounted(client.Options{Callbacks: true})
	held, lost, wanted := file(t, holder, "main", "f"), file(t, gone, "main", "f"), file(t, waiter, "main", "f")
	if err := held.Lock(ctx, "h", whole); err != nil {
		t.Fatal(err)
	}
	if err := lost.Lock(ctx, "l", client.Range{Type: proto.WritewLt, Length: 5}); !errors.Is(err, proto.ErrDenied) {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- wanted.LockWait(ctx, "w", whole) }()
	until(t, "both are listed", func() bool { return r.p.waiters.n.Load() == 2 })
	_ = gone.Abort()
	until(t, "one is gone", func() bool { return r.p.caller(r.p.state.Client(gone.ID())) == nil })
	if err := held.Unlock(ctx, "h", whole); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Fatalf("the lock came after %v", d)
	}
}
