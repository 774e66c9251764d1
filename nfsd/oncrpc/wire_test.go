package oncrpc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// sysCred returns an AUTH_SYS credential, flavor and length included.
func sysCred(uid, gid uint32, groups int) []byte {
	gids := make([]uint32, groups)
	for i := range gids {
		gids[i] = uint32(1000 + i)
	}
	e := xdr.NewEncoder(nil)
	c := Cred{Flavor: AuthSysF, Sys: &AuthSys{Machine: []byte("client"), UID: uid, GID: gid, GIDs: gids}}
	c.append(e)
	return e.Bytes()
}

// TestHeaders checks, word for word, what is answered to calls good and bad.
func TestHeaders(t *testing.T) {
	const x = 0x11223344
	call := func(rpcvers, prog, vers, proc uint32, cred []byte, args ...uint32) []byte {
		b := append(words(x, msgCall, rpcvers, prog, vers, proc), cred...)
		return append(append(b, words(0, 0)...), words(args...)...)
	}
	none := words(0, 0)
	accepted := func(stat uint32, rest ...uint32) []byte {
		return words(append([]uint32{x, msgReply, msgAccepted, 0, 0, stat}, rest...)...)
	}
	denied := func(rest ...uint32) []byte {
		return words(append([]uint32{x, msgReply, msgDenied}, rest...)...)
	}
	_, addr := serve(t, newService(), Config{})
	for _, c := range []struct {
		name string
		in   []byte
		want []byte // nil: the connection is closed
	}{
		{"null", call(2, testProg, 1, procNull, none), accepted(0)},
		{"echo", call(2, testProg, 2, procEcho, none, 7, 8), accepted(0, 7, 8)},
		{"no credential", call(2, testProg, 1, procWho, none), accepted(0, 0)},
		{"AUTH_SYS", call(2, testProg, 1, procWho, sysCred(5, 6, 2)), accepted(0, 1, 5, 6, 6, 0x636c6965, 0x6e740000, 1000, 1001)},
		{"RPC version 3", call(3, testProg, 1, procNull, none), denied(rejectMismatch, 2, 2)},
		{"unknown program", call(2, 5, 1, procNull, none), accepted(1)},
		{"version too high", call(2, testProg, 3, procNull, none), accepted(2, 1, 2)},
		{"version too low", call(2, testProg, 0, procNull, none), accepted(2, 1, 2)},
		{"unknown procedure", call(2, testProg, 1, 99, none), accepted(3)},
		{"bad arguments", call(2, testProg, 1, procBad, none), accepted(4)},
		{"short arguments", call(2, testProg, 1, procRead, none), accepted(4)},
		{"panic", call(2, testProg, 1, procPanic, none), accepted(5)},
		{"17 groups", call(2, testProg, 1, procNull, sysCred(1, 1, 17)), denied(rejectAuth, uint32(AuthBadCred))},
		{"AUTH_SYS cut short", call(2, testProg, 1, procNull, words(1, 4, 0)), denied(rejectAuth, uint32(AuthBadCred))},
		{"AUTH_SYS with more behind", call(2, testProg, 1, procNull, words(1, 24, 0, 0, 0, 0, 0, 0)), denied(rejectAuth, uint32(AuthBadCred))},
		{"AUTH_SHORT", call(2, testProg, 1, procNull, words(2, 0)), denied(rejectAuth, uint32(AuthRejectedCred))},
		{"RPCSEC_GSS", call(2, testProg, 0, procNull, words(6, 4, 1)), denied(rejectAuth, uint32(AuthBadCred))},
		{"AUTH_TLS", call(2, testProg, 1, procNull, words(7, 0)), denied(rejectAuth, uint32(AuthBadCred))},
		{"credential over 400 bytes", call(2, testProg, 1, procNull, append(words(1, 404), make([]byte, 404)...)), nil},
		{"header cut short", words(x, msgCall, 2, testProg), nil},
		{"neither call nor reply", words(x, 2, 2, testProg, 1, 0, 0, 0, 0, 0), nil},
		{"too short for a type", words(x), nil},
		{"empty", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			nc := dialRaw(t, addr)
			if _, err := nc.Write(record(c.in)); err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				wantClosed(t, nc)
				return
			}
			if got := readRecord(t, nc); !bytes.Equal(got, c.want) {
				t.Fatalf("got %x\nwant %x", got, c.want)
			}
			// The connection goes on.
			if _, err := nc.Write(record(callBody(x, testProg, 1, procEcho, 9))); err != nil {
				t.Fatal(err)
			}
			if got := readRecord(t, nc); !bytes.Equal(got, accepted(0, 9)) {
				t.Fatalf("afterwards: got %x", got)
			}
		})
	}
}

