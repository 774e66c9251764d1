package conformance

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// A record is what SETCLIENTID returned.
type record struct{ id, confirm uint64 }

// setclientid sends SETCLIENTID, which must succeed.
func (t *T) setclientid(c *client.Client, verifier uint64, id string) (r record) {
	ops := compound().Setclientid(verifier, []byte(id), client.CallbackAddr{})
	res := t.Do(c, ops)
	defer res.Release()
	d, err := res.OK(proto.OpSetclientid)
	t.Ok(err, "SETCLIENTID")
	r = record{d.Uint64(), d.Uint64()}
	t.Ok(d.Err(), "the result of SETCLIENTID")
	return r
}

// confirm sends SETCLIENTID_CONFIRM, which must have one of the statuses.
func (t *T) confirm(c *client.Client, what string, r record, want ...proto.Status) {
	t.Want(c, what, compound().SetclientidConfirm(r.id, r.confirm), want...)
}

// unique returns a client's name that no other has.
func (t *T) unique() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("conformance %s %x", t.name, binary.BigEndian.Uint64(b[:]))
}

// root asks for the credential of the configured user and of another one.
func other(t *T) func(*client.Options) {
	return func(o *client.Options) { o.UID, o.GID = t.env.cfg.Other, t.env.cfg.Other }
}

// A numbers sends requests of one NFSv4.0 owner, numbered one after the other.
type numbers struct {
	t     *T
	c     *client.Client
	owner string
	seq   uint32 // of the next request
	fh    client.FH
	sid   client.Stateid
}

func (t *T) numbers(c *client.Client, owner string) *numbers {
	return &numbers{t: t, c: c, owner: owner, seq: 1}
}

// openOp is an OPEN with a number that creates name if need be.
func (n *numbers) openOp(seq uint32, name string, access uint32) *client.Compound {
	how := client.OpenHow{
		Access: access, Owner: []byte(n.owner), Seqid: seq, Create: true, Mode: proto.Unchecked,
		Set: client.SetAttr{Mode: client.Ptr(uint32(0o666))},
	}
	return compound().PutFH(n.t.Dir).Open(n.c.ID(), name, &how).Plain(proto.OpGetfh)
}

// open opens, and returns the flags of the result.
func (n *numbers) open(name string, access uint32) (flags uint32) {
	r := n.t.Do(n.c, n.openOp(n.seq, name, access))
	defer r.Release()
	flags = n.opened(r)
	n.seq++
	return flags
}

// opened takes the results of openOp.
func (n *numbers) opened(r *client.Results) (flags uint32) {
	d, err := r.OK(proto.OpPutfh, proto.OpOpen)
	n.t.Ok(err, "OPEN")
	n.sid, flags, err = client.GetOpen(d)
	n.t.Ok(err, "the result of OPEN")
	d, err = r.OK(proto.OpGetfh)
	n.t.Ok(err, "GETFH")
	n.fh = append(client.FH(nil), d.Opaque(proto.FHSize)...)
	return flags
}

// confirm confirms the open.
func (n *numbers) confirm() {
	n.sid = n.stateid("OPEN_CONFIRM", compound().PutFH(n.fh).OpenConfirm(n.sid, n.seq), proto.OpPutfh, proto.OpOpenConfirm)
	n.seq++
}

// stateid sends a compound whose last result is a stateid.
func (n *numbers) stateid(what string, ops *client.Compound, done ...proto.Op) (s client.Stateid) {
	r := n.t.Do(n.c, ops)
	defer r.Release()
	d, err := r.OK(done...)
	n.t.Ok(err, what)
	s = client.GetStateid(d)
	n.t.Ok(d.Err(), "the result of "+what)
	return s
}

// ready opens and, if need be, confirms.
func (n *numbers) ready(name string, access uint32) {
	if n.open(name, access)&proto.OpenResultConfirm != 0 {
		n.confirm()
	}
}

