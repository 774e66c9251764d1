package nfs4

import (
	"math"
	"math/bits"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A change is the attributes that a client wants to set.
type change struct {
	set    vfs.SetAttr
	umask  bool // the mode came as mode_umask
	names  naming
	status proto.Status // why they can't be set
}

// decodeAttrs takes a fattr4 of attributes to set. create: of something new,
// which mode_umask is for.
func (c *compound) decodeAttrs(create bool) (a change) {
	asked, extra := decodeBitmap(c.d)
	values := c.d.Opaque(c.d.Remaining())
	switch {
	case c.d.Err() != nil:
		a.status = proto.ErrBadxdr
		return a
	case extra || asked.without(supported(c.minor)).any():
		a.status = proto.ErrAttrnotsupp
		return a
	case asked.without(settable(c.minor)).any(),
		asked.has(proto.AttrModeUmask) && (!create || asked.has(proto.AttrMode)):
		a.status = proto.ErrInval
		return a
	}
	a.names = naming{c.call.Context(), c.p.cfg.Names}
	var d xdr.Decoder
	d.Init(values)
	for w, word := range asked {
		for ; word != 0; word &= word - 1 {
			if st := a.decode(&d, 32*w+bits.TrailingZeros32(word)); st != proto.OK && a.status == proto.OK {
				a.status = st
			}
		}
	}
	if d.Err() != nil || d.Remaining() > 0 {
		a.status = proto.ErrBadxdr
	}
	return a
}

func (a *change) decode(d *xdr.Decoder, n int) proto.Status {
	s := &a.set
	switch n {
	case proto.AttrSize:
		s.Mask |= cluster.SetSize
		if s.Size = d.Uint64(); s.Size > cluster.MaxFileSize {
			return proto.ErrFbig
		}
	case proto.AttrMode:
		s.Mask |= cluster.SetMode
		s.Mode = d.Uint32()
	case proto.AttrModeUmask: // RFC 8275 §5
		s.Mask |= cluster.SetMode
		a.umask = true
		s.Mode = d.Uint32()
		s.Mode &^= d.Uint32() & 0o777
	case proto.AttrOwner:
		s.Mask |= cluster.SetUID
		return a.names.decode(d, &s.UID, false)
	case proto.AttrOwnerGroup:
		s.Mask |= cluster.SetGID
		return a.names.decode(d, &s.GID, true)
	case proto.AttrTimeAccessSet:
		return decodeSetTime(d, s, &s.Atime, cluster.SetAtime, cluster.SetAtimeNow)
	case proto.AttrTimeModifySet:
		return decodeSetTime(d, s, &s.Mtime, cluster.SetMtime, cluster.SetMtimeNow)
	}
	if s.Mode&^cluster.ModeMask != 0 {
		return proto.ErrInval
	}
	return proto.OK
}

// decodeSetTime takes a settime4. What is beyond the years that can be stored
// becomes the first or last of them.
func decodeSetTime(d *xdr.Decoder, s *vfs.SetAttr, t *vfs.Time, set, now vfs.SetMask) proto.Status {
	switch d.Uint32() {
	case proto.SetToServerTime:
		s.Mask |= now
	case proto.SetToClientTime:
		sec, nsec := d.Int64(), d.Uint32()
		if nsec >= second {
			return proto.ErrInval
		}
		s.Mask |= set
		const limit = math.MaxInt64/second - 1
		sec = max(-limit, min(limit, sec))
		*t = vfs.Time(sec*second + int64(nsec))
	default:
		return proto.ErrBadxdr
	}
	return proto.OK
}

// done returns the attributes that were set, of those wanted.
func (a *change) done(set vfs.SetMask) (b bitmap) {
	if set&cluster.SetMode != 0 {
		if a.umask {
			b.set(proto.AttrModeUmask)
		} else {
			b.set(proto.AttrMode)
		}
	}
	for _, x := range [...]struct {
		mask vfs.SetMask
		attr int
	}{
		{cluster.SetSize, proto.AttrSize},
		{cluster.SetUID, proto.AttrOwner},
		{cluster.SetGID, proto.AttrOwnerGroup},
		{cluster.SetAtime | cluster.SetAtimeNow, proto.AttrTimeAccessSet},
		{cluster.SetMtime | cluster.SetMtimeNow, proto.AttrTimeModifySet},
	} {
		if set&x.mask != 0 {
			b.set(x.attr)
		}
	}
	return b
}

// setattr is SETATTR (RFC 8881 §18.30). The stateid matters for the size alone:
// clients send the anonymous one, or one of a deleted open, with the rest.
func (c *compound) setattr() proto.Status {
	sid := c.stateid()
	attrs := c.decodeAttrs(false)
	c.keepBody = true
	set, st := c.applyAttrs(sid, &attrs)
	encodeBitmap(c.e, set)
	return st
}
