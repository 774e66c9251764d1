package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A bitmap is a bitmap4 of attributes. All attributes are below 96.
type bitmap [3]uint32

// maxBitmap is how many words a bitmap4 of a client can have.
const maxBitmap = 64

func (b *bitmap) set(attr int)      { b[attr/32] |= 1 << (attr % 32) }
func (b *bitmap) has(attr int) bool { return b[attr/32]&(1<<(attr%32)) != 0 }

// and returns the attributes in both.
func (b bitmap) and(o bitmap) bitmap {
	return bitmap{b[0] & o[0], b[1] & o[1], b[2] & o[2]}
}

// without returns the attributes of b that are not in o.
func (b bitmap) without(o bitmap) bitmap {
	return bitmap{b[0] &^ o[0], b[1] &^ o[1], b[2] &^ o[2]}
}

func (b bitmap) any() bool { return b != bitmap{} }

func attrSet(attrs ...int) (b bitmap) {
	for _, a := range attrs {
		b.set(a)
	}
	return b
}

// decodeBitmap takes a bitmap4. extra: it has attributes beyond those that
// there are numbers for here.
func decodeBitmap(d *xdr.Decoder) (b bitmap, extra bool) {
	n := d.Count(maxBitmap, 4)
	for i := range n {
		w := d.Uint32()
		if i < len(b) {
			b[i] = w
		} else if w != 0 {
			extra = true
		}
	}
	return b, extra
}

// encodeBitmap appends a bitmap4 without empty words at its end.
func encodeBitmap(e *xdr.Encoder, b bitmap) {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	e.Uint32(uint32(n))
	for _, w := range b[:n] {
		e.Uint32(w)
	}
}

// What there is, by minor version (RFC 8881 §5.6, §5.7; RFC 7862 §12.1).
var (
	supported41 = attrSet(
		proto.AttrSupportedAttrs, proto.AttrType, proto.AttrFHExpireType, proto.AttrChange,
		proto.AttrSize, proto.AttrLinkSupport, proto.AttrSymlinkSupport, proto.AttrNamedAttr,
		proto.AttrFsid, proto.AttrUniqueHandles, proto.AttrLeaseTime, proto.AttrRdattrError,
		proto.AttrAclsupport, proto.AttrCansettime, proto.AttrCaseInsensitive,
		proto.AttrCasePreserving, proto.AttrChownRestricted, proto.AttrFilehandle,
		proto.AttrFileid, proto.AttrFilesAvail, proto.AttrFilesFree, proto.AttrFilesTotal,
		proto.AttrFSLocations, proto.AttrHomogeneous, proto.AttrMaxfilesize, proto.AttrMaxlink,
		proto.AttrMaxname, proto.AttrMaxread, proto.AttrMaxwrite, proto.AttrMode,
		proto.AttrNoTrunc, proto.AttrNumlinks, proto.AttrOwner, proto.AttrOwnerGroup,
		proto.AttrQuotaAvailHard, proto.AttrQuotaAvailSoft, proto.AttrQuotaUsed, proto.AttrRawdev, proto.AttrSpaceAvail, proto.AttrSpaceFree, proto.AttrSpaceTotal,
		proto.AttrSpaceUsed, proto.AttrTimeAccess, proto.AttrTimeAccessSet,
		proto.AttrTimeCreate, proto.AttrTimeDelta, proto.AttrTimeMetadata,
		proto.AttrTimeModify, proto.AttrTimeModifySet, proto.AttrMountedOnFileid,
		proto.AttrSuppattrExclcreat, proto.AttrFSCharsetCap,
	)
	since41 = attrSet(proto.AttrSuppattrExclcreat, proto.AttrFSCharsetCap)
	only42  = attrSet(
		proto.AttrCloneBlksize, proto.AttrChangeAttrType, proto.AttrModeUmask, proto.AttrXattrSupport,
	)
	// settable can be set, at creation too: EXCLUSIVE4_1 needs no attribute
	// for its verifier.
	settable41 = attrSet(
		proto.AttrSize, proto.AttrMode, proto.AttrOwner, proto.AttrOwnerGroup,
		proto.AttrTimeAccessSet, proto.AttrTimeModifySet,
	)
	settable42 = attrSet(proto.AttrModeUmask)
	// writeOnly can't be read (RFC 8881 §5.5).
	writeOnly = attrSet(proto.AttrTimeAccessSet, proto.AttrTimeModifySet, proto.AttrModeUmask)

	ofStatfs = attrSet(
		proto.AttrFilesAvail, proto.AttrFilesFree, proto.AttrFilesTotal,
		proto.AttrSpaceAvail, proto.AttrSpaceFree, proto.AttrSpaceTotal,
		proto.AttrQuotaAvailHard, proto.AttrQuotaAvailSoft, proto.AttrQuotaUsed,
	)
	// ofEntry is what READDIR can tell of an entry without its inode.
	ofEntry = attrSet(
		proto.AttrType, proto.AttrFsid, proto.AttrRdattrError, proto.AttrFilehandle,
		proto.AttrFileid, proto.AttrMountedOnFileid,
	)
)

func supported(minor uint32) bitmap {
	switch minor {
	case 0:
		return supported41.without(since41)
	case 1:
		return supported41
	}
	return or(supported41, only42)
}

func settable(minor uint32) bitmap {
	if minor < 2 {
		return settable41
	}
	return or(settable41, settable42)
}

func or(a, b bitmap) bitmap { return bitmap{a[0] | b[0], a[1] | b[1], a[2] | b[2]} }

// wireType is a file type as nfs_ftype4.
var wireType = [...]uint32{
	cluster.TypeRegular:   proto.TypeReg,
	cluster.TypeDirectory: proto.TypeDir,
	cluster.TypeSymlink:   proto.TypeLnk,
	cluster.TypeBlock:     proto.TypeBlk,
	cluster.TypeChar:      proto.TypeChr,
	cluster.TypeFIFO:      proto.TypeFIFO,
	cluster.TypeSocket:    proto.TypeSock,
}
