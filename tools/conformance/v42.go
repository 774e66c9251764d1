package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// optional ends the case if an optional operation is not supported.
func (t *T) optional(err error, what string) {
	switch t.status(err, what) {
	case proto.ErrNotsupp, proto.ErrUnionNotsupp:
		t.Skipf("%s is not supported", what)
	}
}

var _ = register("xattr",
	Case{"set-get-list-remove", "RFC 8276 §8.4", V2, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		t.optional(c.Setxattr(t, fh, "one", []byte("1"), proto.SetxattrCreate), "SETXATTR")
		t.Ok(c.Setxattr(t, fh, "two", nil, proto.SetxattrEither), "SETXATTR of an empty value")
		v, err := c.Getxattr(t, fh, "one")
		t.Ok(err, "GETXATTR")
		Equal(t, "value", string(v), "1")
		names, err := c.Listxattr(t, fh)
		t.Ok(err, "LISTXATTRS")
		slices.Sort(names)
		Equal(t, "names", strings.Join(names, " "), "one two")
		t.Ok(c.Removexattr(t, fh, "one"), "REMOVEXATTR")
		_, err = c.Getxattr(t, fh, "one")
		t.Is(err, "GETXATTR of what was removed", proto.ErrNoxattr)
		t.Is(c.Removexattr(t, fh, "one"), "REMOVEXATTR again", proto.ErrNoxattr)
	}},
	Case{"create-and-replace", "RFC 8276 §8.4.2", V2, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		err := c.Setxattr(t, fh, "one", []byte("1"), proto.SetxattrReplace)
		t.optional(err, "SETXATTR")
		t.Is(err, "SETXATTR that replaces nothing", proto.ErrNoxattr)
		t.Ok(c.Setxattr(t, fh, "one", []byte("1"), proto.SetxattrCreate), "SETXATTR that creates")
		t.Is(c.Setxattr(t, fh, "one", []byte("2"), proto.SetxattrCreate), "SETXATTR that creates again", proto.ErrExist)
		t.Ok(c.Setxattr(t, fh, "one", []byte("3"), proto.SetxattrReplace), "SETXATTR that replaces")
		v, err := c.Getxattr(t, fh, "one")
		t.Ok(err, "GETXATTR")
		Equal(t, "value", string(v), "3")
	}},
	Case{"changes-the-file", "RFC 8276 §8.4.2", V2, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		before := t.Attrs(c, fh, proto.AttrChange).Change
		t.optional(c.Setxattr(t, fh, "one", []byte("1"), proto.SetxattrEither), "SETXATTR")
		if n := t.Attrs(c, fh, proto.AttrChange).Change; n == before {
			t.Fatalf("change is %d before and after SETXATTR", n)
		}
	}},
	Case{"large-value", "RFC 8276 §8.4", V2, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		value := bytes.Repeat([]byte("v"), 60_000)
		err := c.Setxattr(t, fh, "one", value, proto.SetxattrEither)
		t.optional(err, "SETXATTR")
		if st := t.status(err, "SETXATTR"); st == proto.ErrXattr2big || st == proto.ErrNospc {
			t.Skipf("values of 60,000 bytes are too big")
		}
		t.Ok(err, "SETXATTR")
		got, err := c.Getxattr(t, fh, "one")
		t.Ok(err, "GETXATTR")
		if !bytes.Equal(got, value) {
			t.Fatalf("GETXATTR returns %d bytes, not the %d that were set", len(got), len(value))
		}
	}},
	Case{"needs-permission", "RFC 8276 §8.5", V2, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "x", "")
		t.optional(c.Setxattr(t, fh, "one", []byte("1"), proto.SetxattrEither), "SETXATTR")
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o600))}), "SETATTR")
		_, err := t.Other().Getxattr(t, fh, "one")
		t.Is(err, "GETXATTR by another user", proto.ErrAccess, proto.ErrPerm)
	}},
)

