package conformance

import (
	"fmt"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

var _ = register("share",
	Case{"matrix", "RFC 7530 §9.9, RFC 8881 §9.7", All, func(t *T) {
		a, b := t.Client(), t.Client()
		t.Create(a, "x", "")
		for access := uint32(1); access <= 3; access++ {
			for deny := uint32(0); deny <= 3; deny++ {
				first := t.Open(a, "x", client.OpenHow{Access: access, Deny: deny})
				for access2 := uint32(1); access2 <= 3; access2++ {
					for deny2 := uint32(0); deny2 <= 3; deny2++ {
						want := proto.OK
						if access2&deny != 0 || deny2&access != 0 {
							want = proto.ErrShareDenied
						}
						f, err := t.try(b, "x", client.OpenHow{Access: access2, Deny: deny2})
						t.Is(err, fmt.Sprintf("OPEN access %d deny %d beside access %d deny %d", access2, deny2, access, deny), want)
						if err == nil {
							t.Ok(f.Close(t), "CLOSE")
						}
					}
				}
				t.Ok(first.Close(t), "CLOSE")
			}
		}
	}},
	Case{"own-opens-count", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "")
		how := client.OpenHow{Access: proto.ShareAccessBoth, Deny: proto.ShareDenyRead, Owner: []byte("one")}
		t.Open(c, "x", how)
		how.Access, how.Deny = proto.ShareAccessRead, 0
		_, err := t.try(c, "x", how)
		t.Is(err, "OPEN for reading by the owner that denies it", proto.ErrShareDenied)
	}},
	Case{"denied-open-does-not-truncate", "RFC 7530 §16.16.5, RFC 8881 §18.16.3", All, func(t *T) {
		a, b := t.Client(), t.Client()
		fh := t.Create(a, "x", "contents")
		t.Open(a, "x", client.OpenHow{Access: proto.ShareAccessRead, Deny: proto.ShareDenyWrite})
		_, err := t.try(b, "x", creating(proto.Unchecked, client.SetAttr{Size: client.Ptr(uint64(0))}))
		t.Is(err, "OPEN that truncates", proto.ErrShareDenied)
		Equal(t, "size", t.Attrs(a, fh, proto.AttrSize).Size, 8)
	}},
	Case{"io-without-an-open", "RFC 7530 §9.1.4.5, RFC 8881 §9.1.2", All, func(t *T) {
		a, b := t.Client(), t.Client()
		fh := t.Create(a, "x", "contents")
		t.Open(a, "x", client.OpenHow{Access: proto.ShareAccessBoth, Deny: proto.ShareDenyBoth})
		t.Want(b, "READ", compound().PutFH(fh).Read(client.Stateid{}, 0, 10), proto.ErrLocked)
		t.Want(b, "WRITE", compound().PutFH(fh).Write(client.Stateid{}, 0, []byte("x"), proto.FileSync), proto.ErrLocked)
		t.Is(b.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Size: client.Ptr(uint64(0))}), "SETATTR of size", proto.ErrLocked)
		t.Ok(b.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o666))}), "SETATTR of mode")
		Equal(t, "contents", t.Attrs(a, fh, proto.AttrSize).Size, 8)
	}},
	Case{"gone-with-close", "RFC 7530 §9.9, RFC 8881 §9.7", All, func(t *T) {
		a, b := t.Client(), t.Client()
		fh := t.Create(a, "x", "contents")
		f := t.Open(a, "x", client.OpenHow{Access: proto.ShareAccessBoth, Deny: proto.ShareDenyBoth})
		t.Ok(f.Close(t), "CLOSE")
		t.Want(b, "READ", compound().PutFH(fh).Read(client.Stateid{}, 0, 10), proto.OK)
		g := t.Open(b, "x", client.OpenHow{Access: proto.ShareAccessBoth, Deny: proto.ShareDenyBoth})
		t.Ok(g.Close(t), "CLOSE")
	}},
	Case{"gone-with-the-client", "RFC 7530 §16.34, RFC 8881 §18.36.4", All, func(t *T) {
		owner := []byte("conformance " + t.env.name + t.name)
		a := t.ClientAs(func(o *client.Options) { o.Owner, o.Verifier = owner, 1 })
		t.Create(a, "x", "contents")
		t.Open(a, "x", client.OpenHow{Access: proto.ShareAccessBoth, Deny: proto.ShareDenyBoth})
		b := t.Client()
		_, err := t.try(b, "x", client.OpenHow{})
		t.Is(err, "OPEN while the client lives", proto.ErrShareDenied)
		t.Kill(a)
		t.ClientAs(func(o *client.Options) { o.Owner, o.Verifier = owner, 2 }) // it has restarted
		_, err = t.try(b, "x", client.OpenHow{})
		t.Ok(err, "OPEN after the client has restarted")
	}},
)

