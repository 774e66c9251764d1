package nfsd

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// startNFS serves a file system in memory and returns its address.
func startNFS(t *testing.T, change func(*nfs4.Config)) (*Server, string) {
	t.Helper()
	cfg := nfs4.Config{FS: memfs.New(memfs.Options{}), ServerOwner: "test", Scope: "test"}
	if change != nil {
		change(&cfg)
	}
	p, err := nfs4.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Listen(Config{
		Listen: []string{"127.0.0.1:0"},
		Programs: []oncrpc.Program{{
			Number: proto.Program, MinVersion: proto.Version, MaxVersion: proto.Version, Handler: p,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve()
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return s, s.Addrs()[0].String()
}

// descriptors makes room for n open files, as far as that is allowed, and
// returns how many there may be.
func descriptors(t *testing.T, n uint64) int {
	t.Helper()
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
	if r.Cur < n {
		// Only root may go beyond the hard limit.
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: max(n, r.Max)}); err != nil {
			n = r.Max
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return int(min(n, max(n, r.Cur)))
}

// inUse returns the memory of the heap and of stacks, in bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A reader is a client that works, and times what it does.
type reader struct {
	*client.Client
	dir  client.FH
	file *client.File
	data []byte
}

func newReader(t *testing.T, addr string) *reader {
	t.Helper()
	ctx := t.Context()
	c, err := client.Dial(ctx, addr, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	r := &reader{Client: c, data: make([]byte, 64<<10)}
	if r.dir, err = c.Walk(ctx, "main"); err != nil {
		t.Fatal(err)
	}
	if r.file, err = c.CreateFile(ctx, r.dir, "good", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.file.WriteAll(ctx, 0, r.data); err != nil {
		t.Fatal(err)
	}
	return r
}

// work does n rounds and returns the median and the longest time of one.
func (r *reader) work(t *testing.T, n int) (median, longest time.Duration) {
	t.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		if _, err := r.Getattr(t.Context(), r.file.FH(), proto.AttrSize); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.file.Read(t.Context(), 0, r.data); err != nil {
			t.Fatal(err)
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[n/2], times[n-1]
}

// TestScaleIdleConnections opens 10,000 connections, each of which makes a call
// and then says nothing: they cost little memory, and nobody else any time.
func TestScaleIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 10,000 connections")
	}
	want := 10_000
	if raceDetector {
		want = 3000 // it allows 8128 goroutines
	}
	n := min(want, (descriptors(t, 2*10_000+500)-500)/2)
	s, addr := startNFS(t, nil)
	good := newReader(t, addr)
	alone, _ := good.work(t, 200)
	before := inUse()

	// NULL, without a credential.
	var call [44]byte
	for i, w := range []uint32{1<<31 | 40, 1, 0, 2, proto.Program, proto.Version, 0, 0, 0, 0, 0} {
		binary.BigEndian.PutUint32(call[4*i:], w)
	}
	conns := make([]net.Conn, n)
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns[i] = c
		var reply [28]byte
		if _, err := c.Write(call[:]); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if _, err := io.ReadFull(c, reply[:]); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if got := s.Stats().Conns; got != n+1 {
		t.Errorf("%d connections, want %d", got, n+1)
	}
	each := (inUse() - before) / int64(n)
	among, longest := good.work(t, 1000)
	t.Logf("%d connections, %d bytes each with both ends; a GETATTR and a READ took %v, take %v, at most %v", n, each, alone, among, longest)
	if each > 16<<10 {
		t.Errorf("an idle connection takes %d bytes", each)
	}
	if among > 20*alone+5*time.Millisecond {
		t.Errorf("a client takes %v, alone %v", among, alone)
	}
}

// A deafConn stops reading when it is told to.
type deafConn struct {
	net.Conn
	deaf <-chan struct{}
	gone chan struct{}
	once sync.Once
}

func (c *deafConn) Read(p []byte) (int, error) {
	select {
	case <-c.deaf:
		<-c.gone
		return 0, net.ErrClosed
	default:
		return c.Conn.Read(p)
	}
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// TestScaleDeafClient has a client that asks for more and more data and reads
// none of it: what the server holds for it is bounded, and others are served.
func TestScaleDeafClient(t *testing.T) {
	s, addr := startNFS(t, nil)
	good := newReader(t, addr)
	alone, _ := good.work(t, 200)

	deaf := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	bad, err := client.Dial(ctx, addr, client.Options{Slots: 256, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return &deafConn{Conn: c, deaf: deaf, gone: make(chan struct{})}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	big, err := bad.CreateFile(ctx, good.dir, "big", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := big.WriteAll(ctx, 0, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	before := inUse()
	close(deaf)
	var asked sync.WaitGroup
	for range 256 {
		asked.Go(func() {
			_, _ = big.ReadDiscard(ctx, 0, 1<<20) // never answered
		})
	}
	defer asked.Wait()
	defer func() { _ = bad.Abort() }()
	defer cancel()
	for end := time.Now().Add(10 * time.Second); s.Stats().ReplyMemory < 4<<20; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no replies wait: %+v", s.Stats())
		}
	}
	var held, heap int64
	var among, longest time.Duration
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		m, l := good.work(t, 100)
		among, longest = max(among, m), max(longest, l)
		held = max(held, s.Stats().ReplyMemory)
		heap = max(heap, inUse()-before)
	}
	t.Logf("%d MiB of replies are held, in %d MiB of memory; a GETATTR and a READ took %v, take %v, at most %v",
		held>>20, heap>>20, alone, among, longest)
	// 128 calls of a connection are served at a time, each of at most 1 MiB, and
	// the file system in memory copies what is read.
	if held > 136<<20 || heap > 300<<20 {
		t.Errorf("%d MiB of replies are held for a client that does not read, in %d MiB", held>>20, heap>>20)
	}
	if among > 20*alone+20*time.Millisecond {
		t.Errorf("a client takes %v, alone %v", among, alone)
	}
}

// TestScaleSessions has 1,000 clients, each with a session that used all of its
// slots, and a file open.
func TestScaleSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 1,000 clients")
	}
	const clients = 1000
	_, addr := startNFS(t, nil)
	good := newReader(t, addr)
	alone, _ := good.work(t, 200)
	var total int64
	// Only what the server keeps is to be measured: a client makes its session,
	// uses it, and is gone without a word.
	for i := range clients {
		if i == 10 {
			total = inUse() // buffers are warm
		}
		ctx := t.Context()
		c, err := client.Dial(ctx, addr, client.Options{Slots: 64})
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 4 {
					if _, err := c.Getattr(ctx, good.file.FH(), proto.AttrSize); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if _, _, err := c.OpenFH(ctx, good.file.FH(), proto.ShareAccessRead); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		if err := c.Abort(); err != nil {
			t.Fatal(err)
		}
	}
	each := (inUse() - total) / (clients - 10)
	among, _ := good.work(t, 200)
	t.Logf("%d bytes for each client; a GETATTR and a READ took %v, take %v", each, alone, among)
	if each > 32<<10 {
		t.Errorf("a client takes %d bytes", each)
	}
	if among > 20*alone+5*time.Millisecond {
		t.Errorf("a client takes %v, alone %v", among, alone)
	}
}
