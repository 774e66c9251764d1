package nfs4

import "github.com/hawserfs/hawser/nfsd/proto"

// ioAdvise is IO_ADVISE (RFC 7862 §15.5): what will be needed is read ahead. It answers
// with what it does; contradictions and what is not honoured are no errors.
func (c *compound) ioAdvise() proto.Status {
	sid := c.stateid()
	off, n := c.d.Uint64(), c.d.Uint64()
	hints, _ := decodeBitmap(c.d)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if st := c.checkIO(sid, c.cur, proto.ShareAccessRead); st != proto.OK {
		return st
	}
	// Reads that go on where others ended are read ahead without being told.
	honoured := attrSet(proto.IOAdviseNormal)
	switch {
	case hints.has(proto.IOAdviseWillneed):
		honoured = attrSet(proto.IOAdviseWillneed)
	case hints.has(proto.IOAdviseSequential) && !hints.has(proto.IOAdviseRandom):
		honoured = attrSet(proto.IOAdviseSequential)
	}
	if !honoured.has(proto.IOAdviseNormal) {
		if err := c.fs.Prefetch(&c.req, c.cur, off, n); err != nil {
			return typeStatus(err)
		}
	}
	encodeBitmap(c.e, honoured)
	return proto.OK
}
