package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

func (c *compound) putfh() proto.Status {
	h := c.d.Opaque(proto.FHSize)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	f, err := c.fs.ParseHandle(h)
	if err != nil {
		return status(err)
	}
	c.setCur(f)
	return proto.OK
}

func (c *compound) putrootfh() proto.Status {
	c.setCur(vfs.Root)
	return proto.OK
}

func (c *compound) getfh() proto.Status {
	c.e.Opaque(c.fs.AppendHandle(c.handle[:0], c.cur))
	return proto.OK
}

func (c *compound) savefh() proto.Status {
	c.saved, c.hasSaved = c.cur, true
	c.savedSid, c.hasSavedSid = c.sid, c.hasSid
	return proto.OK
}

func (c *compound) restorefh() proto.Status {
	if !c.hasSaved {
		return proto.ErrNofilehandle
	}
	c.setCur(c.saved)
	c.sid, c.hasSid = c.savedSid, c.hasSavedSid
	return proto.OK
}

func (c *compound) lookup() proto.Status {
	name, st := c.name()
	if st != proto.OK {
		return st
	}
	f, a, err := c.fs.Lookup(&c.req, c.cur, name)
	if err != nil {
		return status(err)
	}
	c.setCurAttr(f, &a)
	return proto.OK
}

func (c *compound) lookupp() proto.Status {
	f, a, err := c.fs.LookupParent(&c.req, c.cur)
	if err != nil {
		return status(err)
	}
	c.setCurAttr(f, &a)
	return proto.OK
}

// xattrRights are the rights of RFC 8276 §8.5, and what they amount to.
var xattrRights = [...]struct{ asked, need uint32 }{
	{proto.AccessXaread, vfs.AccessRead},
	{proto.AccessXawrite, vfs.AccessModify},
	{proto.AccessXalist, vfs.AccessRead},
}

// access is ACCESS (RFC 8881 §18.1).
func (c *compound) access() proto.Status {
	asked := c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	const plain = vfs.AccessRead | vfs.AccessLookup | vfs.AccessModify |
		vfs.AccessExtend | vfs.AccessDelete | vfs.AccessExecute
	supported := asked & plain
	a, st := c.getattr()
	switch {
	case st != proto.OK:
		return st
	case a.Type == cluster.TypeDirectory:
		supported &^= vfs.AccessExecute // it has no meaning there
	default:
		supported &^= vfs.AccessLookup | vfs.AccessDelete // both are of directory entries
	}
	want := supported
	if c.minor >= 2 {
		for _, x := range xattrRights {
			if asked&x.asked != 0 {
				supported |= x.asked
				want |= x.need
			}
		}
	}
	got, err := c.fs.Access(&c.req, c.cur, want)
	if err != nil {
		return status(err)
	}
	granted := got & supported & plain
	for _, x := range xattrRights {
		if supported&x.asked != 0 && got&x.need != 0 {
			granted |= x.asked
		}
	}
	c.e.Uint32(supported)
	c.e.Uint32(granted)
	return proto.OK
}

func (c *compound) readlink() proto.Status {
	target, err := c.fs.Readlink(&c.req, c.cur)
	if err != nil {
		return status(err)
	}
	c.e.String(target)
	return proto.OK
}
