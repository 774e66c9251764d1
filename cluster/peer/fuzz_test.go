package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"
)

// signed returns b with its last four bytes made the checksum of those before
// them, so that the fuzzer gets past it.
func signed(b []byte) []byte {
	if len(b) < sumSize {
		return b
	}
	b = bytes.Clone(b)
	n := len(b) - sumSize
	binary.BigEndian.PutUint32(b[n:], crc32.Checksum(b[:n], castagnoli))
	return b
}

// FuzzHello reads any bytes as a hello: what is accepted is within the limits,
// and the same when it is written again.
func FuzzHello(f *testing.F) {
	f.Add((&hello{version: 1, use: useCalls, cluster: "c1", node: "n"}).append(nil), false)
	f.Add((&hello{version: 2, use: useStream, group: 7, calls: 3, bytes: 1 << 40, node: "n"}).append(nil), true)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: hawser.example\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, in []byte, sign bool) {
		if sign {
			in = signed(in)
		}
		r := bytes.NewReader(in)
		h, err := readHello(r)
		if err != nil {
			return
		}
		if len(h.cluster) > maxClusterID || len(h.node) > maxNodeID || h.node == "" {
			t.Fatalf("accepted: %+v", h)
		}
		read := in[:len(in)-r.Len()]
		if read[26] == 0 && read[27] == 0 && !bytes.Equal(h.append(nil), read) {
			t.Fatalf("read %x as %+v", read, h)
		}
	})
}

// FuzzFrame reads any bytes as frames: what is accepted is within the limits,
// and is what was sent.
func FuzzFrame(f *testing.F) {
	for _, s := range []Service{ServicePropose, ServiceBlob} {
		f.Add(newFrame(&header{typ: frameRequest, service: s, id: 9, timeout: 5}, []byte("head"), [][]byte{[]byte("body")}).small, false)
	}
	f.Add((&header{typ: framePing}).append(nil), true)
	f.Add((&header{typ: frameRequest, headLen: MaxHead + 1}).append(nil), false)
	f.Fuzz(func(t *testing.T, in []byte, sign bool) {
		if sign && len(in) >= headerSize {
			in = append(signed(in[:headerSize]), in[headerSize:]...)
		}
		r := bufio.NewReader(bytes.NewReader(in))
		for {
			var h header
			head, body, buf, err := readFrame(r, &h)
			if err != nil {
				return
			}
			if len(head) > MaxHead || len(body) > MaxBody || len(head) != int(h.headLen) || len(body) != int(h.bodyLen) {
				t.Fatalf("%+v with %d + %d bytes", h, len(head), len(body))
			}
			buf.Release()
		}
	})
}

// FuzzConnection sends any bytes after a good hello, and frames that a dialer
// could send among them: the endpoint survives, ends the connection with its
// handlers, and serves others.
func FuzzConnection(f *testing.F) {
	request := func(h header, body string) []byte {
		return newFrame(&h, nil, [][]byte{[]byte(body)}).small
	}
	f.Add(request(header{typ: frameRequest, service: ServiceMember, id: 1, timeout: 1}, "x"), uint8(frameRequest), uint32(1), uint32(0))
	f.Add(request(header{typ: framePing}, ""), uint8(frameCancel), uint32(1), uint32(1))
	f.Add(request(header{typ: frameResponse}, "x"), uint8(9), uint32(1), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, in []byte, typ uint8, id, timeout uint32) {
		e := listen(t, "e", func(c *Config) { c.MaxCalls = 4; c.DialTimeout = time.Second })
		e.Handle(ServiceMember, func(_ context.Context, r *Request) (Reply, error) {
			return Reply{Head: bytes.Clone(r.Head), Body: [][]byte{bytes.Clone(r.Body)}}, nil
		})
		ours, theirs := net.Pipe()
		e.mu.Lock()
		e.accepted++
		e.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.accept(theirs, true)
		}()
		_ = ours.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = ours.Write((&hello{version: 1, use: useCalls, node: "fuzz"}).append(nil))
		if _, err := readHello(ours); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		if _, err := ours.Write(request(header{typ: frameType(typ), service: ServiceMember, id: id, timeout: timeout}, "body")); err == nil {
			_, _ = ours.Write(in)
		}
		_ = ours.Close()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the connection has no end")
		}
		e.mu.Lock()
		accepted := e.accepted
		e.mu.Unlock()
		if accepted != 0 {
			t.Fatalf("%d connections are still counted", accepted)
		}
		_ = e.Close()
	})
}
