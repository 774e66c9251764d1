package conformance

import (
	"fmt"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// exchange appends EXCHANGE_ID.
func exchange(verifier uint64, owner string, flags uint32) *client.Compound {
	return with(compound(), proto.OpExchangeID, all(
		hyper(verifier), text(owner), number(flags), number(proto.SP4None), number(0)))
}

// A channel is the size of a channel that is asked for.
type channel struct{ size, cached, ops, slots uint32 }

func (x channel) args(e *xdr.Encoder) {
	for _, v := range []uint32{0, x.size, x.size, x.cached, x.ops, x.slots, 0} {
		e.Uint32(v)
	}
}

var usual = channel{size: 65536, cached: 4096, ops: 8, slots: 4}

// create appends CREATE_SESSION.
func create(id uint64, seq, flags uint32, fore channel) *client.Compound {
	return with(compound(), proto.OpCreateSession, all(
		hyper(id), number(seq), number(flags), fore.args, channel{4096, 0, 2, 1}.args,
		number(proto.CBProgram), number(1), number(0)))
}

// A raw41 is a client whose requests are made by hand.
type raw41 struct {
	t       *T
	c       *client.Client
	id      uint64
	seq     uint32 // of the next CREATE_SESSION
	flags   uint32 // of EXCHANGE_ID's result
	session [16]byte
	slots   uint32
}

// call sends a compound without a session, whose first operation must succeed.
func (r *raw41) call(what string, ops *client.Compound, op proto.Op, take func(*xdr.Decoder)) {
	res, err := r.c.Raw(r.t, 0, r.t.Minor(), ops)
	r.t.Ok(err, what)
	defer res.Release()
	d, err := res.OK(op)
	r.t.Ok(err, what)
	if take != nil {
		take(d)
		r.t.Ok(d.Err(), "the result of "+what)
	}
}

func (r *raw41) exchange(verifier uint64, owner string, flags uint32) {
	r.call("EXCHANGE_ID", exchange(verifier, owner, flags), proto.OpExchangeID, func(d *xdr.Decoder) {
		r.id, r.seq, r.flags = d.Uint64(), d.Uint32(), d.Uint32()
	})
}

func (r *raw41) create() {
	r.call("CREATE_SESSION", create(r.id, r.seq, 0, usual), proto.OpCreateSession, func(d *xdr.Decoder) {
		copy(r.session[:], d.FixedOpaque(16))
		d.Skip(4 + 4 + 5*4)
		r.slots = d.Uint32()
	})
	r.seq++
}

// raw41 returns a client with a session.
func (t *T) raw41() *raw41 {
	r := &raw41{t: t, c: t.Raw(nil)}
	r.exchange(1, t.unique(), 0)
	r.create()
	return r
}

// sequence begins a compound with SEQUENCE.
func (r *raw41) sequence(slot, seq uint32, cache bool) *client.Compound {
	return with(compound(), proto.OpSequence, func(e *xdr.Encoder) {
		e.FixedOpaque(r.session[:])
		e.Uint32(seq)
		e.Uint32(slot)
		e.Uint32(slot)
		e.Bool(cache)
	})
}

func (r *raw41) want(what string, ops *client.Compound, want ...proto.Status) {
	r.t.RawWant(r.c, what, ops, want...)
}

var _ = register("exchange-id",
	Case{"flags-of-the-result", "RFC 8881 §18.35.3", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		owner := t.unique()
		r.exchange(1, owner, 0)
		if r.flags&proto.ExchgIDFlagConfirmedR != 0 {
			t.Fatalf("a new client is confirmed")
		}
		if r.flags&proto.ExchgIDFlagMaskPNFS == 0 {
			t.Fatalf("none of the pNFS roles is set in %#x", r.flags)
		}
		r.create()
		id := r.id
		r.exchange(1, owner, 0)
		if r.flags&proto.ExchgIDFlagConfirmedR == 0 || r.id != id {
			t.Fatalf("the confirmed client %#x gets %#x with flags %#x", id, r.id, r.flags)
		}
	}},
	Case{"new-verifier-is-another-client", "RFC 8881 §18.35.4", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		owner := t.unique()
		r.exchange(1, owner, 0)
		r.create()
		old := *r
		r.exchange(2, owner, 0)
		if r.id == old.id {
			t.Fatalf("another verifier got the same client id")
		}
		old.want("SEQUENCE before the new one is confirmed", old.sequence(0, 1, false), proto.OK)
		r.create()
		old.want("SEQUENCE after that", old.sequence(0, 2, false), proto.ErrBadsession, proto.ErrDeadsession)
	}},
	Case{"update-of-nothing", "RFC 8881 §18.35.4", V12, func(t *T) {
		t.RawWant(t.Raw(nil), "EXCHANGE_ID", exchange(1, t.unique(), proto.ExchgIDFlagUpdConfirmedRecA), proto.ErrNoent)
	}},
	Case{"update", "RFC 8881 §18.35.4", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		owner := t.unique()
		r.exchange(1, owner, 0)
		t.RawWant(r.c, "EXCHANGE_ID that updates what is unconfirmed", exchange(1, owner, proto.ExchgIDFlagUpdConfirmedRecA), proto.ErrNoent)
		r.create()
		id := r.id
		r.exchange(1, owner, proto.ExchgIDFlagUpdConfirmedRecA)
		Equal(t, "the client id", r.id, id)
		t.RawWant(r.c, "EXCHANGE_ID with another verifier", exchange(2, owner, proto.ExchgIDFlagUpdConfirmedRecA), proto.ErrNotSame)
		t.RawWant(t.Raw(other(t)), "EXCHANGE_ID by another user", exchange(1, owner, proto.ExchgIDFlagUpdConfirmedRecA), proto.ErrPerm)
	}},
	Case{"another-principal-while-there-is-state", "RFC 8881 §18.35.4", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		owner := t.unique()
		r.exchange(1, owner, 0)
		r.create()
		t.RawWant(t.Raw(other(t)), "EXCHANGE_ID by another user", exchange(1, owner, 0), proto.ErrClidInuse)
	}},
	Case{"unknown-flags", "RFC 8881 §18.35.3", V12, func(t *T) {
		t.RawWant(t.Raw(nil), "EXCHANGE_ID", exchange(1, t.unique(), 0x00000010), proto.ErrInval)
		t.RawWant(t.Raw(nil), "EXCHANGE_ID with CONFIRMED_R", exchange(1, t.unique(), proto.ExchgIDFlagConfirmedR), proto.ErrInval)
	}},
	Case{"not-the-only-operation", "RFC 8881 §18.35.3", V12, func(t *T) {
		ops := exchange(1, t.unique(), 0).Plain(proto.OpPutrootfh)
		r, err := t.Raw(nil).Raw(t, 0, t.Minor(), ops)
		t.Ok(err, "COMPOUND")
		defer r.Release()
		Equal(t, "status", r.Status, proto.ErrNotOnlyOp)
	}},
)

