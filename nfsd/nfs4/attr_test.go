package nfs4

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// skipAttr consumes an attribute's value as a client does that knows all
// attributes, and returns false for what it does not know.
func skipAttr(d *xdr.Decoder, n int) bool {
	switch n {
	case proto.AttrSupportedAttrs, proto.AttrSuppattrExclcreat:
		decodeBitmap(d)
	case proto.AttrType, proto.AttrFHExpireType, proto.AttrLeaseTime, proto.AttrRdattrError, proto.AttrAclsupport,
		proto.AttrMaxlink, proto.AttrMaxname, proto.AttrMode, proto.AttrNumlinks, proto.AttrCloneBlksize,
		proto.AttrChangeAttrType, proto.AttrFSCharsetCap:
		d.Uint32()
	case proto.AttrLinkSupport, proto.AttrSymlinkSupport, proto.AttrNamedAttr, proto.AttrUniqueHandles,
		proto.AttrCansettime, proto.AttrCaseInsensitive, proto.AttrCasePreserving, proto.AttrChownRestricted,
		proto.AttrHomogeneous, proto.AttrNoTrunc, proto.AttrXattrSupport:
		d.Bool()
	case proto.AttrChange, proto.AttrSize, proto.AttrFileid, proto.AttrFilesAvail, proto.AttrFilesFree,
		proto.AttrFilesTotal, proto.AttrMaxfilesize, proto.AttrMaxread, proto.AttrMaxwrite, proto.AttrRawdev,
		proto.AttrSpaceAvail, proto.AttrSpaceFree, proto.AttrSpaceTotal, proto.AttrSpaceUsed,
		proto.AttrQuotaAvailHard, proto.AttrQuotaAvailSoft, proto.AttrQuotaUsed,
		proto.AttrMountedOnFileid, proto.AttrFSLocations:
		d.Uint64()
	case proto.AttrFsid:
		d.Uint64()
		d.Uint64()
	case proto.AttrFilehandle, proto.AttrOwner, proto.AttrOwnerGroup:
		d.Opaque(128)
	case proto.AttrTimeAccess, proto.AttrTimeCreate, proto.AttrTimeDelta, proto.AttrTimeMetadata, proto.AttrTimeModify:
		d.Int64()
		if d.Uint32() >= second {
			return false
		}
	default:
		return false
	}
	return d.Err() == nil
}

// Traps 18 and 19: exactly what was asked for and is supported comes back, with
// the right length; everything in supported_attrs that can be read does.
func TestEveryAttribute(t *testing.T) {
	for _, minor := range []uint32{1, 2} {
		r := newRig(t, nil)
		s := r.newSession("a")
		s.wire.minor = minor
		for _, fh := range [][]byte{s.root(), r.fs.AppendHandle(nil, vfs.Root)} {
			all, _ := decodeBitmap(attrValue(t, s, fh, proto.AttrSupportedAttrs))
			if all != supported(minor) {
				t.Fatal(all)
			}
			readable := all.without(writeOnly)
			var want []int
			for n := range proto.NumAttrs {
				if !readable.has(n) {
					continue
				}
				want = append(want, n)
				d := attrValue(t, s, fh, n)
				if !skipAttr(d, n) || d.Remaining() != 0 {
					t.Errorf("4.%d: %s: %d bytes left", minor, proto.AttrName(n), d.Remaining())
				}
			}
			st, d := s.one(fh, proto.OpGetattr, getattr(append(want, proto.AttrACL, proto.AttrSecLabel, proto.AttrOpenArguments)...))
			if got, _ := decodeBitmap(d); st != proto.OK || got != readable {
				t.Fatal(st, got)
			}
			values := xdr.NewDecoder(d.Opaque(1 << 16))
			for _, n := range want {
				skipAttr(values, n)
			}
			if values.Err() != nil || values.Remaining() != 0 {
				t.Fatalf("the values of all: %v, %d left", values.Err(), values.Remaining())
			}
			if st, _ := s.one(fh, proto.OpGetattr, getattr(proto.AttrTimeAccessSet)); st != proto.ErrInval {
				t.Fatal(st)
			}
		}
	}
}

