package client

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// StatAttrs are the attributes that stat(2) shows.
var StatAttrs = []int{
	proto.AttrType, proto.AttrChange, proto.AttrSize, proto.AttrFsid, proto.AttrFileid,
	proto.AttrMode, proto.AttrNumlinks, proto.AttrOwner, proto.AttrOwnerGroup, proto.AttrRawdev,
	proto.AttrSpaceUsed, proto.AttrTimeAccess, proto.AttrTimeMetadata, proto.AttrTimeModify,
	proto.AttrMountedOnFileid,
}

// Attrs are attributes that a server returned. Those that it did not are zero;
// Has tells.
type Attrs struct {
	mask [3]uint32

	Type            uint32
	Change          uint64
	Size            uint64
	FSIDMajor       uint64
	FSIDMinor       uint64
	Fileid          uint64
	MountedOnFileid uint64
	Mode            uint32
	Numlinks        uint32
	Owner           string
	OwnerGroup      string
	RawMajor        uint32
	RawMinor        uint32
	SpaceUsed       uint64
	Atime           time.Time
	Mtime           time.Time
	Ctime           time.Time
	Btime           time.Time
	Handle          FH
	LeaseTime       time.Duration
	MaxRead         uint64
	MaxWrite        uint64
	MaxFileSize     uint64
	MaxName         uint32
	MaxLink         uint32
	Supported       []int
	FilesAvail      uint64
	FilesFree       uint64
	FilesTotal      uint64
	SpaceAvail      uint64
	SpaceFree       uint64
	SpaceTotal      uint64
	XattrSupport    bool
	CloneBlksize    uint32
	ChangeAttrType  uint32
	RdattrError     proto.Status
}

// Has reports whether the server returned the attribute.
func (a *Attrs) Has(attr int) bool {
	return attr/32 < len(a.mask) && a.mask[attr/32]&(1<<(attr%32)) != 0
}

// getTime takes an nfstime4.
func getTime(d *xdr.Decoder) time.Time {
	s := d.Int64()
	return time.Unix(s, int64(d.Uint32()))
}

