package codec

import "testing"

// FuzzDec reads any bytes by any sequence of methods: nothing is read beyond
// the end, limits hold, and the first error sticks.
func FuzzDec(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, AppendString(AppendUvarint(nil, 1<<40), "text"))
	f.Add([]byte{9, 9}, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, program, in []byte) {
		d := NewDec(in)
		for _, op := range program {
			before, failed := d.Len(), d.Err() != nil
			limit := int(op / 16)
			got := 0
			switch op % 13 {
			case 0:
				d.Uint8()
			case 1:
				d.Uint16()
			case 2:
				d.Uint32()
			case 3:
				d.Uint64()
			case 4:
				d.Bool()
			case 5:
				d.Uvarint()
			case 6:
				d.Uvarint32()
			case 7:
				d.Uvarint16()
			case 8:
				d.Varint()
			case 9:
				if got = len(d.Bytes(limit)); got > limit {
					t.Fatalf("%d bytes, limit %d", got, limit)
				}
			case 10:
				if got = len(d.String(limit)); got > limit {
					t.Fatalf("a string of %d bytes, limit %d", got, limit)
				}
			case 11:
				if n := d.Count(limit + 1); n*(limit+1) > d.Len() {
					t.Fatalf("a count of %d, %d bytes are left", n, d.Len())
				}
			case 12:
				if got = len(d.Fixed(limit)); got != limit && d.Err() == nil {
					t.Fatalf("%d bytes of %d", got, limit)
				}
			}
			if d.Len() > before || got > before {
				t.Fatalf("read %d bytes, %d were left, now %d", got, before, d.Len())
			}
			if failed && (d.Err() == nil || d.Len() != 0) {
				t.Fatal("the error did not stick")
			}
		}
		if d.Len() > 0 && d.Done() == nil {
			t.Fatal("what is left is no error")
		}
	})
}