// The root and a volume in it are two file systems; what the root of the volume
// covers has a number of its own.
func TestFsidCrossing(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	top, root := r.fs.AppendHandle(nil, vfs.Root), s.root()
	fsid := func(fh []byte) [2]uint64 {
		d := attrValue(t, s, fh, proto.AttrFsid)
		return [2]uint64{d.Uint64(), d.Uint64()}
	}
	if fsid(top) == fsid(root) {
		t.Fatal("one fsid for two file systems")
	}
	on := attrValue(t, s, root, proto.AttrMountedOnFileid).Uint64()
	if id := attrValue(t, s, root, proto.AttrFileid).Uint64(); on == id {
		t.Fatal("mounted_on_fileid is fileid")
	}
	st, d := s.one(top, proto.OpReaddir, readdirOp(0, 4096, proto.AttrFsid, proto.AttrFileid, proto.AttrMountedOnFileid))
	if st != proto.OK {
		t.Fatal(st)
	}
	d.Uint64()
	if !d.Bool() {
		t.Fatal("no entry")
	}
	d.Uint64()
	name := d.String(255)
	decodeBitmap(d)
	v := xdr.NewDecoder(d.Opaque(100))
	if got := [2]uint64{v.Uint64(), v.Uint64()}; name != "main" || got != fsid(root) {
		t.Fatal(name, got)
	}
	if v.Uint64(); v.Uint64() != on {
		t.Fatal("READDIR and GETATTR differ in mounted_on_fileid")
	}
	s.do(putfh(root), simple(proto.OpLookupp), simple(proto.OpLookupp)).is(proto.ErrNoent)
}

