package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// maxWire is the most bytes that Lock.Wire has.
const maxWire = 1024

// lockState says that a state follows the encoded lock. 1 is taken: it was
// Reclaim once.
const lockState byte = 2

// Kind returns KindLock.
func (Lock) Kind() fsm.Kind { return KindLock }

// AppendTo appends the command's encoding to dst.
func (c Lock) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	dst = append(dst, c.Owner[:]...)
	dst = codec.AppendUint64(dst, c.Client)
	dst = codec.AppendBytes(dst, c.Wire)
	dst = codec.AppendUvarint(dst, c.Start)
	dst = codec.AppendUvarint(dst, c.End)
	dst = codec.AppendBool(dst, c.Exclusive)
	if c.State == nil {
		return append(dst, 0)
	}
	return appendState(append(dst, lockState), c.State)
}

// decode leaves Wire and the state's Owner aliasing the command.
func (c *Lock) decode(d *codec.Dec) {
	c.Ino = cluster.Ino(d.Uvarint())
	copy(c.Owner[:], d.Fixed(len(c.Owner)))
	c.Client = d.Uint64()
	c.Wire = d.Bytes(maxWire)
	c.Start = d.Uvarint()
	c.End = d.Uvarint()
	c.Exclusive = d.Bool()
	switch d.Uint8() {
	case 0:
	case lockState:
		c.State = new(State)
		decodeState(d, c.State)
	default:
		d.Fail()
	}
}

func appendLockInfo(dst []byte, l *LockInfo) []byte {
	dst = codec.AppendUvarint(dst, uint64(l.Ino))
	dst = append(dst, l.Owner[:]...)
	dst = codec.AppendUvarint(dst, uint64(l.Writer))
	dst = codec.AppendUint64(dst, l.Client)
	dst = codec.AppendBytes(dst, l.Wire)
	dst = codec.AppendUvarint(dst, l.Start)
	dst = codec.AppendUvarint(dst, l.End)
	return codec.AppendBool(dst, l.Exclusive)
}

// decodeLockInfo copies what it keeps.
func decodeLockInfo(d *codec.Dec, l *LockInfo) {
	l.Ino = cluster.Ino(d.Uvarint())
	copy(l.Owner[:], d.Fixed(len(l.Owner)))
	l.Writer = cluster.WriterID(d.Uvarint32())
	l.Client = d.Uint64()
	l.Wire = append([]byte(nil), d.Bytes(maxWire)...)
	l.Start = d.Uvarint()
	l.End = d.Uvarint()
	l.Exclusive = d.Bool()
}

// AppendTo appends the result's encoding to dst.
func (r LockResult) AppendTo(dst []byte) []byte { return appendLockInfo(dst, &r.Conflict) }

// DecodeLockResult decodes the result of a Lock that failed with ELOCKED.
func DecodeLockResult(body []byte) (LockResult, error) {
	d := codec.NewDec(body)
	var r LockResult
	decodeLockInfo(&d, &r.Conflict)
	return r, d.Done()
}

// Kind returns KindUnlock.
func (Unlock) Kind() fsm.Kind { return KindUnlock }

// AppendTo appends the command's encoding to dst.
func (c Unlock) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(c.Ino))
	dst = append(dst, c.Owner[:]...)
	dst = codec.AppendUvarint(dst, c.Start)
	return codec.AppendUvarint(dst, c.End)
}

func (c *Unlock) decode(d *codec.Dec) {
	c.Ino = cluster.Ino(d.Uvarint())
	copy(c.Owner[:], d.Fixed(len(c.Owner)))
	c.Start = d.Uvarint()
	c.End = d.Uvarint()
}

// Kind returns KindReleaseClient.
func (ReleaseClient) Kind() fsm.Kind { return KindReleaseClient }

// AppendTo appends the command's encoding to dst.
func (c ReleaseClient) AppendTo(dst []byte) []byte {
	return codec.AppendUvarint(codec.AppendUint64(dst, c.Client), uint64(c.Ino))
}

func (c *ReleaseClient) decode(d *codec.Dec) {
	c.Client = d.Uint64()
	c.Ino = cluster.Ino(d.Uvarint())
}
