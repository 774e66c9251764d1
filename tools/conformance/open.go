package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// try opens a file of the case's directory, or says why not.
func (t *T) try(c *client.Client, name string, how client.OpenHow) (*client.File, error) {
	f, _, err := c.Open(t, t.Dir, name, &how)
	return f, err
}

// creating is an OPEN that creates.
func creating(mode uint32, set client.SetAttr) client.OpenHow {
	return client.OpenHow{Access: proto.ShareAccessBoth, Create: true, Mode: mode, Set: set}
}

var _ = register("open",
	Case{"missing", "RFC 7530 §16.16, RFC 8881 §18.16", All, func(t *T) {
		_, err := t.try(t.Client(), "missing", client.OpenHow{})
		t.Is(err, "OPEN", proto.ErrNoent)
	}},
	Case{"unchecked-makes-and-keeps", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		f, err := t.try(c, "x", creating(proto.Unchecked, client.SetAttr{Mode: client.Ptr(uint32(0o640)), Size: client.Ptr(uint64(32))}))
		t.Ok(err, "OPEN that creates")
		a := t.Attrs(c, f.FH())
		Equal(t, "mode", a.Mode, 0o640)
		Equal(t, "size", a.Size, 32)
		g, err := t.try(c, "x", creating(proto.Unchecked, client.SetAttr{Mode: client.Ptr(uint32(0o600)), Size: client.Ptr(uint64(16))}))
		t.Ok(err, "OPEN of what exists")
		Equal(t, "the handle", string(g.FH()), string(f.FH()))
		a = t.Attrs(c, f.FH())
		Equal(t, "mode of what existed", a.Mode, 0o640)
		Equal(t, "size of what existed", a.Size, 32)
	}},
	Case{"unchecked-truncates", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "contents")
		_, err := t.try(c, "x", creating(proto.Unchecked, client.SetAttr{Mode: client.Ptr(uint32(0o600)), Size: client.Ptr(uint64(0))}))
		t.Ok(err, "OPEN")
		_, a, err := c.Lookup(t, t.Dir, "x")
		t.Ok(err, "LOOKUP")
		Equal(t, "size", a.Size, 0)
		Equal(t, "mode", a.Mode, 0o666)
	}},
	Case{"guarded", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		_, err := t.try(c, "x", creating(proto.Guarded, client.SetAttr{}))
		t.Ok(err, "OPEN")
		_, err = t.try(c, "x", creating(proto.Guarded, client.SetAttr{Size: client.Ptr(uint64(0))}))
		t.Is(err, "OPEN of what exists", proto.ErrExist)
		t.mkdir(c, t.Dir, "dir")
		_, err = t.try(c, "dir", creating(proto.Guarded, client.SetAttr{}))
		t.Is(err, "OPEN of a directory", proto.ErrExist)
	}},
	Case{"exclusive", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		how := client.OpenHow{Access: proto.ShareAccessBoth, Create: true, Mode: proto.Exclusive, Verifier: 5}
		f, err := t.try(c, "x", how)
		t.Ok(err, "OPEN")
		again, err := t.try(c, "x", how)
		t.Ok(err, "OPEN with the same verifier")
		Equal(t, "the handle", string(again.FH()), string(f.FH()))
		how.Verifier = 6
		_, err = t.try(c, "x", how)
		t.Is(err, "OPEN with another verifier", proto.ErrExist)
	}},
	Case{"exclusive-with-attributes", "RFC 8881 §18.16.3", V12, func(t *T) {
		c := t.Client()
		how := client.OpenHow{
			Access: proto.ShareAccessBoth, Create: true, Mode: proto.Exclusive41, Verifier: 5,
			Set: client.SetAttr{Mode: client.Ptr(uint32(0o600))},
		}
		f, err := t.try(c, "x", how)
		t.Ok(err, "OPEN")
		Equal(t, "mode", t.Attrs(c, f.FH(), proto.AttrMode).Mode, 0o600)
		_, err = t.try(c, "x", how)
		t.Ok(err, "OPEN with the same verifier")
		how.Verifier = 6
		_, err = t.try(c, "x", how)
		t.Is(err, "OPEN with another verifier", proto.ErrExist)
	}},
	Case{"exclusive-survives-writing", "RFC 7530 §16.16.6, RFC 8881 §18.16.4", All, func(t *T) {
		c := t.Client()
		how := client.OpenHow{Access: proto.ShareAccessBoth, Create: true, Mode: proto.Exclusive, Verifier: 5}
		f, err := t.try(c, "x", how)
		t.Ok(err, "OPEN")
		t.Ok(c.Setattr(t, f.FH(), client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o644))}), "SETATTR")
		how.Verifier = 7
		_, err = t.try(c, "x", how)
		t.Is(err, "OPEN with another verifier", proto.ErrExist)
	}},
	Case{"what-is-no-file", "RFC 7530 §16.16, RFC 8881 §18.16", All, func(t *T) {
		c := t.Client()
		t.mkdir(c, t.Dir, "dir")
		_, err := c.Symlink(t, t.Dir, "link", "x")
		t.Ok(err, "CREATE")
		_, err = c.Mknod(t, t.Dir, "fifo", proto.TypeFIFO, 0o666, 0, 0)
		t.Ok(err, "CREATE")
		_, err = t.try(c, "dir", client.OpenHow{})
		t.Is(err, "OPEN of a directory", proto.ErrIsdir)
		_, err = t.try(c, "link", client.OpenHow{})
		t.Is(err, "OPEN of a symbolic link", proto.ErrSymlink)
		want := []proto.Status{proto.ErrSymlink}
		if t.Minor() > 0 {
			want = append(want, proto.ErrWrongType)
		}
		_, err = t.try(c, "fifo", client.OpenHow{})
		t.Is(err, "OPEN of a FIFO", want...)
	}},
	Case{"in-a-file", "RFC 7530 §16.16, RFC 8881 §18.16", All, func(t *T) {
		c := t.Client()
		_, _, err := c.Open(t, t.Create(c, "file", ""), "x", nil)
		t.Is(err, "OPEN", proto.ErrNotdir)
	}},
	Case{"bad-names", "RFC 7530 §16.16, RFC 8881 §18.16", All, func(t *T) {
		c := t.Client()
		for _, h := range []client.OpenHow{{}, creating(proto.Unchecked, client.SetAttr{})} {
			_, err := t.try(c, "", h)
			t.Is(err, "OPEN of an empty name", proto.ErrInval)
			_, err = t.try(c, strings.Repeat("n", 4000), h)
			t.Is(err, "OPEN of a long name", proto.ErrNametoolong)
			_, err = t.try(c, "..", h)
			t.Is(err, "OPEN of ..", proto.ErrBadname, proto.ErrInval, proto.ErrNoent, proto.ErrIsdir)
		}
	}},
	Case{"access-and-deny-out-of-range", "RFC 7530 §16.16.6, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		for _, x := range []struct{ access, deny uint32 }{{0, 0}, {1, 4}, {1, 7}, {4, 0}} {
			t.Want(c, fmt.Sprintf("OPEN with access %d and deny %d", x.access, x.deny),
				with(compound().PutFH(t.Dir), proto.OpOpen, all(
					number(1), number(x.access), number(x.deny), hyper(c.ID()), text("owner "+t.Name()),
					number(proto.OpenNoCreate), number(proto.ClaimNull), text("x"))), proto.ErrInval, proto.ErrBadxdr)
		}
	}},
	Case{"unsupported-and-read-only-attributes", "RFC 7530 §16.16, RFC 8881 §18.16", All, func(t *T) {
		c := t.Client()
		open := func(name string, attr int) *client.Compound {
			return with(compound().PutFH(t.Dir), proto.OpOpen, all(
				number(1), number(3), number(0), hyper(c.ID()), text("owner "+name),
				number(proto.OpenCreate), number(proto.Unchecked), fattr(attr, 1), number(proto.ClaimNull), text(name)))
		}
		t.Want(c, "OPEN with link_support", open("x", proto.AttrLinkSupport), proto.ErrInval)
		t.exists(c, t.Dir, "x", false)
		if !slices.Contains(t.Attrs(c, t.Dir, proto.AttrSupportedAttrs).Supported, proto.AttrHidden) {
			t.Want(c, "OPEN with hidden", open("y", proto.AttrHidden), proto.ErrAttrnotsupp)
			t.exists(c, t.Dir, "y", false)
		}
	}},
	Case{"one-stateid-for-an-owner-and-file", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		how := client.OpenHow{Access: proto.ShareAccessRead, Owner: []byte("one")}
		a := t.Open(c, "x", how)
		how.Access = proto.ShareAccessBoth
		b := t.Open(c, "x", how)
		Equal(t, "the stateid's other", b.Stateid().Other, a.Stateid().Other)
		if b.Stateid().Seqid <= a.Stateid().Seqid {
			t.Fatalf("the seqid is %d after an OPEN more, and was %d", b.Stateid().Seqid, a.Stateid().Seqid)
		}
		_, err := b.Write(t, 0, []byte("x"), proto.FileSync)
		t.Ok(err, "WRITE after the upgrade")
		how.Owner = []byte("two")
		if t.Open(c, "x", how).Stateid().Other == a.Stateid().Other {
			t.Fatalf("two owners have one stateid")
		}
		t.Ok(b.Close(t), "CLOSE, of all OPENs of the owner")
		want := []proto.Status{proto.ErrBadStateid}
		if t.Minor() == 0 {
			want = append(want, proto.ErrStaleStateid, proto.ErrExpired)
		}
		_, err = a.Write(t, 0, []byte("x"), proto.FileSync)
		t.Is(err, "WRITE after CLOSE", want...)
	}},
	Case{"by-handle", "RFC 8881 §18.16.3", V12, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "data")
		f, _, err := c.OpenFH(t, fh, proto.ShareAccessRead)
		t.Ok(err, "OPEN with CLAIM_FH")
		p, err := f.ReadAll(t)
		t.Ok(err, "READ")
		Equal(t, "contents", string(p), "data")
		_, _, err = c.OpenFH(t, t.Dir, proto.ShareAccessRead)
		t.Is(err, "OPEN of a directory", proto.ErrIsdir)
	}},
	Case{"reclaim-of-nothing", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "data")
		t.Want(c, "OPEN with CLAIM_PREVIOUS", with(compound().PutFH(fh), proto.OpOpen, all(
			number(1), number(1), number(0), hyper(c.ID()), text("owner"),
			number(proto.OpenNoCreate), number(proto.ClaimPrevious), number(proto.OpenDelegateNone))),
			proto.ErrNoGrace, proto.ErrReclaimBad)
	}},
	Case{"reclaim-with-creation", "RFC 7530 §16.16, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "data")
		t.Want(c, "OPEN with CLAIM_PREVIOUS that creates", with(compound().PutFH(fh), proto.OpOpen, all(
			number(1), number(1), number(0), hyper(c.ID()), text("owner"),
			number(proto.OpenCreate), number(proto.Unchecked), number(0), number(0),
			number(proto.ClaimPrevious), number(proto.OpenDelegateNone))), proto.ErrInval, proto.ErrNoGrace, proto.ErrReclaimBad)
	}},
	Case{"change-info", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		before := t.Attrs(c, t.Dir, proto.AttrChange).Change
		how := creating(proto.Guarded, client.SetAttr{})
		how.Owner, how.Seqid = []byte("owner"), 1
		t.Get(c, "OPEN", compound().PutFH(t.Dir).Open(c.ID(), "x", &how), func(d *xdr.Decoder) {
			client.GetStateid(d)
			t.moved("OPEN", client.GetChangeInfo(d), before, t.Attrs(c, t.Dir, proto.AttrChange).Change)
		}, proto.OpPutfh, proto.OpOpen)
	}},
	Case{"permissions", "RFC 7530 §16.16.6, RFC 8881 §18.16.4", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "data")
		other := t.Other()
		for _, x := range []struct {
			mode, access uint32
			want         proto.Status
		}{
			{0o600, proto.ShareAccessRead, proto.ErrAccess},
			{0o600, proto.ShareAccessWrite, proto.ErrAccess},
			{0o604, proto.ShareAccessRead, proto.OK},
			{0o604, proto.ShareAccessBoth, proto.ErrAccess},
			{0o602, proto.ShareAccessWrite, proto.OK},
			{0o602, proto.ShareAccessBoth, proto.ErrAccess},
			{0o606, proto.ShareAccessBoth, proto.OK},
		} {
			t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: &x.mode}), "SETATTR")
			f, err := t.try(other, "x", client.OpenHow{Access: x.access})
			t.Is(err, fmt.Sprintf("OPEN with access %d of mode %o", x.access, x.mode), x.want)
			if err == nil {
				t.Ok(f.Close(t), "CLOSE")
			}
		}
	}},
	Case{"creating-needs-permission", "RFC 7530 §16.16, RFC 8881 §18.16", All, func(t *T) {
		c := t.Client()
		sub, err := c.Mkdir(t, t.Dir, "sub", 0o755)
		t.Ok(err, "CREATE")
		how := creating(proto.Unchecked, client.SetAttr{})
		_, _, err = t.Other().Open(t, sub, "x", &how)
		t.Is(err, "OPEN that creates", proto.ErrAccess)
		t.exists(c, sub, "x", false)
	}},
	Case{"owner-of-what-is-created", "RFC 7530 §16.16, RFC 8881 §18.16", All, func(t *T) {
		other := t.Other()
		f := t.Make(other)
		a := t.Attrs(other, f.FH())
		Equal(t, "owner", a.Owner, fmt.Sprint(t.env.cfg.Other))
	}},
)

