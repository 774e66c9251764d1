package oncrpc

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// benchServe measures the server alone: b.N calls go out with depth under way
// on each of conns connections, and reply bytes are read and thrown away.
func benchServe(b *testing.B, conns, depth int, call []byte, reply int) {
	_, addr := serve(b, newService(), Config{})
	b.SetBytes(int64(max(len(call), reply)))
	b.ReportAllocs()
	done := make(chan error, conns)
	var socks []net.Conn
	for range conns {
		socks = append(socks, dialRaw(b, addr))
		_ = socks[len(socks)-1].SetDeadline(noDeadline)
	}
	b.ResetTimer()
	for i, nc := range socks {
		n := b.N / conns
		if i < b.N%conns {
			n++
		}
		go func() { done <- drive(nc, n, depth, call, reply) }()
	}
	for range conns {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// drive sends n calls, depth of them under way, and reads the replies.
func drive(nc net.Conn, n, depth int, call []byte, reply int) error {
	buf := make([]byte, 64<<10)
	sent, batch := 0, make([]byte, 0, depth*min(len(call), 1024))
	send := func(k int) error {
		batch = batch[:0]
		for range k {
			batch = append(batch, call...)
		}
		sent += k
		_, err := nc.Write(batch)
		return err
	}
	if err := send(min(depth, n)); err != nil {
		return err
	}
	for got, part := 0, 0; got < n; {
		m, err := nc.Read(buf)
		if err != nil {
			return err
		}
		part += m
		k := part / reply
		part %= reply
		got += k
		if k = min(k, n-sent); k > 0 {
			if err := send(k); err != nil {
				return err
			}
		}
	}
	return nil
}

func BenchmarkRead1M(b *testing.B) {
	benchServe(b, 1, 16, record(callBody(1, testProg, 1, procRead, 1<<20)), 1<<20+32)
}

func BenchmarkRead1MConns4(b *testing.B) {
	benchServe(b, 4, 16, record(callBody(1, testProg, 1, procRead, 1<<20)), 1<<20+32)
}

func BenchmarkRead4K(b *testing.B) {
	benchServe(b, 1, 64, record(callBody(1, testProg, 1, procRead, 4<<10)), 4<<10+32)
}

func BenchmarkSmall(b *testing.B) {
	benchServe(b, 1, 64, record(callBody(1, testProg, 1, procNull)), 28)
}

// deep uses as much stack as a look-up in the state machine does.
//
//go:noinline
func deep(n int) byte {
	var frame [512]byte
	if n > 0 {
		frame[n] = deep(n - 1)
	}
	return frame[n] + 1
}

// BenchmarkDeep is BenchmarkSmall with a handler that needs 16 KiB of stack.
func BenchmarkDeep(b *testing.B) {
	srv := NewServer(Config{Programs: []Program{{
		Number: testProg, MinVersion: 1, MaxVersion: 1,
		Handler: HandlerFunc(func(*Call, *xdr.Encoder) AcceptStat {
			return Success + AcceptStat(deep(24)-25)
		}),
	}}})
	defer srv.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = srv.Serve(ln) }()
	nc := dialRaw(b, ln.Addr().String())
	_ = nc.SetDeadline(noDeadline)
	b.ReportAllocs()
	b.ResetTimer()
	if err := drive(nc, b.N, 64, record(callBody(1, testProg, 1, procNull)), 28); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkSmallDepth1(b *testing.B) {
	benchServe(b, 1, 1, record(callBody(1, testProg, 1, procNull)), 28)
}

// BenchmarkWrite1M measures calls that carry a MiB.
func BenchmarkWrite1M(b *testing.B) {
	s := newService()
	srv := NewServer(Config{Programs: []Program{{
		Number: testProg, MinVersion: 1, MaxVersion: 1,
		Handler: HandlerFunc(func(*Call, *xdr.Encoder) AcceptStat { return Success }),
	}}})
	defer srv.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = srv.Serve(ln) }()
	nc := dialRaw(b, ln.Addr().String())
	_ = nc.SetDeadline(noDeadline)
	call := record(append(callBody(1, testProg, 1, procNull), s.payload...))
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			if _, err := nc.Write(call); err != nil {
				return
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, nc, int64(b.N)*28); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkClientCall measures both ends: Conn.Call to a null procedure.
func BenchmarkClientCall(b *testing.B) {
	_, addr := serve(b, newService(), Config{})
	c := dial(b, addr, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := c.Call(context.Background(), &Request{Program: testProg, Version: 1})
			if err != nil {
				b.Error(err)
				return
			}
			r.Release()
		}
	})
}

func BenchmarkDecodeCall(b *testing.B) {
	body := append(binary.BigEndian.AppendUint32(nil, 1), words(msgCall, 2, testProg, 1, 1)...)
	body = append(append(body, sysCred(1, 1, 16)...), words(0, 0)...)
	var call Call
	var sys AuthSys
	var d xdr.Decoder
	b.ReportAllocs()
	for b.Loop() {
		d.Init(body)
		call.Args = &d
		if v, _ := decodeCall(&call, &sys); v != dispatch {
			b.Fatal(v)
		}
	}
}
