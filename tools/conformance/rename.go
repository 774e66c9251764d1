package conformance

import (
	"fmt"
	"strings"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// rename renames within the case's directory, or says why not.
func (t *T) rename(c *client.Client, from, to string) error {
	_, _, err := c.Rename(t, t.Dir, from, t.Dir, to)
	return err
}

var _ = register("rename",
	Case{"replaces", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		one := t.Create(c, "one", "1")
		two := t.Create(c, "two", "2")
		t.Ok(t.rename(c, "one", "two"), "RENAME")
		t.exists(c, t.Dir, "one", false)
		fh, _, err := c.Lookup(t, t.Dir, "two")
		t.Ok(err, "LOOKUP")
		Equal(t, "the handle", string(fh), string(one))
		t.Want(c, "GETATTR of what was replaced", compound().PutFH(two).Getattr(proto.AttrType), proto.ErrStale)
	}},
	Case{"which-types-replace-which", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		t.Create(c, "file", "")
		t.mkdir(c, t.Dir, "dir")
		t.mkdir(c, t.mkdir(c, t.Dir, "full"), "inner")
		for _, x := range []struct {
			from, to string
			want     []proto.Status
		}{
			{"file", "dir", []proto.Status{proto.ErrExist, proto.ErrIsdir}},
			{"dir", "file", []proto.Status{proto.ErrExist, proto.ErrNotdir}},
			{"dir", "full", []proto.Status{proto.ErrExist, proto.ErrNotempty}},
			{"full", "dir", []proto.Status{proto.OK}},
		} {
			t.Is(t.rename(c, x.from, x.to), fmt.Sprintf("RENAME of %s to %s", x.from, x.to), x.want...)
		}
		t.exists(c, t.Dir, "full", false)
		t.exists(c, t.Dir, "file", true)
	}},
	Case{"missing", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		t.Is(t.rename(t.Client(), "missing", "x"), "RENAME", proto.ErrNoent)
	}},
	Case{"to-itself", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "one", "1")
		t.Ok(t.rename(c, "one", "one"), "RENAME to the same name")
		_, err := c.Link(t, fh, t.Dir, "two")
		t.Ok(err, "LINK")
		t.Ok(t.rename(c, "one", "two"), "RENAME to another name of the same file")
		t.exists(c, t.Dir, "one", true)
		t.exists(c, t.Dir, "two", true)
	}},
	Case{"into-itself", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		a := t.mkdir(c, t.Dir, "a")
		b := t.mkdir(c, a, "b")
		for _, to := range []client.FH{a, b} {
			_, _, err := c.Rename(t, t.Dir, "a", to, "x")
			t.Is(err, "RENAME of a directory into what is below it", proto.ErrInval)
		}
		t.exists(c, t.Dir, "a", true)
	}},
	Case{"between-directories", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		a, b := t.mkdir(c, t.Dir, "a"), t.mkdir(c, t.Dir, "b")
		t.mkdir(c, a, "x")
		fromBefore, toBefore := t.Attrs(c, a, proto.AttrChange).Change, t.Attrs(c, b, proto.AttrChange).Change
		from, to, err := c.Rename(t, a, "x", b, "y")
		t.Ok(err, "RENAME")
		t.moved("the source of RENAME", from, fromBefore, t.Attrs(c, a, proto.AttrChange).Change)
		t.moved("the target of RENAME", to, toBefore, t.Attrs(c, b, proto.AttrChange).Change)
		t.exists(c, a, "x", false)
		fh, _, err := c.Lookup(t, b, "y")
		t.Ok(err, "LOOKUP")
		ops := compound().PutFH(fh).Plain(proto.OpLookupp, proto.OpGetfh)
		r := t.Do(c, ops)
		defer r.Release()
		d, err := r.OK(proto.OpPutfh, proto.OpLookupp, proto.OpGetfh)
		t.Ok(err, "LOOKUPP")
		Equal(t, "the parent", string(d.Opaque(proto.FHSize)), string(b))
	}},
	Case{"not-directories", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "")
		_, _, err := c.Rename(t, fh, "x", t.Dir, "y")
		t.Is(err, "RENAME out of a file", proto.ErrNotdir)
		_, _, err = c.Rename(t, t.Dir, "file", fh, "y")
		t.Is(err, "RENAME into a file", proto.ErrNotdir)
	}},
	Case{"bad-names", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		t.Create(c, "file", "")
		for _, x := range []struct {
			name string
			want []proto.Status
		}{
			{"", []proto.Status{proto.ErrInval}},
			{".", []proto.Status{proto.ErrBadname, proto.ErrInval, proto.ErrExist}},
			{"..", []proto.Status{proto.ErrBadname, proto.ErrInval, proto.ErrExist}},
			{strings.Repeat("n", 4000), []proto.Status{proto.ErrNametoolong}},
		} {
			t.Is(t.rename(c, "file", x.name), fmt.Sprintf("RENAME to %.10q", x.name), x.want...)
			t.Is(t.rename(c, x.name, "other"), fmt.Sprintf("RENAME of %.10q", x.name), append(x.want, proto.ErrNoent)...)
		}
		t.exists(c, t.Dir, "file", true)
	}},
	Case{"open-files-stay-open", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		t.Create(c, "one", "old")
		t.Create(c, "two", "new")
		f := t.Open(c, "one", client.OpenHow{Access: proto.ShareAccessRead})
		t.Ok(t.rename(c, "one", "three"), "RENAME")
		p, err := f.ReadAll(t)
		t.Ok(err, "READ after RENAME")
		Equal(t, "contents", string(p), "old")
	}},
	Case{"needs-permission", "RFC 7530 §16.27, RFC 8881 §18.26", All, func(t *T) {
		c := t.Client()
		sub, err := c.Mkdir(t, t.Dir, "sub", 0o755)
		t.Ok(err, "CREATE")
		t.mkdir(c, sub, "inner")
		_, _, err = t.Other().Rename(t, sub, "inner", t.Dir, "taken")
		t.Is(err, "RENAME by another user", proto.ErrAccess)
		t.exists(c, sub, "inner", true)
	}},
)
