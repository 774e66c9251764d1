package conformance

import (
	"fmt"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// fill makes n entries.
func (t *T) fill(c *client.Client, n int) map[string]bool {
	names := map[string]bool{}
	for i := range n {
		name := fmt.Sprintf("entry-%d-%0*d", i, i%40, 0)
		t.mkdir(c, t.Dir, name)
		names[name] = true
	}
	return names
}

// list reads a directory in steps of at most maxCount bytes, and checks that no entry and
// no cookie comes twice. between is called after each step.
func (t *T) list(c *client.Client, maxCount int, between func([]client.Dirent)) map[string]client.Dirent {
	seen := map[string]client.Dirent{}
	cookies := map[uint64]bool{}
	var cookie, verifier uint64
	for {
		part, next, eof, err := c.Readdir(t, t.Dir, cookie, verifier, maxCount, proto.AttrFileid, proto.AttrType)
		t.Ok(err, "READDIR")
		for _, e := range part {
			if _, twice := seen[e.Name]; twice || cookies[e.Cookie] {
				t.Fatalf("entry %q, cookie %d, came twice", e.Name, e.Cookie)
			}
			seen[e.Name], cookies[e.Cookie] = e, true
		}
		if between != nil {
			between(part)
		}
		if eof {
			return seen
		}
		if len(part) == 0 {
			t.Fatalf("READDIR returned neither an entry nor the end")
		}
		cookie, verifier = part[len(part)-1].Cookie, next
	}
}

var _ = register("readdir",
	Case{"empty", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		all, _, eof, err := t.Client().Readdir(t, t.Dir, 0, 0, 4096)
		t.Ok(err, "READDIR")
		if len(all) > 0 || !eof {
			t.Fatalf("%d entries, eof %v", len(all), eof)
		}
	}},
	Case{"every-entry-once", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		names := t.fill(c, 150)
		for _, size := range []int{400, 1000, 4096, 1 << 20} {
			got := t.list(c, size, nil)
			Equal(t, fmt.Sprintf("entries with maxcount %d", size), len(got), len(names))
			for n := range names {
				if _, ok := got[n]; !ok {
					t.Fatalf("%q is missing with maxcount %d", n, size)
				}
			}
		}
	}},
	Case{"no-dots", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		t.fill(c, 3)
		for n, e := range t.list(c, 4096, nil) {
			if n == "." || n == ".." {
				t.Fatalf("%q is among the entries", n)
			}
			if e.Cookie <= 2 {
				t.Fatalf("%q has the cookie %d, which is reserved", n, e.Cookie)
			}
		}
	}},
	Case{"within-maxcount", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		t.fill(c, 100)
		r := t.Do(c, compound().PutFH(t.Dir).Readdir(0, 0, 1000, proto.AttrFileid))
		defer r.Release()
		d, err := r.OK(proto.OpPutfh, proto.OpReaddir)
		t.Ok(err, "READDIR")
		if n := d.Remaining(); n > 1000 {
			t.Fatalf("the result has %d bytes, and maxcount was 1000", n)
		}
	}},
	Case{"too-small-for-one", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		t.fill(c, 1)
		for _, size := range []int{0, 8, 20} {
			t.Want(c, fmt.Sprintf("READDIR with maxcount %d", size), compound().PutFH(t.Dir).Readdir(0, 0, size), proto.ErrToosmall)
		}
	}},
	Case{"reserved-cookies", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		t.fill(c, 1)
		for _, n := range []uint64{1, 2} {
			t.Want(c, fmt.Sprintf("READDIR from cookie %d", n), compound().PutFH(t.Dir).Readdir(n, 0, 4096), proto.ErrBadCookie)
		}
	}},
	Case{"of-a-file", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		t.Want(c, "READDIR", compound().PutFH(t.Create(c, "file", "")).Readdir(0, 0, 4096), proto.ErrNotdir)
	}},
	Case{"write-only-attribute", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		t.Want(t.Client(), "READDIR", compound().PutFH(t.Dir).Readdir(0, 0, 4096, proto.AttrTimeAccessSet), proto.ErrInval)
	}},
	Case{"attributes-are-those-of-getattr", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		t.Create(c, "file", "abc")
		t.mkdir(c, t.Dir, "dir")
		all, err := c.ReadAllDir(t, t.Dir, append([]int{proto.AttrFilehandle, proto.AttrRdattrError}, client.StatAttrs...)...)
		t.Ok(err, "READDIR")
		Equal(t, "entries", len(all), 2)
		for _, e := range all {
			fh, a, err := c.Lookup(t, t.Dir, e.Name)
			t.Ok(err, "LOOKUP")
			if string(e.Attrs.Handle) != string(fh) || e.Attrs.Fileid != a.Fileid || e.Attrs.Type != a.Type ||
				e.Attrs.Size != a.Size || e.Attrs.Mode != a.Mode || e.Attrs.Change != a.Change || e.Attrs.Owner != a.Owner {
				t.Fatalf("%q has attributes %+v in READDIR and %+v in GETATTR", e.Name, e.Attrs, a)
			}
			Equal(t, "rdattr_error", e.Attrs.RdattrError, proto.OK)
		}
	}},
	Case{"removals-while-listing", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		names := t.fill(c, 60)
		got := t.list(c, 700, func(part []client.Dirent) {
			for _, e := range part {
				_, err := c.Remove(t, t.Dir, e.Name)
				t.Ok(err, "REMOVE of "+e.Name)
			}
		})
		Equal(t, "entries", len(got), len(names))
	}},
	Case{"creations-while-listing", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		names := t.fill(c, 60)
		made := 0
		got := t.list(c, 700, func([]client.Dirent) {
			if made++; made < 30 {
				t.mkdir(c, t.Dir, fmt.Sprintf("later-%d", made))
			}
		})
		for n := range names {
			if _, ok := got[n]; !ok {
				t.Fatalf("%q was there all the time and is missing", n)
			}
		}
	}},
	Case{"needs-permission", "RFC 7530 §16.24, RFC 8881 §18.23", All, func(t *T) {
		c := t.Client()
		sub, err := c.Mkdir(t, t.Dir, "sub", 0o711)
		t.Ok(err, "CREATE")
		t.Want(t.Other(), "READDIR by another user", compound().PutFH(sub).Readdir(0, 0, 4096), proto.ErrAccess)
	}},
)
