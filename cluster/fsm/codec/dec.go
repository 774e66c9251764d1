package codec

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrMalformed is the error of a Dec: the input is too short, longer than what
// was read, or has a number out of range.
var ErrMalformed = errors.New("malformed encoding")

// A Dec reads what the append functions wrote. Its error is sticky: after the
// first one every method returns a zero, so that it is enough to ask Err or
// Done once at the end. The zero Dec is empty.
type Dec struct {
	b   []byte
	bad bool
}

// NewDec returns a Dec that reads b. It keeps b and does not change it.
func NewDec(b []byte) Dec { return Dec{b: b} }

// Err returns ErrMalformed if anything could not be read, else nil.
func (d *Dec) Err() error {
	if d.bad {
		return ErrMalformed
	}
	return nil
}

// Done returns Err, and ErrMalformed if there is input left.
func (d *Dec) Done() error {
	if d.bad || len(d.b) != 0 {
		return ErrMalformed
	}
	return nil
}

// Fail makes the error stick: what was read makes no sense to the caller.
func (d *Dec) Fail() {
	d.bad = true
	d.b = nil
}

// Len returns how many bytes are left.
func (d *Dec) Len() int { return len(d.b) }

// Rest returns all bytes that are left. They alias the input.
func (d *Dec) Rest() []byte {
	p := d.b
	d.b = nil
	return p
}

// Fixed returns the next n bytes. They alias the input.
func (d *Dec) Fixed(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.Fail()
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// Uint8 reads one byte.
func (d *Dec) Uint8() uint8 {
	if len(d.b) < 1 {
		d.Fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// Uint16 reads two bytes.
func (d *Dec) Uint16() uint16 {
	if len(d.b) < 2 {
		d.Fail()
		return 0
	}
	v := binary.BigEndian.Uint16(d.b)
	d.b = d.b[2:]
	return v
}

// Uint32 reads four bytes.
func (d *Dec) Uint32() uint32 {
	if len(d.b) < 4 {
		d.Fail()
		return 0
	}
	v := binary.BigEndian.Uint32(d.b)
	d.b = d.b[4:]
	return v
}

// Uint64 reads eight bytes.
func (d *Dec) Uint64() uint64 {
	if len(d.b) < 8 {
		d.Fail()
		return 0
	}
	v := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// Bool reads a byte that must be 0 or 1.
func (d *Dec) Bool() bool {
	v := d.Uint8()
	if v > 1 {
		d.Fail()
		return false
	}
	return v == 1
}

// Uvarint reads what AppendUvarint wrote.
func (d *Dec) Uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Uvarint32 reads what AppendUvarint wrote, which must fit 32 bits.
func (d *Dec) Uvarint32() uint32 {
	v := d.Uvarint()
	if v > math.MaxUint32 {
		d.Fail()
		return 0
	}
	return uint32(v)
}

// Uvarint16 reads what AppendUvarint wrote, which must fit 16 bits.
func (d *Dec) Uvarint16() uint16 {
	v := d.Uvarint()
	if v > math.MaxUint16 {
		d.Fail()
		return 0
	}
	return uint16(v)
}

// Varint reads what AppendVarint wrote.
func (d *Dec) Varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Count reads a number of items that follow, each of at least size bytes (size
// > 0), and fails if the rest of the input cannot hold as many. So a malformed
// input cannot make its reader allocate more than the input's own size.
func (d *Dec) Count(size int) int {
	v := d.Uvarint()
	if v > uint64(len(d.b)/size) {
		d.Fail()
		return 0
	}
	return int(v)
}

// Bytes reads what AppendBytes wrote, at most limit bytes. They alias the input.
func (d *Dec) Bytes(limit int) []byte {
	v := d.Uvarint()
	if d.bad || v > uint64(limit) || v > uint64(len(d.b)) {
		d.Fail()
		return nil
	}
	return d.Fixed(int(v))
}

// String reads what AppendString wrote, at most limit bytes.
func (d *Dec) String(limit int) string { return string(d.Bytes(limit)) }
