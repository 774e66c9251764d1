package dirty

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestModel compares a Map with a plain array.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 200
		var m Map
		var data [size]byte
		var set [size]bool
		next := byte(1)
		for range rapid.IntRange(1, 40).Draw(t, "writes") {
			off := rapid.IntRange(0, size-1).Draw(t, "off")
			p := bytes.Repeat([]byte{next}, rapid.IntRange(1, size-off).Draw(t, "len"))
			next++
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				var over Map
				over.Write(uint64(off), p)
				m.Cover(&over)
			case 1:
				lo, hi := m.Around(uint64(off))
				if lo == hi {
					continue
				}
				var got []byte
				for _, b := range m.Mark(lo, hi, "piece") {
					got = append(got, b...)
				}
				if !bytes.Equal(got, data[lo:hi]) {
					t.Fatalf("Mark(%d, %d) returned other bytes", lo, hi)
				}
				continue
			default:
				m.Write(uint64(off), p)
			}
			copy(data[off:], p)
			for i := range p {
				set[off+i] = true
			}
		}
		var last uint64
		for _, r := range m.Runs() {
			if r.Off < last || len(r.Bytes) == 0 {
				t.Fatalf("run at %d after %d", r.Off, last)
			}
			last = r.End()
		}
		off := rapid.IntRange(0, size).Draw(t, "from")
		end := rapid.IntRange(off, size).Draw(t, "to")
		var got [size]byte
		var have [size]bool
		m.Slice(uint64(off), uint64(end), func(r Run) {
			copy(got[r.Off:], r.Bytes)
			for i := range r.Bytes {
				have[int(r.Off)+i] = true
			}
		})
		for i := off; i < end; i++ {
			if have[i] != set[i] || set[i] && got[i] != data[i] {
				t.Fatalf("byte %d: %v %d, want %v %d", i, have[i], got[i], set[i], data[i])
			}
		}
	})
}

func TestPieces(t *testing.T) {
	var m Map
	m.Write(0, make([]byte, 10))
	m.Write(10, make([]byte, 10))
	if lo, hi := m.Around(15); lo != 0 || hi != 20 {
		t.Fatalf("Around: %d, %d", lo, hi)
	}
	m.Mark(4, 16, 1)
	m.Write(8, make([]byte, 2))
	var skips []uint32
	for _, r := range m.Runs() {
		if r.Piece != nil {
			skips = append(skips, r.Skip)
			if uint64(r.Skip) != r.Off-4 {
				t.Errorf("run at %d skips %d of its piece", r.Off, r.Skip)
			}
		}
	}
	if len(skips) != 2 {
		t.Errorf("%d runs of the piece", len(skips))
	}
	if lo, hi := m.Around(8); lo != 8 || hi != 10 {
		t.Errorf("Around between pieces: %d, %d", lo, hi)
	}
}