var _ = register("setclientid",
	Case{"confirm-verifier-is-new-each-time", "RFC 7530 §16.33.5", V0, func(t *T) {
		c, id := t.Raw(nil), t.unique()
		seen := map[uint64]bool{}
		for range 5 {
			r := t.setclientid(c, 1, id)
			if r.confirm == 0 || seen[r.confirm] {
				t.Fatalf("setclientid_confirm is %#x, again or none", r.confirm)
			}
			seen[r.confirm] = true
		}
	}},
	Case{"callback-update-keeps-the-client-id", "RFC 7530 §16.33.5", V0, func(t *T) {
		c, id := t.Raw(nil), t.unique()
		a := t.setclientid(c, 1, id)
		t.confirm(c, "SETCLIENTID_CONFIRM", a, proto.OK)
		b := t.setclientid(c, 1, id)
		Equal(t, "the client id for the same verifier", b.id, a.id)
		if b.confirm == a.confirm {
			t.Fatalf("the update has the setclientid_confirm of the confirmed record")
		}
		t.confirm(c, "SETCLIENTID_CONFIRM of the update", b, proto.OK)
		t.confirm(c, "SETCLIENTID_CONFIRM again", b, proto.OK)
		t.Want(c, "RENEW", compound().Renew(a.id), proto.OK)
	}},
	Case{"callback-update-keeps-state", "RFC 7530 §16.34.5", V0, func(t *T) {
		id := t.unique()
		c := t.ClientAs(func(o *client.Options) { o.Owner, o.Verifier = []byte(id), 7 })
		f := t.Make(c)
		b := t.setclientid(c, 7, id)
		t.confirm(c, "SETCLIENTID_CONFIRM of the update", b, proto.OK)
		t.Ok(f.WriteAll(t, 0, []byte("x")), "WRITE with an open of before")
		t.Ok(f.Close(t), "CLOSE of an open of before")
	}},
	Case{"new-verifier-is-another-client", "RFC 7530 §16.33.5", V0, func(t *T) {
		c, id := t.Raw(nil), t.unique()
		a := t.setclientid(c, 1, id)
		t.confirm(c, "SETCLIENTID_CONFIRM", a, proto.OK)
		b := t.setclientid(c, 2, id)
		if b.id == a.id || b.confirm == a.confirm {
			t.Fatalf("another verifier got %+v, and the first %+v", b, a)
		}
		t.Want(c, "RENEW of the confirmed one meanwhile", compound().Renew(a.id), proto.OK)
		t.Want(c, "RENEW of what is not confirmed", compound().Renew(b.id), proto.ErrStaleClientid)
		t.confirm(c, "SETCLIENTID_CONFIRM", b, proto.OK)
		t.Want(c, "RENEW of what was replaced", compound().Renew(a.id), proto.ErrStaleClientid, proto.ErrExpired)
		t.Want(c, "RENEW", compound().Renew(b.id), proto.OK)
	}},
	Case{"unconfirmed-is-replaced", "RFC 7530 §16.33.5", V0, func(t *T) {
		c := t.Raw(nil)
		for _, confirmed := range []bool{false, true} {
			id := t.unique()
			if confirmed {
				t.confirm(c, "SETCLIENTID_CONFIRM", t.setclientid(c, 1, id), proto.OK)
			}
			for _, verifier := range []uint64{2, 3} {
				a := t.setclientid(c, 2, id)
				b := t.setclientid(c, verifier, id)
				if a.id == b.id || a.confirm == b.confirm {
					t.Fatalf("two unconfirmed records: %+v and %+v", a, b)
				}
				t.confirm(c, "SETCLIENTID_CONFIRM of what was replaced", a, proto.ErrStaleClientid)
			}
		}
	}},
	Case{"confirm-of-nothing", "RFC 7530 §16.34.5", V0, func(t *T) {
		c := t.Raw(nil)
		t.confirm(c, "SETCLIENTID_CONFIRM", record{0, 0}, proto.ErrStaleClientid)
		a := t.setclientid(c, 1, t.unique())
		t.confirm(c, "SETCLIENTID_CONFIRM with another verifier", record{a.id, a.confirm + 1}, proto.ErrStaleClientid)
		t.confirm(c, "SETCLIENTID_CONFIRM with another id", record{a.id + 1<<20, a.confirm}, proto.ErrStaleClientid)
		t.confirm(c, "SETCLIENTID_CONFIRM", a, proto.OK)
		t.confirm(c, "SETCLIENTID_CONFIRM again", a, proto.OK)
	}},
	Case{"confirmed-removes-the-last-incarnations-state", "RFC 7530 §16.34.5", V0, func(t *T) {
		id := t.unique()
		c := t.ClientAs(func(o *client.Options) { o.Owner, o.Verifier = []byte(id), 7 })
		f := t.Make(c)
		b := t.setclientid(c, 8, id)
		t.Ok(f.WriteAll(t, 0, []byte("x")), "WRITE before the confirmation")
		t.confirm(c, "SETCLIENTID_CONFIRM", b, proto.OK)
		t.Is(f.Close(t), "CLOSE of what the last incarnation had opened", proto.ErrExpired, proto.ErrBadStateid, proto.ErrStaleStateid)
	}},
	Case{"another-principal-while-there-is-state", "RFC 7530 §16.33.5", V0, func(t *T) {
		id := t.unique()
		c := t.ClientAs(func(o *client.Options) { o.Owner, o.Verifier = []byte(id), 7 })
		f := t.Make(c)
		ops := compound().Setclientid(7, []byte(id), client.CallbackAddr{})
		t.Want(t.Raw(other(t)), "SETCLIENTID by another user", ops, proto.ErrClidInuse)
		t.Ok(f.WriteAll(t, 0, []byte("x")), "WRITE afterwards")
	}},
	Case{"confirm-by-another-principal", "RFC 7530 §16.34.5", V0, func(t *T) {
		c := t.Raw(nil)
		a := t.setclientid(c, 1, t.unique())
		t.confirm(t.Raw(other(t)), "SETCLIENTID_CONFIRM by another user", a, proto.ErrClidInuse)
		t.confirm(c, "SETCLIENTID_CONFIRM", a, proto.OK)
		t.confirm(t.Raw(other(t)), "SETCLIENTID_CONFIRM by another user", a, proto.ErrClidInuse)
	}},
	Case{"ids-of-nobody", "RFC 7530 §9.1.1", V0, func(t *T) {
		c := t.Client()
		t.Want(c, "RENEW", compound().Renew(0), proto.ErrStaleClientid)
		how := client.OpenHow{Access: proto.ShareAccessRead, Owner: []byte("o"), Seqid: 1}
		t.Create(c, "x", "")
		t.Want(c, "OPEN", compound().PutFH(t.Dir).Open(0, "x", &how), proto.ErrStaleClientid)
		l := rd(0, 1)
		fh, _, err := c.Lookup(t, t.Dir, "x")
		t.Ok(err, "LOOKUP")
		t.Want(c, "LOCKT", compound().PutFH(fh).TestLock(0, &l, []byte("o")), proto.ErrStaleClientid)
		t.Want(c, "RELEASE_LOCKOWNER", compound().ReleaseLockowner(0, []byte("o")), proto.ErrStaleClientid)
		raw := t.setclientid(c, 1, t.unique())
		t.Want(c, "OPEN by a client that is not confirmed", compound().PutFH(t.Dir).Open(raw.id, "x", &how), proto.ErrStaleClientid)
	}},
	Case{"stateids-of-nobody", "RFC 7530 §9.1.4.4", V0, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		stale := client.Stateid{Seqid: 1, Other: [12]byte{0, 0, 0, 1}}
		for what, ops := range map[string]*client.Compound{
			"CLOSE": compound().PutFH(fh).CloseSeq(1, stale),
			"READ":  compound().PutFH(fh).Read(stale, 0, 1),
			"WRITE": compound().PutFH(fh).Write(stale, 0, []byte("x"), proto.FileSync),
		} {
			t.Want(c, what, ops, proto.ErrStaleStateid, proto.ErrBadStateid)
		}
	}},
)
