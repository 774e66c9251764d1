package xdr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestEncodings(t *testing.T) {
	for _, c := range []struct {
		name string
		enc  func(*Encoder)
		want string
	}{
		{"uint32", func(e *Encoder) { e.Uint32(0x01020304) }, "\x01\x02\x03\x04"},
		{"int32", func(e *Encoder) { e.Int32(-2) }, "\xff\xff\xff\xfe"},
		{"uint64", func(e *Encoder) { e.Uint64(1 << 40) }, "\x00\x00\x01\x00\x00\x00\x00\x00"},
		{"int64", func(e *Encoder) { e.Int64(-1) }, "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"true", func(e *Encoder) { e.Bool(true) }, "\x00\x00\x00\x01"},
		{"false", func(e *Encoder) { e.Bool(false) }, "\x00\x00\x00\x00"},
		{"opaque 0", func(e *Encoder) { e.Opaque(nil) }, "\x00\x00\x00\x00"},
		{"opaque 1", func(e *Encoder) { e.Opaque([]byte("a")) }, "\x00\x00\x00\x01a\x00\x00\x00"},
		{"opaque 4", func(e *Encoder) { e.Opaque([]byte("abcd")) }, "\x00\x00\x00\x04abcd"},
		{"string 3", func(e *Encoder) { e.String("abc") }, "\x00\x00\x00\x03abc\x00"},
		{"fixed 2", func(e *Encoder) { e.FixedOpaque([]byte("ab")) }, "ab\x00\x00"},
		{"raw", func(e *Encoder) { e.Raw([]byte("abc")) }, "abc"},
		{"extend", func(e *Encoder) { copy(e.Extend(2), "xy"); e.Pad(2) }, "xy\x00\x00"},
		{"reserve", func(e *Encoder) { m := e.Reserve32(); e.Uint32(7); e.PutUint32At(m, uint32(e.Since(m))) }, "\x00\x00\x00\x04\x00\x00\x00\x07"},
	} {
		var e Encoder
		c.enc(&e)
		if got := string(e.Bytes()); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if e.Len() != len(c.want) {
			t.Errorf("%s: Len is %d, want %d", c.name, e.Len(), len(c.want))
		}
	}
}

// TestRefs checks that payload by reference is where copied payload would be,
// is cut with what is around it, and is released exactly once.
func TestRefs(t *testing.T) {
	released := map[string]int{}
	ref := func(e *Encoder, s string) { e.Ref([]byte(s), func() { released[s]++ }) }
	e := NewEncoder([]byte("HEAD"))
	m := e.Reserve32()
	ref(e, "one")
	e.Pad(3)
	mid := e.Len()
	ref(e, "two")
	ref(e, "three")
	e.Raw([]byte("tail"))
	e.PutUint32At(m, uint32(e.Since(m)))

	want := "HEAD\x00\x00\x00\x10one\x00twothreetail"
	if got := string(e.AppendTo(nil)); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	var joined []byte
	for _, s := range e.Segments() {
		joined = append(joined, s...)
	}
	if string(joined) != want {
		t.Errorf("segments: got %q, want %q", joined, want)
	}
	if e.Len() != len(want)-4 || string(e.Prefix()) != "HEAD" {
		t.Errorf("Len %d, prefix %q", e.Len(), e.Prefix())
	}
	e.Truncate(mid)
	if released["two"] != 1 || released["three"] != 1 || released["one"] != 0 {
		t.Errorf("after Truncate: %v", released)
	}
	if got := string(e.AppendTo(nil)); got != "HEAD\x00\x00\x00\x10one\x00" || e.Len() != mid {
		t.Errorf("after Truncate: %q, Len %d", got, e.Len())
	}
	e.Truncate(0)
	if released["one"] != 1 || e.HasRefs() || string(e.AppendTo(nil)) != "HEAD" {
		t.Errorf("after Truncate(0): %v, %q", released, e.AppendTo(nil))
	}
	ref(e, "last")
	e.Reset()
	e.Release()
	if released["last"] != 1 || e.Len() != 0 || len(e.Prefix()) != 0 {
		t.Errorf("after Reset: %v", released)
	}
}

// TestModel compares an Encoder with plain appending, under random appends,
// references and cuts.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "prefix")
		e := NewEncoder(bytes.Clone(prefix))
		var model []byte
		var marks []int
		held, released := 0, 0
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			p := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "p")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				e.Raw(p)
				model = append(model, p...)
			case 1:
				held++
				e.Ref(p, func() { released++ })
				model = append(model, p...)
			case 2:
				if e.Len() != len(model) {
					t.Fatalf("Len is %d, want %d", e.Len(), len(model))
				}
				marks = append(marks, e.Len())
			case 3:
				if len(marks) > 0 {
					n := marks[len(marks)-1]
					marks = marks[:len(marks)-1]
					e.Truncate(n)
					model = model[:n]
				}
			}
		}
		want := append(bytes.Clone(prefix), model...)
		if got := e.AppendTo(nil); !bytes.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		if got := bytes.Join(e.Segments(), nil); !bytes.Equal(got, want) {
			t.Fatalf("segments: got %q, want %q", got, want)
		}
		e.Release()
		if released != held {
			t.Fatalf("%d of %d references were released", released, held)
		}
	})
}

