package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// create is CREATE (RFC 8881 §18.4): anything but a regular file.
func (c *compound) create() proto.Status {
	args := vfs.CreateArgs{How: vfs.Guarded}
	st := proto.OK
	switch c.d.Uint32() {
	case proto.TypeDir:
		args.Type = cluster.TypeDirectory
	case proto.TypeLnk:
		args.Type = cluster.TypeSymlink
		target := c.d.Opaque(c.d.Remaining())
		switch {
		case len(target) == 0:
			st = proto.ErrInval
		case len(target) > cluster.MaxSymlink:
			st = proto.ErrNametoolong
		default:
			args.Target = string(target)
		}
	case proto.TypeBlk:
		args.Type = cluster.TypeBlock
		args.Major, args.Minor = c.d.Uint32(), c.d.Uint32()
	case proto.TypeChr:
		args.Type = cluster.TypeChar
		args.Major, args.Minor = c.d.Uint32(), c.d.Uint32()
	case proto.TypeSock:
		args.Type = cluster.TypeSocket
	case proto.TypeFIFO:
		args.Type = cluster.TypeFIFO
	default:
		return proto.ErrBadtype
	}
	name, nameSt := c.name()
	attrs := c.decodeAttrs(true)
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case st != proto.OK:
		return st
	case nameSt != proto.OK:
		return nameSt
	case attrs.status != proto.OK:
		return attrs.status
	}
	args.Attr = attrs.set
	made, err := c.fs.Create(&c.req, c.cur, name, args)
	if err != nil {
		return status(err)
	}
	c.changeInfo(made.Dir)
	encodeBitmap(c.e, attrs.done(made.Set))
	c.setCurAttr(made.File, &made.Attr)
	return proto.OK
}

func (c *compound) link() proto.Status {
	name, st := c.name()
	if st != proto.OK {
		return st
	}
	if st := c.undelegate(c.saved); st != proto.OK {
		return st
	}
	_, change, err := c.fs.Link(&c.req, c.saved, c.cur, name)
	if err != nil {
		return status(err)
	}
	c.changeInfo(change)
	return proto.OK
}

func (c *compound) remove() proto.Status {
	name, st := c.name()
	if st != proto.OK {
		return st
	}
	if st := c.undelegateName(c.cur, name); st != proto.OK {
		return st
	}
	change, err := c.fs.Remove(&c.req, c.cur, name)
	if err != nil {
		return status(err)
	}
	c.changeInfo(change)
	return proto.OK
}

func (c *compound) rename() proto.Status {
	from, st := c.name()
	to, st2 := c.name()
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case st != proto.OK:
		return st
	case st2 != proto.OK:
		return st2
	}
	if st := c.undelegateName(c.saved, from); st != proto.OK {
		return st
	}
	if st := c.undelegateName(c.cur, to); st != proto.OK {
		return st
	}
	source, target, err := c.fs.Rename(&c.req, c.saved, from, c.cur, to)
	if err != nil {
		return status(err)
	}
	c.changeInfo(source)
	c.changeInfo(target)
	return proto.OK
}
