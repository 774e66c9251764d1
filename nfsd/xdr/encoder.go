package xdr

import (
	"encoding/binary"
	"net"
	"slices"
)

// An Encoder appends XDR values to a buffer. Payload can be put in by
// reference, so that it goes from where it is to the socket without a copy.
//
// An Encoder is used by one goroutine. The zero Encoder is ready to use.
type Encoder struct {
	buf  []byte // everything but the payload of refs
	base int    // where the values begin in buf: what NewEncoder was given stays before
	refs []ref
	refd int // bytes in refs
	segs net.Buffers
}

// A ref is payload that belongs between buf[:at] and buf[at:].
type ref struct {
	at      int
	p       []byte
	release func()
}

// A Mark is a place that Reserve32 kept.
type Mark int

// NewEncoder returns an Encoder that appends to buf. What buf holds is a
// prefix: Segments sends it, while Len, Truncate and Bytes do not count it.
func NewEncoder(buf []byte) *Encoder {
	return &Encoder{buf: buf, base: len(buf)}
}

// Init makes e like NewEncoder(buf), keeping its other memory. It does not
// release: call Release before.
func (e *Encoder) Init(buf []byte) {
	e.buf, e.base = buf, len(buf)
	e.refs, e.refd = e.refs[:0], 0
}

// Uint32 appends an unsigned int, an enum or a length.
func (e *Encoder) Uint32(v uint32) { e.buf = binary.BigEndian.AppendUint32(e.buf, v) }

// Uint64 appends an unsigned hyper.
func (e *Encoder) Uint64(v uint64) { e.buf = binary.BigEndian.AppendUint64(e.buf, v) }

// Int32 appends an int.
func (e *Encoder) Int32(v int32) { e.Uint32(uint32(v)) }

// Int64 appends a hyper.
func (e *Encoder) Int64(v int64) { e.Uint64(uint64(v)) }

// Bool appends a bool.
func (e *Encoder) Bool(v bool) {
	var n uint32
	if v {
		n = 1
	}
	e.Uint32(n)
}

// Opaque appends variable-length opaque data: length, bytes and padding.
func (e *Encoder) Opaque(b []byte) {
	e.Uint32(uint32(len(b)))
	e.FixedOpaque(b)
}

// String appends a string: length, bytes and padding.
func (e *Encoder) String(s string) {
	e.Uint32(uint32(len(s)))
	e.buf = append(e.buf, s...)
	e.Pad(len(s))
}

// FixedOpaque appends fixed-length opaque data: bytes and padding.
func (e *Encoder) FixedOpaque(b []byte) {
	e.buf = append(e.buf, b...)
	e.Pad(len(b))
}

// Pad appends the zero bytes that follow n bytes of opaque data.
func (e *Encoder) Pad(n int) {
	const zeros = "\x00\x00\x00"
	e.buf = append(e.buf, zeros[:padding(n)]...)
}

// padding returns how many bytes align n to 4.
func padding(n int) int { return -n & 3 }

// Raw appends bytes that are already XDR.
func (e *Encoder) Raw(b []byte) { e.buf = append(e.buf, b...) }

// Extend appends n bytes for the caller to fill in before the next append.
// They are not zeroed.
func (e *Encoder) Extend(n int) []byte {
	l := len(e.buf)
	e.buf = slices.Grow(e.buf, n)[:l+n]
	return e.buf[l : l+n : l+n]
}

// Reserve32 appends a place for a uint32 that PutUint32At fills in later.
func (e *Encoder) Reserve32() Mark {
	m := Mark(len(e.buf))
	e.Uint32(0)
	return m
}

// PutUint32At fills in what Reserve32 kept. Appending may follow it or come between.
func (e *Encoder) PutUint32At(m Mark, v uint32) { binary.BigEndian.PutUint32(e.buf[m:], v) }

// Since returns the number of bytes appended after the place m, payload
// included: what a length in front of them says.
func (e *Encoder) Since(m Mark) int {
	n := len(e.buf) - int(m) - 4
	for i := len(e.refs) - 1; i >= 0 && e.refs[i].at > int(m); i-- {
		n += len(e.refs[i].p)
	}
	return n
}

// Ref appends p without copying it: neither length nor padding, which are the
// caller's. p must not change until release (which may be nil) is called, by
// Release or Truncate. Release is called exactly once.
func (e *Encoder) Ref(p []byte, release func()) {
	e.refs = append(e.refs, ref{at: len(e.buf), p: p, release: release})
	e.refd += len(p)
}

// Len returns the number of bytes encoded, payload included and the prefix not.
func (e *Encoder) Len() int { return len(e.buf) - e.base + e.refd }

// Truncate cuts what was encoded to n bytes, a value that Len has returned.
// Payload beyond is released.
func (e *Encoder) Truncate(n int) {
	for i := len(e.refs) - 1; i >= 0; i-- {
		r := &e.refs[i]
		start := r.at - e.base + e.refd - len(r.p)
		if start < n {
			break
		}
		e.refd -= len(r.p)
		e.refs = e.refs[:i]
		p := *r
		*r = ref{}
		if p.release != nil {
			p.release()
		}
	}
	e.buf = e.buf[:n-e.refd+e.base]
}

// HasRefs reports whether there is payload that Bytes can't show.
func (e *Encoder) HasRefs() bool { return len(e.refs) > 0 }

// Bytes returns what was encoded, without the prefix. It panics if there is
// payload by reference. The bytes are the Encoder's, until the next append.
func (e *Encoder) Bytes() []byte {
	if len(e.refs) > 0 {
		panic("xdr: Bytes of an Encoder with payload by reference")
	}
	return e.buf[e.base:]
}

// Prefix returns the bytes before the first value, for a header to be filled in.
func (e *Encoder) Prefix() []byte { return e.buf[:e.base] }

// AppendTo appends everything, payload and prefix included, to dst.
func (e *Encoder) AppendTo(dst []byte) []byte {
	at := 0
	for i := range e.refs {
		r := &e.refs[i]
		dst = append(dst, e.buf[at:r.at]...)
		dst = append(dst, r.p...)
		at = r.at
	}
	return append(dst, e.buf[at:]...)
}

// AppendSegments appends everything, prefix included, to dst as slices to be
// written one after the other. They alias the Encoder's buffer and payload.
func (e *Encoder) AppendSegments(dst net.Buffers) net.Buffers {
	at := 0
	for i := range e.refs {
		r := &e.refs[i]
		if r.at > at {
			dst = append(dst, e.buf[at:r.at])
			at = r.at
		}
		if len(r.p) > 0 {
			dst = append(dst, r.p)
		}
	}
	if len(e.buf) > at {
		dst = append(dst, e.buf[at:])
	}
	return dst
}

// Segments returns everything, prefix included, for net.Buffers.WriteTo. The
// slice is the Encoder's and good until the next call.
func (e *Encoder) Segments() net.Buffers {
	e.segs = e.AppendSegments(e.segs[:0])
	return e.segs
}

// Release calls the release functions of all payload, which is then gone.
func (e *Encoder) Release() {
	for i := range e.refs {
		p := e.refs[i].release
		e.refs[i] = ref{}
		if p != nil {
			p()
		}
	}
	e.refs, e.refd = e.refs[:0], 0
	clear(e.segs[:cap(e.segs)])
}

// Reset releases all payload and empties e, prefix included, keeping its memory.
func (e *Encoder) Reset() {
	e.Release()
	e.buf, e.base = e.buf[:0], 0
}

// Buffer returns the memory behind e, for its reuse.
func (e *Encoder) Buffer() []byte { return e.buf }
