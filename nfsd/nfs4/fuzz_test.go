package nfs4

import (
	"context"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// smallFS keeps memfs from cloning more than fits into memory.
type smallFS struct{ vfs.FS }

func (s smallFS) Clone(r *vfs.Request, src vfs.File, srcOff uint64, dst vfs.File, dstOff, n uint64) error {
	if n == 0 || n > 1<<20 {
		return cluster.ENOTSUP
	}
	return s.FS.Clone(r, src, srcOff, dst, dstOff, n)
}

// fuzzOther is the stateid of the file that is open.
var fuzzOther = vfs.StateID{0x13, 0, 1, 5, 5, 5, 6, 6, 6, 7, 7, 7}

const takenOver = 128

// FuzzCompound executes what the fuzzer makes up, in a session with a file open, also
// at whoever has taken the client over (n above 127): it must neither panic nor answer
// with something that can't be decoded.
func FuzzCompound(f *testing.F) {
	mem := memfs.New(memfs.Options{})
	add := func(ops ...op) {
		var e xdr.Encoder
		for _, o := range ops {
			o(&e)
		}
		f.Add(uint8(len(ops)), true, e.Bytes())
		f.Add(uint8(len(ops))|takenOver, true, e.Bytes())
		f.Add(uint8(len(ops)), false, e.Bytes())
	}
	top := putfh(mem.AppendHandle(nil, vfs.Root))
	dir := []op{top, named(proto.OpLookup, "main")}
	sid := state.Stateid{Other: fuzzOther}
	in := func(ops ...op) { add(append(append([]op{}, dir...), ops...)...) }
	in(getattr(linuxAttrs...), readdirOp(0, 4096, linuxAttrs...), mkdir("d"), simple(proto.OpGetfh))
	in(openOp(0, openHow{owner: "o", access: 3, create: true, name: "f"}), readOp(state.Current, 0, 100), closeOp(state.Current))
	in(named(proto.OpLookup, "seed"), readOp(sid, 0, 10), writeOp(sid, 5, 2, []byte("abc")), setSize(sid, 9), setMode(0o600))
	in(simple(proto.OpSavefh), named(proto.OpRename, "a", "b"), named(proto.OpRemove, "x"), named(proto.OpLink, "y"))
	in(named(proto.OpSetxattr), named(proto.OpGetxattr, "x"), named(proto.OpListxattrs), testStateids(sid, sid))
	in(named(proto.OpLookup, "seed"), openOp(0, openHow{owner: "o", access: 1, claim: proto.ClaimFH}), openOp(0, openHow{owner: "q", access: 2, deny: 1, claim: proto.ClaimPrevious}))
	in(named(proto.OpLookup, "seed"), (&sess{}).lockOp(lockArgs{kind: proto.WriteLt, len: 9, owner: "p", sid: sid}), stateidOp(proto.OpFreeStateid, nil, state.Current, nil), closeOp(sid))
	in(named(proto.OpLookup, "seed"), stateidOp(proto.OpOpenDowngrade, nil, sid, func(e *xdr.Encoder) { e.Uint32(0); e.Uint32(1); e.Uint32(0) }), readOp(sid, 0, 1))
	add(exchangeID("x", 1, 0))
	add(createSession(5, 1, linuxFore))
	f.Fuzz(func(t *testing.T, n uint8, session bool, ops []byte) {
		fs := memfs.New(memfs.Options{})
		p, err := New(Config{FS: smallFS{fs}, ServerOwner: "o", Scope: "s", Now: func() cluster.Time { return 1 }})
		if err != nil {
			t.Fatal(err)
		}
		x, _, _ := p.state.ExchangeID(1, state.ExchangeArgs{Owner: []byte("c"), Principal: state.Principal{Flavor: 1}, Minor: 2})
		a := state.ChannelAttrs{MaxRequest: 1 << 20, MaxResponse: 64 << 10, MaxCached: 4096, MaxOps: 64, MaxRequests: 1}
		s, _ := p.state.CreateSession(1, state.CreateSessionArgs{ClientID: x.ClientID, Sequence: 1, Fore: a, Principal: state.Principal{Flavor: 1}})
		req := vfs.NewRequest(context.Background(), vfs.Cred{})
		dir, _, _ := fs.Lookup(req, vfs.Root, "main")
		made, err := fs.Create(req, dir, "seed", regular())
		if err != nil {
			t.Fatal(err)
		}
		_ = fs.Open(req, made.File)
		if n >= takenOver {
			n -= takenOver
			rec, _ := p.state.Record(x.ClientID)
			if p, err = New(p.cfg); err != nil {
				t.Fatal(err)
			}
			if err := p.state.Load(1, []vfs.ClientRecord{{ID: rec.ID, Record: rec.Bytes}}); err != nil {
				t.Fatal(err)
			}
			if err := fs.PutState(req, made.File, vfs.State{Other: fuzzOther, Client: x.ClientID, Access: 3, Owner: []byte("o")}); err != nil {
				t.Fatal(err)
			}
		} else {
			p.state.Open(p.state.Session(&s.ID).Client, &state.OpenArgs{Owner: []byte("o"), File: made.File, Access: 3, Other: fuzzOther}, false)
		}

		var e, out xdr.Encoder
		e.String("")
		e.Uint32(2)
		if session {
			e.Uint32(uint32(n) + 1)
			e.Uint32(uint32(proto.OpSequence))
			e.FixedOpaque(s.ID[:])
			e.Uint32(1)
			e.Uint32(0)
			e.Uint32(0)
			e.Bool(n%2 == 0)
		} else {
			e.Uint32(uint32(n))
		}
		e.Raw(ops)
		call := &oncrpc.Call{Procedure: proto.ProcCompound, Cred: user(0), Args: xdr.NewDecoder(e.Bytes())}
		if p.ServeRPC(call, &out) != oncrpc.Success {
			t.Fatal("the header is right, and refused")
		}
		whole := out.AppendTo(nil)
		out.Release()
		if len(whole) > 64<<10 || len(whole)%4 != 0 {
			t.Fatalf("%d bytes", len(whole))
		}
		d := xdr.NewDecoder(whole)
		d.Uint32()
		d.Opaque(0)
		if got := d.Uint32(); d.Err() != nil || got > uint32(n)+1 {
			t.Fatal(got, d.Err())
		}
	})
}
