package erasure

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// content returns n bytes that look random, the same for each seed.
func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func joined(s Shard) []byte { return bytes.Join(s.Data, nil) }

func encode(t testing.TB, code cluster.Code, data ...[]byte) *Coded {
	t.Helper()
	c, err := Encode(code, data, checksum.Sums(nil).Append(data...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestGolden: shards are stored, so that what they are made of never changes.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		code cluster.Code
		sums []uint32 // of the parity shards
	}{
		{cluster.Code{K: 2, M: 1}, []uint32{0x503996dd}},
		{cluster.Code{K: 4, M: 2}, []uint32{0x1c0b7fd2, 0x947c5e36}},
		{cluster.Code{K: 10, M: 4}, []uint32{0x982847d2, 0xcfbb8f10, 0x2218175c, 0x68b173f5}},
		{cluster.Code{K: 16, M: 4}, []uint32{0x6b9e9757, 0x92c70aef, 0xae88ee5b, 0x111e0691}},
	} {
		enc := encode(t, c.code, content(7, 300_001))
		for i, s := range enc.Shards[c.code.K:] {
			if got := checksum.Sum(joined(s)); got != c.sums[i] {
				t.Errorf("code %v: parity shard %d has checksum %#x, not %#x", c.code, i, got, c.sums[i])
			}
		}
		enc.Release()
	}
}

// TestLosses: whatever shards are lost, up to m of them, any range of the
// others makes up the same range of them.
func TestLosses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := cluster.Code{
			K: rapid.Uint8Range(cluster.MinData, cluster.MaxData).Draw(t, "k"),
			M: rapid.Uint8Range(1, cluster.MaxParity).Draw(t, "m"),
		}
		n := rapid.IntRange(1, 200_000).Draw(t, "n")
		blob := content(uint64(n), n)
		// The bytes come in any pieces.
		var data [][]byte
		for rest := blob; len(rest) > 0; {
			k := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			data, rest = append(data, rest[:k]), rest[k:]
		}
		enc, err := Encode(code, data, checksum.Sums(nil).Append(blob))
		if err != nil {
			t.Fatal(err)
		}
		defer enc.Release()
		size := int(code.ShardLen(uint32(n)))
		var shards [][]byte
		for i, s := range enc.Shards {
			b := joined(s)
			if len(b) != size || s.Sums.Verify(s.Data...) >= 0 {
				t.Fatalf("shard %d has %d bytes, or wrong checksums", i, len(b))
			}
			shards = append(shards, b)
		}
		if whole := bytes.Join(shards[:code.K], nil); !bytes.Equal(whole[:n], blob) || len(bytes.Trim(whole[n:], "\x00")) > 0 {
			t.Fatal("the data shards are not the blob and zeros")
		}
		if ok, err := Consistent(code, shards); !ok || err != nil {
			t.Fatal("the shards do not fit together", err)
		}
		off := rapid.IntRange(0, size-1).Draw(t, "off")
		end := rapid.IntRange(off+1, size).Draw(t, "end")
		lost := rapid.Permutation(indexes(code.Shards())).Draw(t, "lost")[:code.M]
		part, dst := make([][]byte, len(shards)), make([][]byte, len(shards))
		for i := range shards {
			part[i] = shards[i][off:end]
		}
		for _, i := range lost {
			part[i], dst[i] = nil, make([]byte, end-off)
		}
		if err := Reconstruct(code, part, dst); err != nil {
			t.Fatal(err)
		}
		for _, i := range lost {
			if !bytes.Equal(dst[i], shards[i][off:end]) {
				t.Fatalf("shard %d is wrong in [%d, %d)", i, off, end)
			}
		}
		// One more is too many.
		for i := range shards {
			if part[i] != nil {
				part[i] = nil
				break
			}
		}
		if err := Reconstruct(code, part, dst); !errors.Is(err, cluster.EINVAL) {
			t.Fatalf("of too few shards: %v", err)
		}
	})
}

func indexes(n int) (s []int) {
	for i := range n {
		s = append(s, i)
	}
	return s
}

