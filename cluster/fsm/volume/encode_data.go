package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// The fewest bytes that an item of a list takes: they bound what a malformed
// count can make the decoder allocate.
const (
	minNewBlob   = 8 + 1 + 1 + 1 + 4
	minNewExtent = 1 + 1 + 8 + 1
	minBlobID    = 8
)

func appendNewBlobs(dst []byte, blobs []NewBlob) []byte {
	dst = codec.AppendUvarint(dst, uint64(len(blobs)))
	for i := range blobs {
		dst = appendNewBlob(dst, &blobs[i])
	}
	return dst
}

func decodeNewBlobs(d *codec.Dec) []NewBlob {
	n := d.Count(minNewBlob)
	if n == 0 {
		return nil
	}
	blobs := make([]NewBlob, n)
	for i := range blobs {
		blobs[i] = decodeNewBlob(d)
	}
	return blobs
}

// Kind returns KindCommitExtents.
func (CommitExtents) Kind() fsm.Kind { return KindCommitExtents }

// AppendTo appends the command's encoding to dst.
func (c CommitExtents) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	dst = codec.AppendUint64(dst, uint64(c.Mtime))
	dst = codec.AppendBool(dst, c.KillPriv)
	dst = appendNewBlobs(dst, c.Blobs)
	dst = codec.AppendUvarint(dst, uint64(len(c.Extents)))
	for i := range c.Extents {
		e := &c.Extents[i]
		dst = codec.AppendUvarint(dst, e.Off)
		dst = codec.AppendUvarint(dst, uint64(e.Len))
		dst = codec.AppendUint64(dst, uint64(e.Blob))
		if e.Blob != 0 {
			dst = codec.AppendUvarint(dst, uint64(e.BlobOff))
		} else {
			dst = codec.AppendBytes(dst, e.Bytes)
		}
	}
	return dst
}

// decode leaves the bytes of extents aliasing the command.
func (c *CommitExtents) decode(d *codec.Dec) {
	c.Ino = cluster.Ino(d.Uvarint())
	c.Mtime = cluster.Time(d.Uint64())
	c.KillPriv = d.Bool()
	c.Blobs = decodeNewBlobs(d)
	if n := d.Count(minNewExtent); n > 0 {
		c.Extents = make([]NewExtent, n)
	}
	for i := range c.Extents {
		e := NewExtent{Off: d.Uvarint(), Len: d.Uvarint32(), Blob: cluster.BlobID(d.Uint64())}
		if e.Blob != 0 {
			e.BlobOff = d.Uvarint32()
		} else {
			e.Bytes = d.Bytes(maxString)
		}
		c.Extents[i] = e
	}
}

// Kind returns KindPunch.
func (Punch) Kind() fsm.Kind { return KindPunch }

// AppendTo appends the command's encoding to dst.
func (c Punch) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	dst = codec.AppendUvarint(dst, c.Off)
	dst = codec.AppendUvarint(dst, c.Len)
	dst = codec.AppendBool(dst, c.Extend)
	return codec.AppendBool(dst, c.KillPriv)
}

func (c *Punch) decode(d *codec.Dec) {
	c.Ino = cluster.Ino(d.Uvarint())
	c.Off = d.Uvarint()
	c.Len = d.Uvarint()
	c.Extend = d.Bool()
	c.KillPriv = d.Bool()
}

// The flags of an encoded Clone.
const (
	cloneKillPriv byte = 1
	cloneBase     byte = 2 // Base follows
)

// Kind returns KindClone.
func (Clone) Kind() fsm.Kind { return KindClone }

// AppendTo appends the command's encoding to dst.
func (c Clone) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(c.Src))
	dst = codec.AppendUvarint(dst, uint64(c.Dst))
	dst = codec.AppendUvarint(dst, c.SrcOff)
	dst = codec.AppendUvarint(dst, c.DstOff)
	dst = codec.AppendUvarint(dst, c.Len)
	var flags byte
	if c.KillPriv {
		flags |= cloneKillPriv
	}
	if c.Base == 0 {
		return append(dst, flags)
	}
	return codec.AppendUvarint(append(dst, flags|cloneBase), c.Base)
}

func (c *Clone) decode(d *codec.Dec) {
	c.Src = cluster.Ino(d.Uvarint())
	c.Dst = cluster.Ino(d.Uvarint())
	c.SrcOff = d.Uvarint()
	c.DstOff = d.Uvarint()
	c.Len = d.Uvarint()
	flags := d.Uint8()
	c.KillPriv = flags&cloneKillPriv != 0
	if flags&cloneBase != 0 {
		c.Base = d.Uvarint()
	}
	if flags&^(cloneKillPriv|cloneBase) != 0 {
		d.Fail()
	}
}

