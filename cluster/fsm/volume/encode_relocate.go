package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// The fewest bytes that an item of a Relocate's lists takes.
const (
	minMove = 1 + 1 + 1 + 8 + 4 + 8 + 1
	minMark = 1 + 1
)

// Kind returns KindRelocate.
func (Relocate) Kind() fsm.Kind { return KindRelocate }

// AppendTo appends the command's encoding to dst.
func (c Relocate) AppendTo(dst []byte) []byte {
	dst = appendNewBlobs(dst, c.Blobs)
	dst = codec.AppendUvarint(dst, uint64(len(c.Moves)))
	for i := range c.Moves {
		m := &c.Moves[i]
		dst = codec.AppendUvarint(dst, uint64(m.Ino))
		dst = codec.AppendUvarint(dst, m.Off)
		dst = codec.AppendUvarint(dst, uint64(m.Len))
		dst = codec.AppendUint64(dst, uint64(m.Blob))
		if m.Blob != 0 {
			dst = codec.AppendUint32(dst, m.BlobOff)
		} else {
			dst = codec.AppendUint32(dst, m.CRC)
		}
		dst = codec.AppendUint64(dst, uint64(m.NewBlob))
		dst = codec.AppendUvarint(dst, uint64(m.NewOff))
	}
	dst = codec.AppendUvarint(dst, uint64(len(c.Done)))
	for _, d := range c.Done {
		dst = codec.AppendUvarint(codec.AppendUvarint(dst, uint64(d.Ino)), d.Index)
	}
	return dst
}

func (c *Relocate) decode(d *codec.Dec) {
	c.Blobs = decodeNewBlobs(d)
	if n := d.Count(minMove); n > 0 {
		c.Moves = make([]Move, n)
	}
	for i := range c.Moves {
		m := Move{Ino: cluster.Ino(d.Uvarint()), Off: d.Uvarint(), Len: d.Uvarint32(), Blob: cluster.BlobID(d.Uint64())}
		if m.Blob != 0 {
			m.BlobOff = d.Uint32()
		} else {
			m.CRC = d.Uint32()
		}
		m.NewBlob, m.NewOff = cluster.BlobID(d.Uint64()), d.Uvarint32()
		c.Moves[i] = m
	}
	if n := d.Count(minMark); n > 0 {
		c.Done = make([]Mark, n)
	}
	for i := range c.Done {
		c.Done[i] = Mark{Ino: cluster.Ino(d.Uvarint()), Index: d.Uvarint()}
	}
}

// AppendTo appends the result's encoding to dst.
func (r RelocateResult) AppendTo(dst []byte) []byte { return codec.AppendBytes(dst, r.Moved) }

// Did reports whether move i was done.
func (r RelocateResult) Did(i int) bool { return i/8 < len(r.Moved) && r.Moved[i/8]&(1<<(i%8)) != 0 }

// DecodeRelocateResult decodes the result of a Relocate that did not fail.
func DecodeRelocateResult(body []byte) (RelocateResult, error) {
	d := codec.NewDec(body)
	r := RelocateResult{Moved: d.Bytes(maxString)}
	return r, d.Done()
}
