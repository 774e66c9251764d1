package blobcache

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const size = 3<<20 + 12345

func content(k Key) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(i>>16) ^ byte(i) ^ byte(k.Blob)
	}
	return p
}

func inline(f func()) { f() }

func read(c *Cache, k Key, off, n uint32, wide bool, load Load) ([]byte, error) {
	parts := c.Acquire(nil, k, size, off, n, wide, load, inline)
	var got []byte
	var err error
	for i := range parts {
		b, e := parts[i].Wait(context.Background())
		if e != nil {
			err = e
		}
		got = append(got, b...)
	}
	for i := range parts {
		parts[i].Ref().Release()
	}
	return got, err
}

func TestReads(t *testing.T) {
	const blobs = 3
	var want [blobs][]byte
	for i := range want {
		want[i] = content(Key{Group: 1, Blob: cluster.BlobID(i + 1)})
	}
	for _, limit := range []int64{0, 4 << 20, 64 << 20} {
		c := New(limit)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for range 200 {
					i := rng.IntN(blobs)
					off := rng.Uint32N(size)
					n := 1 + rng.Uint32N(min(size-off, 1<<20))
					got, err := read(c, Key{1, cluster.BlobID(i + 1)}, off, n, rng.IntN(2) == 0,
						func(_ context.Context, dst []byte, at uint32) error {
							copy(dst, want[i][at:])
							return nil
						})
					if err != nil || !bytes.Equal(got, want[i][off:off+n]) {
						t.Errorf("limit %d: read of [%d, +%d) is wrong: %v", limit, off, n, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if _, _, used := c.Stats(); used > limit {
			t.Errorf("%d bytes kept of %d", used, limit)
		}
	}
}

// TestOneLoad: readers of the same bytes share one load, and an error is not kept.
func TestOneLoad(t *testing.T) {
	c := New(16 << 20)
	k := Key{1, 9}
	var loads atomic.Int32
	gate := make(chan struct{})
	fail := true
	load := func(context.Context, []byte, uint32) error {
		loads.Add(1)
		<-gate
		if fail {
			return errors.New("no")
		}
		return nil
	}
	for want := int32(1); want <= 2; want++ {
		var wg sync.WaitGroup
		for range 8 {
			parts := c.Acquire(nil, k, size, 100, 1000, false, load, func(f func()) { wg.Go(f) })
			wg.Go(func() {
				_, err := parts[0].Wait(context.Background())
				if (err != nil) != fail {
					t.Errorf("load %d: %v", want, err)
				}
				parts[0].Ref().Release()
			})
		}
		gate <- struct{}{}
		wg.Wait()
		if n := loads.Load(); n != want {
			t.Fatalf("%d loads, want %d", n, want)
		}
		fail = false
	}
}

// The frames of blobs that were made one after the other, as those of a large
// file are, spread over all shards: else the cache holds less than its limit.
func TestShardsAreEven(t *testing.T) {
	c := New(1 << 20)
	for _, frames := range []uint32{1, 4} {
		const mean = 64
		count := map[*shard]int{}
		for i := range shards * mean / frames {
			for f := range frames {
				count[c.shard(Key{Group: 2, Blob: cluster.BlobID(3<<32 + uint64(i) + 100)}, f*Frame)]++
			}
		}
		for s, n := range count {
			if n < mean/2 || n > mean*3/2 {
				t.Errorf("%d frames a blob: shard %p has %d frames, the mean is %d", frames, s, n, mean)
			}
		}
		if len(count) != shards {
			t.Errorf("%d frames a blob: %d shards of %d are used", frames, len(count), shards)
		}
	}
}