// Kind returns KindReleaseUnlinked.
func (ReleaseUnlinked) Kind() fsm.Kind { return KindReleaseUnlinked }

// AppendTo appends the command's encoding to dst.
func (c ReleaseUnlinked) AppendTo(dst []byte) []byte { return appendInos(dst, c.Inos) }

func (c *ReleaseUnlinked) decode(d *codec.Dec) { c.Inos = decodeInos(d) }

// Kind returns KindReap.
func (Reap) Kind() fsm.Kind { return KindReap }

// AppendTo appends the command's encoding to dst.
func (c Reap) AppendTo(dst []byte) []byte { return codec.AppendUvarint(dst, uint64(c.Max)) }

func (c *Reap) decode(d *codec.Dec) { c.Max = d.Uvarint32() }

// AppendTo appends the result's encoding to dst.
func (r ReapResult) AppendTo(dst []byte) []byte {
	return codec.AppendBool(codec.AppendUvarint(dst, uint64(r.Freed)), r.More)
}

// DecodeReapResult decodes the result of a Reap that did not fail.
func DecodeReapResult(body []byte) (ReapResult, error) {
	d := codec.NewDec(body)
	r := ReapResult{Freed: d.Uvarint32(), More: d.Bool()}
	return r, d.Done()
}

func appendSet(dst []byte, s *ReplicaSet) []byte {
	dst = codec.AppendUvarint(dst, uint64(s.ID))
	dst = codec.AppendUvarint(dst, uint64(len(s.Members)))
	for _, m := range s.Members {
		dst = codec.AppendUvarint(dst, uint64(m))
	}
	dst = append(dst, s.Copies)
	dst = codec.AppendUvarint(dst, uint64(s.Epoch))
	if s.Code.IsZero() {
		return append(dst, byte(s.State)&^hasCode)
	}
	return append(dst, byte(s.State)|hasCode, s.Code.K, s.Code.M)
}

func decodeSet(d *codec.Dec, s *ReplicaSet) {
	s.ID = cluster.ReplicaSetID(d.Uvarint32())
	if n := d.Count(1); n > 0 {
		s.Members = make([]cluster.StoreID, n)
	}
	for i := range s.Members {
		s.Members[i] = cluster.StoreID(d.Uvarint32())
	}
	s.Copies = d.Uint8()
	s.Epoch = d.Uvarint32()
	state := d.Uint8()
	s.State = SetState(state &^ hasCode)
	if state&hasCode != 0 {
		s.Code = decodeCode(d)
	}
}

// Kind returns KindPutReplicaSet.
func (PutReplicaSet) Kind() fsm.Kind { return KindPutReplicaSet }

// AppendTo appends the command's encoding to dst.
func (c PutReplicaSet) AppendTo(dst []byte) []byte { return appendSet(dst, &c.Set) }

func (c *PutReplicaSet) decode(d *codec.Dec) { decodeSet(d, &c.Set) }

// AppendTo appends the result's encoding to dst.
func (r PutReplicaSetResult) AppendTo(dst []byte) []byte { return appendSet(dst, &r.Set) }

// DecodePutReplicaSetResult decodes the result of a PutReplicaSet that did not
// fail.
func DecodePutReplicaSetResult(body []byte) (PutReplicaSetResult, error) {
	d := codec.NewDec(body)
	var r PutReplicaSetResult
	decodeSet(&d, &r.Set)
	return r, d.Done()
}

// Kind returns KindCollected.
func (Collected) Kind() fsm.Kind { return KindCollected }

// AppendTo appends the command's encoding to dst.
func (c Collected) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(c.Set))
	dst = codec.AppendUvarint(dst, uint64(len(c.Blobs)))
	for _, b := range c.Blobs {
		dst = codec.AppendUint64(dst, uint64(b))
	}
	return dst
}

func (c *Collected) decode(d *codec.Dec) {
	c.Set = cluster.ReplicaSetID(d.Uvarint32())
	if n := d.Count(minBlobID); n > 0 {
		c.Blobs = make([]cluster.BlobID, n)
	}
	for i := range c.Blobs {
		c.Blobs[i] = cluster.BlobID(d.Uint64())
	}
}