func TestSetattr(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Names = func(_ context.Context, owner string, group bool) (uint32, bool) {
			return 77, owner == "ann@example.org" && !group
		}
	})
	s := r.newSession("a")
	root := s.root()
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	ro := s.mustOpen(root, openHow{name: "f", owner: "ro", access: proto.ShareAccessRead})
	set := func(sid state.Stateid, b bitmap, values func(e *xdr.Encoder)) op {
		return stateidOp(proto.OpSetattr, nil, sid, func(e *xdr.Encoder) {
			encodeBitmap(e, b)
			var v xdr.Encoder
			values(&v)
			e.Opaque(v.Bytes())
		})
	}
	str := func(v string) func(*xdr.Encoder) { return func(e *xdr.Encoder) { e.String(v) } }
	u32 := func(v uint32) func(*xdr.Encoder) { return func(e *xdr.Encoder) { e.Uint32(v) } }
	u64 := func(v uint64) func(*xdr.Encoder) { return func(e *xdr.Encoder) { e.Uint64(v) } }
	at := func(sec int64, nsec uint32) func(*xdr.Encoder) {
		return func(e *xdr.Encoder) { e.Uint32(proto.SetToClientTime); e.Int64(sec); e.Uint32(nsec) }
	}
	bad := state.Stateid{Seq: 3, Other: [12]byte{0x11, 0, 1, 9}}
	cases := []struct {
		name   string
		sid    state.Stateid
		attr   int
		values func(*xdr.Encoder)
		want   proto.Status
		check  func(a vfs.Attr) bool
	}{
		{"mode", state.Anonymous, proto.AttrMode, u32(0o4711), 0, func(a vfs.Attr) bool { return a.Mode == 0o4711 }},
		{"mode, any stateid", bad, proto.AttrMode, u32(0o600), 0, func(a vfs.Attr) bool { return a.Mode == 0o600 }},
		{"mode too large", state.Anonymous, proto.AttrMode, u32(0o10000), proto.ErrInval, nil},
		{"owner", state.Anonymous, proto.AttrOwner, str("4294967294"), 0, func(a vfs.Attr) bool { return a.UID == 4294967294 }},
		{"owner by name", state.Anonymous, proto.AttrOwner, str("ann@example.org"), 0, func(a vfs.Attr) bool { return a.UID == 77 }},
		{"owner by an unknown name", state.Anonymous, proto.AttrOwner, str("root@localdomain"), proto.ErrBadowner, nil},
		{"owner without a domain", state.Anonymous, proto.AttrOwner, str("root"), proto.ErrBadowner, nil},
		{"nobody", state.Anonymous, proto.AttrOwner, str("nobody"), 0, func(a vfs.Attr) bool { return a.UID == 65534 }},
		{"owner zero", state.Anonymous, proto.AttrOwner, str("0"), 0, func(a vfs.Attr) bool { return a.UID == 0 }},
		{"owner with leading zeros", state.Anonymous, proto.AttrOwner, str("007"), proto.ErrBadowner, nil},
		{"group by the name of a user", state.Anonymous, proto.AttrOwnerGroup, str("ann@example.org"), proto.ErrBadowner, nil},
		{"owner too large", state.Anonymous, proto.AttrOwner, str("4294967296"), proto.ErrBadowner, nil},
		{"group", state.Anonymous, proto.AttrOwnerGroup, str("17"), 0, func(a vfs.Attr) bool { return a.GID == 17 }},
		{"size", f.sid, proto.AttrSize, u64(99), 0, func(a vfs.Attr) bool { return a.Size == 99 }},
		{"size without an open", state.Anonymous, proto.AttrSize, u64(5), 0, func(a vfs.Attr) bool { return a.Size == 5 }},
		{"size, open for reading", ro.sid, proto.AttrSize, u64(7), proto.ErrOpenmode, nil},
		{"size, bad stateid", bad, proto.AttrSize, u64(7), proto.ErrBadStateid, nil},
		{"size too large", f.sid, proto.AttrSize, u64(math.MaxUint64), proto.ErrFbig, nil},
		{"mtime", state.Anonymous, proto.AttrTimeModifySet, at(-3, 250_000_000), 0, func(a vfs.Attr) bool { return a.Mtime == -2_750_000_000 }},
		{"atime", state.Anonymous, proto.AttrTimeAccessSet, at(1<<33, 1), 0, func(a vfs.Attr) bool { return a.Atime == (1<<33)*second+1 }},
		{"time far away", state.Anonymous, proto.AttrTimeAccessSet, at(math.MaxInt64, 1), 0, func(a vfs.Attr) bool { return a.Atime > 1<<62 }},
		{"nanoseconds", state.Anonymous, proto.AttrTimeAccessSet, at(1, second), proto.ErrInval, nil},
		{"now", state.Anonymous, proto.AttrTimeAccessSet, u32(proto.SetToServerTime), 0, func(a vfs.Attr) bool { return a.Atime > 0 }},
		{"read only", state.Anonymous, proto.AttrFileid, u64(1), proto.ErrInval, nil},
		{"not supported", state.Anonymous, proto.AttrACL, u32(0), proto.ErrAttrnotsupp, nil},
		{"mode_umask", state.Anonymous, proto.AttrModeUmask, func(e *xdr.Encoder) { e.Uint32(0o666); e.Uint32(0o22) }, proto.ErrInval, nil},
		{"too short", state.Anonymous, proto.AttrSize, u32(1), proto.ErrBadxdr, nil},
		{"too long", state.Anonymous, proto.AttrMode, u64(1), proto.ErrBadxdr, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			st, d := s.one(f.fh, proto.OpSetattr, set(c.sid, attrSet(c.attr), c.values))
			if st != c.want {
				t.Fatalf("%v, want %v", st, c.want)
			}
			got, _ := decodeBitmap(d) // there in any case
			if d.Err() != nil || got.any() != (st == proto.OK) || got.any() && got != attrSet(c.attr) {
				t.Fatalf("attrsset %v, %v", got, d.Err())
			}
			if c.check != nil {
				a, err := r.fs.Getattr(rootRequest(t), mustFile(t, r, f.fh))
				if err != nil || !c.check(a) {
					t.Fatalf("%+v %v", a, err)
				}
			}
		})
	}
	// With mode_umask the file system applies the umask, at creation.
	s.do(putfh(root), func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpCreate))
		e.Uint32(proto.TypeDir)
		e.String("d")
		encodeBitmap(e, attrSet(proto.AttrModeUmask))
		e.Uint32(8)
		e.Uint32(0o2777)
		e.Uint32(0o027)
	}).is(proto.OK)
	if _, a, err := r.fs.Lookup(rootRequest(t), mainRoot(t, r), "d"); err != nil || a.Mode != 0o2750 {
		t.Fatalf("%o %v", a.Mode, err)
	}
}

func TestVerify(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	cmp := func(o proto.Op, kind uint32) op {
		return func(e *xdr.Encoder) {
			e.Uint32(uint32(o))
			encodeBitmap(e, attrSet(proto.AttrType))
			e.Uint32(4)
			e.Uint32(kind)
		}
	}
	s.do(putfh(root), cmp(proto.OpVerify, proto.TypeDir), cmp(proto.OpNverify, proto.TypeReg)).is(proto.OK)
	s.do(putfh(root), cmp(proto.OpVerify, proto.TypeReg)).is(proto.ErrNotSame)
	s.do(putfh(root), cmp(proto.OpNverify, proto.TypeDir)).is(proto.ErrSame)
}

