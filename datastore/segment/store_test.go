package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// both runs a test in memory and on the machine's file system.
func both(t *testing.T, test func(t *testing.T, open func(...func(*Options)) *Store)) {
	t.Run("mem", func(t *testing.T) {
		fs := vfs.NewMem()
		test(t, func(c ...func(*Options)) *Store { return open(t, fs, c...) })
	})
	for _, buffered := range []bool{false, true} {
		t.Run(fmt.Sprintf("disk/buffered=%v", buffered), func(t *testing.T) {
			dir := t.TempDir()
			test(t, func(c ...func(*Options)) *Store {
				o := Options{
					Manual: true, SegmentSize: testSegment, UUID: testUUID(1), IndexCache: 1 << 20, Reserve: 1, Buffered: buffered,
				}
				for _, f := range c {
					f(&o)
				}
				s, err := Open(dir, o)
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

func TestPutGetDelete(t *testing.T) {
	both(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		s := open()
		mustPut(t, s, ints(0, 60)...)
		mustHave(t, s, ints(0, 60)...)
		check(t, s)
		mustDelete(t, s, ints(10, 50)...)
		mustDelete(t, s, 10, 1000)
		mustLack(t, s, ints(10, 50)...)
		if mustReclaim(t, s) == 0 {
			t.Fatal("nothing reclaimed")
		}
		check(t, s)
		mustHave(t, s, append(ints(0, 10), ints(50, 60)...)...)
		mustClose(t, s)
		s = open()
		check(t, s)
		mustHave(t, s, append(ints(0, 10), ints(50, 60)...)...)
		mustLack(t, s, ints(10, 50)...)
		// A blob that was deleted may be put again (a late put is an orphan).
		mustPut(t, s, ints(10, 50)...)
		mustHave(t, s, ints(0, 60)...)
		check(t, s)
		mustClose(t, s)
	})
}

func TestRanges(t *testing.T) {
	both(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		s := open(func(o *Options) { o.SegmentSize = 1 << 20 })
		defer mustClose(t, s)
		data := bytes.Repeat([]byte("0123456789abcdefg"), 12000)
		if err := s.Put(bg, key(1), Meta{}, checksum.Sums(nil).Append(data), data); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range 300 {
			off := r.IntN(len(data))
			n := 1 + r.IntN(len(data)-off)
			got, err := s.Get(bg, key(1), uint32(off), uint32(n), []byte("x"))
			if err != nil || !bytes.Equal(got[1:], data[off:off+n]) || got[0] != 'x' {
				t.Fatalf("%d+%d: %v", off, n, err)
			}
			b, err := s.Read(bg, key(1), uint32(off), uint32(n))
			if err != nil || b.Off%checksum.Block != 0 || b.Sums.Verify(b.Data) >= 0 || int(b.Len) != len(data) {
				t.Fatalf("%d+%d: %v %+v", off, n, err, b)
			}
			b.Release()
		}
		for _, c := range [][2]uint32{{0, 0}, {uint32(len(data)), 1}, {1, uint32(len(data))}, {1<<32 - 1, 1<<32 - 1}} {
			if _, err := s.Get(bg, key(1), c[0], c[1], nil); !errors.Is(err, cluster.EINVAL) {
				t.Errorf("range %v: %v", c, err)
			}
		}
	})
}

func TestPutRefused(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer mustClose(t, s)
	mustPut(t, s, 1)
	mustPut(t, s, 1) // the same again
	b := content(2)
	sums := checksum.Sums(nil).Append(b)
	for _, c := range []struct {
		name string
		key  cluster.BlobKey
		sums checksum.Sums
		data []byte
		want error
	}{
		{"another content", key(1), sums, b, cluster.ECONFLICT},
		{"no data", key(3), nil, nil, cluster.EINVAL},
		{"too few checksums", key(3), sums[4:], b, cluster.EINVAL},
		{"damaged on the way", key(3), sums, append([]byte{b[0] ^ 1}, b[1:]...), cluster.ECORRUPT},
		{"larger than a segment", key(3), checksum.Sums(nil).Append(make([]byte, testSegment)), make([]byte, testSegment), cluster.EFBIG},
	} {
		if err := s.Put(bg, c.key, Meta{}, c.sums, c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if err := s.Put(ctx, key(4), Meta{}, sums, b); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	mustHave(t, s, 1)
	mustLack(t, s, 3, 4)
}

func TestListAndStat(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer mustClose(t, s)
	mustPut(t, s, ints(0, 90)...)
	var after cluster.BlobKey
	var got []Info
	for {
		infos, err := s.List(2, after, 7)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, infos...)
		if len(infos) < 7 {
			break
		}
		after = infos[6].Key
	}
	if len(got) != 30 {
		t.Fatalf("%d blobs in group 2, want 30", len(got))
	}
	for i, info := range got {
		n := 3*i + 1
		c := content(n)
		want := Info{Key: key(n), Meta: Meta{Set: 5, Epoch: 2}, Len: uint32(len(c)), CRC: checksum.Sum(c)}
		if info != want {
			t.Fatalf("listed %+v, want %+v", info, want)
		}
		if st, err := s.Stat(info.Key); err != nil || st != want {
			t.Fatalf("stat %+v %v", st, err)
		}
	}
	if _, err := s.Stat(key(1000)); err != cluster.ENOBLOB {
		t.Fatal(err)
	}
	if infos, err := s.List(^cluster.GroupID(0), cluster.BlobKey{}, 7); err != nil || len(infos) != 0 {
		t.Fatal(infos, err)
	}
}

// TestReadBesideWrites reads the blob before each that is put: the kernel reads
// ahead into the place of the next, which is written past the page cache.
func TestReadBesideWrites(t *testing.T) {
	both(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		s := open(func(o *Options) { o.SegmentSize = 4 << 20 })
		defer mustClose(t, s)
		for i := range 400 {
			mustPut(t, s, i)
			mustHave(t, s, ints(max(0, i-2), i+1)...)
		}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 50 {
					n := 1000*(w+1) + i
					if err := put(s, n); err != nil {
						t.Error(err)
						return
					}
					want := content(n)
					got, err := s.Get(bg, key(n), 0, uint32(len(want)), nil)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("blob %d: %v", n, err)
					}
				}
			})
		}
		wg.Wait()
		check(t, s)
	})
}

