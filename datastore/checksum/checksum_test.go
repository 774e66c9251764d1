package checksum

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5*Block).Draw(t, "n")
		data := make([]byte, n)
		seed := rapid.Uint64().Draw(t, "seed")
		for i := range data {
			seed = seed*6364136223846793005 + 1442695040888963407
			data[i] = byte(seed >> 56)
		}
		a := rapid.IntRange(0, n).Draw(t, "a")
		b := rapid.IntRange(a, n).Draw(t, "b")
		crcs := Sums(nil).Append(data[:a], data[a:b], data[b:])
		if crcs.Len() != Count(n) || len(crcs) != Size(n) {
			t.Fatalf("%d checksums of %d bytes", len(crcs), n)
		}
		for i := range crcs.Len() {
			if crcs.At(i) != Sum(data[i*Block:min(n, (i+1)*Block)]) {
				t.Fatalf("checksum %d is wrong", i)
			}
		}
		if w := crcs.Whole(n); w != Sum(data) {
			t.Fatalf("whole: %08x, want %08x", w, Sum(data))
		}
		if i := crcs.Verify(data[:b], data[b:]); i != -1 {
			t.Fatalf("right data: block %d", i)
		}
		if n == 0 {
			return
		}
		k := rapid.IntRange(0, n-1).Draw(t, "flip")
		data[k] ^= 1 << (k % 8)
		if i := crcs.Verify(data[:a], data[a:]); i != k/Block {
			t.Fatalf("flip at %d found in block %d", k, i)
		}
		data[k] ^= 1 << (k % 8)
		if crcs[:len(crcs)-4].Verify(data) == -1 || append(crcs, 1, 2, 3, 4).Verify(data) == -1 {
			t.Fatal("wrong number of checksums passes")
		}
	})
}

func BenchmarkWhole(b *testing.B) {
	crcs := Sums(nil).Append(make([]byte, 1<<20))
	b.SetBytes(1 << 20)
	for b.Loop() {
		crcs.Whole(1 << 20)
	}
}