var _ = register("close",
	Case{"unknown-stateid", "RFC 7530 §16.2, RFC 8881 §18.2", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		for _, s := range []client.Stateid{{}, {Seqid: ^uint32(0)}} {
			t.Want(c, "CLOSE of a special stateid", compound().PutFH(fh).CloseSeq(1, s), proto.ErrBadStateid)
		}
		want := []proto.Status{proto.ErrBadStateid}
		if t.Minor() == 0 {
			want = append(want, proto.ErrStaleStateid)
		}
		t.Want(c, "CLOSE of a stateid that never was", compound().PutFH(fh).CloseSeq(1, made()), want...)
	}},
	Case{"wrong-file", "RFC 7530 §9.1.4.4, RFC 8881 §8.2.4", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		other := t.Create(c, "other", "")
		t.Want(c, "CLOSE", compound().PutFH(other).CloseSeq(3, f.Stateid()), proto.ErrBadStateid)
		t.Ok(f.WriteAll(t, 0, []byte("x")), "WRITE afterwards")
	}},
	Case{"later-stateid", "RFC 7530 §9.1.4.4, RFC 8881 §8.2.4", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		s := f.Stateid()
		s.Seqid += 5
		t.Want(c, "CLOSE", compound().PutFH(f.FH()).CloseSeq(3, s), proto.ErrBadStateid)
	}},
	Case{"earlier-stateid", "RFC 7530 §9.1.4.4, RFC 8881 §8.2.4", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		how := client.OpenHow{Access: proto.ShareAccessBoth, Owner: []byte("one")}
		a := t.Open(c, "x", how)
		b := t.Open(c, "x", how)
		old := a.Stateid()
		_, err := a.Write(t, 0, []byte("x"), proto.FileSync)
		t.Is(err, "WRITE with the older stateid", proto.ErrOldStateid)
		zero := old
		zero.Seqid = 0
		t.Want(c, "WRITE with seqid 0", compound().PutFH(b.FH()).Write(zero, 0, []byte("x"), proto.FileSync), proto.OK)
	}},
	Case{"other-clients-stateid", "RFC 7530 §9.1.4, RFC 8881 §8.2.4", V12, func(t *T) {
		f := t.Make(t.Client())
		t.Want(t.Client(), "CLOSE", compound().PutFH(f.FH()).Close(f.Stateid()), proto.ErrBadStateid)
		t.Ok(f.Close(t), "CLOSE by its owner")
	}},
	Case{"releases-locks", "RFC 7530 §16.2.4, RFC 8881 §18.2.3", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.Lock(t, "owner", client.Range{Type: proto.WriteLt, Length: 10}), "LOCK")
		err := f.Close(t)
		if t.status(err, "CLOSE") == proto.ErrLocksHeld {
			t.Skipf("the server wants locks released before CLOSE, as it may")
		}
		t.Ok(err, "CLOSE")
		conflict, err := t.Client().TestLock(t, f.FH(), "other", client.Range{Type: proto.WriteLt, Length: 10})
		t.Ok(err, "LOCKT")
		if conflict != nil {
			t.Fatalf("after CLOSE there is still a lock: %v", conflict)
		}
	}},
	Case{"unlinked-file-lives-until-then", "RFC 7530 §16.26, RFC 8881 §18.25.4", All, func(t *T) {
		c := t.Client()
		name := t.Name()
		t.Create(c, name, "data")
		f := t.Open(c, name, client.OpenHow{Access: proto.ShareAccessBoth})
		_, err := c.Remove(t, t.Dir, name)
		if t.status(err, "REMOVE of an open file") == proto.ErrFileOpen {
			t.Skipf("open files can't be removed")
		}
		t.Ok(err, "REMOVE")
		p, err := f.ReadAll(t)
		if t.status(err, "READ") == proto.ErrStale {
			t.Skipf("the server does not keep unlinked files, as it may")
		}
		t.Ok(err, "READ after REMOVE")
		Equal(t, "contents", string(p), "data")
		_, err = f.Write(t, 4, []byte("more"), proto.FileSync)
		t.Ok(err, "WRITE after REMOVE")
		Equal(t, "numlinks", t.Attrs(c, f.FH(), proto.AttrNumlinks).Numlinks, 0)
		t.Ok(f.Close(t), "CLOSE")
	}},
)