// TestPastThePageCache holds the benchmark's premise: on a file system that can,
// what was put is not in the page cache.
func TestPastThePageCache(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{Manual: true, SegmentSize: 16 << 20, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	data := bytes.Repeat([]byte("x"), 1<<20)
	for i := range 8 {
		if err := s.Put(bg, key(i), Meta{}, checksum.Sums(nil).Append(data), data); err != nil {
			t.Fatal(err)
		}
	}
	f := s.active.f
	if f.direct < 0 || f.buffered.Load() {
		t.Skip("the file system cannot write past the page cache")
	}
	m, err := unix.Mmap(f.fd, 0, int(s.segSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	resident := make([]byte, s.segSize/Align)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&resident[0]))); e != 0 {
		t.Fatal(e)
	}
	n := 0
	for _, r := range resident {
		n += int(r & 1)
	}
	if n > 8 {
		t.Errorf("%d pages of 8 MiB that were put are in the page cache", n)
	}
}

func TestConcurrent(t *testing.T) {
	both(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		s := open(func(o *Options) { o.Manual = false; o.SegmentSize = 512 << 10 })
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := range 20 {
					n := 1000*(w/2) + i // two goroutines put the same
					if err := put(s, n); err != nil && !errors.Is(err, cluster.EAGAIN) {
						t.Errorf("put %d: %v", n, err)
					}
					if w%2 == 0 && i >= 10 {
						if err := s.Delete(bg, []cluster.BlobKey{key(n - 10)}); err != nil {
							t.Errorf("delete: %v", err)
						}
					}
					if _, err := s.Get(bg, key(n), 0, 1, nil); err != nil && err != cluster.ENOBLOB {
						t.Errorf("get %d: %v", n, err)
					}
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				if _, err := s.Reclaim(); err != nil {
					t.Errorf("reclaim: %v", err)
				}
			}
		})
		wg.Wait()
		check(t, s)
		if err := s.Verify(bg, func(i Info, err error) bool {
			if err != nil {
				t.Errorf("%v: %v", i.Key, err)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		s = open()
		check(t, s)
		for w := range 8 {
			mustHave(t, s, ints(1000*w+10, 1000*w+20)...)
		}
		mustClose(t, s)
		if err := put(s, 1); !errors.Is(err, cluster.EDISK) {
			t.Errorf("put after close: %v", err)
		}
	})
}

