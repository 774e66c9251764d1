package bufpool

import "testing"

func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 4097, 8192, 65536, 1 << 20, 1<<20 + 1, 4 << 20, 4<<20 + 1, largest, largest + 1} {
		b := Get(n)
		if len(b.B) != n {
			t.Errorf("Get(%d) has %d bytes", n, len(b.B))
		}
		if c := cap(b.full); b.class >= 0 && n > 8192 && n <= 4<<20 && c >= 2*n {
			t.Errorf("Get(%d) wastes: cap %d", n, c)
		}
		if n > 0 && misaligned(b.B) != 0 {
			t.Errorf("Get(%d) is not aligned", n)
		}
		b.Release()
	}
}
