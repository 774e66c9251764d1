package oncrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// write sends b and fails the test if it can't.
func write(t testing.TB, nc net.Conn, b []byte) {
	t.Helper()
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
}

// TestOutOfOrder checks that a call that takes long delays no other of its connection.
func TestOutOfOrder(t *testing.T) {
	s := newService()
	_, addr := serve(t, s, Config{})
	nc := dialRaw(t, addr)
	write(t, nc, append(record(callBody(1, testProg, 1, procWait)), record(callBody(2, testProg, 1, procEcho))...))
	if xid := binary.BigEndian.Uint32(readRecord(t, nc)); xid != 2 {
		t.Errorf("the first reply is to call %d", xid)
	}
	close(s.gate)
	if xid := binary.BigEndian.Uint32(readRecord(t, nc)); xid != 1 {
		t.Errorf("the second reply is to call %d", xid)
	}
}

// TestInFlight checks that a connection has no more calls served than it may
// have, that the others are served later, and that other connections don't wait.
func TestInFlight(t *testing.T) {
	s := newService()
	_, addr := serve(t, s, Config{MaxInFlight: 4})
	nc := dialRaw(t, addr)
	for i := range uint32(20) {
		write(t, nc, record(callBody(i, testProg, 1, procWait, i)))
	}
	eventually(t, "calls were not started", func() bool { return len(s.started) == 4 })
	time.Sleep(20 * time.Millisecond)
	if n := len(s.started); n != 4 {
		t.Errorf("%d calls run, want 4", n)
	}
	echo(t, dial(t, addr, nil), 1)
	close(s.gate)
	seen := map[uint32]bool{}
	for range 20 {
		seen[binary.BigEndian.Uint32(readRecord(t, nc))] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d replies of 20", len(seen))
	}
}

// TestRequestMemory checks that requests of all connections share the budget,
// and that those that had to wait are served.
func TestRequestMemory(t *testing.T) {
	s := newService()
	srv, addr := serve(t, s, Config{RequestMemory: 100 << 10})
	big := record(append(callBody(1, testProg, 1, procWait), make([]byte, 40<<10)...))
	var all []net.Conn
	for range 6 {
		nc := dialRaw(t, addr)
		all = append(all, nc)
		go func() { _, _ = nc.Write(big) }()
	}
	eventually(t, "calls were not started", func() bool { return len(s.started) == 2 })
	time.Sleep(20 * time.Millisecond)
	if n := len(s.started); n != 2 {
		t.Errorf("%d calls run, want 2", n)
	}
	if m := srv.Stats().RequestMemory; m > 100<<10 {
		t.Errorf("%d bytes of requests are held", m)
	}
	_ = all[5].Close() // whether it waits or runs, nothing may be lost for the others
	close(s.gate)
	for _, nc := range all[:5] {
		readRecord(t, nc)
	}
}

// TestFragmentMemory checks that many records that arrive in pieces can't wait
// for each other's memory for ever.
func TestFragmentMemory(t *testing.T) {
	_, addr := serve(t, newService(), Config{RequestMemory: 80 << 10, MaxRecord: 64 << 10})
	body := append(callBody(1, testProg, 1, procEcho), make([]byte, 60<<10)...)
	var wg sync.WaitGroup
	for range 8 {
		nc := dialRaw(t, addr)
		wg.Go(func() {
			in := record(body, 100, 20<<10, 20<<10)
			for len(in) > 0 {
				n := min(len(in), 15<<10)
				_, _ = nc.Write(in[:n])
				in = in[n:]
				time.Sleep(time.Millisecond)
			}
			readRecord(t, nc)
		})
	}
	wg.Wait()
}

// TestSlowReader checks that a peer that does not read its replies is cut off,
// that it can't have more made than its share, and that others are served meanwhile.
func TestSlowReader(t *testing.T) {
	s := newService()
	srv, addr := serve(t, s, Config{WriteTimeout: 500 * time.Millisecond, MaxInFlight: 32})
	nc := dialRaw(t, addr)
	go func() {
		for i := range uint32(1000) {
			if _, err := nc.Write(record(callBody(i, testProg, 1, procRead, 1<<20))); err != nil {
				return
			}
		}
	}()
	eventually(t, "no replies wait", func() bool { return srv.Stats().ReplyMemory > maxBatch })
	other := dial(t, addr, nil)
	var most int64
	for srv.Stats().Conns == 2 {
		echo(t, other, 1)
		most = max(most, srv.Stats().ReplyMemory)
	}
	if most > 33<<20 {
		t.Errorf("%d bytes of replies were held for a peer that does not read", most)
	}
	eventually(t, "not counted", func() bool { return srv.Stats().Closed == 1 })
}

// TestReplyMemory checks that, when unwritten replies fill their memory, the
// peer that causes it is cut off before its time-out.
func TestReplyMemory(t *testing.T) {
	s := newService()
	// No call of the connection is begun beyond maxBatch: more may be made only
	// of those that were begun before.
	srv, addr := serve(t, s, Config{ReplyMemory: maxBatch, MaxInFlight: 32})
	nc := dialRaw(t, addr)
	go func() {
		for i := range uint32(100) {
			if _, err := nc.Write(record(callBody(i, testProg, 1, procRead, 1<<20))); err != nil {
				return
			}
		}
	}()
	eventually(t, "it was not closed", func() bool { return srv.Stats().Closed == 1 })
	eventually(t, "the memory was not released", func() bool { return srv.Stats().ReplyMemory == 0 })
}

