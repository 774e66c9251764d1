package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// seek is SEEK (RFC 7862 §15.11). Beyond the last data, it is NXIO: a result that
// says "end of file" would give Linux a wrong offset.
func (c *compound) seek() proto.Status {
	sid := c.stateid()
	off := c.d.Uint64()
	what := c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if what != proto.ContentData && what != proto.ContentHole {
		return proto.ErrUnionNotsupp
	}
	if st := c.checkIO(sid, c.cur, proto.ShareAccessRead); st != proto.OK {
		return st
	}
	a, st := c.getattr()
	if st != proto.OK {
		return st
	}
	pos, err := c.fs.Seek(&c.req, c.cur, off, vfs.SeekWhat(what))
	if err != nil {
		return typeStatus(err)
	}
	c.e.Bool(what == proto.ContentHole && pos >= a.Size)
	c.e.Uint64(pos)
	return proto.OK
}

// typeStatus is status, where arguments can't be wrong but by the file's type.
func typeStatus(err error) proto.Status {
	if errno(err) == cluster.EINVAL {
		return proto.ErrWrongType
	}
	return status(err)
}

// fileRange takes the arguments of ALLOCATE and DEALLOCATE.
func (c *compound) fileRange() (off, n uint64, st proto.Status) {
	sid := c.stateid()
	off, n = c.d.Uint64(), c.d.Uint64()
	switch {
	case c.d.Err() != nil:
		return 0, 0, proto.ErrBadxdr
	case n == 0:
		return 0, 0, proto.ErrInval
	case off > cluster.MaxFileSize || n > cluster.MaxFileSize-off:
		return 0, 0, proto.ErrFbig
	}
	return off, n, c.checkIO(sid, c.cur, proto.ShareAccessWrite)
}

// allocate is ALLOCATE (RFC 7862 §15.1).
func (c *compound) allocate() proto.Status {
	off, n, st := c.fileRange()
	if st != proto.OK {
		return st
	}
	return typeStatus(c.fs.Allocate(&c.req, c.cur, off, n))
}

// deallocate is DEALLOCATE (RFC 7862 §15.4).
func (c *compound) deallocate() proto.Status {
	off, n, st := c.fileRange()
	if st != proto.OK {
		return st
	}
	return typeStatus(c.fs.Deallocate(&c.req, c.cur, off, n))
}
