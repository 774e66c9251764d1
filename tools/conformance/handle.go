package conformance

import (
	"bytes"
	"strings"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

var _ = register("handle",
	Case{"not-made-by-the-server", "RFC 7530 §16.20, RFC 8881 §18.19", All, func(t *T) {
		c := t.Client()
		for _, fh := range []client.FH{nil, client.FH("x"), bytes.Repeat([]byte{0xa5}, 64), bytes.Repeat([]byte{1}, 128)} {
			t.Want(c, "PUTFH", compound().PutFH(fh), proto.ErrBadhandle, proto.ErrStale)
		}
	}},
	Case{"too-long", "RFC 7530 §2.1, RFC 8881 §3.2", All, func(t *T) {
		t.Want(t.Client(), "PUTFH of 129 bytes", compound().PutFH(make([]byte, 129)), proto.ErrBadxdr)
	}},
	Case{"of-a-removed-file-is-stale", "RFC 7530 §4.2.2, RFC 8881 §4.2.2", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "gone", "x")
		_, err := c.Remove(t, t.Dir, "gone")
		t.Ok(err, "REMOVE")
		t.Want(c, "GETATTR", compound().PutFH(fh).Getattr(proto.AttrType), proto.ErrStale)
	}},
	Case{"survives-rename", "RFC 7530 §4.2.2, RFC 8881 §4.2.2", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "before", "x")
		_, _, err := c.Rename(t, t.Dir, "before", t.Dir, "after")
		t.Ok(err, "RENAME")
		now, a, err := c.Lookup(t, t.Dir, "after")
		t.Ok(err, "LOOKUP")
		Equal(t, "the handle", string(now), string(fh))
		Equal(t, "fileid", t.Attrs(c, fh, proto.AttrFileid).Fileid, a.Fileid)
	}},
	Case{"same-for-all-names", "RFC 7530 §4.2.1, RFC 8881 §4.2.1", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "one", "x")
		_, err := c.Link(t, fh, t.Dir, "two")
		t.Ok(err, "LINK")
		other, _, err := c.Lookup(t, t.Dir, "two")
		t.Ok(err, "LOOKUP")
		Equal(t, "the handle", string(other), string(fh))
	}},
	Case{"attribute-is-getfh", "RFC 7530 §5.6, RFC 8881 §5.8.1.12", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		Equal(t, "FATTR4_FILEHANDLE", string(t.Attrs(c, fh, proto.AttrFilehandle).Handle), string(fh))
	}},
	Case{"saved-and-restored", "RFC 7530 §16.28, RFC 8881 §18.27", All, func(t *T) {
		c := t.Client()
		ops := compound().PutFH(t.Dir).Plain(proto.OpSavefh, proto.OpPutrootfh, proto.OpRestorefh, proto.OpGetfh)
		t.Get(c, "RESTOREFH", ops, func(d *xdr.Decoder) {
			Equal(t, "the handle", string(d.Opaque(proto.FHSize)), string(t.Dir))
		}, proto.OpPutfh, proto.OpSavefh, proto.OpPutrootfh, proto.OpRestorefh, proto.OpGetfh)
	}},
	Case{"public-is-root", "RFC 7530 §16.21, RFC 8881 §18.20", All, func(t *T) {
		c := t.Client()
		var public string
		t.Get(c, "PUTPUBFH", compound().Plain(proto.OpPutpubfh, proto.OpGetfh), func(d *xdr.Decoder) {
			public = string(d.Opaque(proto.FHSize))
		}, proto.OpPutpubfh, proto.OpGetfh)
		if public == "" || len(public) > proto.FHSize {
			t.Fatalf("the public handle has %d bytes", len(public))
		}
	}},
)

var _ = register("lookup",
	Case{"missing", "RFC 7530 §16.13, RFC 8881 §18.13", All, func(t *T) {
		t.Want(t.Client(), "LOOKUP", compound().PutFH(t.Dir).Lookup("missing"), proto.ErrNoent)
	}},
	Case{"in-a-file", "RFC 7530 §16.13, RFC 8881 §18.13", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		t.Want(c, "LOOKUP", compound().PutFH(fh).Lookup("x"), proto.ErrNotdir)
	}},
	Case{"in-a-symbolic-link", "RFC 7530 §16.13, RFC 8881 §18.13", All, func(t *T) {
		c := t.Client()
		fh, err := c.Symlink(t, t.Dir, "link", "target")
		t.Ok(err, "CREATE of a symbolic link")
		t.Want(c, "LOOKUP", compound().PutFH(fh).Lookup("x"), proto.ErrSymlink)
	}},
	Case{"empty-name", "RFC 7530 §16.13, RFC 8881 §18.13", All, func(t *T) {
		t.Want(t.Client(), "LOOKUP", compound().PutFH(t.Dir).Lookup(""), proto.ErrInval)
	}},
	Case{"long-name", "RFC 7530 §16.13, RFC 8881 §18.13", All, func(t *T) {
		t.Want(t.Client(), "LOOKUP", compound().PutFH(t.Dir).Lookup(strings.Repeat("n", 4000)), proto.ErrNametoolong)
	}},
	Case{"dots-are-no-names", "RFC 7530 §12.7, RFC 8881 §14.5", All, func(t *T) {
		c := t.Client()
		for _, n := range []string{".", ".."} {
			t.Want(c, "LOOKUP of "+n, compound().PutFH(t.Dir).Lookup(n), proto.ErrBadname, proto.ErrNoent, proto.ErrInval)
		}
	}},
	Case{"parent", "RFC 7530 §16.14, RFC 8881 §18.14", All, func(t *T) {
		c := t.Client()
		sub, err := c.Mkdir(t, t.Dir, "sub", 0o755)
		t.Ok(err, "CREATE of a directory")
		t.Get(c, "LOOKUPP", compound().PutFH(sub).Plain(proto.OpLookupp, proto.OpGetfh), func(d *xdr.Decoder) {
			Equal(t, "the parent", string(d.Opaque(proto.FHSize)), string(t.Dir))
		}, proto.OpPutfh, proto.OpLookupp, proto.OpGetfh)
	}},
	Case{"parent-of-the-root", "RFC 7530 §16.14, RFC 8881 §18.14", All, func(t *T) {
		t.Want(t.Client(), "LOOKUPP", compound().Plain(proto.OpPutrootfh, proto.OpLookupp), proto.ErrNoent)
	}},
	Case{"parent-of-a-file", "RFC 7530 §16.14, RFC 8881 §18.14", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		t.Want(c, "LOOKUPP", compound().PutFH(fh).Plain(proto.OpLookupp), proto.ErrNotdir)
	}},
	Case{"needs-permission", "RFC 7530 §16.13, RFC 8881 §18.13", All, func(t *T) {
		c := t.Client()
		sub, err := c.Mkdir(t, t.Dir, "sub", 0o700)
		t.Ok(err, "CREATE of a directory")
		_, err = c.Mkdir(t, sub, "inner", 0o755)
		t.Ok(err, "CREATE of a directory")
		t.Want(t.Other(), "LOOKUP by another user", compound().PutFH(sub).Lookup("inner"), proto.ErrAccess)
	}},
)