// TestTimeouts checks that a peer that stops within a record, before or after
// the first bytes of it, and one that is idle, are cut off.
func TestTimeouts(t *testing.T) {
	call := record(callBody(1, testProg, 1, procEcho, 1))
	for _, c := range []struct {
		name string
		cfg  Config
		in   []byte
	}{
		{"within a mark", Config{ReadTimeout: time.Second}, call[:6]},
		{"within a record", Config{ReadTimeout: time.Second}, call[:30]},
		{"between fragments", Config{ReadTimeout: time.Second}, append(words(40), call[4:]...)},
		{"within a reply", Config{ReadTimeout: time.Second}, words(lastFrag|100, 5, msgReply, 0, 0)},
		{"idle", Config{IdleTimeout: time.Second}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv, addr := serve(t, newService(), c.cfg)
			nc := dialRaw(t, addr)
			write(t, nc, c.in)
			wantClosed(t, nc)
			eventually(t, "the connection is kept", func() bool { return srv.Stats().Conns == 0 })
		})
	}
}

// TestBusyIsNotIdle checks that a connection that waits for its reply is not closed as idle.
func TestBusyIsNotIdle(t *testing.T) {
	s := newService()
	_, addr := serve(t, s, Config{IdleTimeout: tickLen})
	nc := dialRaw(t, addr)
	write(t, nc, record(callBody(1, testProg, 1, procWait)))
	time.Sleep(5 * tickLen)
	close(s.gate)
	readRecord(t, nc)
}

func TestMaxConns(t *testing.T) {
	srv, addr := serve(t, newService(), Config{MaxConns: 2})
	a, b := dial(t, addr, nil), dial(t, addr, nil)
	echo(t, a, 1)
	echo(t, b, 1)
	wantClosed(t, dialRaw(t, addr))
	if n := srv.Stats().Refused; n != 1 {
		t.Errorf("%d connections refused", n)
	}
	a.Close()
	eventually(t, "the place is not free", func() bool { return srv.Stats().Conns == 1 })
	echo(t, dial(t, addr, nil), 1)
}

// TestIdleMemory checks that an idle connection is cheap, after it has been used too.
func TestIdleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("opens 2000 connections")
	}
	const n = 1000
	srv, addr := serve(t, newService(), Config{})
	measure := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := measure()
	conns := make([]net.Conn, n)
	call := record(callBody(1, testProg, 1, procEcho, 1))
	for i := range conns {
		conns[i] = dialRaw(t, addr)
		write(t, conns[i], call)
		readRecord(t, conns[i])
	}
	each := int(measure()-before) / n
	t.Logf("%d bytes for each idle connection, both ends", each)
	if each > 12<<10 {
		t.Errorf("an idle connection takes %d bytes", each)
	}
	if c := srv.Stats().Conns; c != n {
		t.Errorf("%d connections", c)
	}
}

// TestClose checks that closing wakes all who wait, and that OnClose functions run once.
func TestClose(t *testing.T) {
	s := newService()
	srv, addr := serve(t, s, Config{})
	c := dial(t, addr, nil)
	echo(t, c, 1)
	closed := make(chan int, 10)
	for _, sc := range srv.snapshot() {
		sc.OnClose(func() { closed <- 1 })
	}
	p1, err := c.Start(&Request{Program: testProg, Version: 1, Procedure: procWait})
	if err != nil {
		t.Fatal(err)
	}
	p2, err := c.Start(&Request{Program: testProg, Version: 1, Procedure: procWait})
	if err != nil {
		t.Fatal(err)
	}
	<-s.started
	<-s.started
	server := srv.snapshot()[0]
	c.Close()
	for _, p := range []*Pending{p1, p2} {
		if _, err := p.Wait(context.Background()); err != ErrClosed {
			t.Errorf("Wait: %v", err)
		}
	}
	if _, err := c.Start(&Request{}); err != ErrClosed {
		t.Errorf("Start after Close: %v", err)
	}
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("OnClose was not called")
	}
	late := make(chan int)
	server.OnClose(func() { close(late) })
	<-late
	select {
	case <-server.Done():
		t.Error("done while a call is being served")
	default:
	}
	close(s.gate)
	<-server.Done()
	if len(closed) != 0 {
		t.Error("OnClose was called twice")
	}
	if err := server.Err(); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("Err: %v", err)
	}
}

// TestShutdown checks that calls under way are answered and that the rest is closed.
func TestShutdown(t *testing.T) {
	s := newService()
	srv, addr := serve(t, s, Config{})
	busy, idle := dialRaw(t, addr), dialRaw(t, addr)
	write(t, busy, record(callBody(1, testProg, 1, procWait, 9)))
	<-s.started
	done := make(chan error)
	go func() { done <- srv.Shutdown(context.Background()) }()
	wantClosed(t, idle)
	select {
	case err := <-done:
		t.Fatalf("Shutdown returned %v before the call had ended", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(s.gate)
	if got := readRecord(t, busy); len(got) != 28 {
		t.Errorf("reply: %x", got)
	}
	wantClosed(t, busy)
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
		t.Error("connections are still accepted")
	}
}

// TestShutdownTimeout checks that Shutdown stops waiting when its context ends.
func TestShutdownTimeout(t *testing.T) {
	s := newService()
	srv, addr := serve(t, s, Config{})
	nc := dialRaw(t, addr)
	write(t, nc, record(callBody(1, testProg, 1, procWait, 9)))
	<-s.started
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	go func() {
		<-srv.ctx.Done()
		close(s.gate)
	}()
	if err := srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	wantClosed(t, nc)
}