var _ = register("create-session",
	Case{"again-is-answered-as-before", "RFC 8881 §18.36.4", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		r.exchange(1, t.unique(), 0)
		r.create()
		first := r.session
		r.seq--
		r.create()
		Equal(t, "the session of a retransmission", r.session, first)
		r.create()
		if r.session == first {
			t.Fatalf("the next CREATE_SESSION returned the session of the last")
		}
	}},
	Case{"wrong-sequence", "RFC 8881 §18.36.4", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		r.exchange(1, t.unique(), 0)
		for _, seq := range []uint32{r.seq + 1, r.seq + 20, r.seq - 1} {
			r.want(fmt.Sprintf("CREATE_SESSION with sequence %d for %d", seq, r.seq), create(r.id, seq, 0, usual), proto.ErrSeqMisordered)
		}
		r.create()
	}},
	Case{"unknown-client", "RFC 8881 §18.36.4", V12, func(t *T) {
		t.RawWant(t.Raw(nil), "CREATE_SESSION", create(0, 1, 0, usual), proto.ErrStaleClientid)
	}},
	Case{"no-more-than-asked", "RFC 8881 §18.36.3", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		r.exchange(1, t.unique(), 0)
		r.call("CREATE_SESSION", create(r.id, r.seq, 0, usual), proto.OpCreateSession, func(d *xdr.Decoder) {
			d.Skip(16 + 4)
			if flags := d.Uint32(); flags != 0 {
				t.Fatalf("flags %#x, of which none was asked for", flags)
			}
			d.Uint32()
			got := []uint32{d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()}
			asked := []uint32{usual.size, usual.size, usual.cached, usual.ops, usual.slots}
			for i := range got {
				if got[i] > asked[i] {
					t.Fatalf("attributes %v, and %v were asked for", got, asked)
				}
			}
			if got[4] == 0 || got[3] < 8 {
				t.Fatalf("%d slots and %d operations are too few", got[4], got[3])
			}
		})
	}},
	Case{"unknown-flags", "RFC 8881 §18.36.3", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		r.exchange(1, t.unique(), 0)
		r.want("CREATE_SESSION", create(r.id, r.seq, 0x10, usual), proto.ErrInval)
	}},
	Case{"too-small", "RFC 8881 §18.36.3", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		r.exchange(1, t.unique(), 0)
		r.want("CREATE_SESSION", create(r.id, r.seq, 0, channel{20, 0, 8, 1}), proto.ErrToosmall)
	}},
	Case{"unconfirmed-by-another-principal", "RFC 8881 §18.36.4", V12, func(t *T) {
		r := &raw41{t: t, c: t.Raw(nil)}
		r.exchange(1, t.unique(), 0)
		t.RawWant(t.Raw(other(t)), "CREATE_SESSION by another user", create(r.id, r.seq, 0, usual), proto.ErrClidInuse)
		r.create()
	}},
)