func TestAccess(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	f := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	ask := func(minor, uid, want uint32) (uint32, uint32) {
		s.wire.minor, s.wire.cred = minor, user(uid)
		st, d := s.one(f.fh, proto.OpAccess, func(e *xdr.Encoder) { e.Uint32(uint32(proto.OpAccess)); e.Uint32(want) })
		if st != proto.OK {
			t.Fatal(st)
		}
		return d.Uint32(), d.Uint32()
	}
	const x = proto.AccessXaread | proto.AccessXawrite | proto.AccessXalist
	for _, c := range []struct{ minor, uid, want, supported, granted uint32 }{
		{1, 0, proto.AccessRead | proto.AccessModify, proto.AccessRead | proto.AccessModify, proto.AccessRead | proto.AccessModify},
		{1, 5, proto.AccessRead | proto.AccessModify, proto.AccessRead | proto.AccessModify, proto.AccessRead},
		{1, 0, proto.AccessRead | x, proto.AccessRead, proto.AccessRead},
		{2, 0, x, x, x},
		{2, 5, x, x, proto.AccessXaread | proto.AccessXalist},
	} {
		if s, g := ask(c.minor, c.uid, c.want); s != c.supported || g != c.granted {
			t.Errorf("%+v: supported %#x, granted %#x", c, s, g)
		}
	}
}

func readdirOp(cookie uint64, maxcount uint32, attrs ...int) op {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(proto.OpReaddir))
		e.Uint64(cookie)
		e.Uint64(0)
		e.Uint32(maxcount)
		e.Uint32(maxcount)
		encodeBitmap(e, attrSet(attrs...))
	}
}

// Trap 21: every entry once, whatever the size of the replies, with cookies that
// resume also after the entry is gone; never more than maxcount; no end without eof.
func TestReaddir(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	root := s.root()
	const n = 300
	want := map[string]bool{}
	for i := range n {
		name := fmt.Sprintf("%0*d", 1+i%200, i)
		if _, err := r.fs.Create(rootRequest(t), mainRoot(t, r), name, regular()); err != nil {
			t.Fatal(err)
		}
		want[name] = true
	}
	for _, size := range []uint32{400, 1000, 4096, 1 << 20} {
		seen := map[string]bool{}
		var cookie uint64
		for {
			st, d := s.one(root, proto.OpReaddir, readdirOp(cookie, size, proto.AttrRdattrError, proto.AttrFileid,
				proto.AttrFilehandle, proto.AttrMode, proto.AttrChange))
			if st != proto.OK {
				t.Fatal(st)
			}
			if got := d.Remaining(); got > int(size) {
				t.Fatalf("%d bytes, asked for at most %d", got, size)
			}
			d.Uint64()
			some := false
			for d.Bool() {
				some = true
				c := d.Uint64()
				if c <= cookie || c <= 2 || c >= 1<<63 {
					t.Fatalf("cookie %d after %d", c, cookie)
				}
				cookie = c
				name := d.String(255)
				if !want[name] || seen[name] {
					t.Fatalf("%q is wrong or twice", name)
				}
				seen[name] = true
				decodeBitmap(d)
				d.Opaque(1000)
			}
			eof := d.Bool()
			if d.Err() != nil || d.Remaining() != 0 || !some && !eof {
				t.Fatal(d.Err(), d.Remaining(), some, eof)
			}
			if eof {
				break
			}
		}
		if len(seen) != n {
			t.Fatalf("with %d bytes: %d entries", size, len(seen))
		}
	}
	s.do(putfh(root), readdirOp(0, 20)).is(proto.ErrToosmall)
	s.do(putfh(root), readdirOp(0, 8)).is(proto.ErrToosmall)
	s.do(putfh(root), readdirOp(1, 4096)).is(proto.ErrBadCookie)
	s.do(putfh(root), readdirOp(2, 4096)).is(proto.ErrBadCookie)
	f := s.mustOpen(root, openHow{create: true, name: "f"})
	s.do(putfh(f.fh), readdirOp(0, 4096)).is(proto.ErrNotdir)
}