// attrGetters decode each attribute. One without is an error: its length is not known.
var attrGetters = map[int]func(*Attrs, *xdr.Decoder){
	proto.AttrSupportedAttrs:    func(a *Attrs, d *xdr.Decoder) { a.Supported = getBitmap(d) },
	proto.AttrType:              func(a *Attrs, d *xdr.Decoder) { a.Type = d.Uint32() },
	proto.AttrFHExpireType:      func(_ *Attrs, d *xdr.Decoder) { d.Uint32() },
	proto.AttrChange:            func(a *Attrs, d *xdr.Decoder) { a.Change = d.Uint64() },
	proto.AttrSize:              func(a *Attrs, d *xdr.Decoder) { a.Size = d.Uint64() },
	proto.AttrLinkSupport:       func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrSymlinkSupport:    func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrNamedAttr:         func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrFsid:              func(a *Attrs, d *xdr.Decoder) { a.FSIDMajor, a.FSIDMinor = d.Uint64(), d.Uint64() },
	proto.AttrUniqueHandles:     func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrLeaseTime:         func(a *Attrs, d *xdr.Decoder) { a.LeaseTime = time.Duration(d.Uint32()) * time.Second },
	proto.AttrRdattrError:       func(a *Attrs, d *xdr.Decoder) { a.RdattrError = proto.Status(d.Uint32()) },
	proto.AttrAclsupport:        func(_ *Attrs, d *xdr.Decoder) { d.Uint32() },
	proto.AttrCansettime:        func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrCaseInsensitive:   func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrCasePreserving:    func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrChownRestricted:   func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrFilehandle:        func(a *Attrs, d *xdr.Decoder) { a.Handle = getFH(d) },
	proto.AttrFileid:            func(a *Attrs, d *xdr.Decoder) { a.Fileid = d.Uint64() },
	proto.AttrFilesAvail:        func(a *Attrs, d *xdr.Decoder) { a.FilesAvail = d.Uint64() },
	proto.AttrFilesFree:         func(a *Attrs, d *xdr.Decoder) { a.FilesFree = d.Uint64() },
	proto.AttrFilesTotal:        func(a *Attrs, d *xdr.Decoder) { a.FilesTotal = d.Uint64() },
	proto.AttrHomogeneous:       func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrMaxfilesize:       func(a *Attrs, d *xdr.Decoder) { a.MaxFileSize = d.Uint64() },
	proto.AttrMaxlink:           func(a *Attrs, d *xdr.Decoder) { a.MaxLink = d.Uint32() },
	proto.AttrMaxname:           func(a *Attrs, d *xdr.Decoder) { a.MaxName = d.Uint32() },
	proto.AttrMaxread:           func(a *Attrs, d *xdr.Decoder) { a.MaxRead = d.Uint64() },
	proto.AttrMaxwrite:          func(a *Attrs, d *xdr.Decoder) { a.MaxWrite = d.Uint64() },
	proto.AttrMode:              func(a *Attrs, d *xdr.Decoder) { a.Mode = d.Uint32() },
	proto.AttrNoTrunc:           func(_ *Attrs, d *xdr.Decoder) { d.Bool() },
	proto.AttrNumlinks:          func(a *Attrs, d *xdr.Decoder) { a.Numlinks = d.Uint32() },
	proto.AttrOwner:             func(a *Attrs, d *xdr.Decoder) { a.Owner = d.String(proto.OpaqueLimit) },
	proto.AttrOwnerGroup:        func(a *Attrs, d *xdr.Decoder) { a.OwnerGroup = d.String(proto.OpaqueLimit) },
	proto.AttrRawdev:            func(a *Attrs, d *xdr.Decoder) { a.RawMajor, a.RawMinor = d.Uint32(), d.Uint32() },
	proto.AttrSpaceAvail:        func(a *Attrs, d *xdr.Decoder) { a.SpaceAvail = d.Uint64() },
	proto.AttrSpaceFree:         func(a *Attrs, d *xdr.Decoder) { a.SpaceFree = d.Uint64() },
	proto.AttrSpaceTotal:        func(a *Attrs, d *xdr.Decoder) { a.SpaceTotal = d.Uint64() },
	proto.AttrSpaceUsed:         func(a *Attrs, d *xdr.Decoder) { a.SpaceUsed = d.Uint64() },
	proto.AttrTimeAccess:        func(a *Attrs, d *xdr.Decoder) { a.Atime = getTime(d) },
	proto.AttrTimeCreate:        func(a *Attrs, d *xdr.Decoder) { a.Btime = getTime(d) },
	proto.AttrTimeDelta:         func(_ *Attrs, d *xdr.Decoder) { getTime(d) },
	proto.AttrTimeMetadata:      func(a *Attrs, d *xdr.Decoder) { a.Ctime = getTime(d) },
	proto.AttrTimeModify:        func(a *Attrs, d *xdr.Decoder) { a.Mtime = getTime(d) },
	proto.AttrMountedOnFileid:   func(a *Attrs, d *xdr.Decoder) { a.MountedOnFileid = d.Uint64() },
	proto.AttrFSLayoutTypes:     func(_ *Attrs, d *xdr.Decoder) { d.Skip(4 * d.Count(64, 4)) },
	proto.AttrLayoutBlksize:     func(_ *Attrs, d *xdr.Decoder) { d.Uint32() },
	proto.AttrSuppattrExclcreat: func(_ *Attrs, d *xdr.Decoder) { getBitmap(d) },
	proto.AttrCloneBlksize:      func(a *Attrs, d *xdr.Decoder) { a.CloneBlksize = d.Uint32() },
	proto.AttrChangeAttrType:    func(a *Attrs, d *xdr.Decoder) { a.ChangeAttrType = d.Uint32() },
	proto.AttrXattrSupport:      func(a *Attrs, d *xdr.Decoder) { a.XattrSupport = d.Bool() },
}

