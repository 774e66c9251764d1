package codec

import (
	"bytes"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u8 := rapid.Uint8().Draw(t, "u8")
		u16 := rapid.Uint16().Draw(t, "u16")
		u32 := rapid.Uint32().Draw(t, "u32")
		u64 := rapid.Uint64().Draw(t, "u64")
		i64 := rapid.Int64().Draw(t, "i64")
		flag := rapid.Bool().Draw(t, "flag")
		p := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "p")
		s := rapid.String().Draw(t, "s")

		b := AppendUint8(nil, u8)
		b = AppendUint16(b, u16)
		b = AppendUint32(b, u32)
		b = AppendUint64(b, u64)
		b = AppendUvarint(b, u64)
		b = AppendUvarint(b, uint64(u32))
		b = AppendUvarint(b, uint64(u16))
		b = AppendVarint(b, i64)
		b = AppendBool(b, flag)
		b = AppendBytes(b, p)
		b = AppendString(b, s)

		read := func(d *Dec) bool {
			return d.Uint8() == u8 && d.Uint16() == u16 && d.Uint32() == u32 && d.Uint64() == u64 &&
				d.Uvarint() == u64 && d.Uvarint32() == u32 && d.Uvarint16() == u16 && d.Varint() == i64 &&
				d.Bool() == flag && bytes.Equal(d.Bytes(40), p) && d.String(1000) == s
		}
		d := NewDec(b)
		if !read(&d) || d.Done() != nil {
			t.Fatalf("read something else from %x", b)
		}
		// Any cut is an error that sticks.
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		d = NewDec(b[:cut])
		read(&d)
		d.Uint8()
		if d.Err() == nil && d.Done() == nil {
			t.Fatalf("no error from %x cut at %d", b, cut)
		}
	})
}

func TestDecRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		read func(d *Dec)
	}{
		{"empty uint8", nil, func(d *Dec) { d.Uint8() }},
		{"short uint16", []byte{1}, func(d *Dec) { d.Uint16() }},
		{"short uint32", []byte{1, 2, 3}, func(d *Dec) { d.Uint32() }},
		{"short uint64", []byte{1, 2, 3, 4, 5, 6, 7}, func(d *Dec) { d.Uint64() }},
		{"bool of 2", []byte{2}, func(d *Dec) { d.Bool() }},
		{"endless uvarint", bytes.Repeat([]byte{0xff}, 12), func(d *Dec) { d.Uvarint() }},
		{"uvarint over 32 bits", AppendUvarint(nil, math.MaxUint32+1), func(d *Dec) { d.Uvarint32() }},
		{"uvarint over 16 bits", AppendUvarint(nil, math.MaxUint16+1), func(d *Dec) { d.Uvarint16() }},
		{"bytes over the limit", AppendBytes(nil, []byte("abcd")), func(d *Dec) { d.Bytes(3) }},
		{"bytes beyond the input", []byte{200, 1, 'a'}, func(d *Dec) { d.Bytes(1000) }},
		{"negative length", []byte{1}, func(d *Dec) { d.Fixed(-1) }},
		{"count beyond the input", AppendUvarint(nil, 1<<40), func(d *Dec) { d.Count(1) }},
		{"rest left", []byte{1, 2}, func(d *Dec) { d.Uint8() }},
		{"told to", []byte{}, func(d *Dec) { d.Fail() }},
	} {
		d := NewDec(c.in)
		if c.read(&d); d.Done() == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	d := NewDec(append([]byte{3}, make([]byte, 6)...))
	if n := d.Count(2); n != 3 || d.Err() != nil {
		t.Errorf("Count = %d, %v", n, d.Err())
	}
}

func TestAppendUpper(t *testing.T) {
	for _, c := range []struct{ prefix, upper string }{
		{"A", "B"}, {"A\x00", "A\x01"}, {"A\xff", "B"}, {"A\xff\xff", "B"}, {"A\x7f\xff", "A\x80"},
	} {
		if got := AppendUpper([]byte("x"), []byte(c.prefix)); string(got) != "x"+c.upper {
			t.Errorf("AppendUpper(%q) = %q, want x%q", c.prefix, got, c.upper)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		b := AppendBytes(AppendUvarint(buf, 7), []byte("abc"))
		d := NewDec(b)
		d.Uvarint()
		d.Bytes(10)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
