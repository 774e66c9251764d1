package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A clientStore is a vfs.ClientStore in memory.
type clientStore struct {
	mu      sync.Mutex
	records map[uint64][]byte
}

func (s *clientStore) Load(context.Context) (all []vfs.ClientRecord, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.records {
		all = append(all, vfs.ClientRecord{ID: id, Record: r})
	}
	return all, nil
}

func (s *clientStore) Put(_ context.Context, id uint64, record []byte, replaces uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, replaces)
	s.records[id] = record
	return nil
}

func (s *clientStore) Delete(_ context.Context, id uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
	return nil
}

// A server is an NFSv4 server over memfs that can be restarted.
type server struct {
	t     testing.TB
	fs    vfs.FS
	store clientStore
	addr  string
	epoch uint32
	rpc   *oncrpc.Server
	stop  func()
}

func newServer(t testing.TB) *server {
	s := &server{t: t, fs: memfs.New(memfs.Options{}), addr: "127.0.0.1:0"}
	s.store.records = map[uint64][]byte{}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.epoch++
	p, err := nfs4.New(nfs4.Config{
		FS: s.fs, Clients: &s.store, ServerOwner: "test", Scope: "test", Lease: 5 * time.Second,
		Identity: 1, Epoch: s.epoch, StateKey: [32]byte{1},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := p.Start(ctx); err != nil {
		s.t.Fatal(err)
	}
	var ln net.Listener
	for range 100 {
		if ln, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	s.rpc = oncrpc.NewServer(oncrpc.Config{
		Programs: []oncrpc.Program{{Number: proto.Program, MinVersion: 4, MaxVersion: 4, Handler: p}},
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.rpc.Serve(ln) })
	wg.Go(func() { p.Run(ctx) })
	s.stop = func() {
		s.rpc.Close()
		cancel()
		wg.Wait()
	}
}

func (s *server) dial(opt Options) *Client {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := Dial(ctx, s.addr, opt)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			s.t.Errorf("Close: %v", err)
		}
	})
	return c
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWork(t *testing.T) {
	for minor := uint32(1); minor <= 2; minor++ {
		t.Run(fmt.Sprintf("4.%d", minor), func(t *testing.T) {
			s := newServer(t)
			c := s.dial(Options{Minor: minor, Conns: 2})
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			check(t, c.Null(ctx))
			top := must(c.Walk(ctx, "/main"))(t)
			dir := must(c.Mkdir(ctx, top, "dir", 0o755))(t)

			f := must(c.CreateFile(ctx, dir, "file", 0o644))(t)
			data := bytes.Repeat([]byte("0123456789"), 200000)
			check(t, f.WriteAll(ctx, 0, data))
			if got := must(f.ReadAll(ctx))(t); !bytes.Equal(got, data) {
				t.Fatalf("%d bytes read back differ from %d written", len(got), len(data))
			}
			w := must(f.Write(ctx, 3, []byte("abc"), proto.Unstable))(t)
			if w.Count != 3 {
				t.Errorf("WRITE: %+v", w)
			}
			must(f.Commit(ctx))(t)
			check(t, f.Truncate(ctx, 10))
			if got := must(f.ReadAll(ctx))(t); string(got) != "012abc6789" {
				t.Errorf("after truncation: %q", got)
			}

			check(t, f.Lock(ctx, "me", Range{Type: proto.WriteLt, Offset: 5, Length: 10}))
			denied, err := c.TestLock(ctx, f.FH(), "you", Range{Type: proto.ReadLt, Offset: 0, Length: 100})
			if err != nil || denied == nil || denied.Offset != 5 || denied.Length != 10 || string(denied.Owner) != "me" {
				t.Errorf("LOCKT: %+v, %v", denied, err)
			}
			if err := f.Lock(ctx, "you", Range{Type: proto.ReadLt, Offset: 14, Length: 1}); !errors.Is(err, proto.ErrDenied) {
				t.Errorf("LOCK of what is locked: %v", err)
			}
			check(t, f.Unlock(ctx, "me", Range{Type: proto.WriteLt, Offset: 0, Length: 100}))
			check(t, f.Lock(ctx, "you", Range{Type: proto.ReadLt, Offset: 14, Length: 1}))
			check(t, f.Unlock(ctx, "you", Range{Type: proto.ReadLt, Offset: 14, Length: 1}))
			check(t, f.Close(ctx))

			must(c.Link(ctx, f.FH(), top, "hard"))(t)
			must(c.Symlink(ctx, dir, "soft", "../hard"))(t)
			if target := must(c.Readlink(ctx, must(c.Walk(ctx, "main/dir/soft"))(t)))(t); target != "../hard" {
				t.Errorf("target %q", target)
			}
			must(c.Mknod(ctx, dir, "fifo", proto.TypeFIFO, 0o600, 0, 0))(t)
			_, after, err := c.Rename(ctx, dir, "file", top, "moved")
			if err != nil || after.After <= after.Before {
				t.Errorf("RENAME: %+v, %v", after, err)
			}
			fh, a, err := c.Lookup(ctx, top, "moved")
			if err != nil || !bytes.Equal(fh, f.FH()) || a.Size != 10 || a.Numlinks != 2 || a.Type != proto.TypeReg || a.Mode != 0o644 {
				t.Errorf("LOOKUP: %+v, %v", a, err)
			}
			check(t, c.Setattr(ctx, fh, Stateid{}, &SetAttr{Mode: Ptr(uint32(0o600)), Mtime: Ptr(time.Unix(5, 7))}))
			if a := must(c.Getattr(ctx, fh))(t); a.Mode != 0o600 || !a.Mtime.Equal(time.Unix(5, 7)) || !a.Has(proto.AttrMode) || a.Has(proto.AttrMaxread) {
				t.Errorf("after SETATTR: %+v", a)
			}
			if _, granted, err := c.Access(ctx, fh, proto.AccessRead); err != nil || granted != proto.AccessRead {
				t.Errorf("ACCESS: %x, %v", granted, err)
			}
			must(c.Remove(ctx, top, "hard"))(t)
			if _, err := c.Remove(ctx, top, "hard"); !errors.Is(err, proto.ErrNoent) {
				t.Errorf("REMOVE of nothing: %v", err)
			}
			var oe *OpError
			if _, err := c.Walk(ctx, "main/dir/nothing"); !errors.As(err, &oe) || oe.Op != proto.OpLookup {
				t.Errorf("Walk to nothing: %v", err)
			}
			if minor == 2 {
				extended(ctx, t, c, top)
			}
		})
	}
}

// extended tests what is new in NFSv4.2.
func extended(ctx context.Context, t *testing.T, c *Client, top FH) {
	t.Helper()
	f := must(c.CreateFile(ctx, top, "sparse", 0o644))(t)
	check(t, f.Allocate(ctx, 0, 8<<20))
	check(t, f.WriteAll(ctx, 4<<20, bytes.Repeat([]byte("x"), 1<<20)))
	if at, _, err := f.Seek(ctx, 0, proto.ContentData); err != nil || at != 4<<20 {
		t.Errorf("SEEK: %d, %v", at, err)
	}
	list, eof, err := f.ReadPlus(ctx, 4<<20-8192, 100<<10)
	if err != nil || eof || len(list) != 1 || list[0].Len != 100<<10 || string(list[0].Data[8191:8193]) != "\x00x" {
		t.Errorf("READ_PLUS: %d contents, %v, %v", len(list), eof, err)
	}
	if list, eof, err = f.ReadPlus(ctx, 5<<20, 8<<20); err != nil || eof || len(list) != 1 || list[0].Data != nil || list[0].Len != 1<<20 {
		t.Errorf("READ_PLUS of a hole: %+v, %v, %v", list, eof, err)
	}
	g := must(c.CreateFile(ctx, top, "clone", 0o644))(t)
	check(t, g.Clone(ctx, 0, f, 0, 0))
	if a := must(c.Getattr(ctx, g.FH()))(t); a.Size != 8<<20 {
		t.Errorf("size of the clone: %d", a.Size)
	}
	if n, err := g.Copy(ctx, 8<<20, f, 4<<20, 4096); err != nil || n != 4096 {
		t.Errorf("COPY: %d, %v", n, err)
	}
	check(t, g.Deallocate(ctx, 0, 16<<20))
	check(t, f.Close(ctx))
	check(t, g.Close(ctx))

	check(t, c.Setxattr(ctx, f.FH(), "color", []byte("red"), proto.SetxattrEither))
	if v := must(c.Getxattr(ctx, f.FH(), "color"))(t); string(v) != "red" {
		t.Errorf("GETXATTR: %q", v)
	}
	if names := must(c.Listxattr(ctx, f.FH()))(t); !slices.Equal(names, []string{"color"}) {
		t.Errorf("LISTXATTRS: %q", names)
	}
	check(t, c.Removexattr(ctx, f.FH(), "color"))
	if _, err := c.Getxattr(ctx, f.FH(), "color"); !errors.Is(err, proto.ErrNoxattr) {
		t.Errorf("GETXATTR of nothing: %v", err)
	}
}

func TestReaddir(t *testing.T) {
	c := newServer(t).dial(Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	top := must(c.Walk(ctx, "main"))(t)
	want := map[string]bool{}
	for i := range 2000 {
		name := fmt.Sprintf("a file with a long name, number %d", i)
		want[name] = true
		must(c.Mknod(ctx, top, name, proto.TypeFIFO, 0o600, 0, 0))(t)
	}
	for _, e := range must(c.ReadAllDir(ctx, top, proto.AttrType, proto.AttrFileid))(t) {
		if !want[e.Name] || e.Attrs.Type != proto.TypeFIFO || e.Attrs.Fileid == 0 {
			t.Errorf("entry %+v", e)
		}
		delete(want, e.Name)
	}
	if len(want) > 0 {
		t.Errorf("%d entries are missing", len(want))
	}
}

// TestReconnect checks that every change is made exactly once though
// connections are lost again and again.
func TestReconnect(t *testing.T) { reconnect(t, Options{Conns: 3, Slots: 16}) }

// TestReconnect40 is TestReconnect without sessions: the server tells what is sent again
// by where it comes from, its number and what it asks for.
func TestReconnect40(t *testing.T) { reconnect(t, Options{Conns: 3, V40: true}) }

func reconnect(t *testing.T, opt Options) {
	c := newServer(t).dial(opt)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	top := must(c.Walk(ctx, "main"))(t)
	stop := make(chan struct{})
	var cutter, workers sync.WaitGroup
	cutter.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(7 * time.Millisecond):
				c.Drop(i % 3)
			}
		}
	})
	for g := range 8 {
		workers.Go(func() {
			for i := range 60 {
				name := fmt.Sprintf("%d-%d", g, i)
				if _, err := c.Mkdir(ctx, top, name, 0o755); err != nil {
					t.Errorf("MKDIR %s: %v", name, err)
				}
				if _, _, err := c.Rename(ctx, top, name, top, name+"x"); err != nil {
					t.Errorf("RENAME %s: %v", name, err)
				}
				if _, err := c.Remove(ctx, top, name+"x"); err != nil {
					t.Errorf("REMOVE %s: %v", name, err)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	cutter.Wait()
	if all := must(c.ReadAllDir(ctx, top))(t); len(all) != 0 {
		t.Errorf("%d entries are left", len(all))
	}
	retries, _, _ := c.Stats()
	t.Logf("%d requests were sent again", retries)
}

// TestRestart has the server be followed by another one of the same identity: the
// client goes on, and holds what it held.
func TestRestart(t *testing.T) {
	for name, opt := range map[string]Options{"sessions": {}, "4.0": {V40: true}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c := s.dial(opt)
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			top := must(c.Walk(ctx, "main"))(t)
			f := must(c.CreateFile(ctx, top, "file", 0o644))(t)
			check(t, f.WriteAll(ctx, 0, []byte("before")))
			check(t, f.Lock(ctx, "me", Range{Type: proto.WriteLt, Offset: 0, Length: 4}))
			check(t, f.Lock(ctx, "me", Range{Type: proto.WriteLt, Offset: 10, Length: 4}))
			r, _, err := c.Open(ctx, top, "file", nil)
			check(t, err)

			s.stop()
			s.start()
			check(t, f.WriteAll(ctx, 0, []byte("after!")))
			if got := must(r.ReadAll(ctx))(t); string(got) != "after!" {
				t.Errorf("read %q", got)
			}
			if _, sessions, reboots := c.Stats(); sessions > 1 || reboots != 0 {
				t.Errorf("%d sessions, %d restarts seen", sessions, reboots)
			}
			other := s.dial(opt)
			for _, off := range []uint64{0, 10} {
				d, err := other.TestLock(ctx, f.FH(), "you", Range{Type: proto.ReadLt, Offset: off, Length: 1})
				if err != nil || d == nil {
					t.Errorf("the lock at %d is gone: %v", off, err)
				}
			}
			check(t, f.Lock(ctx, "me", Range{Type: proto.WriteLt, Offset: 20, Length: 4}))
			check(t, f.Unlock(ctx, "me", Range{Type: proto.WriteLt, Offset: 0, Length: ^uint64(0)}))
			check(t, f.Close(ctx))
			check(t, r.Close(ctx))
			again := must(c.CreateFile(ctx, top, "file", 0o644))(t)
			check(t, again.Close(ctx))
		})
	}
}

// TestGivenUp checks that a slot whose request was given up is of use again.
func TestGivenUp(t *testing.T) {
	c := newServer(t).dial(Options{Slots: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	top := must(c.Walk(ctx, "main"))(t)
	for i := range 50 {
		short, stop := context.WithTimeout(ctx, time.Duration(i)*10*time.Microsecond)
		_, _ = c.Mkdir(short, top, fmt.Sprint("given up ", i), 0o755)
		stop()
		must(c.Mkdir(ctx, top, fmt.Sprint("wanted ", i), 0o755))(t)
	}
}

// TestRaw checks that what is wrong is sent as it is.
func TestRaw(t *testing.T) {
	s := newServer(t)
	c := DialRaw(s.addr, Options{})
	defer func() { _ = c.Abort() }()
	ctx := context.Background()
	for _, k := range []struct {
		minor uint32
		ops   *Compound
		want  proto.Status
	}{
		{9, NewCompound().Plain(proto.OpPutrootfh), proto.ErrMinorVersMismatch},
		{1, NewCompound().Plain(proto.OpPutrootfh), proto.ErrOpNotInSession},
		{2, NewCompound(), proto.OK},
	} {
		r, err := c.Raw(ctx, 0, k.minor, k.ops)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != k.want {
			t.Errorf("got %v, want %v", r.Status, k.want)
		}
		r.Release()
	}
	if _, err := c.Do(ctx, NewCompound()); err == nil {
		t.Error("Do without a session succeeded")
	}
}

func benchIO(b *testing.B, size, depth, conns int, do func(ctx context.Context, f *File, off uint64, p []byte) error) {
	c := newServer(b).dial(Options{Conns: conns, Slots: depth})
	ctx := context.Background()
	top := must(c.Walk(ctx, "main"))(b)
	f := must(c.CreateFile(ctx, top, "file", 0o644))(b)
	check(b, f.WriteAll(ctx, 0, make([]byte, 16<<20)))
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	work := make(chan int, depth)
	for range depth {
		wg.Go(func() {
			p := make([]byte, size)
			for i := range work {
				if err := do(ctx, f, uint64(i*size%(16<<20)), p); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range b.N {
		work <- i
	}
	close(work)
	wg.Wait()
}

func BenchmarkRead1M(b *testing.B) {
	benchIO(b, 1<<20, 16, 1, func(ctx context.Context, f *File, off uint64, p []byte) error {
		_, err := f.ReadDiscard(ctx, off, len(p))
		return err
	})
}

func BenchmarkRead4K(b *testing.B) {
	benchIO(b, 4<<10, 64, 2, func(ctx context.Context, f *File, off uint64, p []byte) error {
		_, err := f.ReadDiscard(ctx, off, len(p))
		return err
	})
}

func BenchmarkGetattr(b *testing.B) {
	benchIO(b, 0, 64, 2, func(ctx context.Context, f *File, _ uint64, _ []byte) error {
		_, err := f.c.Getattr(ctx, f.fh)
		return err
	})
}
