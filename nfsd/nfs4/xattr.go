package nfs4

import (
	"sort"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// xattrKey takes an xattrkey4: a name without its namespace (RFC 8276 §6).
func (c *compound) xattrKey() (string, proto.Status) {
	b := c.d.Opaque(c.d.Remaining())
	switch {
	case c.d.Err() != nil:
		return "", proto.ErrBadxdr
	case len(b) == 0:
		return "", proto.ErrInval
	case len(b) > cluster.MaxName:
		return "", proto.ErrNametoolong
	}
	return string(b), proto.OK
}

// xattrStatus is status, for operations on extended attributes.
func xattrStatus(err error) proto.Status {
	if errno(err) == cluster.EFBIG {
		return proto.ErrXattr2big
	}
	return status(err)
}

func (c *compound) getxattr() proto.Status {
	name, st := c.xattrKey()
	if st != proto.OK {
		return st
	}
	value, err := c.fs.Getxattr(&c.req, c.cur, name)
	if err != nil {
		return xattrStatus(err)
	}
	c.e.Opaque(value)
	return proto.OK
}

// xattrHow is setxattr_option4 as the file system knows it.
var xattrHow = [...]vfs.CreateHow{
	proto.SetxattrEither: vfs.Unchecked, proto.SetxattrCreate: vfs.Guarded, proto.SetxattrReplace: vfs.Exclusive,
}

func (c *compound) setxattr() proto.Status {
	how := c.d.Uint32()
	name, st := c.xattrKey()
	value := c.d.Opaque(c.d.Remaining())
	switch {
	case c.d.Err() != nil || int(how) >= len(xattrHow):
		return proto.ErrBadxdr
	case st != proto.OK:
		return st
	}
	if st := c.undelegate(c.cur); st != proto.OK {
		return st
	}
	change, err := c.fs.Setxattr(&c.req, c.cur, name, value, xattrHow[how])
	if err != nil {
		return xattrStatus(err)
	}
	c.changeInfo(change)
	return proto.OK
}

func (c *compound) removexattr() proto.Status {
	name, st := c.xattrKey()
	if st != proto.OK {
		return st
	}
	if st := c.undelegate(c.cur); st != proto.OK {
		return st
	}
	change, err := c.fs.Removexattr(&c.req, c.cur, name)
	if err != nil {
		return xattrStatus(err)
	}
	c.changeInfo(change)
	return proto.OK
}

// listxattrs is LISTXATTRS (RFC 8276 §8.4.3). A cookie is the number of names before.
func (c *compound) listxattrs() proto.Status {
	cookie := c.d.Uint64()
	maxcount := int(c.d.Uint32())
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	names, err := c.fs.Listxattr(&c.req, c.cur)
	if err != nil {
		return xattrStatus(err)
	}
	sort.Strings(names)
	if cookie > uint64(len(names)) {
		return proto.ErrBadCookie
	}
	names = names[cookie:]
	const around = 8 + 4 + 4 // cookie, count, eof
	room := min(maxcount, c.limit-c.e.Len()) - around
	n := 0
	for n < len(names) {
		if room -= 4 + (len(names[n])+3)&^3; room < 0 {
			break
		}
		n++
	}
	if n == 0 && len(names) > 0 || room < 0 && len(names) == 0 {
		return proto.ErrToosmall
	}
	c.e.Uint64(cookie + uint64(n))
	c.e.Uint32(uint32(n))
	for _, name := range names[:n] {
		c.e.String(name)
	}
	c.e.Bool(n == len(names))
	return proto.OK
}
