package conformance

import (
	"slices"
	"time"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// required are the REQUIRED attributes (RFC 7530 §5.6, RFC 8881 §5.6).
var required = []int{
	proto.AttrSupportedAttrs, proto.AttrType, proto.AttrFHExpireType, proto.AttrChange, proto.AttrSize,
	proto.AttrLinkSupport, proto.AttrSymlinkSupport, proto.AttrNamedAttr, proto.AttrFsid, proto.AttrUniqueHandles,
	proto.AttrLeaseTime, proto.AttrRdattrError, proto.AttrFilehandle,
}

// badSet appends SETATTR with one attribute whose value is 4 bytes.
func badSet(fh client.FH, attr int, value ...uint32) *client.Compound {
	return with(compound().PutFH(fh), proto.OpSetattr, all(stateid(client.Stateid{}), fattr(attr, value...)))
}

// fattr appends an fattr4 of one attribute.
func fattr(attr int, value ...uint32) argument {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(attr/32 + 1))
		for range attr / 32 {
			e.Uint32(0)
		}
		e.Uint32(1 << (attr % 32))
		e.Uint32(uint32(4 * len(value)))
		for _, v := range value {
			e.Uint32(v)
		}
	}
}

var _ = register("getattr",
	Case{"required", "RFC 7530 §5.6, RFC 8881 §5.6", All, func(t *T) {
		c := t.Client()
		want := required
		if t.Minor() > 0 {
			want = append(slices.Clone(want), proto.AttrSuppattrExclcreat)
		}
		a := t.Attrs(c, t.Dir, want...)
		for _, n := range want {
			if !slices.Contains(a.Supported, n) {
				t.Fatalf("%s is not in supported_attrs", proto.AttrName(n))
			}
			if n != proto.AttrRdattrError && !a.Has(n) {
				t.Fatalf("%s was not returned", proto.AttrName(n))
			}
		}
		if a.LeaseTime <= 0 {
			t.Fatalf("the lease is %v", a.LeaseTime)
		}
	}},
	Case{"supported-are-returned", "RFC 7530 §16.7, RFC 8881 §18.7", All, func(t *T) {
		c := t.Client()
		supported := t.Attrs(c, t.Dir, proto.AttrSupportedAttrs).Supported
		writeOnly := []int{proto.AttrTimeAccessSet, proto.AttrTimeModifySet, proto.AttrModeUmask}
		for _, n := range supported {
			if slices.Contains(writeOnly, n) || n == proto.AttrRdattrError {
				continue
			}
			r := t.Do(c, compound().PutFH(t.Dir).Getattr(n))
			d, err := r.OK(proto.OpPutfh, proto.OpGetattr)
			t.Ok(err, "GETATTR of "+proto.AttrName(n))
			got := client.GetBitmap(d)
			r.Release()
			if !slices.Equal(got, []int{n}) {
				t.Fatalf("GETATTR of %s returns attributes %v", proto.AttrName(n), got)
			}
		}
	}},
	Case{"unsupported-are-left-out", "RFC 7530 §5.3, RFC 8881 §5.3", All, func(t *T) {
		c := t.Client()
		t.Get(c, "GETATTR", with(compound().PutFH(t.Dir), proto.OpGetattr, func(e *xdr.Encoder) {
			e.Uint32(4)
			e.Uint32(1<<proto.AttrType | 1<<proto.AttrSize)
			e.Uint32(0)
			e.Uint32(1 << 31)
			e.Uint32(^uint32(0))
		}), func(d *xdr.Decoder) {
			got := client.GetBitmap(d)
			if !slices.Equal(got, []int{proto.AttrType, proto.AttrSize}) {
				t.Fatalf("attributes %v were returned, of which type and size were asked for and exist", got)
			}
		}, proto.OpPutfh, proto.OpGetattr)
	}},
	Case{"none", "RFC 7530 §16.7, RFC 8881 §18.7", All, func(t *T) {
		t.Get(t.Client(), "GETATTR", compound().PutFH(t.Dir).Getattr(), func(d *xdr.Decoder) {
			Equal(t, "attributes", len(client.GetBitmap(d)), 0)
			Equal(t, "bytes", len(d.Opaque(100)), 0)
		}, proto.OpPutfh, proto.OpGetattr)
	}},
	Case{"write-only", "RFC 7530 §5.5, RFC 8881 §5.5", All, func(t *T) {
		c := t.Client()
		for _, n := range []int{proto.AttrTimeAccessSet, proto.AttrTimeModifySet} {
			t.Want(c, "GETATTR of "+proto.AttrName(n), compound().PutFH(t.Dir).Getattr(n), proto.ErrInval)
		}
	}},
	Case{"later-versions-are-hidden", "RFC 7530 §5, RFC 8881 §2.7", V0 | V1, func(t *T) {
		c := t.Client()
		later := []int{proto.AttrCloneBlksize, proto.AttrChangeAttrType, proto.AttrModeUmask, proto.AttrXattrSupport}
		if t.Minor() == 0 {
			later = append(later, proto.AttrSuppattrExclcreat)
		}
		a := t.Attrs(c, t.Dir, proto.AttrSupportedAttrs)
		for _, n := range later {
			if slices.Contains(a.Supported, n) {
				t.Fatalf("%s is in supported_attrs of minor version %d", proto.AttrName(n), t.Minor())
			}
		}
	}},
	Case{"type", "RFC 7530 §5.8.1.2, RFC 8881 §5.8.1.2", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		Equal(t, "a file's", t.Attrs(c, fh, proto.AttrType).Type, uint32(proto.TypeReg))
		Equal(t, "a directory's", t.Attrs(c, t.Dir, proto.AttrType).Type, uint32(proto.TypeDir))
		link, err := c.Symlink(t, t.Dir, "link", "target")
		t.Ok(err, "CREATE")
		a := t.Attrs(c, link, proto.AttrType, proto.AttrSize)
		Equal(t, "a link's", a.Type, uint32(proto.TypeLnk))
		Equal(t, "the size of a link", a.Size, uint64(len("target")))
	}},
	Case{"fileids-differ", "RFC 7530 §5.8.2.8, RFC 8881 §5.8.2.8", All, func(t *T) {
		c := t.Client()
		seen := map[uint64]bool{t.Attrs(c, t.Dir, proto.AttrFileid).Fileid: true}
		for range 20 {
			id := t.Attrs(c, t.Create(c, t.Name(), ""), proto.AttrFileid).Fileid
			if seen[id] {
				t.Fatalf("two files have fileid %d", id)
			}
			seen[id] = true
		}
	}},
	Case{"fsid-of-the-tree", "RFC 7530 §5.8.1.9, RFC 8881 §5.8.1.9", All, func(t *T) {
		c := t.Client()
		a := t.Attrs(c, t.Dir, proto.AttrFsid)
		b := t.Attrs(c, t.Create(c, "file", ""), proto.AttrFsid)
		Equal(t, "fsid major", b.FSIDMajor, a.FSIDMajor)
		Equal(t, "fsid minor", b.FSIDMinor, a.FSIDMinor)
	}},
	Case{"mounted-on-fileid", "RFC 7530 §5.8.2.19, RFC 8881 §5.8.2.23", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "")
		a := t.Attrs(c, fh, proto.AttrFileid, proto.AttrMountedOnFileid)
		if !a.Has(proto.AttrMountedOnFileid) {
			t.Skipf("mounted_on_fileid is not supported")
		}
		Equal(t, "of what is no mount point", a.MountedOnFileid, a.Fileid)
	}},
	Case{"change-moves-with-data", "RFC 7530 §5.8.1.4, RFC 8881 §5.8.1.4", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		seen := map[uint64]bool{}
		for i := range 10 {
			t.Ok(f.WriteAll(t, 0, []byte{byte(i)}), "WRITE")
			n := t.Attrs(c, f.FH(), proto.AttrChange).Change
			if seen[n] {
				t.Fatalf("change is %d again after another WRITE", n)
			}
			seen[n] = true
		}
	}},
	Case{"change-moves-with-attributes", "RFC 7530 §5.8.1.4, RFC 8881 §5.8.1.4", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		before := t.Attrs(c, fh, proto.AttrChange, proto.AttrTimeMetadata)
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0o600))}), "SETATTR")
		after := t.Attrs(c, fh, proto.AttrChange, proto.AttrTimeMetadata)
		if after.Change == before.Change {
			t.Fatalf("change is %d before and after SETATTR", after.Change)
		}
		if after.Ctime.Before(before.Ctime) {
			t.Fatalf("time_metadata went back from %v to %v", before.Ctime, after.Ctime)
		}
		_, err := c.Link(t, fh, t.Dir, "other")
		t.Ok(err, "LINK")
		if n := t.Attrs(c, fh, proto.AttrChange).Change; n == after.Change {
			t.Fatalf("change is %d before and after LINK", n)
		}
	}},
	Case{"change-stays-when-nothing-changes", "RFC 7530 §5.8.1.4, RFC 8881 §5.8.1.4", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		before := t.Attrs(c, fh, proto.AttrChange).Change
		Equal(t, "contents", t.Contents(c, "file"), "x")
		Equal(t, "change after reading", t.Attrs(c, fh, proto.AttrChange).Change, before)
	}},
	Case{"space-used", "RFC 7530 §5.8.2.35, RFC 8881 §5.8.2.35", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", string(make([]byte, 100_000)))
		if a := t.Attrs(c, fh, proto.AttrSpaceUsed); a.Has(proto.AttrSpaceUsed) && a.SpaceUsed == 0 {
			t.Fatalf("100,000 bytes use no space")
		}
	}},
)