var _ = register("sequence",
	Case{"numbers", "RFC 8881 §2.10.6.1", V12, func(t *T) {
		r := t.raw41()
		r.want("SEQUENCE", r.sequence(0, 1, false), proto.OK)
		r.want("SEQUENCE", r.sequence(0, 2, false), proto.OK)
		for _, seq := range []uint32{0, 1, 4, 100} {
			r.want(fmt.Sprintf("SEQUENCE %d after 2", seq), r.sequence(0, seq, false), proto.ErrSeqMisordered)
		}
		r.want("SEQUENCE", r.sequence(0, 3, false), proto.OK)
		r.want("SEQUENCE on another slot", r.sequence(r.slots-1, 1, false), proto.OK)
	}},
	Case{"again-is-not-executed-twice", "RFC 8881 §2.10.6.1.3", V12, func(t *T) {
		r := t.raw41()
		ops := r.sequence(0, 1, true).PutFH(t.Dir).Create("made", proto.TypeDir, "", 0, 0, nil)
		for range 3 {
			r.want("SEQUENCE, CREATE", ops, proto.OK)
		}
		ops = r.sequence(0, 2, true).PutFH(t.Dir).Remove("made")
		for range 3 {
			r.want("SEQUENCE, REMOVE", ops, proto.OK)
		}
	}},
	Case{"another-request-under-the-same-number", "RFC 8881 §2.10.6.1.3.1", V12, func(t *T) {
		r := t.raw41()
		r.want("SEQUENCE, PUTROOTFH", r.sequence(0, 1, true).Plain(proto.OpPutrootfh), proto.OK)
		ops := r.sequence(0, 1, true).PutFH(t.Dir).Create("made", proto.TypeDir, "", 0, 0, nil)
		res, err := r.c.Raw(t, 0, t.Minor(), ops)
		t.Ok(err, "COMPOUND")
		res.Release()
		t.exists(t.Client(), t.Dir, "made", false)
	}},
	Case{"bad-slot", "RFC 8881 §18.46.3", V12, func(t *T) {
		r := t.raw41()
		r.want("SEQUENCE", r.sequence(r.slots, 1, false), proto.ErrBadslot)
	}},
	Case{"bad-session", "RFC 8881 §18.46.3", V12, func(t *T) {
		r := t.raw41()
		r.session[15] ^= 0xff
		r.want("SEQUENCE", r.sequence(0, 1, false), proto.ErrBadsession)
	}},
	Case{"must-be-first-and-once", "RFC 8881 §18.46.3", V12, func(t *T) {
		r := t.raw41()
		ops := with(r.sequence(0, 1, false), proto.OpSequence, func(e *xdr.Encoder) {
			e.FixedOpaque(r.session[:])
			for range 4 {
				e.Uint32(0)
			}
		})
		r.want("a second SEQUENCE", ops, proto.ErrSequencePos)
		r.want("PUTROOTFH alone", compound().Plain(proto.OpPutrootfh), proto.ErrOpNotInSession)
	}},
	Case{"too-many-operations", "RFC 8881 §18.46.3", V12, func(t *T) {
		r := t.raw41()
		ops := r.sequence(0, 1, false)
		for range 20 {
			ops.Plain(proto.OpPutrootfh)
		}
		res, err := r.c.Raw(t, 0, t.Minor(), ops)
		t.Ok(err, "COMPOUND")
		defer res.Release()
		Equal(t, "status of 21 operations where 8 were asked for", res.Status, proto.ErrTooManyOps)
	}},
	Case{"reply-too-big", "RFC 8881 §2.10.6.4", V12, func(t *T) {
		r := t.raw41()
		name := t.Name()
		fh := t.Create(t.Client(), name, string(make([]byte, 60_000)))
		ops := r.sequence(0, 1, true).PutFH(fh).Read(client.Stateid{}, 0, 60_000)
		res, err := r.c.Raw(t, 0, t.Minor(), ops)
		t.Ok(err, "COMPOUND")
		defer res.Release()
		if res.Status != proto.ErrRepTooBigToCache && res.Status != proto.OK {
			t.Fatalf("READ of more than the cache takes: %v", res.Status)
		}
	}},
	Case{"compound-on-a-second-connection", "RFC 8881 §2.10.3.1", V12, func(t *T) {
		c := t.ClientAs(func(o *client.Options) { o.Conns, o.Slots = 3, 8 })
		for i := range 12 {
			t.mkdir(c, t.Dir, fmt.Sprint(i))
			c.Drop(i % 3)
		}
		Equal(t, "entries", len(t.list(c, 4096, nil)), 12)
	}},
)

