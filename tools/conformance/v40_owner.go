package conformance

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

const both = proto.ShareAccessBoth

// xid returns a number for a call that is sent more than once.
func xid() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return binary.BigEndian.Uint32(b[:]) | 1
}

// send sends a compound under a number.
func (t *T) send(c *client.Client, n uint32, ops *client.Compound) *client.Results {
	r, err := c.SendXID(t, 0, n, ops)
	t.Ok(err, "COMPOUND")
	return r
}

var _ = register("owner",
	Case{"first-open-wants-confirmation", "RFC 7530 §9.1.11", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		if n.open("x", both)&proto.OpenResultConfirm == 0 {
			t.Skipf("the server knows without, as it may")
		}
		t.Want(n.c, "READ before OPEN_CONFIRM", compound().PutFH(n.fh).Read(n.sid, 0, 1), proto.ErrBadStateid)
		before := n.sid
		n.confirm()
		Equal(t, "other", n.sid.Other, before.Other)
		Equal(t, "seqid", n.sid.Seqid, before.Seqid+1)
		t.Want(n.c, "READ", compound().PutFH(n.fh).Read(n.sid, 0, 1), proto.OK)
		if n.open("y", both)&proto.OpenResultConfirm != 0 {
			t.Fatalf("a confirmed owner is to confirm again")
		}
	}},
	Case{"any-number-begins", "RFC 7530 §9.1.11", V0, func(t *T) {
		for _, first := range []uint32{0, 1, 77, ^uint32(0) - 1} {
			n := t.numbers(t.Client(), "new")
			n.seq = first
			n.ready("x", both)
			t.Want(n.c, "CLOSE", compound().PutFH(n.fh).CloseSeq(n.seq, n.sid), proto.OK)
		}
	}},
	Case{"second-open-cancels-an-unconfirmed-one", "RFC 7530 §16.18.5", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		if n.open("x", both)&proto.OpenResultConfirm == 0 {
			t.Skipf("the server wants no confirmation")
		}
		first, fh := n.sid, n.fh
		n.seq = 40
		if n.open("y", both)&proto.OpenResultConfirm == 0 {
			t.Fatalf("the second OPEN needs no confirmation")
		}
		n.confirm()
		t.Want(n.c, "READ with the first stateid", compound().PutFH(fh).Read(first, 0, 1), proto.ErrBadStateid)
		t.Want(n.c, "READ with the second", compound().PutFH(n.fh).Read(n.sid, 0, 1), proto.OK)
		d := t.Open(t.Client(), "x", client.OpenHow{Access: proto.ShareAccessRead, Deny: proto.ShareDenyBoth})
		t.Ok(d.Close(t), "CLOSE")
	}},
	Case{"confirm-twice", "RFC 7530 §16.18", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		t.Want(n.c, "OPEN_CONFIRM", compound().PutFH(n.fh).OpenConfirm(n.sid, n.seq), proto.ErrBadStateid)
	}},
	Case{"confirm-of-nothing", "RFC 7530 §16.18", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		if n.open("x", both)&proto.OpenResultConfirm == 0 {
			t.Skipf("the server wants no confirmation")
		}
		t.Want(n.c, "OPEN_CONFIRM with 0…0", compound().PutFH(n.fh).OpenConfirm(client.Stateid{}, n.seq), proto.ErrBadStateid)
		t.Want(n.c, "OPEN_CONFIRM with another number", compound().PutFH(n.fh).OpenConfirm(n.sid, n.seq+7), proto.ErrBadSeqid)
		n.confirm()
	}},
	Case{"wrong-number", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		for _, seq := range []uint32{n.seq + 1, n.seq + 100, n.seq - 2, 0} {
			t.Want(n.c, "CLOSE", compound().PutFH(n.fh).CloseSeq(seq, n.sid), proto.ErrBadSeqid)
			t.Want(n.c, "OPEN_DOWNGRADE", compound().PutFH(n.fh).OpenDowngrade(n.sid, seq, both, 0), proto.ErrBadSeqid)
			t.Want(n.c, "OPEN", compound().PutFH(t.Dir).Open(n.c.ID(), "x", &client.OpenHow{Owner: []byte("new"), Seqid: seq}), proto.ErrBadSeqid)
		}
		t.Want(n.c, "CLOSE", compound().PutFH(n.fh).CloseSeq(n.seq, n.sid), proto.OK)
	}},
	Case{"open-again-is-answered-as-before", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		n.open("y", both)
		first, fh := n.sid, n.fh
		_, err := n.c.Remove(t, t.Dir, "y")
		t.Ok(err, "REMOVE")
		r := t.Do(n.c, n.openOp(n.seq-1, "y", both))
		defer r.Release()
		n.opened(r)
		Equal(t, "the stateid", n.sid, first)
		Equal(t, "the handle", string(n.fh), string(fh))
		t.exists(n.c, t.Dir, "y", false)
	}},
	Case{"failed-open-again-is-answered-as-before", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		ops := compound().PutFH(t.Dir).Open(n.c.ID(), "later", &client.OpenHow{Owner: []byte("new"), Seqid: n.seq})
		t.Want(n.c, "OPEN of what is missing", ops, proto.ErrNoent)
		t.Create(n.c, "later", "")
		t.Want(n.c, "OPEN again with the same number", ops, proto.ErrNoent)
		n.seq++
		n.open("later", both)
	}},
	Case{"close-again-is-answered-as-before", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		sid, fh := n.sid, n.fh
		n.open("y", both)
		ops := compound().PutFH(fh).CloseSeq(n.seq, sid)
		for range 3 {
			t.Want(n.c, "CLOSE", ops, proto.OK)
		}
		n.seq++
		t.Want(n.c, "CLOSE of the other", compound().PutFH(n.fh).CloseSeq(n.seq, n.sid), proto.OK)
		t.Want(n.c, "CLOSE of the first once more", ops, proto.ErrBadSeqid, proto.ErrBadStateid)
	}},
	Case{"another-operation-under-the-same-number", "RFC 7530 §9.1.9", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		n.open("x", both)
		t.Want(n.c, "CLOSE with the number of the last OPEN", compound().PutFH(n.fh).CloseSeq(n.seq-1, n.sid), proto.ErrBadSeqid)
		t.Want(n.c, "CLOSE", compound().PutFH(n.fh).CloseSeq(n.seq, n.sid), proto.OK)
	}},
	Case{"errors-that-use-no-number-up", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		how := client.OpenHow{Owner: []byte("new"), Seqid: n.seq}
		t.Want(n.c, "OPEN without a filehandle", compound().Open(n.c.ID(), "x", &how), proto.ErrNofilehandle)
		t.Want(n.c, "OPEN of an unknown client", compound().PutFH(t.Dir).Open(0, "x", &how), proto.ErrStaleClientid)
		t.Want(n.c, "CLOSE of an unknown stateid", compound().PutFH(n.fh).CloseSeq(n.seq, client.Stateid{}), proto.ErrBadStateid)
		t.Want(n.c, "CLOSE", compound().PutFH(n.fh).CloseSeq(n.seq, n.sid), proto.OK)
	}},
	Case{"errors-that-do", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		how := client.OpenHow{Owner: []byte("new"), Seqid: n.seq}
		t.Want(n.c, "OPEN of what is missing", compound().PutFH(t.Dir).Open(n.c.ID(), "missing", &how), proto.ErrNoent)
		t.Want(n.c, "CLOSE with the number of that OPEN", compound().PutFH(n.fh).CloseSeq(n.seq, n.sid), proto.ErrBadSeqid)
		t.Want(n.c, "CLOSE", compound().PutFH(n.fh).CloseSeq(n.seq+1, n.sid), proto.OK)
	}},
	Case{"lock-numbers", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		l := wr(0, 10)
		first := compound().PutFH(n.fh).LockSeq(n.c.ID(), &l, n.seq, n.sid, nil, 5, []byte("locker"), false)
		sid := n.stateid("LOCK", first, proto.OpPutfh, proto.OpLock)
		again := n.stateid("LOCK again", first, proto.OpPutfh, proto.OpLock)
		Equal(t, "the stateid of the retransmission", again, sid)
		n.seq++
		l = wr(20, 10)
		more := func(seq uint32) *client.Compound {
			return compound().PutFH(n.fh).LockSeq(n.c.ID(), &l, 0, client.Stateid{}, &sid, seq, nil, false)
		}
		t.Want(n.c, "LOCK with a number left out", more(7), proto.ErrBadSeqid)
		ops := more(6)
		two := n.stateid("LOCK", ops, proto.OpPutfh, proto.OpLock)
		Equal(t, "the stateid again", n.stateid("LOCK again", ops, proto.OpPutfh, proto.OpLock), two)
		t.Want(n.c, "LOCKU with the number of that LOCK", compound().PutFH(n.fh).UnlockSeq(&l, 6, two), proto.ErrBadSeqid)
		t.Want(n.c, "LOCKU with an old stateid", compound().PutFH(n.fh).UnlockSeq(&l, 7, sid), proto.ErrOldStateid, proto.ErrBadStateid)
		l = wr(0, toEnd)
		unlock := compound().PutFH(n.fh).UnlockSeq(&l, 8, two)
		r := t.Do(n.c, unlock)
		if r.Status == proto.ErrBadSeqid { // BAD_STATEID has used no number up
			unlock = compound().PutFH(n.fh).UnlockSeq(&l, 7, two)
		}
		r.Release()
		three := n.stateid("LOCKU", unlock, proto.OpPutfh, proto.OpLocku)
		Equal(t, "the stateid again", n.stateid("LOCKU again", unlock, proto.OpPutfh, proto.OpLocku), three)
		t.free(t.Client(), n.fh, map[client.Range]bool{wr(0, toEnd): true})
	}},
	Case{"denied-lock-again-is-answered-as-before", "RFC 7530 §9.1.7", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		f := t.Open(t.Client(), "x", client.OpenHow{Access: both})
		t.Ok(f.Lock(t, "other", wr(0, 10)), "LOCK")
		l := wr(0, 10)
		ops := compound().PutFH(n.fh).LockSeq(n.c.ID(), &l, n.seq, n.sid, nil, 1, []byte("locker"), false)
		t.Want(n.c, "LOCK", ops, proto.ErrDenied)
		t.Ok(f.Unlock(t, "other", wr(0, 10)), "LOCKU")
		t.Want(n.c, "LOCK again", ops, proto.ErrDenied)
	}},
	// Linux forgets a lock-owner that got no lock, and numbers the next one, of the same
	// name, from 0 on: its request is not a retransmission, for the open-owner goes on.
	Case{"lock-owner-that-got-nothing-begins-again", "RFC 7530 §16.10.5", V0, func(t *T) {
		n := t.numbers(t.Client(), "new")
		n.ready("x", both)
		f := t.Open(t.Client(), "x", client.OpenHow{Access: both})
		t.Ok(f.Lock(t, "other", wr(0, 10)), "LOCK")
		lock := func(off uint64, seq uint32) *client.Compound {
			l := wr(off, 10)
			ops := compound().PutFH(n.fh).LockSeq(n.c.ID(), &l, n.seq, n.sid, nil, seq, []byte("locker"), false)
			n.seq++
			return ops
		}
		t.Want(n.c, "LOCK of what is locked", lock(0, 0), proto.ErrDenied)
		t.Want(n.c, "LOCK of that with the next number", lock(0, 1), proto.ErrDenied)
		t.Want(n.c, "LOCK of what is free with the first number", lock(20, 0), proto.OK)
		t.Want(n.c, "LOCK of a new owner that is not new", lock(40, 0), proto.ErrBadSeqid)
		n.seq-- // that has used no number up
		t.Want(n.c, "CLOSE with the open-owner's next number", compound().PutFH(n.fh).CloseSeq(n.seq, n.sid), proto.OK, proto.ErrLocksHeld)
	}},
	Case{"lock-owner-of-two-files", "RFC 7530 §9.1.5", V0, func(t *T) {
		c := t.Client()
		a, b := t.Make(c), t.Make(c)
		for i := range 3 {
			t.Ok(a.Lock(t, "one", wr(uint64(i)*10, 5)), "LOCK")
			t.Ok(b.Lock(t, "one", wr(uint64(i)*10, 5)), "LOCK")
		}
		t.Ok(a.Unlock(t, "one", wr(0, toEnd)), "LOCKU")
		t.free(t.Client(), b.FH(), map[client.Range]bool{wr(0, 5): false})
		t.free(t.Client(), a.FH(), map[client.Range]bool{wr(0, toEnd): true})
	}},
	Case{"release-lock-owner", "RFC 7530 §16.37", V0, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.Lock(t, "one", wr(0, 5)), "LOCK")
		t.Want(c, "RELEASE_LOCKOWNER with a lock", compound().ReleaseLockowner(c.ID(), []byte("one")), proto.ErrLocksHeld)
		t.free(t.Client(), f.FH(), map[client.Range]bool{wr(0, 5): false})
		sid, _ := f.LockStateid("one")
		t.Ok(f.Unlock(t, "one", wr(0, 5)), "LOCKU")
		t.Want(c, "RELEASE_LOCKOWNER", compound().ReleaseLockowner(c.ID(), []byte("one")), proto.OK)
		t.Want(c, "RELEASE_LOCKOWNER of nobody", compound().ReleaseLockowner(c.ID(), []byte("nobody")), proto.OK)
		l := wr(0, 5)
		t.Want(c, "LOCKU with its stateid", compound().PutFH(f.FH()).UnlockSeq(&l, 3, sid), proto.ErrBadStateid, proto.ErrOldStateid, proto.ErrExpired)
		t.Want(c, "LOCK by it", compound().PutFH(f.FH()).LockSeq(c.ID(), &l, 4, f.Stateid(), nil, 90, []byte("one"), false), proto.OK)
	}},
)