// TestFragments checks records cut in every way, as bytes that arrive at once and one by one.
func TestFragments(t *testing.T) {
	_, addr := serve(t, newService(), Config{MaxRecord: 4096})
	body := callBody(1, testProg, 1, procEcho, 1, 2, 3)
	long := append(callBody(2, testProg, 1, procEcho), make([]byte, 4000)...)
	ones := make([]int, len(body)-1)
	for i := range ones {
		ones[i] = 1
	}
	for _, c := range []struct {
		name string
		in   []byte
		want int // bytes of results; -1: the connection is closed
	}{
		{"one", record(body), 12},
		{"two", record(body, 20), 12},
		{"first of a byte", record(body, 1), 12},
		{"all of a byte", record(body, ones...), 12},
		{"the last empty", record(body, len(body)), 12},
		{"grows", record(long, 1, 500, 600, 2000), 4000},
		{"an empty one", append(words(uint32(len(body))), append(bytes.Clone(body), words(0)...)...), -1},
		{"one too large", words(lastFrag | 4097), -1},
		{"sum too large", append(words(4000), append(make([]byte, 4000), words(lastFrag|97)...)...), -1},
		{"not RPC", []byte("GET / HTTP/1.1\r\n\r\n"), -1},
	} {
		for _, chunk := range []int{1 << 20, 1, 7} {
			if c.want < 0 && chunk == 1 {
				continue
			}
			nc := dialRaw(t, addr)
			for in := c.in; len(in) > 0; {
				n := min(chunk, len(in))
				if _, err := nc.Write(in[:n]); err != nil {
					break // closed already
				}
				in = in[n:]
			}
			if c.want < 0 {
				wantClosed(t, nc)
			} else if got := readRecord(t, nc); len(got) != 24+c.want {
				t.Errorf("%s in chunks of %d: %d bytes of results, want %d", c.name, chunk, len(got)-24, c.want)
			}
			_ = nc.Close()
		}
	}
}

// TestUnexpectedReply checks that a reply that nobody waits for is passed over,
// also one larger than what is read ahead.
func TestUnexpectedReply(t *testing.T) {
	_, addr := serve(t, newService(), Config{})
	nc := dialRaw(t, addr)
	for _, size := range []int{0, 16, 100000} {
		in := record(append(words(77, msgReply), make([]byte, size)...))
		in = append(in, record(callBody(1, testProg, 1, procEcho, 5))...)
		if _, err := nc.Write(in); err != nil {
			t.Fatal(err)
		}
		if got := readRecord(t, nc); len(got) != 28 {
			t.Fatalf("after a reply of %d bytes: got %x", size, got)
		}
	}
}

// TestCallErrors checks what a caller gets for the replies other than SUCCESS.
func TestCallErrors(t *testing.T) {
	_, addr := serve(t, newService(), Config{})
	c := dial(t, addr, nil)
	for _, k := range []struct {
		r    Request
		want CallError
	}{
		{Request{Program: 9}, CallError{Stat: ProgUnavail}},
		{Request{Program: testProg, Version: 7}, CallError{Stat: ProgMismatch, Low: 1, High: 2}},
		{Request{Program: testProg, Version: 1, Procedure: 99}, CallError{Stat: ProcUnavail}},
		{Request{Program: testProg, Version: 1, Procedure: procPanic}, CallError{Stat: SystemErr}},
		{Request{Program: testProg, Version: 1, Cred: Cred{Flavor: RPCSecGSS}}, CallError{Denied: true, Auth: AuthBadCred}},
	} {
		_, err := c.Call(context.Background(), &k.r)
		var e *CallError
		if !errors.As(err, &e) || *e != k.want {
			t.Errorf("%+v: %v", k.r, err)
		}
	}
	echo(t, c, 3)
}

// TestPipe checks a connection that the runtime can't poll.
func TestPipe(t *testing.T) {
	s := newService()
	srv, _ := serve(t, s, Config{})
	a, b := net.Pipe()
	if _, err := srv.Attach(a); err != nil {
		t.Fatal(err)
	}
	cl := NewServer(Config{MaxRecord: 4 << 20})
	defer cl.Close()
	c, err := cl.Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(10) {
		echo(t, c, i)
		readBack(t, c, 300000)
	}
}

// readBack calls procRead for n bytes.
func readBack(t testing.TB, c *Conn, n uint32) {
	t.Helper()
	r, err := c.Call(context.Background(), &Request{
		Program: testProg, Version: 1, Procedure: procRead,
		Encode: func(e *xdr.Encoder) { e.Uint32(n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	p := r.Results.Opaque(4 << 20)
	if uint32(len(p)) != n || !bytes.HasPrefix(p, []byte("payload payl")[:min(n, 12)]) || r.Results.Remaining() != 0 {
		t.Fatalf("%d bytes read, want %d", len(p), n)
	}
}
