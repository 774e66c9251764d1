package conformance

import (
	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

func compound() *client.Compound { return client.NewCompound() }

// An argument appends an operation's arguments.
type argument func(*xdr.Encoder)

// with appends an operation with arguments.
func with(c *client.Compound, op proto.Op, args argument) *client.Compound {
	e := c.Op(op)
	if args != nil {
		args(e)
	}
	return c
}

func none(*xdr.Encoder)                 { /* no arguments */ }
func text(s string) argument            { return func(e *xdr.Encoder) { e.String(s) } }
func number(n uint32) argument          { return func(e *xdr.Encoder) { e.Uint32(n) } }
func stateid(s client.Stateid) argument { return func(e *xdr.Encoder) { client.PutStateid(e, s) } }

// all appends arguments one after the other.
func all(args ...argument) argument {
	return func(e *xdr.Encoder) {
		for _, a := range args {
			a(e)
		}
	}
}

func hyper(n uint64) argument { return func(e *xdr.Encoder) { e.Uint64(n) } }

// needHandle are operations that are about the current file, with arguments that
// can be decoded.
var needHandle = []struct {
	op   proto.Op
	args argument
}{
	{proto.OpAccess, number(1)},
	{proto.OpClose, all(number(1), stateid(client.Stateid{}))},
	{proto.OpCommit, all(hyper(0), number(0))},
	{proto.OpCreate, all(number(proto.TypeDir), text("x"), number(0), number(0))},
	{proto.OpGetattr, number(0)},
	{proto.OpGetfh, none},
	{proto.OpLockt, all(number(proto.ReadLt), hyper(0), hyper(1), hyper(0), text("owner"))},
	{proto.OpLocku, all(number(proto.ReadLt), number(1), stateid(client.Stateid{}), hyper(0), hyper(1))},
	{proto.OpLookup, text("x")},
	{proto.OpLookupp, none},
	{proto.OpNverify, all(number(0), number(0))},
	{proto.OpOpenDowngrade, all(stateid(client.Stateid{}), number(1), number(1), number(0))},
	{proto.OpRead, all(stateid(client.Stateid{}), hyper(0), number(1))},
	{proto.OpReaddir, all(hyper(0), hyper(0), number(4096), number(4096), number(0))},
	{proto.OpReadlink, none},
	{proto.OpRemove, text("x")},
	{proto.OpSavefh, none},
	{proto.OpSecinfo, text("x")},
	{proto.OpSetattr, all(stateid(client.Stateid{}), number(0), number(0))},
	{proto.OpVerify, all(number(0), number(0))},
	{proto.OpWrite, all(stateid(client.Stateid{}), hyper(0), number(proto.FileSync), text("x"))},
}

var _ = register("compound",
	Case{"needs-a-filehandle", "RFC 7530 §13.1.2.5, RFC 8881 §15.1.2.5", All, func(t *T) {
		c := t.Client()
		for _, x := range needHandle {
			t.Want(c, x.op.String()+" without a current filehandle", with(compound(), x.op, x.args), proto.ErrNofilehandle)
		}
		root := compound().Plain(proto.OpPutrootfh)
		t.Want(c, "LINK without a saved filehandle", with(root, proto.OpLink, text("x")), proto.ErrNofilehandle)
		root = compound().Plain(proto.OpPutrootfh)
		t.Want(c, "RENAME without a saved filehandle", with(root, proto.OpRename, all(text("x"), text("y"))), proto.ErrNofilehandle)
	}},
	Case{"restorefh-without-savefh", "RFC 7530 §16.28, RFC 8881 §18.27", All, func(t *T) {
		want := []proto.Status{proto.ErrNofilehandle}
		if t.Minor() == 0 {
			want = []proto.Status{proto.ErrRestorefh}
		}
		t.Want(t.Client(), "RESTOREFH", compound().Plain(proto.OpPutrootfh, proto.OpRestorefh), want...)
	}},
	Case{"illegal-operation", "RFC 7530 §16.38, RFC 8881 §18.52", All, func(t *T) {
		c := t.Client()
		ops := []proto.Op{0, 1, 2, 99, 10043, proto.OpIllegal}
		switch t.Minor() {
		case 0:
			ops = append(ops, proto.OpBackchannelCtl, proto.OpExchangeID, proto.OpTestStateid, proto.OpAllocate, proto.OpGetxattr)
		case 1:
			ops = append(ops, proto.OpAllocate, proto.OpSeek, proto.OpGetxattr)
		}
		for _, op := range ops {
			r := t.Do(c, compound().Plain(proto.OpPutrootfh, op))
			_, err := r.OK(proto.OpPutrootfh)
			t.Ok(err, "PUTROOTFH")
			_, st, err := r.Next(proto.OpIllegal)
			t.Ok(err, "the result of operation "+op.String())
			r.Release()
			Equal(t, "operation "+op.String(), st, proto.ErrOpIllegal)
		}
	}},
	Case{"stops-at-the-first-error", "RFC 7530 §15.2.4, RFC 8881 §16.2.3", All, func(t *T) {
		c := t.Client()
		ops := compound().PutFH(t.Dir).Lookup("missing").Plain(proto.OpGetfh)
		r := t.Do(c, ops)
		defer r.Release()
		Equal(t, "status", r.Status, proto.ErrNoent)
		Equal(t, "results", r.N, 2)
		made := compound().PutFH(t.Dir).Lookup("missing")
		made.Create("made", proto.TypeDir, "", 0, 0, nil)
		t.Want(c, "LOOKUP", compound().PutFH(t.Dir).Lookup("missing"), proto.ErrNoent)
		t.Do(c, made).Release()
		t.Want(c, "LOOKUP of what comes after an error", compound().PutFH(t.Dir).Lookup("made"), proto.ErrNoent)
	}},
	Case{"unknown-minor-version", "RFC 7530 §15.2.4, RFC 8881 §16.2.3", All, func(t *T) {
		c := t.Raw(nil)
		for _, minor := range []uint32{3, 50, ^uint32(0)} {
			r, err := c.Raw(t, 0, minor, compound().Plain(proto.OpPutrootfh))
			t.Ok(err, "COMPOUND")
			Equal(t, "status", r.Status, proto.ErrMinorVersMismatch)
			Equal(t, "results", r.N, 0)
			r.Release()
		}
	}},
	Case{"empty", "RFC 7530 §15.2.4", V0, func(t *T) {
		r := t.Do(t.Client(), compound())
		defer r.Release()
		Equal(t, "status", r.Status, proto.OK)
		Equal(t, "results", r.N, 0)
	}},
	Case{"truncated-arguments", "RFC 7530 §15.2.4, RFC 8881 §16.2.3", All, func(t *T) {
		c := t.Client()
		t.Want(c, "LOOKUP whose name is not there", compound().PutFH(t.Dir).Plain(proto.OpLookup), proto.ErrBadxdr)
		t.Want(c, "LOOKUP with a name longer than the request", with(compound().PutFH(t.Dir), proto.OpLookup, number(4000)), proto.ErrBadxdr)
	}},
	Case{"null-procedure", "RFC 7530 §15.1, RFC 8881 §16.1", All, func(t *T) {
		t.Ok(t.Raw(nil).Null(t), "NULL")
	}},
	Case{"unknown-procedure", "RFC 5531 §9", All, func(t *T) {
		_, err := t.Raw(nil).RPC(t, 0, &oncrpc.Request{Program: proto.Program, Version: proto.Version, Procedure: 2})
		stat(t, err, oncrpc.ProcUnavail)
	}},
	Case{"unknown-version", "RFC 5531 §9", All, func(t *T) {
		_, err := t.Raw(nil).RPC(t, 0, &oncrpc.Request{Program: proto.Program, Version: 5})
		e := stat(t, err, oncrpc.ProgMismatch)
		if e.Low > proto.Version || e.High < proto.Version {
			t.Fatalf("versions %d to %d are supported, without 4", e.Low, e.High)
		}
	}},
	Case{"unknown-program", "RFC 5531 §9", All, func(t *T) {
		_, err := t.Raw(nil).RPC(t, 0, &oncrpc.Request{Program: 400122, Version: 1})
		stat(t, err, oncrpc.ProgUnavail)
	}},
)