var _ = register("retransmission",
	Case{"non-idempotent-operations", "RFC 7530 §16.33.5, §3.1.1", V0, func(t *T) {
		c := t.Client()
		set := &client.SetAttr{Mode: client.Ptr(uint32(0o777))}
		file := t.Create(c, "file", "")
		for what, ops := range map[string]*client.Compound{
			"CREATE": compound().PutFH(t.Dir).Create("made", proto.TypeDir, "", 0, 0, set),
			"LINK":   compound().PutFH(file).Plain(proto.OpSavefh).PutFH(t.Dir).Link("link"),
		} {
			n := xid()
			for range 3 {
				r := t.send(c, n, ops)
				Equal(t, what+", sent again", r.Status, proto.OK)
				r.Release()
			}
		}
		for what, ops := range map[string]*client.Compound{
			"REMOVE": compound().PutFH(t.Dir).Remove("made"),
			"RENAME": compound().PutFH(t.Dir).Plain(proto.OpSavefh).PutFH(t.Dir).Rename("link", "moved"),
		} {
			n := xid()
			for range 3 {
				r := t.send(c, n, ops)
				Equal(t, what+", sent again", r.Status, proto.OK)
				r.Release()
			}
		}
	}},
	Case{"over-a-new-connection-from-the-same-port", "RFC 7530 §3.1.1", V0, func(t *T) {
		c := t.Client()
		for range 5 {
			n, name := xid(), t.Name()
			ops := compound().PutFH(t.Dir).Create(name, proto.TypeDir, "", 0, 0, nil)
			t.send(c, n, ops).Release()
			c.Drop(0)
			var r *client.Results
			for try := 0; r == nil; try++ {
				var err error
				if r, err = c.SendXID(t, 0, n, ops); err != nil && try > 20 {
					t.Fatalf("CREATE sent again: %v", err)
				}
			}
			if r.Status == proto.ErrExist && !c.SamePort(0) {
				t.Skipf("the port could not be used again")
			}
			Equal(t, "CREATE sent again", r.Status, proto.OK)
			r.Release()
		}
	}},
	Case{"another-request-under-the-same-number", "RFC 7530 §3.1.1", V0, func(t *T) {
		c := t.Client()
		n := xid()
		r := t.send(c, n, compound().PutFH(t.Dir).Create("one", proto.TypeDir, "", 0, 0, nil))
		Equal(t, "CREATE", r.Status, proto.OK)
		r.Release()
		r = t.send(c, n, compound().PutFH(t.Dir).Create("two", proto.TypeDir, "", 0, 0, nil))
		Equal(t, "another CREATE", r.Status, proto.OK)
		r.Release()
		t.exists(c, t.Dir, "two", true)
	}},
)
