package conformance

import (
	"fmt"
	"strings"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// mkdir makes a directory that everybody may write to.
func (t *T) mkdir(c *client.Client, dir client.FH, name string) client.FH {
	fh, err := c.Mkdir(t, dir, name, 0o777)
	t.Ok(err, "CREATE of the directory "+name)
	return fh
}

// exists ends the case unless a name is there, or is not.
func (t *T) exists(c *client.Client, dir client.FH, name string, want bool) {
	_, _, err := c.Lookup(t, dir, name)
	if want {
		t.Ok(err, "LOOKUP of "+name)
	} else {
		t.Is(err, "LOOKUP of "+name, proto.ErrNoent)
	}
}

// moved checks a change_info4 against the directory's change attribute before and after.
func (t *T) moved(what string, ci client.ChangeInfo, before, after uint64) {
	if ci.Atomic && ci.Before != before {
		t.Fatalf("%s: before is %d, and change was %d", what, ci.Before, before)
	}
	if ci.After != after {
		t.Fatalf("%s: after is %d, and change is %d", what, ci.After, after)
	}
	if before == after {
		t.Fatalf("%s: the directory's change is %d before and after", what, after)
	}
}

var _ = register("create",
	Case{"every-type", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		c := t.Client()
		for _, x := range []struct {
			kind uint32
			root bool // for the superuser alone
		}{{proto.TypeDir, false}, {proto.TypeFIFO, false}, {proto.TypeSock, false}, {proto.TypeBlk, true}, {proto.TypeChr, true}} {
			fh, err := c.Mknod(t, t.Dir, fmt.Sprintf("type-%d", x.kind), x.kind, 0o640, 3, 7)
			if st := t.status(err, "CREATE"); st == proto.ErrBadtype || x.root && st == proto.ErrPerm {
				continue
			}
			t.Ok(err, fmt.Sprintf("CREATE of type %d", x.kind))
			a := t.Attrs(c, fh)
			Equal(t, "type", a.Type, x.kind)
			if x.root && (a.RawMajor != 3 || a.RawMinor != 7) {
				t.Fatalf("rawdev is %d, %d", a.RawMajor, a.RawMinor)
			}
		}
	}},
	Case{"regular-file", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		ops := with(compound().PutFH(t.Dir), proto.OpCreate, all(number(proto.TypeReg), text("x"), number(0), number(0)))
		t.Want(t.Client(), "CREATE", ops, proto.ErrBadtype)
	}},
	Case{"existing-name", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		c := t.Client()
		t.mkdir(c, t.Dir, "x")
		t.Want(c, "CREATE", compound().PutFH(t.Dir).Create("x", proto.TypeDir, "", 0, 0, nil), proto.ErrExist)
		t.Create(c, "file", "x")
		t.Want(c, "CREATE", compound().PutFH(t.Dir).Create("file", proto.TypeLnk, "to", 0, 0, nil), proto.ErrExist)
	}},
	Case{"in-a-file", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		t.Want(c, "CREATE", compound().PutFH(fh).Create("x", proto.TypeDir, "", 0, 0, nil), proto.ErrNotdir)
	}},
	Case{"bad-names", "RFC 7530 §12.7, RFC 8881 §14.5", All, func(t *T) {
		c := t.Client()
		for _, x := range []struct {
			name string
			want []proto.Status
		}{
			{"", []proto.Status{proto.ErrInval}},
			{strings.Repeat("n", 4000), []proto.Status{proto.ErrNametoolong}},
			{".", []proto.Status{proto.ErrBadname, proto.ErrInval, proto.ErrExist}},
			{"..", []proto.Status{proto.ErrBadname, proto.ErrInval, proto.ErrExist}},
			{"a/b", []proto.Status{proto.ErrBadchar, proto.ErrBadname, proto.ErrInval}},
			{"a\x00b", []proto.Status{proto.ErrBadchar, proto.ErrBadname, proto.ErrInval}},
		} {
			t.Want(c, fmt.Sprintf("CREATE of %.10q", x.name), compound().PutFH(t.Dir).Create(x.name, proto.TypeDir, "", 0, 0, nil), x.want...)
		}
	}},
	Case{"names-of-any-letters", "RFC 7530 §12, RFC 8881 §14", All, func(t *T) {
		c := t.Client()
		for _, n := range []string{"Größe", "日本語", " ", "...", "-rf", "a\tb", strings.Repeat("é", 127)} {
			t.mkdir(c, t.Dir, n)
			t.exists(c, t.Dir, n, true)
		}
		t.mkdir(c, t.Dir, "case")
		t.exists(c, t.Dir, "CASE", false)
	}},
	Case{"change-info", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		c := t.Client()
		before := t.Attrs(c, t.Dir, proto.AttrChange).Change
		var ci client.ChangeInfo
		t.Get(c, "CREATE", compound().PutFH(t.Dir).Create("x", proto.TypeDir, "", 0, 0, nil), func(d *xdr.Decoder) {
			ci = client.GetChangeInfo(d)
		}, proto.OpPutfh, proto.OpCreate)
		t.moved("CREATE", ci, before, t.Attrs(c, t.Dir, proto.AttrChange).Change)
	}},
	Case{"links-of-a-directory", "RFC 7530 §5.8.2.26, RFC 8881 §5.8.2.26", All, func(t *T) {
		c := t.Client()
		before := t.Attrs(c, t.Dir, proto.AttrNumlinks).Numlinks
		t.mkdir(c, t.Dir, "x")
		if n := t.Attrs(c, t.Dir, proto.AttrNumlinks).Numlinks; n != before+1 && n != before {
			t.Fatalf("numlinks is %d after another directory, and was %d", n, before)
		}
	}},
	Case{"empty-target", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		t.Want(t.Client(), "CREATE", compound().PutFH(t.Dir).Create("x", proto.TypeLnk, "", 0, 0, nil), proto.ErrInval, proto.ErrNoent)
	}},
	Case{"unsupported-attribute", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		c := t.Client()
		ops := with(compound().PutFH(t.Dir), proto.OpCreate, all(number(proto.TypeDir), text("x"), fattr(proto.AttrHidden, 1)))
		t.Want(c, "CREATE", ops, proto.ErrAttrnotsupp, proto.OK)
		ops = with(compound().PutFH(t.Dir), proto.OpCreate, all(number(proto.TypeDir), text("y"), fattr(proto.AttrLinkSupport, 1)))
		t.Want(c, "CREATE with a read-only attribute", ops, proto.ErrInval)
		t.exists(c, t.Dir, "y", false)
	}},
	Case{"needs-permission", "RFC 7530 §16.4, RFC 8881 §18.4", All, func(t *T) {
		c := t.Client()
		sub, err := c.Mkdir(t, t.Dir, "sub", 0o755)
		t.Ok(err, "CREATE")
		t.Want(t.Other(), "CREATE by another user", compound().PutFH(sub).Create("x", proto.TypeDir, "", 0, 0, nil), proto.ErrAccess)
		t.exists(c, sub, "x", false)
	}},
	Case{"readlink", "RFC 7530 §16.25, RFC 8881 §18.24", All, func(t *T) {
		c := t.Client()
		for _, target := range []string{"x", "../..", "/a/b", strings.Repeat("t", 1000)} {
			fh, err := c.Symlink(t, t.Dir, t.Name(), target)
			t.Ok(err, "CREATE of a symbolic link")
			got, err := c.Readlink(t, fh)
			t.Ok(err, "READLINK")
			Equal(t, "target", got, target)
		}
		want := []proto.Status{proto.ErrInval}
		if t.Minor() > 0 {
			want = append(want, proto.ErrWrongType)
		}
		t.Want(c, "READLINK of a file", compound().PutFH(t.Create(c, "file", "")).Plain(proto.OpReadlink), want...)
		t.Want(c, "READLINK of a directory", compound().PutFH(t.Dir).Plain(proto.OpReadlink), append(want, proto.ErrIsdir)...)
	}},
)

