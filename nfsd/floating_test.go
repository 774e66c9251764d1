package nfsd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/ids"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// saying is a handler that answers with a number.
func saying(n uint32) oncrpc.Handler {
	return oncrpc.HandlerFunc(func(_ *oncrpc.Call, reply *xdr.Encoder) oncrpc.AcceptStat {
		reply.Uint32(n)
		return oncrpc.Success
	})
}

// An asker makes calls.
type asker struct{ rpc *oncrpc.Server }

// dial connects; every address of 127.0.0.0/8 is this machine's.
func (a *asker) dial(t *testing.T, addr netip.Addr, port uint16) *oncrpc.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", netip.AddrPortFrom(addr, port).String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.rpc.Attach(nc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var nullCall = oncrpc.Request{Program: 1, Version: 1, Cred: oncrpc.Cred{Flavor: oncrpc.AuthSysF, Sys: &oncrpc.AuthSys{}}}

// ask returns what the program answers.
func ask(t *testing.T, c *oncrpc.Conn) (uint32, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := c.Call(ctx, &nullCall)
	if err != nil {
		return 0, err
	}
	defer r.Release()
	return r.Results.Uint32(), nil
}

func startFloating(t *testing.T, listen string) (*Server, *asker) {
	t.Helper()
	s, err := Listen(Config{
		Listen:   []string{listen},
		Programs: []oncrpc.Program{{Number: 1, MaxVersion: 1, Handler: saying(1)}},
		Groups:   ids.New(ids.Config{Lookup: func(uint32) ([]uint32, error) { return nil, nil }}),
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{oncrpc.NewServer(oncrpc.Config{})}
	done := make(chan error)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		a.rpc.Close()
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, a
}

func clientsOf(s *Server, addr netip.Addr) string { return fmt.Sprint(s.Clients(addr)) }

// TestFloating: a connection is served by the programs of the address that it
// was made to, from when they come until they go.
func TestFloating(t *testing.T) {
	own, second, third := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		t.Run(listen, func(t *testing.T) {
			s, a := startFloating(t, listen)
			port := s.Port()
			expect := func(what string, c *oncrpc.Conn, want uint32) {
				t.Helper()
				if got, err := ask(t, c); err != nil || got != want {
					t.Errorf("%s: answered by %d, %v; want %d", what, got, err, want)
				}
			}
			first := a.dial(t, own, port)
			expect("the own address", first, 1)
			if err := s.ServeAddress(second); err == nil {
				t.Error("an address without handlers was taken")
			}
			if err := errors.Join(s.ServeAddress(second, saying(2)), s.ServeAddress(third, saying(3))); err != nil {
				t.Fatal(err)
			}
			c2, c3 := a.dial(t, second, port), a.dial(t, third, port)
			expect("a floating address", c2, 2)
			expect("another", c3, 3)
			expect("the own address", first, 1)
			if got, want := clientsOf(s, second), fmt.Sprint([]net.Addr{c2.LocalAddr()}); got != want {
				t.Errorf("clients of the floating address: %s, want %s", got, want)
			}
			if got, want := clientsOf(s, netip.Addr{}), fmt.Sprint([]net.Addr{first.LocalAddr()}); got != want {
				t.Errorf("clients of the own address: %s, want %s", got, want)
			}

			// A connection that has said nothing yet when its address goes.
			silent := a.dial(t, second, port)
			s.RefuseAddress(second)
			select {
			case <-c2.Done():
			case <-time.After(10 * time.Second):
				t.Fatal("a connection to an address that is gone is still open")
			}
			if got, err := ask(t, silent); err == nil {
				t.Errorf("a call to an address that is gone was answered by %d", got)
			}
			if nc, err := net.Dial("tcp", netip.AddrPortFrom(second, port).String()); err == nil {
				late, err := a.rpc.Attach(nc)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := ask(t, late); err == nil {
					t.Errorf("a new connection to an address that is gone was answered by %d", got)
				}
			}
			if got := clientsOf(s, second); got != "[]" {
				t.Errorf("clients of an address that is gone: %s", got)
			}
			expect("an address that stays", c3, 3)
			expect("the own address", first, 1)

			// It comes back, with the state of a later epoch.
			if err := s.ServeAddress(second, saying(22)); err != nil {
				t.Fatal(err)
			}
			c2 = a.dial(t, second, port)
			expect("an address that is back", c2, 22)
			if err := s.ServeAddress(second, saying(222)); err != nil {
				t.Fatal(err)
			}
			if _, err := ask(t, c2); err == nil {
				t.Error("a connection has outlived what it was made to")
			}
			expect("an address that was replaced", a.dial(t, second, port), 222)

			s.ForgetAddress(second)
			if listen != "127.0.0.1:0" {
				expect("an address that floats no more", a.dial(t, second, port), 1)
			}
		})
	}
}

// TestFloatingNoReply: what is under way when an address goes is not answered.
func TestFloatingNoReply(t *testing.T) {
	s, a := startFloating(t, "127.0.0.1:0")
	addr := netip.MustParseAddr("127.0.0.2")
	begun, end := make(chan struct{}), make(chan struct{})
	slow := oncrpc.HandlerFunc(func(_ *oncrpc.Call, reply *xdr.Encoder) oncrpc.AcceptStat {
		close(begun)
		<-end
		reply.Uint32(2)
		return oncrpc.Success
	})
	if err := s.ServeAddress(addr, slow); err != nil {
		t.Fatal(err)
	}
	c := a.dial(t, addr, s.Port())
	got := make(chan error)
	go func() {
		r, err := c.Call(context.Background(), &nullCall)
		if err == nil {
			r.Release()
		}
		got <- err
	}()
	<-begun
	s.RefuseAddress(addr)
	close(end)
	if err := <-got; err == nil {
		t.Error("a reply was sent on an address that is gone")
	}
}

func TestServeAddressInUse(t *testing.T) {
	s, a := startFloating(t, "127.0.0.1:0")
	if _, err := ask(t, a.dial(t, netip.MustParseAddr("127.0.0.1"), s.Port())); err != nil {
		t.Fatal(err) // it serves by now
	}
	ln, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), s.Port()).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if err := s.ServeAddress(netip.MustParseAddr("127.0.0.2"), saying(2)); err == nil {
		t.Error("an address that somebody else listens on was taken")
	}
	// One that this machine does not have is.
	if err := s.ServeAddress(netip.MustParseAddr("192.0.2.50"), saying(2)); err != nil {
		t.Error(err)
	}
}

// TestNothingIsKept: the kernel keeps nothing of a connection to a floating
// address that is closed, so that the client is reset, not told of an end that it
// has to acknowledge.
func TestNothingIsKept(t *testing.T) {
	s, _ := startFloating(t, "0.0.0.0:0")
	addr := netip.MustParseAddr("127.0.0.4")
	if err := s.ServeAddress(addr, saying(4)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		addr string
		want error
	}{{"127.0.0.1", io.EOF}, {"127.0.0.4", syscall.ECONNRESET}} {
		t.Run(c.addr, func(t *testing.T) {
			nc, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(c.addr), s.Port()).String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			// A record that is no call closes the connection.
			if _, err := nc.Write([]byte{0x80, 0, 0, 4, 1, 2, 3, 4}); err != nil {
				t.Fatal(err)
			}
			if err := nc.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("reading ends with %v, and should with %v", err, c.want)
			}
		})
	}
}