func TestOpenRefused(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, func(o *Options) { o.ClusterID = "a" })
	if _, err := Open("/disk", Options{FS: fs, Manual: true}); err == nil {
		t.Error("a store was opened twice")
	}
	mustPut(t, s, 1)
	uuid := s.UUID()
	mustClose(t, s)
	if _, err := Open("/disk", Options{FS: fs, Manual: true, ClusterID: "b"}); err == nil {
		t.Error("another cluster's store was opened")
	}
	s = open(t, fs, func(o *Options) { o.UUID = testUUID(9); o.SegmentSize = 1 << 20 })
	if s.UUID() != uuid || s.segSize != testSegment {
		t.Error("what a store is has changed")
	}
	if s.SetClusterID("b") == nil || s.SetClusterID("a") != nil {
		t.Error("SetClusterID")
	}
	mustClose(t, s)
	if err := fs.Remove("/disk/super"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("/disk", Options{FS: fs, Manual: true}); err == nil {
		t.Error("segments without a superblock were taken for a new store")
	}
}

// BenchmarkPut has the writers of a stream at one store. CPU time matters as
// much as the disk's: there are three stores behind each client.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 4 << 20} {
		for _, writers := range []int{1, 16} {
			for _, buffered := range []bool{false, true} {
				b.Run(fmt.Sprintf("%dKiB/writers=%d/buffered=%v", size>>10, writers, buffered), func(b *testing.B) {
					s, err := Open(b.TempDir(), Options{Buffered: buffered})
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					data := bytes.Repeat([]byte("x"), size)
					sums := checksum.Sums(nil).Append(data)
					b.SetBytes(int64(size))
					b.ReportAllocs()
					cpu := cpuTime()
					b.ResetTimer()
					var wg sync.WaitGroup
					next := make(chan int)
					for range writers {
						wg.Go(func() {
							for n := range next {
								k := cluster.BlobKey{Group: 1, Blob: cluster.BlobID(n + 10)}
								if err := s.Put(bg, k, Meta{}, sums, data); err != nil {
									b.Error(err)
								}
							}
						})
					}
					for i := range b.N {
						next <- i
					}
					close(next)
					wg.Wait()
					b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/float64(size)*(1<<20), "cpu-ns/MiB")
				})
			}
		}
	}
}

// cpuTime returns the processor time that this process has had, ns.
func cpuTime() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkRead(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := bytes.Repeat([]byte("x"), 1<<20)
	if err := s.Put(bg, key(1), Meta{}, checksum.Sums(nil).Append(data), data); err != nil {
		b.Fatal(err)
	}
	for _, n := range []uint32{4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				bl, err := s.Read(bg, key(1), 0, n)
				if err != nil {
					b.Fatal(err)
				}
				bl.Release()
			}
		})
	}
}

// TestGather: a block that does not match is found, wherever it is and however
// the data is cut up.
func TestGather(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		n := 1 + r.IntN(100<<10)
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		sums := checksum.Sums(nil).Append(data)
		want := -1
		if r.IntN(2) == 0 {
			i := r.IntN(n)
			data[i] ^= 1
			want = i / checksum.Block
		}
		var parts [][]byte
		for rest := data; len(rest) > 0; {
			k := 1 + r.IntN(len(rest))
			parts = append(parts, rest[:k])
			rest = rest[k:]
		}
		dst := bytes.Repeat([]byte{7}, int(align(int64(n))))
		if got := gather(dst, sums, parts); got != want {
			t.Fatalf("%d bytes in %d parts: block %d, want %d", n, len(parts), got, want)
		}
		if want < 0 && (!bytes.Equal(dst[:n], data) || !isZero(dst[n:])) {
			t.Fatalf("%d bytes in %d parts: not what was gathered", n, len(parts))
		}
	}
}