var _ = register("session",
	Case{"destroy", "RFC 8881 §18.37", V12, func(t *T) {
		r := t.raw41()
		destroy := with(compound(), proto.OpDestroySession, func(e *xdr.Encoder) { e.FixedOpaque(r.session[:]) })
		r.want("DESTROY_SESSION", destroy, proto.OK)
		r.want("DESTROY_SESSION again", destroy, proto.ErrBadsession)
		r.want("SEQUENCE", r.sequence(0, 1, false), proto.ErrBadsession)
	}},
	Case{"destroy-keeps-state", "RFC 8881 §18.37", V12, func(t *T) {
		owner := t.unique()
		c := t.ClientAs(func(o *client.Options) { o.Owner, o.Verifier = []byte(owner), 3 })
		t.Create(c, "x", "")
		t.Open(c, "x", client.OpenHow{Access: both, Deny: proto.ShareDenyBoth})
		_, err := t.try(t.Client(), "x", client.OpenHow{})
		t.Is(err, "OPEN", proto.ErrShareDenied)
	}},
	Case{"destroy-clientid", "RFC 8881 §18.50", V12, func(t *T) {
		r := t.raw41()
		destroy := func(id uint64) *client.Compound { return with(compound(), proto.OpDestroyClientid, hyper(id)) }
		r.want("DESTROY_CLIENTID with a session", destroy(r.id), proto.ErrClientidBusy)
		r.want("DESTROY_SESSION", with(compound(), proto.OpDestroySession, func(e *xdr.Encoder) { e.FixedOpaque(r.session[:]) }), proto.OK)
		r.want("DESTROY_CLIENTID", destroy(r.id), proto.OK)
		r.want("DESTROY_CLIENTID again", destroy(r.id), proto.ErrStaleClientid)
		r.want("CREATE_SESSION", create(r.id, r.seq, 0, usual), proto.ErrStaleClientid)
	}},
	Case{"bind-connection", "RFC 8881 §18.34", V12, func(t *T) {
		r := t.raw41()
		bind := func(dir uint32) *client.Compound {
			return with(compound(), proto.OpBindConnToSession, func(e *xdr.Encoder) {
				e.FixedOpaque(r.session[:])
				e.Uint32(dir)
				e.Bool(false)
			})
		}
		r.want("BIND_CONN_TO_SESSION", bind(proto.CDFCForeOrBoth), proto.OK)
		r.want("BIND_CONN_TO_SESSION", bind(proto.CDFCFore), proto.OK)
		r.session[0] ^= 1
		r.want("BIND_CONN_TO_SESSION of no session", bind(proto.CDFCFore), proto.ErrBadsession)
	}},
	Case{"reclaim-complete", "RFC 8881 §18.51", V12, func(t *T) {
		r := t.raw41()
		done := func(seq uint32) *client.Compound {
			return with(r.sequence(0, seq, false), proto.OpReclaimComplete, number(0))
		}
		r.want("RECLAIM_COMPLETE", done(1), proto.OK)
		r.want("RECLAIM_COMPLETE again", done(2), proto.ErrCompleteAlready)
	}},
	Case{"test-and-free-stateid", "RFC 8881 §18.38, §18.48", V12, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.Lock(t, "one", wr(0, 1)), "LOCK")
		lock, _ := f.LockStateid("one")
		ops := with(compound(), proto.OpTestStateid, all(number(3), stateid(f.Stateid()), stateid(made()), stateid(lock)))
		t.Get(c, "TEST_STATEID", ops, func(d *xdr.Decoder) {
			Equal(t, "results", d.Uint32(), 3)
			Equal(t, "an open", proto.Status(d.Uint32()), proto.OK)
			Equal(t, "what never was", proto.Status(d.Uint32()), proto.ErrBadStateid)
			Equal(t, "a lock", proto.Status(d.Uint32()), proto.OK)
		}, proto.OpTestStateid)
		t.Want(c, "FREE_STATEID with a lock", with(compound(), proto.OpFreeStateid, stateid(lock)), proto.ErrLocksHeld)
		t.Ok(f.Unlock(t, "one", wr(0, 1)), "LOCKU")
		lock, _ = f.LockStateid("one")
		t.Want(c, "FREE_STATEID", with(compound(), proto.OpFreeStateid, stateid(lock)), proto.OK)
		t.Want(c, "FREE_STATEID again", with(compound(), proto.OpFreeStateid, stateid(lock)), proto.ErrBadStateid)
		t.Want(c, "FREE_STATEID of an open", with(compound(), proto.OpFreeStateid, stateid(f.Stateid())), proto.ErrLocksHeld)
	}},
	Case{"current-stateid", "RFC 8881 §16.2.3.1.2", V12, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "data")
		how := client.OpenHow{Access: proto.ShareAccessRead, Owner: []byte("o")}
		ops := compound().PutFH(t.Dir).Open(c.ID(), "x", &how).Read(client.CurrentStateid, 0, 4).Close(client.CurrentStateid)
		t.Want(c, "OPEN, READ, CLOSE with the current stateid", ops, proto.OK)
		t.Want(c, "READ with the current stateid where there is none", compound().PutFH(t.Dir).Lookup("x").Read(client.CurrentStateid, 0, 4), proto.ErrBadStateid)
	}},
	Case{"of-4.0-alone", "RFC 8881 §17", V12, func(t *T) {
		c := t.Client()
		for op, args := range map[proto.Op]argument{
			proto.OpRenew:              hyper(1),
			proto.OpSetclientidConfirm: all(hyper(1), hyper(1)),
			proto.OpOpenConfirm:        all(stateid(client.Stateid{}), number(1)),
			proto.OpReleaseLockowner:   all(hyper(1), text("x")),
		} {
			t.Want(c, op.String(), with(compound().PutFH(t.Dir), op, args), proto.ErrNotsupp)
		}
	}},
)
