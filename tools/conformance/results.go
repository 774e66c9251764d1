package conformance

import (
	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

var _ = register("results",
	Case{"setattr-has-attrsset-after-an-error", "RFC 7530 §16.32.3, RFC 8881 §18.30.2", All, func(t *T) {
		c := t.Client()
		r := t.Do(c, with(compound(), proto.OpSetattr, all(stateid(client.Stateid{}), number(0), number(0))))
		defer r.Release()
		d, st, err := r.Next(proto.OpSetattr)
		t.Ok(err, "SETATTR")
		Equal(t, "status", st, proto.ErrNofilehandle)
		Equal(t, "attributes set", len(client.GetBitmap(d)), 0)
		t.Ok(d.Err(), "the result of SETATTR")
	}},
	Case{"access-of-what-has-no-meaning", "RFC 7530 §16.1, RFC 8881 §18.1", All, func(t *T) {
		c := t.Client()
		const asked = proto.AccessRead | proto.AccessLookup | proto.AccessModify | proto.AccessExtend | proto.AccessDelete | proto.AccessExecute
		for what, x := range map[string]struct {
			fh   client.FH
			none uint32
		}{
			"a directory": {t.Dir, proto.AccessExecute},
			"a file":      {t.Create(c, "x", ""), proto.AccessLookup | proto.AccessDelete},
		} {
			supported, got, err := c.Access(t, x.fh, asked)
			t.Ok(err, "ACCESS")
			if (supported|got)&x.none != 0 {
				t.Fatalf("ACCESS of %s: supported %#x, access %#x", what, supported, got)
			}
		}
	}},
	Case{"attributes-far-beyond", "RFC 7530 §5.3, RFC 8881 §5.3", All, func(t *T) {
		t.Want(t.Client(), "GETATTR of attribute 1000", with(compound().PutFH(t.Dir), proto.OpGetattr, func(e *xdr.Encoder) {
			e.Uint32(32)
			for range 31 {
				e.Uint32(0)
			}
			e.Uint32(1 << 8)
		}), proto.OK)
	}},
	Case{"empty-owner", "RFC 7530 §5.9, RFC 8881 §5.9", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		none := ""
		t.Is(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Owner: &none}), "SETATTR of an empty owner", proto.ErrInval)
		t.Is(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{OwnerGroup: &none}), "SETATTR of an empty group", proto.ErrInval)
	}},
)
