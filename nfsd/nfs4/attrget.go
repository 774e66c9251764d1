package nfs4

import (
	"bytes"
	"math/bits"
	"strconv"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A subject is what attributes are encoded of.
type subject struct {
	file      vfs.File
	attr      *vfs.Attr // nil: only attributes of ofEntry are asked for
	ftype     vfs.FileType
	mountedOn vfs.Ino
	fsid      vfs.FSID
	space     vfs.Statfs
}

// subject makes the current file a subject for the attributes asked.
func (c *compound) subject(asked bitmap) (s subject, st proto.Status) {
	a, st := c.getattr()
	if st != proto.OK {
		return s, st
	}
	s = subject{file: c.cur, attr: a, ftype: a.Type}
	if asked.has(proto.AttrMountedOnFileid) {
		s.mountedOn = c.fs.MountedOn(c.cur)
	}
	if asked.has(proto.AttrFsid) {
		v, err := c.fs.Volume(&c.req, c.cur)
		if err != nil {
			return s, status(err)
		}
		s.fsid = v.FSID
	}
	if asked.and(ofStatfs).any() {
		var err error
		if s.space, err = c.fs.Statfs(&c.req, c.cur); err != nil {
			return s, status(err)
		}
	}
	return s, proto.OK
}

// getattrOp is GETATTR (RFC 8881 §18.7): of what was asked for, what there is,
// and nothing else.
func (c *compound) getattrOp() proto.Status {
	asked, _ := decodeBitmap(c.d)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if asked.and(writeOnly).any() {
		return proto.ErrInval
	}
	asked = asked.and(supported(c.minor))
	s, st := c.subject(asked)
	if st != proto.OK {
		return st
	}
	c.encodeAttrs(c.withhold(asked, &s), &s)
	return proto.OK
}

// verify is VERIFY, nverify NVERIFY (RFC 8881 §18.31, §18.15).
func (c *compound) verify() proto.Status {
	same, st := c.compare()
	if st == proto.OK && !same {
		return proto.ErrNotSame
	}
	return st
}

func (c *compound) nverify() proto.Status {
	same, st := c.compare()
	if st == proto.OK && same {
		return proto.ErrSame
	}
	return st
}

func (c *compound) compare() (same bool, st proto.Status) {
	asked, extra := decodeBitmap(c.d)
	values := c.d.Opaque(c.d.Remaining())
	switch {
	case c.d.Err() != nil:
		return false, proto.ErrBadxdr
	case extra || asked.without(supported(c.minor)).any():
		return false, proto.ErrAttrnotsupp
	case asked.and(writeOnly).any() || asked.has(proto.AttrRdattrError):
		return false, proto.ErrInval
	}
	s, st := c.subject(asked)
	if st != proto.OK {
		return false, st
	}
	var ours xdr.Encoder
	whole := c.e
	c.e = &ours
	c.encodeAttrs(asked, &s)
	c.e = whole
	d := xdr.NewDecoder(ours.Bytes())
	decodeBitmap(d)
	return bytes.Equal(values, d.Opaque(d.Remaining())), proto.OK
}

// encodeAttrs appends a fattr4 of s: asked must be supported.
func (c *compound) encodeAttrs(asked bitmap, s *subject) {
	e := c.e
	encodeBitmap(e, asked)
	length := e.Reserve32()
	for w, word := range asked {
		for ; word != 0; word &= word - 1 {
			c.encodeAttr(e, 32*w+bits.TrailingZeros32(word), s)
		}
	}
	e.PutUint32At(length, uint32(e.Since(length)))
}

const (
	maxLink    = 1<<31 - 1
	cloneBlock = 4096 // what CLONE can share is aligned to, in bytes
)

func (c *compound) encodeAttr(e *xdr.Encoder, n int, s *subject) {
	a := s.attr
	switch n {
	case proto.AttrSupportedAttrs:
		encodeBitmap(e, supported(c.minor))
	case proto.AttrType:
		e.Uint32(wireType[s.ftype])
	case proto.AttrFHExpireType:
		e.Uint32(proto.FHPersistent)
	case proto.AttrChange:
		e.Uint64(a.Change)
	case proto.AttrSize:
		e.Uint64(a.Size)
	case proto.AttrLinkSupport, proto.AttrSymlinkSupport, proto.AttrUniqueHandles,
		proto.AttrCansettime, proto.AttrCasePreserving, proto.AttrChownRestricted,
		proto.AttrHomogeneous, proto.AttrNoTrunc:
		e.Bool(true)
	case proto.AttrNamedAttr, proto.AttrCaseInsensitive:
		e.Bool(false)
	case proto.AttrFsid:
		e.Uint64(s.fsid.Major)
		e.Uint64(s.fsid.Minor)
	case proto.AttrLeaseTime:
		e.Uint32(uint32(c.p.cfg.Lease.Seconds()))
	case proto.AttrRdattrError:
		e.Uint32(uint32(proto.OK))
	case proto.AttrAclsupport:
		e.Uint32(0)
	case proto.AttrFilehandle:
		e.Opaque(c.fs.AppendHandle(c.handle[:0], s.file))
	case proto.AttrFileid:
		e.Uint64(uint64(s.file.Ino))
	case proto.AttrFilesAvail:
		e.Uint64(s.space.AvailFiles)
	case proto.AttrFilesFree:
		e.Uint64(s.space.FreeFiles)
	case proto.AttrFilesTotal:
		e.Uint64(s.space.TotalFiles)
	case proto.AttrFSLocations:
		e.Uint32(0) // the root of the server's tree
		e.Uint32(0) // and nowhere else
	case proto.AttrMaxfilesize:
		e.Uint64(cluster.MaxFileSize)
	case proto.AttrMaxlink:
		e.Uint32(maxLink)
	case proto.AttrMaxname:
		e.Uint32(cluster.MaxName)
	case proto.AttrMaxread, proto.AttrMaxwrite:
		e.Uint64(uint64(c.p.cfg.MaxIO))
	case proto.AttrMode:
		e.Uint32(a.Mode & cluster.ModeMask)
	case proto.AttrNumlinks:
		e.Uint32(a.Nlink)
	case proto.AttrOwner:
		encodeNumber(e, a.UID)
	case proto.AttrOwnerGroup:
		encodeNumber(e, a.GID)
	case proto.AttrQuotaUsed:
		e.Uint64(s.space.UsedBytes) // all of the volume is under one limit: that of its disks
	case proto.AttrRawdev:
		e.Uint32(a.Major)
		e.Uint32(a.Minor)
	case proto.AttrQuotaAvailHard, proto.AttrQuotaAvailSoft, proto.AttrSpaceAvail:
		e.Uint64(s.space.AvailBytes)
	case proto.AttrSpaceFree:
		e.Uint64(s.space.FreeBytes)
	case proto.AttrSpaceTotal:
		e.Uint64(s.space.TotalBytes)
	case proto.AttrSpaceUsed:
		e.Uint64(a.Used)
	case proto.AttrTimeAccess:
		encodeTime(e, a.Atime)
	case proto.AttrTimeCreate:
		encodeTime(e, a.Btime)
	case proto.AttrTimeDelta:
		e.Int64(0)
		e.Uint32(1)
	case proto.AttrTimeMetadata:
		encodeTime(e, a.Ctime)
	case proto.AttrTimeModify:
		encodeTime(e, a.Mtime)
	case proto.AttrMountedOnFileid:
		e.Uint64(uint64(s.mountedOn))
	case proto.AttrSuppattrExclcreat:
		encodeBitmap(e, settable(c.minor))
	case proto.AttrFSCharsetCap:
		e.Uint32(proto.FSCharsetCapAllowsOnlyUTF8)
	case proto.AttrCloneBlksize:
		e.Uint32(cloneBlock)
	case proto.AttrChangeAttrType:
		e.Uint32(proto.ChangeTypeIsMonotonicIncr)
	case proto.AttrXattrSupport:
		e.Bool(s.file != vfs.Root)
	}
}

// encodeNumber appends a user or group as a decimal string.
func encodeNumber(e *xdr.Encoder, id uint32) {
	var b [10]byte
	e.Opaque(strconv.AppendUint(b[:0], uint64(id), 10))
}

const second = 1_000_000_000

// encodeTime appends an nfstime4.
func encodeTime(e *xdr.Encoder, t vfs.Time) {
	sec, nsec := int64(t)/second, int64(t)%second
	if nsec < 0 {
		sec, nsec = sec-1, nsec+second
	}
	e.Int64(sec)
	e.Uint32(uint32(nsec))
}