func TestInconsistent(t *testing.T) {
	code := cluster.Code{K: 4, M: 2}
	enc := encode(t, code, content(1, 100_000))
	defer enc.Release()
	for bad := range enc.Shards {
		var shards [][]byte
		for i, s := range enc.Shards {
			b := joined(s)
			if i == bad {
				b[len(b)-1] ^= 1
			}
			shards = append(shards, b)
		}
		if ok, err := Consistent(code, shards); ok || err != nil {
			t.Errorf("shard %d is wrong, and nobody sees it: %v", bad, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	blob := content(1, 5000)
	for name, do := range map[string]func() error{
		"no code": func() error {
			_, err := Encode(cluster.Code{}, [][]byte{blob}, checksum.Sums(nil).Append(blob))
			return err
		},
		"no data": func() error { _, err := Encode(cluster.Code{K: 2, M: 1}, nil, nil); return err },
		"too much data": func() error {
			big := make([]byte, cluster.MaxBlob+1)
			_, err := Encode(cluster.Code{K: 2, M: 1}, [][]byte{big}, checksum.Sums(nil).Append(big))
			return err
		},
		"too few checksums": func() error { _, err := Encode(cluster.Code{K: 2, M: 1}, [][]byte{blob}, nil); return err },
		"too few shards": func() error {
			return Reconstruct(cluster.Code{K: 2, M: 1}, [][]byte{blob}, make([][]byte, 1))
		},
		"shards of different lengths": func() error {
			return Reconstruct(cluster.Code{K: 2, M: 1}, [][]byte{blob, blob[1:], nil}, [][]byte{nil, nil, make([]byte, 5000)})
		},
		"no room": func() error {
			return Reconstruct(cluster.Code{K: 2, M: 1}, [][]byte{blob, nil, blob}, [][]byte{nil, make([]byte, 10), nil})
		},
	} {
		if err := do(); !errors.Is(err, cluster.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReconstruct(f *testing.F) {
	f.Add([]byte("some bytes of some shards"), uint8(4), uint8(2), uint32(0b110011), 3)
	f.Fuzz(func(t *testing.T, b []byte, k, m uint8, have uint32, n int) {
		code := cluster.Code{K: k, M: m}
		if n < 0 || n > 1<<16 || k > 64 || m > 64 {
			return
		}
		shards, dst := make([][]byte, code.Shards()), make([][]byte, code.Shards())
		for i := range shards {
			if have&(1<<(i%32)) != 0 {
				shards[i] = b[min(len(b), i):min(len(b), i+n)]
			} else {
				dst[i] = make([]byte, n)
			}
		}
		_ = Reconstruct(code, shards, dst)
	})
}

// Gigabytes of user data in a second on one core.
func BenchmarkEncode(b *testing.B) {
	for _, code := range []cluster.Code{{K: 4, M: 2}, {K: 10, M: 4}} {
		b.Run(code.String(), func(b *testing.B) {
			blob := content(1, cluster.MaxBlob)
			sums := checksum.Sums(nil).Append(blob)
			b.SetBytes(int64(len(blob)))
			for b.Loop() {
				c, err := Encode(code, [][]byte{blob}, sums)
				if err != nil {
					b.Fatal(err)
				}
				c.Release()
			}
		})
	}
}

// BenchmarkReconstruct makes one data shard of 4 MiB blobs again.
func BenchmarkReconstruct(b *testing.B) {
	code := cluster.Code{K: 4, M: 2}
	enc := encode(b, code, content(1, cluster.MaxBlob))
	shards, dst := make([][]byte, code.Shards()), make([][]byte, code.Shards())
	for i, s := range enc.Shards {
		shards[i] = joined(s)
	}
	shards[1], dst[1] = nil, make([]byte, len(shards[0]))
	b.SetBytes(cluster.MaxBlob)
	for b.Loop() {
		if err := Reconstruct(code, shards, dst); err != nil {
			b.Fatal(err)
		}
	}
}
