package segment

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/hawserfs/hawser/cluster"
)

// faulty is a file system whose segments fail as told.
func faulty(fs vfs.FS, fn func(op errorfs.Op) error) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.Contains(op.Path, segPrefix) {
			return nil
		}
		return fn(op)
	}))
}

// A sync that fails takes the store out of service, for good: it is not tried
// again, nothing of the batch is acknowledged, and what was there can be read.
func TestSyncFails(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	var mu sync.Mutex
	syncs := map[string]int{} // by file: that of the next segment may be synced meanwhile
	s := open(t, faulty(mem, func(op errorfs.Op) error {
		if broken.Load() && (op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSync) {
			mu.Lock()
			defer mu.Unlock()
			syncs[op.Path]++
			return syscall.EIO
		}
		return nil
	}))
	mustPut(t, s, ints(0, 5)...)
	broken.Store(true)
	var wg sync.WaitGroup
	for n := 5; n < 12; n++ {
		wg.Go(func() {
			if err := put(s, n); !errors.Is(err, cluster.EDISK) {
				t.Errorf("put %d: %v, want EDISK", n, err)
			}
		})
	}
	wg.Wait()
	mu.Lock()
	for name, n := range syncs {
		if n != 1 {
			t.Errorf("%d syncs of %s were tried, want 1", n, name)
		}
	}
	if len(syncs) == 0 {
		t.Error("no sync was tried")
	}
	mu.Unlock()
	broken.Store(false)
	if err := put(s, 20); !errors.Is(err, cluster.EDISK) {
		t.Errorf("the store came back by itself: %v", err)
	}
	if err := s.Delete(bg, []cluster.BlobKey{key(1)}); !errors.Is(err, cluster.EDISK) {
		t.Errorf("delete: %v", err)
	}
	if s.Failed() == nil || s.Usage().Free != 0 {
		t.Error("the store does not say that it failed")
	}
	mustHave(t, s, ints(0, 5)...)
	mustLack(t, s, ints(5, 12)...)
	mustClose(t, s)
}

// A write that fails for want of space is ENOSPC; the log goes on behind it.
func TestWriteWithoutSpace(t *testing.T) {
	mem := vfs.NewCrashableMem()
	var full atomic.Bool
	s := open(t, faulty(mem, func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWriteAt && full.CompareAndSwap(true, false) {
			return syscall.ENOSPC
		}
		return nil
	}))
	mustPut(t, s, 1)
	full.Store(true)
	if err := put(s, 2); !errors.Is(err, cluster.ENOSPC) {
		t.Fatalf("%v, want ENOSPC", err)
	}
	mustPut(t, s, 3)
	mem2 := mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	for range 2 {
		s = open(t, mem2)
		mustHave(t, s, 1, 3)
		mustLack(t, s, 2)
		check(t, s)
		mustClose(t, s)
		removeIndex(t, mem2)
	}
}

// A full store refuses blobs with ENOSPC, still deletes, and takes blobs again
// once the space is reclaimed, over and over.
func TestFull(t *testing.T) {
	both(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		s := open(func(o *Options) { o.Capacity = 4 * testSegment })
		var have []int
		next := 0
		for round := range 6 {
			for {
				err := put(s, next)
				if errors.Is(err, cluster.ENOSPC) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				have = append(have, next)
				next++
			}
			if len(have) < 14 {
				t.Fatalf("round %d: full with %d blobs", round, len(have))
			}
			if u := s.Usage(); u.Free > 32<<10 || u.Capacity != 4*testSegment {
				t.Fatalf("round %d: full with usage %+v", round, u)
			}
			mustHave(t, s, have...)
			// Every other one, so that there are holes, not free segments only.
			var gone, left []int
			for i, n := range have {
				if round%2 == 0 || i%2 == 0 {
					gone = append(gone, n)
				} else {
					left = append(left, n)
				}
			}
			for len(gone) > 0 {
				k := min(len(gone), 5)
				mustDelete(t, s, gone[:k]...)
				mustLack(t, s, gone[:k]...)
				gone = gone[k:]
			}
			mustReclaim(t, s)
			check(t, s)
			have = left
			if round == 3 {
				mustClose(t, s)
				s = open(func(o *Options) { o.Capacity = 4 * testSegment })
			}
		}
		mustClose(t, s)
	})
}

