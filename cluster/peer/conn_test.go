package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

func TestReconnect(t *testing.T) {
	a := listen(t, "a", nil)
	b := listen(t, "b", nil)
	b.Handle(ServiceMember, echo)
	addr := b.Addr().String()
	call := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r, err := a.Call(ctx, addr, ServiceMember, 0, nil)
		if err == nil {
			r.Release()
		}
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	for end := time.Now().Add(5 * time.Second); ; {
		err := call()
		if errors.Is(err, ErrUnreachable) {
			break
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("calling a closed endpoint: %v", err)
		}
	}
	// Failing fast during the pause, not after it.
	begin := time.Now()
	if err := call(); err == nil || time.Since(begin) > time.Second {
		t.Fatalf("%v after %v", err, time.Since(begin))
	}
	b = listen(t, "b", func(c *Config) { c.Listen = addr })
	b.Handle(ServiceMember, echo)
	for end := time.Now().Add(5 * time.Second); call() != nil; {
		if time.Now().After(end) {
			t.Fatal("not connected again")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestOtherClusterIsRefused(t *testing.T) {
	a := listen(t, "a", nil)
	b := listen(t, "b", func(c *Config) { c.ClusterID = "c2" })
	b.Handle(ServiceMember, echo)
	if _, err := a.Call(t.Context(), b.Addr().String(), ServiceMember, 0, nil); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("another cluster's node: %v", err)
	}
	n := listen(t, "n", func(c *Config) { c.ClusterID = "" })
	r, err := n.Call(t.Context(), b.Addr().String(), ServiceMember, 0, nil)
	if err != nil {
		t.Fatalf("a node that is no member yet: %v", err)
	}
	r.Release()
}

// TestSilentPeer has a peer that accepts, greets and then says nothing: calls
// fail after the pings, a call with a large body ends at its deadline, and other
// peers do not notice.
func TestSilentPeer(t *testing.T) {
	a := listen(t, "a", func(c *Config) { c.PingInterval = 50 * time.Millisecond })
	good := listen(t, "good", nil)
	good.Handle(ServiceBlob, echo)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	quit := make(chan struct{})
	defer close(quit)
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4096)
			wg.Go(func() {
				defer conn.Close()
				if _, err := readHello(conn); err != nil {
					return
				}
				answer := hello{version: 1, use: useAnswer, calls: 16, bytes: 64 << 20, node: "mute"}
				_, _ = conn.Write(answer.append(nil))
				<-quit
			})
		}
	})
	defer ln.Close()
	mute := ln.Addr().String()

	if _, err := a.Call(t.Context(), mute, ServiceMember, 0, nil); !errors.Is(err, ErrConnection) {
		t.Fatalf("a silent peer: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	begin := time.Now()
	body := make([]byte, cluster.MaxBlob)
	if _, err := a.Call(ctx, mute, ServiceBlob, 0, nil, body, body[:0]); err == nil {
		t.Fatal("a silent peer answered")
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Fatalf("the call ended after %v", d)
	}
	clear(body) // ours again: the race detector would see a write still under way
	r, err := a.Call(t.Context(), good.Addr().String(), ServiceBlob, 0, nil, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Release()
}

// TestSlowReaderHurtsNobody has a client that sends calls and reads no answers.
func TestSlowReaderHurtsNobody(t *testing.T) {
	b := listen(t, "b", nil)
	b.Handle(ServiceBlob, func(context.Context, *Request) (Reply, error) {
		return Reply{Body: [][]byte{make([]byte, cluster.MaxBlob)}}, nil
	})
	conn, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h := hello{version: 1, use: useCalls, cluster: "c1", node: "slow"}
	_, _ = conn.Write(h.append(nil))
	if _, err := readHello(conn); err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		_, _ = conn.Write((&header{typ: frameRequest, service: ServiceBlob, id: uint32(i)}).append(nil))
	}
	a := listen(t, "a", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for range 10 {
		r, err := a.Call(ctx, b.Addr().String(), ServiceBlob, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
}

// TestBadInput sends what no peer sends: the connection is closed, nothing else
// happens.
func TestBadInput(t *testing.T) {
	b := listen(t, "b", func(c *Config) { c.MaxCalls = 2; c.DialTimeout = 200 * time.Millisecond })
	hold := make(chan struct{})
	defer close(hold)
	b.Handle(ServiceMember, func(context.Context, *Request) (Reply, error) { <-hold; return Reply{}, nil })
	good := hello{version: 1, use: useCalls, node: "bad"}
	request := func(id uint32) []byte {
		return (&header{typ: frameRequest, service: ServiceMember, id: id}).append(nil)
	}
	corrupt := request(1)
	corrupt[13] ^= 1
	body := newFrame(&header{typ: frameRequest, service: ServicePropose}, []byte("head"), [][]byte{[]byte("body")}).small
	body[len(body)-1] ^= 1
	for name, c := range map[string]struct{ hello, frames []byte }{
		"nothing":        {nil, nil},
		"http":           {[]byte("GET / HTTP/1.1\r\nHost: hawser.example\r\n\r\n"), nil},
		"version 9":      {(&hello{version: 9, use: useCalls, node: "bad"}).append(nil), nil},
		"no such group":  {(&hello{version: 1, use: useStream, group: 9, node: "bad"}).append(nil), nil},
		"corrupt header": {good.append(nil), corrupt},
		"corrupt body":   {good.append(nil), body},
		"too large":      {good.append(nil), (&header{typ: frameRequest, bodyLen: MaxBody + 1}).append(nil)},
		"an answer":      {good.append(nil), (&header{typ: frameResponse, id: 1}).append(nil)},
		"id twice":       {good.append(nil), append(request(1), request(1)...)},
		"too many calls": {good.append(nil), append(append(request(1), request(2)...), request(3)...)},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", b.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = conn.Write(c.hello)
			_, _ = conn.Write(c.frames)
			_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
			if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, context.DeadlineExceeded) {
				t.Fatal("the connection stays open")
			} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Fatal("the connection stays open")
			}
		})
	}
}

func TestStreams(t *testing.T) {
	a, b := listen(t, "a", nil), listen(t, "b", nil)
	if _, err := a.DialStream(t.Context(), b.Addr().String(), 5); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("a group without a listener: %v", err)
	}
	ln := b.Streams(5)
	out, err := a.DialStream(t.Context(), b.Addr().String(), 5)
	if err != nil {
		t.Fatal(err)
	}
	in, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = out.Write([]byte("raft"))
	var got [4]byte
	if _, err := io.ReadFull(in, got[:]); err != nil || string(got[:]) != "raft" {
		t.Fatalf("%q %v", got, err)
	}
	_ = ln.Close()
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	_ = b.Close() // closes the accepted stream too
	if _, err := out.Read(got[:]); err == nil {
		t.Fatal("the stream outlives its endpoint")
	}
	_ = out.Close()
}
