package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
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

// A pair is what CLONE and COPY work on: from the saved to the current file.
type pair struct {
	src, dst state.Stateid
	srcOff   uint64
	dstOff   uint64
	n        uint64 // 0: to the end
}

func (c *compound) decodePair() pair {
	return pair{
		src: c.stateid(), dst: c.stateid(),
		srcOff: c.d.Uint64(), dstOff: c.d.Uint64(), n: c.d.Uint64(),
	}
}

func (c *compound) checkPair(p *pair) proto.Status {
	if p.srcOff > cluster.MaxFileSize || p.dstOff > cluster.MaxFileSize || p.n > cluster.MaxFileSize-max(p.srcOff, p.dstOff) {
		return proto.ErrInval
	}
	if st := c.checkIO(p.src, c.saved, proto.ShareAccessRead); st != proto.OK {
		return st
	}
	return c.checkIO(p.dst, c.cur, proto.ShareAccessWrite)
}

// clone is CLONE (RFC 7862 §15.13).
func (c *compound) clone() proto.Status {
	p := c.decodePair()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if st := c.checkPair(&p); st != proto.OK {
		return st
	}
	return status(c.fs.Clone(&c.req, c.saved, p.srcOff, c.cur, p.dstOff, p.n))
}

// maxCopy is how much one COPY copies, if it can't share the data, in bytes. The client
// asks again for the rest.
const maxCopy = 32 << 20

// copyRange is COPY within this server (RFC 7862 §15.2): synchronous, whatever the client
// asks for, and durable.
func (c *compound) copyRange() proto.Status {
	p := c.decodePair()
	c.d.Bool() // ca_consecutive
	c.d.Bool() // ca_synchronous
	servers := c.d.Count(64, 4)
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case servers > 0:
		return proto.ErrNotsupp // from another server
	}
	if st := c.checkPair(&p); st != proto.OK {
		return st
	}
	src, err := c.fs.Getattr(&c.req, c.saved)
	if err != nil {
		return status(err)
	}
	if p.srcOff > src.Size {
		return proto.ErrInval
	}
	if left := src.Size - p.srcOff; p.n == 0 || p.n > left {
		p.n = left
	}
	if c.saved == c.cur && p.srcOff < p.dstOff+p.n && p.dstOff < p.srcOff+p.n {
		return proto.ErrInval // RFC 7862 §15.2.3: the ranges overlap
	}
	n, st := c.copyData(&p, src.Size)
	if st != proto.OK {
		return st
	}
	verifier, err := c.fs.Commit(&c.req, c.cur)
	if err != nil {
		return status(err)
	}
	c.e.Uint32(0) // no wr_callback_id: it is done
	c.e.Uint64(n)
	c.e.Uint32(proto.FileSync)
	c.e.Uint64(uint64(verifier))
	c.e.Bool(true)
	c.e.Bool(true)
	return proto.OK
}

// copyData shares the data if it can, and copies it otherwise. It returns how
// many bytes it has copied: maybe not all.
func (c *compound) copyData(p *pair, srcSize uint64) (uint64, proto.Status) {
	if p.n == 0 {
		return 0, proto.OK
	}
	whole := p.n%cloneBlock == 0 || p.srcOff+p.n == srcSize
	if p.srcOff%cloneBlock == 0 && p.dstOff%cloneBlock == 0 && whole && c.saved.Volume == c.cur.Volume {
		err := c.fs.Clone(&c.req, c.saved, p.srcOff, c.cur, p.dstOff, p.n)
		switch errno(err) {
		case cluster.ENOTSUP, cluster.EXDEV, cluster.EINVAL:
		default:
			return p.n, status(err)
		}
	}
	total := min(p.n, maxCopy)
	var buf []byte
	for done := uint64(0); done < total; {
		data, err := c.fs.Read(&c.req, c.saved, p.srcOff+done, int(min(total-done, uint64(c.p.cfg.MaxIO))))
		if err != nil {
			return done, partial(done, err)
		}
		buf = buf[:0]
		for _, b := range data.Bufs {
			buf = append(buf, b...)
		}
		if data.Release != nil {
			data.Release()
		}
		if len(buf) == 0 {
			return done, proto.OK // the source has become shorter
		}
		if _, _, err := c.fs.Write(&c.req, c.cur, p.dstOff+done, buf, vfs.Unstable); err != nil {
			return done, partial(done, err)
		}
		done += uint64(len(buf))
	}
	return total, proto.OK
}

// partial is the status of a copy that failed after done bytes.
func partial(done uint64, err error) proto.Status {
	if done > 0 {
		return proto.OK
	}
	return status(err)
}
