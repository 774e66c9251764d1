package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

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

// checkPair checks the stateids and the range, and makes n the number of bytes. What
// a client has seen of the source's size is seen here, too.
func (c *compound) checkPair(p *pair) (srcSize uint64, st proto.Status) {
	c.req.Fresh()
	if p.srcOff > cluster.MaxFileSize || p.dstOff > cluster.MaxFileSize || p.n > cluster.MaxFileSize-max(p.srcOff, p.dstOff) {
		return 0, proto.ErrInval
	}
	src, err := c.fs.Getattr(&c.req, c.saved)
	if err != nil {
		return 0, status(err)
	}
	dst, st := c.getattr()
	c.attrOK = false // dst is about to change
	switch {
	case st != proto.OK:
		return 0, st
	case src.Type != cluster.TypeRegular || dst.Type != cluster.TypeRegular:
		return 0, proto.ErrWrongType
	}
	if st := c.checkIO(p.src, c.saved, proto.ShareAccessRead); st != proto.OK {
		return 0, st
	}
	c.learned = false // of the other file
	if st := c.checkIO(p.dst, c.cur, proto.ShareAccessWrite); st != proto.OK {
		return 0, st
	}
	left := uint64(0)
	switch {
	case p.srcOff <= src.Size && p.n <= src.Size-p.srcOff:
		left = src.Size - p.srcOff
	case !c.replay: // what was copied before may be shorter by now
		return 0, proto.ErrInval
	case p.srcOff <= src.Size:
		left = src.Size - p.srcOff
	}
	if p.n == 0 {
		p.n = left
	}
	if c.saved == c.cur && p.srcOff < p.dstOff+p.n && p.dstOff < p.srcOff+p.n {
		return 0, proto.ErrInval
	}
	return src.Size, proto.OK
}

// clone is CLONE (RFC 7862 §15.13).
func (c *compound) clone() proto.Status {
	p := c.decodePair()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	asked := p.n
	size, st := c.checkPair(&p)
	switch {
	case st != proto.OK:
		return st
	case p.srcOff%cloneBlock != 0 || p.dstOff%cloneBlock != 0,
		p.n%cloneBlock != 0 && p.srcOff+p.n != size && !c.replay:
		return proto.ErrInval
	}
	return status(c.fs.Clone(&c.req, c.saved, p.srcOff, c.cur, p.dstOff, asked))
}

// Limits of COPY where the data can't be shared, in bytes.
const (
	// maxCopy is how much is copied before the answer. The client asks again for the rest.
	maxCopy = 32 << 20
	// minOffload is the least that goes on after the answer.
	minOffload = 8 << 20
)

// copyRange is COPY within this server (RFC 7862 §15.2). Within a volume the data is
// shared. Between volumes it is copied: after the answer, if that takes long and the
// client lets us. Copies within one file, which the RFC refuses, are made unless they
// overlap: Linux asks for them.
func (c *compound) copyRange() proto.Status {
	p := c.decodePair()
	c.d.Bool() // ca_consecutive: all are
	synchronous := c.d.Bool()
	servers := c.d.Count(64, 4)
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case servers > 0:
		return proto.ErrNotsupp // from another server
	}
	if _, st := c.checkPair(&p); st != proto.OK {
		return st
	}
	if c.saved.Volume == c.cur.Volume {
		return c.share(&p)
	}
	if !synchronous && p.n >= minOffload && (c.mayNotify() || c.replay && c.willNotify()) {
		if id, st := c.offload(&p); st != proto.ErrOffloadDenied {
			if st == proto.OK {
				c.e.Uint32(1)
				id.Encode(c.e)
				c.copied(0, 0, false)
			}
			return st
		}
	}
	n, v, st := c.copyData(&p)
	if st != proto.OK {
		return st
	}
	c.e.Uint32(0) // no wr_callback_id: it is done
	c.copied(n, v, true)
	return proto.OK
}

// copied appends the rest of a COPY's result.
func (c *compound) copied(n uint64, v vfs.Verifier, synchronous bool) {
	c.e.Uint64(n)
	c.e.Uint32(proto.FileSync)
	c.e.Uint64(uint64(v))
	c.e.Bool(true)
	c.e.Bool(synchronous)
}

// share copies within a volume: both files refer to the same data afterwards.
func (c *compound) share(p *pair) proto.Status {
	if err := c.fs.Clone(&c.req, c.saved, p.srcOff, c.cur, p.dstOff, p.n); err != nil {
		return status(err)
	}
	v, err := c.fs.Commit(&c.req, c.cur)
	if err != nil {
		return status(err)
	}
	c.e.Uint32(0)
	c.copied(p.n, v, true)
	return proto.OK
}

// copyData copies data, at most maxCopy, and makes it durable.
func (c *compound) copyData(p *pair) (done uint64, v vfs.Verifier, st proto.Status) {
	k := copier{fs: c.fs, src: c.saved, dst: c.cur}
	total := min(p.n, maxCopy)
	for done < total {
		n, err := k.step(&c.req, p.srcOff+done, p.dstOff+done, min(total-done, uint64(c.p.cfg.MaxIO)))
		if err != nil {
			if done == 0 {
				return 0, 0, status(err)
			}
			break
		}
		if n == 0 { // the source has become shorter
			break
		}
		done += n
	}
	v, err := k.commit(&c.req)
	return done, v, status(err)
}

// A copier copies data from one file to another.
type copier struct {
	fs       vfs.FS
	src, dst vfs.File
	sparse   bool // a step ends where a hole begins
	buf      []byte
	wrote    bool
	verifier vfs.Verifier // of what was written
}

// step copies up to n bytes, and returns how many: 0 at the end of the source.
func (k *copier) step(r *vfs.Request, srcOff, dstOff, n uint64) (uint64, error) {
	data, err := k.fs.Read(r, k.src, srcOff, int(n))
	if err != nil {
		return 0, err
	}
	k.buf = k.buf[:0]
	for _, b := range data.Bufs {
		k.buf = append(k.buf, b...)
	}
	if h := data.Holes; k.sparse && len(h) > 0 && h[0].Off > srcOff {
		k.buf = k.buf[:h[0].Off-srcOff]
	}
	if data.Release != nil {
		data.Release()
	}
	if len(k.buf) == 0 {
		return 0, nil
	}
	how, v, err := k.fs.Write(r, k.dst, dstOff, k.buf, vfs.Unstable)
	if err != nil {
		return 0, err
	}
	if how != vfs.FileSync {
		if k.wrote && v != k.verifier {
			return 0, cluster.EAGAIN // some of what was written is lost: all over again
		}
		k.wrote, k.verifier = true, v
	}
	return uint64(len(k.buf)), nil
}

// commit makes what was copied durable: EAGAIN if some of it is lost.
func (k *copier) commit(r *vfs.Request) (vfs.Verifier, error) {
	v, err := k.fs.Commit(r, k.dst)
	if err == nil && k.wrote && v != k.verifier {
		err = cluster.EAGAIN
	}
	return v, err
}