var _ = register("space",
	Case{"allocate", "RFC 7862 §15.1", V2, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.optional(f.Allocate(t, 100, 1000), "ALLOCATE")
		Equal(t, "size", t.Attrs(c, f.FH(), proto.AttrSize).Size, 1100)
		t.Ok(f.Allocate(t, 0, 10), "ALLOCATE of what is there")
		Equal(t, "size", t.Attrs(c, f.FH(), proto.AttrSize).Size, 1100)
		p, err := f.ReadAll(t)
		t.Ok(err, "READ")
		if !bytes.Equal(p, make([]byte, 1100)) {
			t.Fatalf("allocated space does not read as zeros")
		}
	}},
	Case{"deallocate", "RFC 7862 §15.4", V2, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.WriteAll(t, 0, bytes.Repeat([]byte("d"), 300_000)), "WRITE")
		t.optional(f.Deallocate(t, 1000, 200_000), "DEALLOCATE")
		want := bytes.Repeat([]byte("d"), 300_000)
		clear(want[1000:201_000])
		p, err := f.ReadAll(t)
		t.Ok(err, "READ")
		if !bytes.Equal(p, want) {
			t.Fatalf("the contents are not zeros in the range, and what they were elsewhere")
		}
		t.Ok(f.Deallocate(t, 250_000, 500_000), "DEALLOCATE past the end")
		Equal(t, "size", t.Attrs(c, f.FH(), proto.AttrSize).Size, 300_000)
	}},
	Case{"need-an-open-for-writing", "RFC 7862 §15.1, §15.4", V2, func(t *T) {
		c := t.Client()
		t.Create(c, "x", "data")
		f := t.Open(c, "x", client.OpenHow{Access: proto.ShareAccessRead})
		err := f.Allocate(t, 0, 100)
		t.optional(err, "ALLOCATE")
		t.Is(err, "ALLOCATE", proto.ErrOpenmode)
		t.Is(f.Deallocate(t, 0, 4), "DEALLOCATE", proto.ErrOpenmode)
		Equal(t, "contents", t.Contents(c, "x"), "data")
	}},
	Case{"seek", "RFC 7862 §15.11", V2, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.WriteAll(t, 0, []byte("data")), "WRITE")
		at, _, err := f.Seek(t, 0, proto.ContentData)
		t.optional(err, "SEEK")
		t.Ok(err, "SEEK for data")
		Equal(t, "data", at, 0)
		at, _, err = f.Seek(t, 0, proto.ContentHole)
		t.Ok(err, "SEEK for a hole")
		if at < 4 {
			t.Fatalf("there is a hole at %d, in data", at)
		}
		_, _, err = f.Seek(t, 100, proto.ContentData)
		t.Is(err, "SEEK past the end", proto.ErrNxio)
		_, _, err = f.Seek(t, 0, 77)
		t.Is(err, "SEEK for something else", proto.ErrUnionNotsupp, proto.ErrInval, proto.ErrBadxdr)
	}},
	Case{"seek-finds-holes", "RFC 7862 §15.11", V2, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.WriteAll(t, 1<<22, []byte("data")), "WRITE")
		at, _, err := f.Seek(t, 0, proto.ContentData)
		t.optional(err, "SEEK")
		t.Ok(err, "SEEK for data")
		if at == 0 {
			t.Skipf("the server takes holes for data, as it may")
		}
		if at > 1<<22 {
			t.Fatalf("SEEK for data skips the data, to %d", at)
		}
		at, _, err = f.Seek(t, 0, proto.ContentHole)
		t.Ok(err, "SEEK for a hole")
		Equal(t, "the hole", at, 0)
	}},
)