// getAttrs takes an fattr4.
func getAttrs(d *xdr.Decoder, a *Attrs) error {
	*a = Attrs{}
	for i := range d.Count(len(a.mask), 4) {
		a.mask[i] = d.Uint32()
	}
	size := d.Length(1 << 20)
	start := d.Offset()
	for i, w := range a.mask {
		for ; w != 0; w &= w - 1 {
			n := i*32 + bits.TrailingZeros32(w)
			get := attrGetters[n]
			if get == nil {
				return fmt.Errorf("nfs: the server returned attribute %d (%s), which was not asked for", n, proto.AttrName(n))
			}
			get(a, d)
		}
	}
	if d.Err() == nil && d.Offset()-start != size {
		return fmt.Errorf("nfs: attributes of %d bytes in %d", d.Offset()-start, size)
	}
	return d.Err()
}

func getFH(d *xdr.Decoder) FH { return append(FH(nil), d.Opaque(proto.FHSize)...) }

// putBitmap appends a bitmap4.
func putBitmap(e *xdr.Encoder, attrs []int) {
	var words [3]uint32
	n := 0
	for _, a := range attrs {
		words[a/32] |= 1 << (a % 32)
		n = max(n, a/32+1)
	}
	e.Uint32(uint32(n))
	for _, w := range words[:n] {
		e.Uint32(w)
	}
}

// getBitmap takes a bitmap4.
func getBitmap(d *xdr.Decoder) (attrs []int) {
	for i := range d.Count(3, 4) {
		w := d.Uint32()
		for b := range 32 {
			if w&(1<<b) != 0 {
				attrs = append(attrs, i*32+b)
			}
		}
	}
	return attrs
}

// A SetAttr says which attributes to set. Nil ones are left alone; a zero time
// means the server's.
type SetAttr struct {
	Size       *uint64
	Mode       *uint32
	Umask      *uint32 // with Mode: MODE_UMASK instead of MODE
	Owner      *string
	OwnerGroup *string
	Atime      *time.Time
	Mtime      *time.Time
}

// Ptr returns a pointer to v.
func Ptr[T any](v T) *T { return &v }

// append appends an fattr4.
func (s *SetAttr) append(e *xdr.Encoder) {
	if s == nil {
		s = &SetAttr{}
	}
	var attrs []int
	has := func(ok bool, attr int) {
		if ok {
			attrs = append(attrs, attr)
		}
	}
	has(s.Size != nil, proto.AttrSize)
	has(s.Mode != nil && s.Umask == nil, proto.AttrMode)
	has(s.Owner != nil, proto.AttrOwner)
	has(s.OwnerGroup != nil, proto.AttrOwnerGroup)
	has(s.Atime != nil, proto.AttrTimeAccessSet)
	has(s.Mtime != nil, proto.AttrTimeModifySet)
	has(s.Mode != nil && s.Umask != nil, proto.AttrModeUmask)
	putBitmap(e, attrs)
	m := e.Reserve32()
	putTime := func(t time.Time) {
		if t.IsZero() {
			e.Uint32(proto.SetToServerTime)
			return
		}
		e.Uint32(proto.SetToClientTime)
		e.Int64(t.Unix())
		e.Uint32(uint32(t.Nanosecond()))
	}
	for _, a := range attrs {
		switch a {
		case proto.AttrSize:
			e.Uint64(*s.Size)
		case proto.AttrMode:
			e.Uint32(*s.Mode)
		case proto.AttrOwner:
			e.String(*s.Owner)
		case proto.AttrOwnerGroup:
			e.String(*s.OwnerGroup)
		case proto.AttrTimeAccessSet:
			putTime(*s.Atime)
		case proto.AttrTimeModifySet:
			putTime(*s.Mtime)
		case proto.AttrModeUmask:
			e.Uint32(*s.Mode)
			e.Uint32(*s.Umask)
		}
	}
	e.PutUint32At(m, uint32(e.Since(m)))
}
