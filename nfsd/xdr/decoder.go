package xdr

import (
	"encoding/binary"
	"errors"
)

// The errors of a Decoder.
var (
	ErrShort = errors.New("xdr: the data ends within a value")
	ErrLong  = errors.New("xdr: a length is over its limit")
	ErrBool  = errors.New("xdr: a bool is neither 0 nor 1")
)

// A Decoder takes XDR values from a byte slice. Once a value is bad, the error
// stays, all further values are zero and nothing more is consumed, so that
// Err need be looked at only once.
//
// The zero Decoder has nothing to decode.
type Decoder struct {
	b   []byte
	off int
	err error
}

// NewDecoder returns a Decoder of b.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Init makes d a Decoder of b.
func (d *Decoder) Init(b []byte) { *d = Decoder{b: b} }

// Err returns the first error, or nil.
func (d *Decoder) Err() error { return d.err }

// Fail makes err the sticky error if there is none yet.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Remaining returns the number of bytes not consumed.
func (d *Decoder) Remaining() int { return len(d.b) - d.off }

// Offset returns the number of bytes consumed.
func (d *Decoder) Offset() int { return d.off }

// Between returns the bytes between two offsets, which alias the input.
func (d *Decoder) Between(from, to int) []byte { return d.b[from:to:to] }

// take consumes n bytes, or returns nil.
func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.b)-d.off {
		d.err = ErrShort
		return nil
	}
	p := d.b[d.off : d.off+n : d.off+n]
	d.off += n
	return p
}

// Uint32 takes an unsigned int, an enum or a length.
func (d *Decoder) Uint32() uint32 {
	if p := d.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// Uint64 takes an unsigned hyper.
func (d *Decoder) Uint64() uint64 {
	if p := d.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// Int32 takes an int.
func (d *Decoder) Int32() int32 { return int32(d.Uint32()) }

// Int64 takes a hyper.
func (d *Decoder) Int64() int64 { return int64(d.Uint64()) }

// Bool takes a bool. Anything but 0 and 1 is ErrBool (RFC 4506 §4.4).
func (d *Decoder) Bool() bool {
	v := d.Uint32()
	if v > 1 {
		d.Fail(ErrBool)
		return false
	}
	return v == 1
}

// Length takes a length, ErrLong if it is more than max.
func (d *Decoder) Length(max int) int {
	n := d.Uint32()
	if uint64(n) > uint64(max) {
		d.Fail(ErrLong)
		return 0
	}
	return int(n)
}

// Count takes the number of elements of an array whose elements are at least
// size (> 0) bytes each: ErrLong if it is more than max, ErrShort if the rest of the
// data can't hold that many. So a slice of that many can be made safely.
func (d *Decoder) Count(max, size int) int {
	n := d.Length(max)
	if n > d.Remaining()/size {
		d.Fail(ErrShort)
		return 0
	}
	return n
}

// Opaque takes variable-length opaque data of at most max bytes. The result
// aliases the input; it is nil after an error and not nil otherwise.
func (d *Decoder) Opaque(max int) []byte {
	return d.FixedOpaque(d.Length(max))
}

// FixedOpaque takes n bytes and their padding. The result aliases the input;
// it is nil after an error and not nil otherwise.
func (d *Decoder) FixedOpaque(n int) []byte {
	p := d.take(n + padding(n))
	if p == nil {
		return nil
	}
	return p[:n:n]
}

// String takes a string of at most max bytes.
func (d *Decoder) String(max int) string { return string(d.Opaque(max)) }

// Skip consumes n bytes.
func (d *Decoder) Skip(n int) { d.take(n) }