// flip changes a bit of a segment's file.
func flip(t *testing.T, fs vfs.FS, seg uint32, off int64) {
	t.Helper()
	f, err := openFile(fs, "/disk/"+fileName(segPrefix, seg), false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.drop()
	var b [1]byte
	if err := f.readFull(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if err := f.write(off, b[:]); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// Any changed bit of a record is found when the blob is read: in the header, in
// the checksums, in the payload; and the blobs around it are not harmed, also
// when the index is made anew.
func TestDamage(t *testing.T) {
	const victim = 3
	length := int64(len(content(victim)))
	head := headLen(int(length))
	where := map[string]int64{"first payload byte": head, "last payload byte": head + length - 1, "first checksum": headerSize, "last checksum": headerSize + length/4096*4}
	for off := range int64(headerSize) {
		where[fmt.Sprintf("header byte %d", off)] = off
	}
	for name, off := range where {
		fs := vfs.NewMem()
		s := open(t, fs)
		mustPut(t, s, ints(0, 6)...)
		_, loc, err := s.idx.lookup(key(victim))
		if err != nil {
			t.Fatal(err)
		}
		flip(t, fs, loc.seg, loc.off+off)
		wrong := func(err error) bool { return errors.Is(err, cluster.ECORRUPT) }
		if _, err := s.Get(bg, key(victim), 0, uint32(length), nil); !wrong(err) {
			t.Errorf("%s: %v, want ECORRUPT", name, err)
		}
		mustHave(t, s, 0, 1, 2, 4, 5)
		bad := 0
		if err := s.Verify(bg, func(i Info, err error) bool {
			if err != nil {
				bad++
				if i.Key != key(victim) {
					t.Errorf("%s: Verify says %v of %v", name, err, i.Key)
				}
			}
			return true
		}); err != nil || bad != 1 {
			t.Errorf("%s: Verify found %d, %v", name, bad, err)
		}
		mustClose(t, s)
		if err := fs.RemoveAll("/disk/idx"); err != nil {
			t.Fatal(err)
		}
		s = open(t, fs)
		if _, err := s.Get(bg, key(victim), 0, uint32(length), nil); !wrong(err) && err != cluster.ENOBLOB {
			t.Errorf("%s, without index: %v", name, err)
		}
		mustHave(t, s, 0, 1, 2, 4, 5)
		check(t, s)
		mustPut(t, s, 7, 8)
		mustHave(t, s, 7, 8)
		mustClose(t, s)
	}
}

// A damaged segment header loses nothing.
func TestDamagedSegmentHeader(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	mustPut(t, s, ints(0, 40)...)
	mustClose(t, s)
	flip(t, fs, 1, 5)
	flip(t, fs, 2, 5)
	s = open(t, fs)
	mustHave(t, s, ints(0, 40)...)
	mustClose(t, s)
}

// A record that the disk put in another place, or another segment, is not taken
// for what should be there.
func TestMisdirectedWrite(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	mustPut(t, s, ints(0, 30)...)
	_, from, _ := s.idx.lookup(key(1))
	for _, n := range []int{4, 25} {
		_, to, _ := s.idx.lookup(key(n))
		span := spanLen(len(content(1)))
		b := make([]byte, span)
		if err := s.segs[from.seg].f.readFull(b, from.off); err != nil {
			t.Fatal(err)
		}
		if err := s.segs[to.seg].f.write(to.off, b); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(bg, key(n), 0, 1, nil); !errors.Is(err, cluster.ECORRUPT) {
			t.Errorf("blob %d: %v, want ECORRUPT", n, err)
		}
	}
	mustClose(t, s)
}

// A segment is free only if nothing in it counts; then it is used again, and
// none of its old records is found, whether the index is there or not.
func TestRecycle(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	next := 0
	files := map[uint32]bool{}
	for range 12 {
		ns := ints(next, next+25)
		next += 25
		mustPut(t, s, ns...)
		mustDelete(t, s, ns[1:]...)
		mustReclaim(t, s)
		check(t, s)
		for no := range s.segs {
			files[no] = true
		}
	}
	if len(s.segs)+len(s.free) > 16 {
		t.Fatalf("%d segments and %d free ones for 12 blobs", len(s.segs), len(s.free))
	}
	if len(files) < 12 {
		t.Fatalf("only %d segment numbers were used", len(files))
	}
	for range 3 {
		for n := range next {
			if n%25 == 0 {
				mustHave(t, s, n)
			} else {
				mustLack(t, s, n)
			}
		}
		check(t, s)
		mustClose(t, s)
		if err := fs.RemoveAll("/disk/idx"); err != nil {
			t.Fatal(err)
		}
		s = open(t, fs)
	}
	mustClose(t, s)
}

// An index that Pebble cannot read is made anew.
func TestIndexDamaged(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs)
	mustPut(t, s, ints(0, 20)...)
	mustDelete(t, s, ints(5, 10)...)
	mustClose(t, s)
	names, err := fs.List("/disk/idx")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, "MANIFEST") {
			f, err := fs.Create("/disk/idx/"+n, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.Write([]byte("nonsense"))
			_ = f.Close()
		}
	}
	s = open(t, fs)
	mustHave(t, s, append(ints(0, 5), ints(10, 20)...)...)
	mustLack(t, s, ints(5, 10)...)
	mustClose(t, s)
}