var _ = register("setattr",
	Case{"mode", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		for _, mode := range []uint32{0, 0o777, 0o640} {
			t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: &mode}), "SETATTR")
			Equal(t, "mode", t.Attrs(c, fh, proto.AttrMode).Mode, mode)
		}
	}},
	Case{"mode-out-of-range", "RFC 7530 §6.2.4, RFC 8881 §6.2.4", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		t.Want(c, "SETATTR", badSet(fh, proto.AttrMode, 0o1000000), proto.ErrInval)
	}},
	Case{"size-shrinks-and-grows", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		f := t.Make(c)
		t.Ok(f.WriteAll(t, 0, []byte("0123456789")), "WRITE")
		t.Ok(f.Truncate(t, 4), "SETATTR of size")
		t.Ok(f.Truncate(t, 8), "SETATTR of size")
		p, err := f.ReadAll(t)
		t.Ok(err, "READ")
		Equal(t, "contents", string(p), "0123\x00\x00\x00\x00")
	}},
	Case{"size-of-a-directory", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		err := t.Client().Setattr(t, t.Dir, client.Stateid{}, &client.SetAttr{Size: client.Ptr(uint64(0))})
		t.Is(err, "SETATTR", proto.ErrIsdir, proto.ErrInval)
	}},
	Case{"size-needs-an-open-for-writing", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		t.Create(c, "file", "0123")
		f := t.Open(c, "file", client.OpenHow{Access: proto.ShareAccessRead})
		t.Is(f.Truncate(t, 0), "SETATTR with a stateid for reading", proto.ErrOpenmode)
	}},
	Case{"times-of-the-client", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		at, mt := time.Unix(1_000_000_000, 123_000_000), time.Unix(1_100_000_000, 456_000_000)
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Atime: &at, Mtime: &mt}), "SETATTR")
		a := t.Attrs(c, fh)
		if d := a.Atime.Sub(at).Abs(); d > time.Second {
			t.Fatalf("time_access is %v, not %v", a.Atime, at)
		}
		if d := a.Mtime.Sub(mt).Abs(); d > time.Second {
			t.Fatalf("time_modify is %v, not %v", a.Mtime, mt)
		}
	}},
	Case{"times-of-the-server", "RFC 7530 §5.8.2.38, RFC 8881 §5.8.2.38", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		old := time.Unix(1_000_000_000, 0)
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mtime: &old}), "SETATTR")
		t.Ok(c.Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mtime: &time.Time{}}), "SETATTR of the server's time")
		if a := t.Attrs(c, fh); !a.Mtime.After(old.Add(365 * 24 * time.Hour)) {
			t.Fatalf("time_modify is %v", a.Mtime)
		}
	}},
	Case{"nanoseconds-out-of-range", "RFC 7530 §2.2, RFC 8881 §3.3.1", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		t.Want(c, "SETATTR", badSet(fh, proto.AttrTimeModifySet, proto.SetToClientTime, 0, 5, 1_000_000_000), proto.ErrInval)
	}},
	Case{"read-only", "RFC 7530 §5.5, RFC 8881 §5.5", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		for _, n := range []int{proto.AttrType, proto.AttrLinkSupport, proto.AttrLeaseTime, proto.AttrNumlinks} {
			t.Want(c, "SETATTR of "+proto.AttrName(n), badSet(fh, n, 1), proto.ErrInval)
		}
	}},
	Case{"unsupported", "RFC 7530 §5.3, RFC 8881 §5.3", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		supported := t.Attrs(c, fh, proto.AttrSupportedAttrs).Supported
		for _, n := range []int{proto.AttrHidden, proto.AttrSystem, proto.AttrArchive} {
			if !slices.Contains(supported, n) {
				t.Want(c, "SETATTR of "+proto.AttrName(n), badSet(fh, n, 1), proto.ErrAttrnotsupp)
			}
		}
	}},
	Case{"values-that-do-not-fit", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		t.Want(c, "SETATTR of a mode of 8 bytes", badSet(fh, proto.AttrMode, 0o600, 0), proto.ErrBadxdr)
		t.Want(c, "SETATTR of a mode of no bytes", badSet(fh, proto.AttrMode), proto.ErrBadxdr)
	}},
	Case{"by-another-user", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		err := t.Other().Setattr(t, fh, client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0))})
		t.Is(err, "SETATTR of a mode", proto.ErrPerm, proto.ErrAccess)
		Equal(t, "mode", t.Attrs(c, fh, proto.AttrMode).Mode, uint32(0o666))
	}},
	Case{"bad-stateid", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		err := c.Setattr(t, fh, made(), &client.SetAttr{Size: client.Ptr(uint64(0))})
		t.Is(err, "SETATTR of size", proto.ErrBadStateid, proto.ErrStaleStateid)
		Equal(t, "contents", t.Contents(c, "file"), "x")
	}},
	Case{"reports-what-was-set", "RFC 7530 §16.32, RFC 8881 §18.30", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		set := &client.SetAttr{Mode: client.Ptr(uint32(0o600)), Mtime: client.Ptr(time.Unix(5, 0))}
		t.Get(c, "SETATTR", compound().PutFH(fh).Setattr(client.Stateid{}, set), func(d *xdr.Decoder) {
			if got := client.GetBitmap(d); !slices.Equal(got, []int{proto.AttrMode, proto.AttrTimeModifySet}) {
				t.Fatalf("attrsset is %v", got)
			}
		}, proto.OpPutfh, proto.OpSetattr)
	}},
)