func TestEncodeTime(t *testing.T) {
	for _, c := range []struct {
		t    cluster.Time
		sec  int64
		nsec uint32
	}{{0, 0, 0}, {1, 0, 1}, {-1, -1, second - 1}, {second, 1, 0}, {-second, -1, 0}, {-second - 1, -2, second - 1}} {
		var e xdr.Encoder
		encodeTime(&e, c.t)
		d := xdr.NewDecoder(e.Bytes())
		if sec, nsec := d.Int64(), d.Uint32(); sec != c.sec || nsec != c.nsec {
			t.Errorf("%d: %d %d", c.t, sec, nsec)
		}
	}
}

// What there is in each minor version: all that is REQUIRED (RFC 8881 §5.6), and of the
// others what has a meaning here.
func TestAttributesOfVersions(t *testing.T) {
	required := attrSet(
		proto.AttrSupportedAttrs, proto.AttrType, proto.AttrFHExpireType, proto.AttrChange, proto.AttrSize,
		proto.AttrLinkSupport, proto.AttrSymlinkSupport, proto.AttrNamedAttr, proto.AttrFsid,
		proto.AttrUniqueHandles, proto.AttrLeaseTime, proto.AttrRdattrError, proto.AttrFilehandle,
	)
	later := [3][]int{
		1: {proto.AttrSuppattrExclcreat, proto.AttrFSCharsetCap},
		2: {proto.AttrCloneBlksize, proto.AttrChangeAttrType, proto.AttrModeUmask, proto.AttrXattrSupport},
	}
	// Neither of them has a meaning without what it is about.
	never := attrSet(
		proto.AttrACL, proto.AttrDacl, proto.AttrSacl, proto.AttrArchive, proto.AttrHidden, proto.AttrSystem, proto.AttrMimetype,
		proto.AttrFSLayoutTypes, proto.AttrLayoutHint, proto.AttrLayoutTypes, proto.AttrLayoutBlksize, proto.AttrMdsthreshold,
		proto.AttrRetentionGet, proto.AttrSecLabel, proto.AttrOpenArguments, proto.AttrTimeDelegAccess, proto.AttrTimeDelegModify,
	)
	var before bitmap
	for minor := range uint32(3) {
		got := supported(minor)
		switch {
		case required.without(got).any():
			t.Errorf("4.%d lacks %v", minor, required.without(got))
		case minor > 0 && got.without(before) != attrSet(later[minor]...):
			t.Errorf("4.%d has %v more than the version before", minor, got.without(before))
		case got.and(never).any():
			t.Errorf("4.%d has %v", minor, got.and(never))
		case settable(minor).without(got).any(): // trap 20
			t.Errorf("4.%d: %v can be set and is not supported", minor, settable(minor).without(got))
		}
		before = got
	}
}

// The values of attributes of file systems.
func TestSpace(t *testing.T) {
	r := newRig(t, nil)
	s := r.newSession("a")
	f := s.mustOpen(s.root(), openHow{create: true, name: "f"})
	num := func(attr int) uint64 { return attrValue(t, s, f.fh, attr).Uint64() }
	used := num(proto.AttrQuotaUsed)
	s.do(putfh(f.fh), writeOp(f.sid, 0, proto.FileSync, make([]byte, 8192))).is(proto.OK)
	if got := num(proto.AttrQuotaUsed); got != used+8192 {
		t.Errorf("quota_used is %d, and was %d before 8192 bytes were written", got, used)
	}
	avail := num(proto.AttrSpaceAvail)
	if hard, soft := num(proto.AttrQuotaAvailHard), num(proto.AttrQuotaAvailSoft); hard != avail || soft != avail {
		t.Errorf("%d are available, of the quota %d and %d", avail, hard, soft)
	}
	if got := num(proto.AttrSpaceUsed); got != 8192 {
		t.Errorf("space_used %d", got)
	}
	if f, a := num(proto.AttrFilesFree), num(proto.AttrFilesAvail); f == 0 || f != a || num(proto.AttrFilesTotal) < f {
		t.Errorf("files: %d free, %d available", f, a)
	}
	if got := attrValue(t, s, f.fh, proto.AttrFSCharsetCap).Uint32(); got != proto.FSCharsetCapAllowsOnlyUTF8 {
		t.Errorf("fs_charset_cap %#x", got)
	}
}