var _ = register("copy",
	Case{"ranges", "RFC 7862 §15.2", V2, func(t *T) {
		c := t.Client()
		src, dst := t.Make(c), t.Make(c)
		data := make([]byte, 100_000)
		for i := range data {
			data[i] = byte(i / 7)
		}
		t.Ok(src.WriteAll(t, 0, data), "WRITE")
		n, err := dst.Copy(t, 500, src, 1000, 50_000)
		t.optional(err, "COPY")
		t.Ok(err, "COPY")
		for n < 50_000 {
			more, err := dst.Copy(t, 500+n, src, 1000+n, 50_000-n)
			t.Ok(err, "COPY of the rest")
			if more == 0 {
				t.Fatalf("COPY copies nothing after %d bytes", n)
			}
			n += more
		}
		p, err := dst.ReadAll(t)
		t.Ok(err, "READ")
		if !bytes.Equal(p, append(make([]byte, 500), data[1000:51_000]...)) {
			t.Fatalf("the copy (%d bytes) is not what was to be copied", len(p))
		}
		_, err = dst.Copy(t, 0, src, 200_000, 10)
		t.Is(err, "COPY from past the end", proto.ErrInval)
	}},
	Case{"stateids", "RFC 7862 §15.2", V2, func(t *T) {
		c := t.Client()
		t.Create(c, "a", "aaaa")
		t.Create(c, "b", "bbbb")
		src := t.Open(c, "a", client.OpenHow{Access: proto.ShareAccessWrite})
		dst := t.Open(c, "b", client.OpenHow{Access: proto.ShareAccessRead})
		_, err := dst.Copy(t, 0, src, 0, 4)
		t.optional(err, "COPY")
		t.Is(err, "COPY to a file that is open for reading", proto.ErrOpenmode)
		Equal(t, "contents", t.Contents(c, "b"), "bbbb")
	}},
	Case{"clone", "RFC 7862 §15.13", V2, func(t *T) {
		c := t.Client()
		src, dst := t.Make(c), t.Make(c)
		block := uint64(t.Attrs(c, src.FH(), proto.AttrCloneBlksize).CloneBlksize)
		if block == 0 {
			block = 4096
		}
		data := bytes.Repeat([]byte("abcdefg"), int(3*block/7)+1)[:3*block]
		t.Ok(src.WriteAll(t, 0, data), "WRITE")
		t.optional(dst.Clone(t, block, src, 0, 2*block), "CLONE")
		p, err := dst.ReadAll(t)
		t.Ok(err, "READ")
		if !bytes.Equal(p, append(make([]byte, block), data[:2*block]...)) {
			t.Fatalf("the clone (%d bytes) is not what was to be cloned", len(p))
		}
		t.Ok(src.WriteAll(t, 0, []byte("changed")), "WRITE to the source")
		again, err := dst.ReadAll(t)
		t.Ok(err, "READ")
		if !bytes.Equal(again, p) {
			t.Fatalf("writing to the source changed the clone")
		}
		t.Is(dst.Clone(t, 0, src, 1<<40, block), "CLONE from past the end", proto.ErrInval)
	}},
	Case{"attributes-behind-clone", "RFC 8881 §18.7", V2, func(t *T) {
		c := t.Client()
		src, dst := t.Make(c), t.Make(c)
		t.Ok(src.WriteAll(t, 0, []byte("some odd length")), "WRITE")
		before := t.Attrs(c, dst.FH(), proto.AttrChange).Change
		ops := compound().PutFH(src.FH()).Plain(proto.OpSavefh).PutFH(dst.FH())
		e := ops.Op(proto.OpClone)
		client.PutStateid(e, src.Stateid())
		client.PutStateid(e, dst.Stateid())
		for range 3 { // all of it
			e.Uint64(0)
		}
		r := t.Do(c, ops.Getattr(proto.AttrChange, proto.AttrSize))
		defer r.Release()
		_, err := r.OK(proto.OpPutfh, proto.OpSavefh, proto.OpPutfh, proto.OpClone)
		t.optional(err, "CLONE")
		d, err := r.OK(proto.OpGetattr)
		t.Ok(err, "GETATTR")
		a, err := client.GetAttrs(d)
		t.Ok(err, "GETATTR")
		Equal(t, "size", a.Size, 15)
		if a.Change == before {
			t.Fatalf("change is %d before and behind CLONE", before)
		}
	}},
	Case{"clone-of-all", "RFC 7862 §15.13", V2, func(t *T) {
		c := t.Client()
		src, dst := t.Make(c), t.Make(c)
		t.Ok(src.WriteAll(t, 0, []byte("some odd length")), "WRITE")
		t.optional(dst.Clone(t, 0, src, 0, 0), "CLONE")
		p, err := dst.ReadAll(t)
		t.Ok(err, "READ")
		Equal(t, "contents", string(p), "some odd length")
	}},
)

var _ = register("4.2",
	Case{"mode-umask", "RFC 8275 §5", V2, func(t *T) {
		c := t.Client()
		if !slices.Contains(t.Attrs(c, t.Dir, proto.AttrSupportedAttrs).Supported, proto.AttrModeUmask) {
			t.Skipf("mode_umask is not supported")
		}
		f, err := t.try(c, "x", creating(proto.Guarded, client.SetAttr{Mode: client.Ptr(uint32(0o666)), Umask: client.Ptr(uint32(0o027))}))
		t.Ok(err, "OPEN")
		Equal(t, "mode", t.Attrs(c, f.FH(), proto.AttrMode).Mode, 0o640)
		err = c.Setattr(t, f.FH(), client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o666)), Umask: client.Ptr(uint32(0))})
		t.Is(err, "SETATTR of mode_umask", proto.ErrInval)
		t.Want(c, "GETATTR of mode_umask", compound().PutFH(t.Dir).Getattr(proto.AttrModeUmask), proto.ErrInval)
	}},
	Case{"change-attr-type", "RFC 7862 §12.2.3", V2, func(t *T) {
		c := t.Client()
		a := t.Attrs(c, t.Dir, proto.AttrChangeAttrType)
		if !a.Has(proto.AttrChangeAttrType) {
			t.Skipf("change_attr_type is not supported")
		}
		f := t.Make(c)
		last := t.Attrs(c, f.FH(), proto.AttrChange).Change
		for i := range 5 {
			t.Ok(f.WriteAll(t, 0, []byte(fmt.Sprint(i))), "WRITE")
			now := t.Attrs(c, f.FH(), proto.AttrChange).Change
			if a.ChangeAttrType <= proto.ChangeTypeIsVersionCounterNopnfs && now <= last {
				t.Fatalf("change goes from %d to %d, and is said to be monotonic", last, now)
			}
			last = now
		}
	}},
	Case{"unsupported-is-notsupp", "RFC 7862 §15, RFC 8881 §2.7", V12, func(t *T) {
		c := t.Client()
		for _, op := range []proto.Op{proto.OpGetdevicelist, proto.OpSetSSV} {
			r := t.Do(c, compound().PutFH(t.Dir).Plain(op))
			if r.Status == proto.ErrOpIllegal {
				t.Fatalf("%v is answered OP_ILLEGAL, and it is legal", op)
			}
			r.Release()
		}
	}},
)