// made returns a stateid that no server has given out.
func made() client.Stateid {
	s := client.Stateid{Seqid: 1}
	copy(s.Other[:], "\x13\x37never was")
	return s
}

var _ = register("verify",
	Case{"same", "RFC 7530 §16.35, RFC 8881 §18.31", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		typ := fattr(proto.AttrType, proto.TypeReg)
		t.Want(c, "VERIFY", with(compound().PutFH(fh), proto.OpVerify, typ), proto.OK)
		t.Want(c, "NVERIFY", with(compound().PutFH(fh), proto.OpNverify, typ), proto.ErrSame)
	}},
	Case{"different", "RFC 7530 §16.35, RFC 8881 §18.31", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		typ := fattr(proto.AttrType, proto.TypeDir)
		t.Want(c, "VERIFY", with(compound().PutFH(fh), proto.OpVerify, typ), proto.ErrNotSame)
		t.Want(c, "NVERIFY", with(compound().PutFH(fh), proto.OpNverify, typ), proto.OK)
	}},
	Case{"guards-what-follows", "RFC 7530 §16.35, RFC 8881 §18.31", All, func(t *T) {
		c := t.Client()
		fh := t.Create(c, "file", "x")
		ops := with(compound().PutFH(fh), proto.OpVerify, fattr(proto.AttrSize, 0, 77))
		ops.Setattr(client.Stateid{}, &client.SetAttr{Mode: client.Ptr(uint32(0))})
		r := t.Do(c, ops)
		defer r.Release()
		Equal(t, "status", r.Status, proto.ErrNotSame)
		Equal(t, "mode", t.Attrs(c, fh, proto.AttrMode).Mode, uint32(0o666))
	}},
	Case{"unsupported", "RFC 7530 §16.35, RFC 8881 §18.31", All, func(t *T) {
		c := t.Client()
		if slices.Contains(t.Attrs(c, t.Dir, proto.AttrSupportedAttrs).Supported, proto.AttrHidden) {
			t.Skipf("all that could be asked about is supported")
		}
		for _, op := range []proto.Op{proto.OpVerify, proto.OpNverify} {
			t.Want(c, op.String(), with(compound().PutFH(t.Dir), op, fattr(proto.AttrHidden, 0)), proto.ErrAttrnotsupp)
		}
	}},
	Case{"rdattr-error-and-write-only", "RFC 7530 §16.35, RFC 8881 §18.31", All, func(t *T) {
		c := t.Client()
		for _, op := range []proto.Op{proto.OpVerify, proto.OpNverify} {
			t.Want(c, op.String(), with(compound().PutFH(t.Dir), op, fattr(proto.AttrRdattrError, 0)), proto.ErrInval)
			t.Want(c, op.String(), with(compound().PutFH(t.Dir), op, fattr(proto.AttrTimeAccessSet, 0)), proto.ErrInval)
		}
	}},
)
