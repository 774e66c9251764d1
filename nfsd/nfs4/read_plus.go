package nfs4

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// minHole is the shortest hole that READ_PLUS shows between data, in bytes: what is
// shorter is cheaper as zeros, for clients have to move what follows it in memory. It
// is longer than what a hole takes in the reply, so that no reply with holes is longer
// than one of data alone.
const minHole = 32 << 10

// readPlus is READ_PLUS (RFC 7862 §15.10). Holes end where the request does, although
// they may be longer: so they never exceed a locked range, which they must not.
func (c *compound) readPlus() proto.Status {
	sid := c.stateid()
	off := c.d.Uint64()
	count := c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	// rpr_eof, the number of contents, one of data, and its padding.
	data, st := c.readData(sid, off, count, 4+4+4+8+4+3)
	if st != proto.OK {
		return st
	}
	c.e.Bool(data.EOF)
	encodeContents(c.e, off, &data)
	return proto.OK
}

// encodeContents appends rpr_contents: what was read at off. Release is called when
// the reply was sent, or at once if nothing refers to the data.
func encodeContents(e *xdr.Encoder, off uint64, data *vfs.Data) {
	count := e.Reserve32()
	n := uint32(0)
	r := reader{bufs: data.Bufs, release: data.Release, copy: data.N < copyBelow}
	pos, end := off, off+uint64(data.N)
	content := func(to uint64) {
		if pos == to {
			return
		}
		n++
		e.Uint32(proto.ContentData)
		e.Uint64(pos)
		e.Uint32(uint32(to - pos))
		r.take(to-pos, e)
		e.Pad(int(to - pos))
		pos = to
	}
	for _, h := range data.Holes {
		if h.Len < minHole && h.Len != uint64(data.N) {
			continue
		}
		content(h.Off)
		n++
		e.Uint32(proto.ContentHole)
		e.Uint64(h.Off)
		e.Uint64(h.Len)
		r.take(h.Len, nil)
		pos += h.Len
	}
	content(end)
	e.PutUint32At(count, n)
	if r.release != nil {
		r.release()
	}
}

// A reader takes bytes from buffers.
type reader struct {
	bufs    [][]byte
	at      int // in the first
	copy    bool
	release func() // goes with the first reference
}

// take appends the next n bytes to e, by reference, or skips them if e is nil.
func (r *reader) take(n uint64, e *xdr.Encoder) {
	for n > 0 {
		b := r.bufs[0][r.at:]
		if uint64(len(b)) > n {
			b = b[:n]
			r.at += len(b)
		} else {
			r.bufs, r.at = r.bufs[1:], 0
		}
		n -= uint64(len(b))
		switch {
		case e == nil:
		case r.copy:
			e.Raw(b)
		default:
			e.Ref(b, r.release)
			r.release = nil
		}
	}
}
