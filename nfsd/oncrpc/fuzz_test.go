package oncrpc

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

var noDeadline time.Time

// FuzzHeader checks that no header of a call or reply panics, and that what is
// accepted has a well-formed credential.
func FuzzHeader(f *testing.F) {
	f.Add(callBody(1, testProg, 1, 1, 5))
	f.Add(append(append(words(1, 0, 2, testProg, 1, 1), sysCred(1, 2, 16)...), words(0, 0)...))
	f.Add(words(1, 1, 0, 0, 0, 2, 1, 2))
	f.Fuzz(func(t *testing.T, in []byte) {
		var call Call
		var sys AuthSys
		d := xdr.NewDecoder(in)
		call.Args = d
		if v, _ := decodeCall(&call, &sys); v == dispatch {
			if (call.Cred.Flavor == AuthSysF) != (call.Cred.Sys != nil) {
				t.Fatal("credential and flavor differ")
			}
			if d.Err() != nil {
				t.Fatal("accepted, but", d.Err())
			}
			if a := call.Cred.Sys; a != nil && (len(a.GIDs) > MaxGroups || len(a.Machine) > maxMachine) {
				t.Fatal("credential over its limits")
			}
		}
		d.Init(in)
		_ = decodeReply(d)
	})
}

// FuzzStream feeds a server any bytes, in two parts, and checks that it
// survives, ends, and keeps no memory.
func FuzzStream(f *testing.F) {
	call := callBody(1, testProg, 1, procEcho, 5)
	f.Add(record(call), 10)
	f.Add(record(call, 1, 7, 9), 3)
	f.Add(append(record(words(9, msgReply, 0, 0)), record(call, 20)...), 30)
	f.Add(words(lastFrag|5000, 1, 2, 3), 2)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		srv := NewServer(Config{
			MaxRecord: 4096, RequestMemory: 16 << 10,
			Programs: []Program{{Number: testProg, MinVersion: 1, MaxVersion: 2, Handler: newFuzzService()}},
		})
		a, b := net.Pipe()
		if _, err := srv.Attach(a); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, b) }()
		cut = min(max(cut, 0), len(in))
		_ = b.SetWriteDeadline(time.Now().Add(5 * time.Second))
		if _, err := b.Write(in[:cut]); err == nil {
			_, _ = b.Write(in[cut:])
		}
		_ = b.Close()
		srv.Close()
		if st := srv.Stats(); st.RequestMemory != 0 || st.ReplyMemory != 0 || st.Panics != 0 {
			t.Fatalf("left over: %+v", st)
		}
	})
}

func newFuzzService() Handler {
	return HandlerFunc(func(call *Call, reply *xdr.Encoder) AcceptStat {
		reply.Raw(call.Args.FixedOpaque(call.Args.Remaining()))
		return Success
	})
}