func TestDecoder(t *testing.T) {
	be := binary.BigEndian
	u32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = be.AppendUint32(b, x)
		}
		return b
	}
	for _, c := range []struct {
		name string
		in   []byte
		do   func(*Decoder) any
		want any
		err  error
	}{
		{"uint32", u32(5), func(d *Decoder) any { return d.Uint32() }, uint32(5), nil},
		{"uint32 short", []byte{0, 0, 0}, func(d *Decoder) any { return d.Uint32() }, uint32(0), ErrShort},
		{"uint64", u32(1, 2), func(d *Decoder) any { return d.Uint64() }, uint64(1<<32 + 2), nil},
		{"uint64 short", u32(1), func(d *Decoder) any { return d.Uint64() }, uint64(0), ErrShort},
		{"int64", u32(math.MaxUint32, math.MaxUint32), func(d *Decoder) any { return d.Int64() }, int64(-1), nil},
		{"bool", u32(1), func(d *Decoder) any { return d.Bool() }, true, nil},
		{"bool 2", u32(2), func(d *Decoder) any { return d.Bool() }, false, ErrBool},
		{"string", []byte("\x00\x00\x00\x03abc\x00"), func(d *Decoder) any { return d.String(3) }, "abc", nil},
		{"string long", []byte("\x00\x00\x00\x03abc\x00"), func(d *Decoder) any { return d.String(2) }, "", ErrLong},
		{"string without padding", []byte("\x00\x00\x00\x03abc"), func(d *Decoder) any { return d.String(3) }, "", ErrShort},
		{"opaque huge", u32(math.MaxUint32), func(d *Decoder) any { return len(d.Opaque(math.MaxInt)) }, 0, ErrShort},
		{"count", u32(2, 1, 1), func(d *Decoder) any { return d.Count(4, 4) }, 2, nil},
		{"count over max", u32(5, 1, 1), func(d *Decoder) any { return d.Count(4, 4) }, 0, ErrLong},
		{"count over data", u32(3, 1, 1), func(d *Decoder) any { return d.Count(4, 4) }, 0, ErrShort},
		{"empty opaque is not nil", u32(0), func(d *Decoder) any { return d.Opaque(4) != nil }, true, nil},
	} {
		d := NewDecoder(c.in)
		if got := c.do(d); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if !errors.Is(d.Err(), c.err) {
			t.Errorf("%s: error %v, want %v", c.name, d.Err(), c.err)
		}
		if d.Err() != nil {
			off := d.Offset()
			if d.Uint32() != 0 || d.FixedOpaque(0) != nil || d.Offset() != off {
				t.Errorf("%s: decoding went on after an error", c.name)
			}
		}
	}
}

// TestAlias checks that an append to what the decoder returned can't change
// the bytes after it.
func TestAlias(t *testing.T) {
	in := []byte("\x00\x00\x00\x04abcdefgh")
	d := NewDecoder(in)
	p := d.Opaque(8)
	_ = append(p, "XXXX"...)
	if got := string(d.FixedOpaque(4)); got != "efgh" {
		t.Errorf("got %q", got)
	}
}

func TestAllocations(t *testing.T) {
	buf := make([]byte, 0, 1024)
	payload := make([]byte, 4096)
	var e Encoder
	e.Init(buf)
	step := func() {
		e.Init(e.Buffer()[:0])
		m := e.Reserve32()
		e.Uint64(1)
		e.String("name")
		e.Ref(payload, nil)
		e.PutUint32At(m, 1)
		e.Segments()
		e.Release()
		var d Decoder
		d.Init(e.Buffer())
		d.Uint32()
		d.Uint64()
		d.Opaque(10)
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03abc\x00"), []byte{0, 1, 2, 3, 4, 5, 6})
	f.Fuzz(func(t *testing.T, in, ops []byte) {
		d := NewDecoder(in)
		for _, op := range ops {
			before := d.Remaining()
			switch op % 8 {
			case 0:
				d.Uint32()
			case 1:
				d.Uint64()
			case 2:
				d.Bool()
			case 3:
				if p := d.Opaque(int(op)); len(p) > int(op) {
					t.Fatal("longer than the limit")
				}
			case 4:
				d.FixedOpaque(int(op))
			case 5:
				if n := d.Count(1<<20, 8); n*8 > len(in) {
					t.Fatal("more elements than data")
				}
			case 6:
				_ = d.String(int(op))
			case 7:
				d.Skip(int(op))
			}
			if d.Remaining() > before || d.Remaining() < 0 {
				t.Fatal("the offset is wrong")
			}
		}
	})
}