// downgrade downgrades an open of an owner.
func (t *T) downgrade(c *client.Client, f *client.File, owner string, access, deny uint32) error {
	return c.Downgrade(t, f, []byte(owner), access, deny)
}

var _ = register("downgrade",
	Case{"access-goes", "RFC 7530 §16.19, RFC 8881 §18.18", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "contents")
		how := client.OpenHow{Access: proto.ShareAccessRead, Owner: []byte("one")}
		t.Open(c, "x", how)
		how.Access = proto.ShareAccessBoth
		f := t.Open(c, "x", how)
		before := f.Stateid()
		t.Ok(t.downgrade(c, f, "one", proto.ShareAccessRead, 0), "OPEN_DOWNGRADE")
		Equal(t, "the stateid's other", f.Stateid().Other, before.Other)
		if f.Stateid().Seqid <= before.Seqid {
			t.Fatalf("the seqid is %d after OPEN_DOWNGRADE, and was %d", f.Stateid().Seqid, before.Seqid)
		}
		_, err := f.Write(t, 0, []byte("x"), proto.FileSync)
		t.Is(err, "WRITE", proto.ErrOpenmode)
		_, err = f.ReadAll(t)
		t.Ok(err, "READ")
	}},
	Case{"deny-goes", "RFC 7530 §16.19, RFC 8881 §18.18", All, func(t *T) {
		c, b := t.Client(), t.Client()
		t.Create(c, "x", "contents")
		how := client.OpenHow{Access: proto.ShareAccessRead, Owner: []byte("one")}
		t.Open(c, "x", how)
		how.Deny = proto.ShareDenyWrite
		f := t.Open(c, "x", how)
		_, err := t.try(b, "x", client.OpenHow{Access: proto.ShareAccessWrite})
		t.Is(err, "OPEN before", proto.ErrShareDenied)
		t.Ok(t.downgrade(c, f, "one", proto.ShareAccessRead, 0), "OPEN_DOWNGRADE")
		_, err = t.try(b, "x", client.OpenHow{Access: proto.ShareAccessWrite})
		t.Ok(err, "OPEN after")
	}},
	Case{"to-more", "RFC 7530 §16.19, RFC 8881 §18.18", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "contents")
		f := t.Open(c, "x", client.OpenHow{Access: proto.ShareAccessRead, Owner: []byte("one")})
		t.Is(t.downgrade(c, f, "one", proto.ShareAccessBoth, 0), "OPEN_DOWNGRADE to more access", proto.ErrInval)
		t.Is(t.downgrade(c, f, "one", proto.ShareAccessRead, proto.ShareDenyWrite), "OPEN_DOWNGRADE to more deny", proto.ErrInval)
		t.Is(t.downgrade(c, f, "one", 0, 0), "OPEN_DOWNGRADE to nothing", proto.ErrInval)
	}},
	Case{"to-what-was-never-opened", "RFC 7530 §16.19, RFC 8881 §18.18.3", All, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "contents")
		f := t.Open(c, "x", client.OpenHow{Access: proto.ShareAccessBoth, Owner: []byte("one")})
		t.Is(t.downgrade(c, f, "one", proto.ShareAccessRead, 0), "OPEN_DOWNGRADE", proto.ErrInval)
	}},
)
