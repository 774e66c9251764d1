package conformance

import (
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

const (
	wantRead = proto.ShareAccessRead | proto.ShareAccessWantReadDeleg
	wantNone = proto.ShareAccessRead | proto.ShareAccessWantNoDeleg
)

// back is a client that answers callbacks.
func (t *T) back() *client.Client {
	return t.ClientAs(func(o *client.Options) { o.Callbacks = true })
}

// delegated returns a client with a read delegation of the file x. Servers may have none.
func (t *T) delegated() (c *client.Client, fh client.FH, sid client.Stateid) {
	c = t.back()
	fh = t.Create(c, "x", "contents")
	for range 3 {
		f := t.Open(c, "x", client.OpenHow{Access: wantRead})
		if d := f.Delegation(); d.Type == proto.OpenDelegateRead {
			return c, fh, d.Stateid
		}
		t.Ok(f.Close(t), "CLOSE")
	}
	t.Skipf("the server delegates nothing here")
	return nil, nil, sid
}

// eventually ends the case unless done within some seconds.
func (t *T) eventually(what string, done func() bool) {
	for end := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(end) || t.Err() != nil {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// conflict has another client do what conflicts with a delegation, as often as the server
// asks it to try again; the holder does what it likes when it has been told.
func (t *T) conflict(c *client.Client, sid client.Stateid, do func(*client.Client) error, told func()) {
	b := t.Client()
	done := make(chan error, 1)
	go func() { done <- do(b) }()
	t.eventually("CB_RECALL", func() bool { return c.Recalled(sid) })
	told()
	select {
	case err := <-done:
		t.Ok(err, "an operation that conflicted with a delegation, which has been returned")
	case <-t.Done():
		t.Fatalf("an operation that conflicted with a delegation does not end when that has been returned")
	}
}

func (t *T) openToWrite(b *client.Client) error {
	f, err := t.try(b, "x", client.OpenHow{Access: proto.ShareAccessBoth})
	if err == nil {
		err = f.Close(t)
	}
	return err
}

var _ = register("delegation",
	Case{"none-if-none-wanted", "RFC 8881 §18.16.3", V12, func(t *T) {
		c := t.back()
		t.Create(c, "x", "")
		d := t.Open(c, "x", client.OpenHow{Access: wantNone}).Delegation()
		if d.Type != proto.OpenDelegateNoneExt || d.Why != proto.WNDNotWanted {
			t.Fatalf("OPEN that wants none: type %d, why %d", d.Type, d.Why)
		}
	}},
	Case{"none-without-a-back-channel", "RFC 8881 §10.2", V12, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		if d := t.Open(c, "x", client.OpenHow{Access: wantRead}).Delegation(); d.Held() {
			t.Fatalf("a delegation that can't be recalled")
		}
	}},
	Case{"none-beside-a-writer", "RFC 8881 §10.4", V12, func(t *T) {
		c, b := t.back(), t.Client()
		t.Create(c, "x", "")
		t.Open(b, "x", client.OpenHow{Access: proto.ShareAccessWrite})
		for range 3 {
			if d := t.Open(c, "x", client.OpenHow{Access: wantRead}).Delegation(); d.Held() {
				t.Fatalf("a delegation of what another client has open to write")
			}
		}
	}},
	Case{"claims-of-before-a-restart", "RFC 8881 §18.16.3", V12, func(t *T) {
		c := t.back()
		fh := t.Create(c, "x", "")
		_, err := c.OpenAs(t, fh, "", &client.OpenHow{Claim: proto.ClaimDelegPrevFH, Owner: []byte("o")})
		t.Is(err, "OPEN with CLAIM_DELEG_PREV_FH", proto.ErrNotsupp, proto.ErrReclaimBad, proto.ErrNoGrace)
	}},
	Case{"stateid", "RFC 8881 §8.2.2, §18.48, §18.38", V12, func(t *T) {
		c, fh, sid := t.delegated()
		t.Want(c, "READ", compound().PutFH(fh).Read(sid, 0, 10), proto.OK)
		t.Want(c, "WRITE", compound().PutFH(fh).Write(sid, 0, []byte("x"), proto.FileSync), proto.ErrOpenmode)
		Equal(t, "TEST_STATEID", t.testStateid(c, sid), proto.OK)
		t.Want(c, "FREE_STATEID", with(compound(), proto.OpFreeStateid, stateid(sid)), proto.ErrLocksHeld)
		t.Ok(c.Delegreturn(t, fh, sid), "DELEGRETURN")
		t.Is(c.Delegreturn(t, fh, sid), "DELEGRETURN again", proto.ErrBadStateid)
		t.Want(c, "READ by a delegation that was returned", compound().PutFH(fh).Read(sid, 0, 10), proto.ErrBadStateid)
		Equal(t, "TEST_STATEID of it", t.testStateid(c, sid), proto.ErrBadStateid)
	}},
	Case{"of-another-file", "RFC 8881 §18.6.3", V12, func(t *T) {
		c, _, sid := t.delegated()
		other := t.Create(c, "y", "")
		t.Is(c.Delegreturn(t, other, sid), "DELEGRETURN of another file", proto.ErrBadStateid)
		t.Want(c, "READ of another file", compound().PutFH(other).Read(sid, 0, 10), proto.ErrBadStateid)
	}},
	Case{"of-another-client", "RFC 8881 §8.2.4", V12, func(t *T) {
		_, fh, sid := t.delegated()
		t.Want(t.Client(), "READ", compound().PutFH(fh).Read(sid, 0, 10), proto.ErrBadStateid)
	}},
	Case{"recalled-by-an-open", "RFC 8881 §10.4, §20.2", V12, func(t *T) {
		c, fh, sid := t.delegated()
		t.conflict(c, sid, t.openToWrite, func() {
			t.Want(c, "READ while it is recalled", compound().PutFH(fh).Read(sid, 0, 10), proto.OK)
			t.Ok(c.Delegreturn(t, fh, sid), "DELEGRETURN")
		})
	}},
	Case{"recalled-by-a-change", "RFC 8881 §10.4", V12, func(t *T) {
		c, fh, sid := t.delegated()
		t.conflict(c, sid, func(b *client.Client) error {
			return b.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o600))})
		}, func() { t.Ok(c.Delegreturn(t, fh, sid), "DELEGRETURN") })
	}},
	Case{"recalled-by-a-remove", "RFC 8881 §18.25.4", V12, func(t *T) {
		c, fh, sid := t.delegated()
		t.conflict(c, sid, func(b *client.Client) error {
			_, err := b.Remove(t, t.Dir, "x")
			return err
		}, func() { t.Ok(c.Delegreturn(t, fh, sid), "DELEGRETURN") })
	}},
	Case{"readers-recall-nothing", "RFC 8881 §10.4", V12, func(t *T) {
		c, fh, sid := t.delegated()
		b := t.Client()
		f := t.Open(b, "x", client.OpenHow{})
		_, err := f.ReadAll(t)
		t.Ok(err, "READ")
		t.Attrs(b, fh)
		time.Sleep(100 * time.Millisecond)
		if c.Recalled(sid) {
			t.Fatalf("a delegation to read is recalled by another client's reading")
		}
	}},
	Case{"own-operations-do-not-wait", "RFC 8881 §10.4.2", V12, func(t *T) {
		c, fh, sid := t.delegated()
		t.conflict(c, sid, t.openToWrite, func() {
			// What was opened because of the delegation is opened, and locked, before it
			// is returned.
			f, err := c.OpenAs(t, fh, "", &client.OpenHow{Claim: proto.ClaimDelegCurFH, Delegation: sid, Owner: []byte("cached")})
			t.Ok(err, "OPEN with CLAIM_DELEG_CUR_FH")
			t.Ok(f.Lock(t, "cached", rd(0, 10)), "LOCK")
			_, err = c.OpenAs(t, t.Dir, "x", &client.OpenHow{Claim: proto.ClaimDelegateCur, Delegation: sid, Owner: []byte("by name")})
			t.Ok(err, "OPEN with CLAIM_DELEGATE_CUR")
			_, err = c.OpenAs(t, fh, "", &client.OpenHow{
				Access: proto.ShareAccessBoth, Claim: proto.ClaimDelegCurFH, Delegation: sid, Owner: []byte("more"),
			})
			t.Is(err, "OPEN to write because of a delegation to read", proto.ErrOpenmode)
			t.Ok(c.Delegreturn(t, fh, sid), "DELEGRETURN")
		})
		b := t.Client()
		g := t.Open(b, "x", client.OpenHow{Access: proto.ShareAccessBoth})
		t.Is(g.Lock(t, "b", wr(0, 10)), "LOCK of what the holder has locked", proto.ErrDenied)
	}},
	Case{"own-open-to-write", "RFC 8881 §10.4", V12, func(t *T) {
		c, _, _ := t.delegated()
		t.Open(c, "x", client.OpenHow{Access: proto.ShareAccessBoth, Owner: []byte("w")})
	}},
	Case{"claim-without-one", "RFC 8881 §18.16.3", V12, func(t *T) {
		c := t.back()
		fh := t.Create(c, "x", "")
		_, err := c.OpenAs(t, fh, "", &client.OpenHow{
			Claim: proto.ClaimDelegCurFH, Delegation: client.Stateid{Seqid: 1, Other: [12]byte{1, 2, 3}}, Owner: []byte("o"),
		})
		t.Is(err, "OPEN with CLAIM_DELEG_CUR_FH", proto.ErrBadStateid)
	}},
)

// testStateid is TEST_STATEID of one.
func (t *T) testStateid(c *client.Client, s client.Stateid) (st proto.Status) {
	t.Get(c, "TEST_STATEID", with(compound(), proto.OpTestStateid, all(number(1), stateid(s))), func(d *xdr.Decoder) {
		d.Uint32()
		st = proto.Status(d.Uint32())
	}, proto.OpTestStateid)
	return st
}