var _ = register("remove",
	Case{"missing", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		t.Want(t.Client(), "REMOVE", compound().PutFH(t.Dir).Remove("missing"), proto.ErrNoent)
	}},
	Case{"directory-with-entries", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		c := t.Client()
		t.mkdir(c, t.mkdir(c, t.Dir, "sub"), "inner")
		t.Want(c, "REMOVE", compound().PutFH(t.Dir).Remove("sub"), proto.ErrNotempty)
		t.exists(c, t.Dir, "sub", true)
	}},
	Case{"directory", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		c := t.Client()
		fh := t.mkdir(c, t.Dir, "sub")
		_, err := c.Remove(t, t.Dir, "sub")
		t.Ok(err, "REMOVE")
		t.exists(c, t.Dir, "sub", false)
		t.Want(c, "CREATE in it", compound().PutFH(fh).Create("x", proto.TypeDir, "", 0, 0, nil), proto.ErrStale, proto.ErrNoent)
	}},
	Case{"in-a-file", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		c := t.Client()
		t.Want(c, "REMOVE", compound().PutFH(t.Create(c, "file", "")).Remove("x"), proto.ErrNotdir)
	}},
	Case{"bad-names", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		c := t.Client()
		t.Want(c, "REMOVE of nothing", compound().PutFH(t.Dir).Remove(""), proto.ErrInval)
		t.Want(c, "REMOVE of .", compound().PutFH(t.Dir).Remove("."), proto.ErrBadname, proto.ErrInval, proto.ErrNoent)
		t.Want(c, "REMOVE of ..", compound().PutFH(t.Dir).Remove(".."), proto.ErrBadname, proto.ErrInval, proto.ErrNoent, proto.ErrNotempty)
		t.Want(c, "REMOVE of 4000 letters", compound().PutFH(t.Dir).Remove(strings.Repeat("n", 4000)), proto.ErrNametoolong)
	}},
	Case{"change-info", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		c := t.Client()
		t.Create(c, "file", "x")
		before := t.Attrs(c, t.Dir, proto.AttrChange).Change
		ci, err := c.Remove(t, t.Dir, "file")
		t.Ok(err, "REMOVE")
		t.moved("REMOVE", ci, before, t.Attrs(c, t.Dir, proto.AttrChange).Change)
	}},
	Case{"one-of-two-names", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "one", "data")
		_, err := c.Link(t, fh, t.Dir, "two")
		t.Ok(err, "LINK")
		Equal(t, "numlinks", t.Attrs(c, fh, proto.AttrNumlinks).Numlinks, 2)
		_, err = c.Remove(t, t.Dir, "one")
		t.Ok(err, "REMOVE")
		Equal(t, "numlinks", t.Attrs(c, fh, proto.AttrNumlinks).Numlinks, 1)
		Equal(t, "contents", t.Contents(c, "two"), "data")
	}},
	Case{"needs-permission", "RFC 7530 §16.26, RFC 8881 §18.25", All, func(t *T) {
		c := t.Client()
		sub, err := c.Mkdir(t, t.Dir, "sub", 0o755)
		t.Ok(err, "CREATE")
		t.mkdir(c, sub, "inner")
		t.Want(t.Other(), "REMOVE by another user", compound().PutFH(sub).Remove("inner"), proto.ErrAccess)
		t.exists(c, sub, "inner", true)
	}},
)

