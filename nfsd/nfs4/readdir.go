package nfs4

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// The cookies of "." and "..", which clients make themselves (RFC 8881 §18.23.3).
const maxReserved = 2

// readdir is READDIR (RFC 8881 §18.23). Cookies are good for ever, so that the
// cookie verifier is constant and none is refused.
func (c *compound) readdir() proto.Status {
	cookie := c.d.Uint64()
	c.d.Uint64() // cookieverf
	c.d.Uint32() // dircount: a hint
	maxcount := int(c.d.Uint32())
	asked, _ := decodeBitmap(c.d)
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case cookie > 0 && cookie <= maxReserved:
		return proto.ErrBadCookie
	case asked.and(writeOnly).any():
		return proto.ErrInval
	}
	asked = asked.and(supported(c.minor))
	// The result counts from the verifier on, with the end of the list.
	const listEnd = 8
	room := min(maxcount, c.limit-c.e.Len()) - listEnd
	start := c.e.Len()
	c.e.Uint64(0)
	if room < c.e.Len()-start {
		return proto.ErrToosmall
	}
	var fsids fsidCache
	fits, n := true, 0
	failed := proto.OK
	attrs := asked.without(ofEntry).any()
	eof, err := c.fs.ReadDir(&c.req, c.cur, cookie, attrs, func(d *vfs.Dirent) bool {
		before := c.e.Len()
		c.e.Bool(true)
		c.e.Uint64(d.Cookie)
		c.e.String(d.Name)
		failed = c.entryAttrs(asked, d, &fsids)
		if failed != proto.OK {
			return false
		}
		if c.e.Len()-start > room {
			c.e.Truncate(before)
			fits = false
			return false
		}
		n++
		return true
	})
	switch {
	case err != nil:
		return status(err)
	case failed != proto.OK:
		return failed
	case !fits && n == 0:
		return proto.ErrToosmall
	}
	c.e.Bool(false)
	c.e.Bool(eof && fits)
	return proto.OK
}

// entryAttrs appends the attributes of an entry.
func (c *compound) entryAttrs(asked bitmap, d *vfs.Dirent, fsids *fsidCache) proto.Status {
	s := subject{file: d.File, attr: d.Attr, ftype: d.Type, mountedOn: d.MountedOn}
	if asked.has(proto.AttrFsid) {
		var st proto.Status
		if s.fsid, st = fsids.get(c, d.File); st != proto.OK {
			return st
		}
	}
	if asked.and(ofStatfs).any() {
		var err error
		if s.space, err = c.fs.Statfs(&c.req, d.File); err != nil {
			return status(err)
		}
	}
	c.encodeAttrs(c.withhold(asked, &s), &s)
	return proto.OK
}

// fsidCache has the fsid of the last entry's volume: mostly that of the next.
type fsidCache struct {
	volume vfs.VolumeID
	fsid   vfs.FSID
	ok     bool
}

func (f *fsidCache) get(c *compound, file vfs.File) (vfs.FSID, proto.Status) {
	if !f.ok || f.volume != file.Volume {
		v, err := c.fs.Volume(&c.req, file)
		if err != nil {
			return vfs.FSID{}, status(err)
		}
		*f = fsidCache{file.Volume, v.FSID, true}
	}
	return f.fsid, proto.OK
}