var _ = register("link",
	Case{"directory", "RFC 7530 §16.9, RFC 8881 §18.9", All, func(t *T) {
		c := t.Client()
		fh := t.mkdir(c, t.Dir, "sub")
		t.Want(c, "LINK", compound().PutFH(fh).Plain(proto.OpSavefh).PutFH(t.Dir).Link("other"), proto.ErrIsdir)
	}},
	Case{"existing-name", "RFC 7530 §16.9, RFC 8881 §18.9", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "one", "1")
		t.Create(c, "two", "2")
		t.Want(c, "LINK", compound().PutFH(fh).Plain(proto.OpSavefh).PutFH(t.Dir).Link("two"), proto.ErrExist)
		Equal(t, "contents", t.Contents(c, "two"), "2")
	}},
	Case{"into-a-file", "RFC 7530 §16.9, RFC 8881 §18.9", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "one", "1")
		t.Want(c, "LINK", compound().PutFH(fh).Plain(proto.OpSavefh).PutFH(fh).Link("two"), proto.ErrNotdir)
	}},
	Case{"bad-names", "RFC 7530 §16.9, RFC 8881 §18.9", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "one", "1")
		link := func(n string) *client.Compound {
			return compound().PutFH(fh).Plain(proto.OpSavefh).PutFH(t.Dir).Link(n)
		}
		t.Want(c, "LINK", link(""), proto.ErrInval)
		t.Want(c, "LINK", link(strings.Repeat("n", 4000)), proto.ErrNametoolong)
		t.Want(c, "LINK", link(".."), proto.ErrBadname, proto.ErrInval, proto.ErrExist)
	}},
	Case{"change-info", "RFC 7530 §16.9, RFC 8881 §18.9", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		before := t.Attrs(c, t.Dir, proto.AttrChange).Change
		ci, err := c.Link(t, fh, t.Dir, "two")
		t.Ok(err, "LINK")
		t.moved("LINK", ci, before, t.Attrs(c, t.Dir, proto.AttrChange).Change)
	}},
)
