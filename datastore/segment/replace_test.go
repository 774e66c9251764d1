package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

func replace(s *Store, n int) (bool, error) {
	b := content(n)
	return s.Replace(bg, key(n), Meta{Set: 5, Epoch: 3}, checksum.Sums(nil).Append(b), b)
}

func mustReplace(t testing.TB, s *Store, written bool, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if w, err := replace(s, n); err != nil || w != written {
			t.Fatalf("replace %d: written %v, %v; want %v", n, w, err, written)
		}
	}
}

// damage flips a bit of a copy, on the disk.
func damage(t testing.TB, s *Store, fs vfs.FS, n int, inHeader bool) {
	t.Helper()
	info, loc, err := s.idx.lookup(key(n))
	if err != nil {
		t.Fatal(err)
	}
	at := loc.off + 20 // of the blob's id
	if !inHeader {
		at = loc.off + headLen(int(info.Len)) + int64(info.Len)/2
	}
	f, err := fs.OpenReadWrite(fs.PathJoin("/disk", fileName(segPrefix, loc.seg)), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 8
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func mustBeDamaged(t testing.TB, s *Store, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if _, err := s.Get(bg, key(n), 0, uint32(len(content(n))), nil); !errors.Is(err, cluster.ECORRUPT) {
			t.Fatalf("blob %d: %v, want ECORRUPT", n, err)
		}
	}
}

// A damaged copy is made whole, and stays so: when space is reclaimed, the store
// is opened again, and its index is lost. A copy that is missing is put.
func TestReplace(t *testing.T) {
	mem := vfs.NewMem()
	var seen []cluster.BlobKey
	watch := func(o *Options) {
		o.Damaged = func(k cluster.BlobKey, err error) {
			if !errors.Is(err, cluster.ECORRUPT) {
				t.Errorf("damaged: %v", err)
			}
			seen = append(seen, k)
		}
	}
	s := open(t, mem, watch)
	mustPut(t, s, ints(0, 40)...)
	damage(t, s, mem, 3, false)
	damage(t, s, mem, 4, true)
	mustBeDamaged(t, s, 3, 4)
	if len(seen) != 2 || seen[0] != key(3) || seen[1] != key(4) {
		t.Errorf("damaged copies that were told of: %v", seen)
	}
	mustReplace(t, s, true, 3, 4, 50)
	if len(seen) != 2 {
		t.Error("making a copy whole counts as another damaged read")
	}
	want := append(ints(0, 40), 50)
	mustHave(t, s, want...)
	check(t, s)
	mustReplace(t, s, false, 3, 4, 50)
	if mustReclaim(t, s) == 0 {
		t.Error("the damaged records take their space still")
	}
	mustHave(t, s, want...)
	check(t, s)
	for range 2 {
		mustClose(t, s)
		s = open(t, mem)
		mustHave(t, s, want...)
		check(t, s)
		mustClose(t, s)
		removeIndex(t, mem)
		s = open(t, mem)
		mustHave(t, s, want...)
		check(t, s)
	}
	// What is deleted then is so wherever it lies.
	mustDelete(t, s, 3, 4)
	mustLack(t, s, 3, 4)
	mustReclaim(t, s)
	mustClose(t, s)
	removeIndex(t, mem)
	s = open(t, mem)
	mustLack(t, s, 3, 4)
	check(t, s)
	mustClose(t, s)
}

// A copy that can be read is left alone, whatever is to take its place.
func TestReplaceKeepsGood(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer mustClose(t, s)
	mustPut(t, s, 1)
	mustReplace(t, s, false, 1)
	other := content(2)
	if _, err := s.Replace(bg, key(1), Meta{}, checksum.Sums(nil).Append(other), other); !errors.Is(err, cluster.ECONFLICT) {
		t.Errorf("another content: %v, want ECONFLICT", err)
	}
	bad := checksum.Sums(nil).Append(content(3))
	if _, err := s.Replace(bg, key(1), Meta{}, bad, content(4)[:len(content(3))]); !errors.Is(err, cluster.ECORRUPT) && !errors.Is(err, cluster.EINVAL) {
		t.Errorf("content that does not match its checksums: %v", err)
	}
	mustHave(t, s, 1)
	check(t, s)
}

// Each rule that copies are made whole by is missed where it is off.
func TestReplaceRules(t *testing.T) {
	for _, r := range []rule{ruleReplaceBad, ruleReplaceBooks} {
		rulesOff.Store(uint32(r))
		mem := vfs.NewMem()
		s := open(t, mem)
		mustPut(t, s, 1, 2)
		written, err := replace(s, 1)
		if err != nil {
			t.Fatal(err)
		}
		damage(t, s, mem, 2, false)
		mustReplace(t, s, true, 2)
		u, n := s.Usage(), uint64(0)
		if err := s.ascend([]byte{keyBlob}, nil, func(i Info, _ location) bool {
			n += uint64(spanLen(int(i.Len)))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		rulesOff.Store(0)
		if !written && u.Used == n {
			t.Errorf("rule %#x is off, and nothing shows it", r)
		}
		mustClose(t, s)
	}
}

// A store whose disk fails while a copy is made whole keeps the damaged one and
// says so.
func TestReplaceFails(t *testing.T) {
	mem := vfs.NewMem()
	broken := false
	s := open(t, faulty(mem, func(op errorfs.Op) error {
		if broken && op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	}))
	mustPut(t, s, 1, 2)
	damage(t, s, mem, 1, false)
	broken = true
	if w, err := replace(s, 1); w || !errors.Is(err, cluster.EDISK) {
		t.Errorf("written %v, %v; want EDISK", w, err)
	}
	mustBeDamaged(t, s, 1)
	mustHave(t, s, 2)
	mustClose(t, s)
}

// A store that is retired takes nothing more and can be read.
func TestRetire(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer mustClose(t, s)
	mustPut(t, s, 1)
	s.Retire("17 damaged copies in a day")
	if err := put(s, 2); !errors.Is(err, cluster.EDISK) {
		t.Errorf("put: %v, want EDISK", err)
	}
	if s.Failed() == nil {
		t.Error("the store does not say that it is retired")
	}
	mustHave(t, s, 1)
}

// ListAll goes over all groups, in order, page by page.
func TestListAll(t *testing.T) {
	s := open(t, vfs.NewMem())
	defer mustClose(t, s)
	mustPut(t, s, ints(0, 25)...)
	var got []cluster.BlobKey
	for after := (cluster.BlobKey{}); ; {
		page, err := s.ListAll(after, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page {
			got = append(got, i.Key)
		}
		if len(page) < 7 {
			break
		}
		after = page[len(page)-1].Key
	}
	if len(got) != 25 {
		t.Fatalf("%d blobs, want 25", len(got))
	}
	for i, k := range got {
		if i > 0 && (k.Group < got[i-1].Group || k.Group == got[i-1].Group && k.Blob <= got[i-1].Blob) {
			t.Errorf("%v comes after %v", k, got[i-1])
		}
	}
}

// TestReplaceCrash crashes before each operation of the file system while copies
// are made whole: afterwards each is as damaged as it was, or whole, those whose
// Replace had returned are whole, and nothing else is lost.
func TestReplaceCrash(t *testing.T) {
	for _, survives := range []int{0, 50, 100} {
		for _, index := range []bool{true, false} {
			t.Run(fmt.Sprintf("survives %d, index %v", survives, index), func(t *testing.T) {
				for at := int64(1); ; at++ {
					mem := vfs.NewCrashableMem()
					s := open(t, mem)
					mustPut(t, s, ints(0, 12)...)
					if err := s.idx.db.Flush(); err != nil {
						t.Fatal(err)
					}
					damage(t, s, mem, 2, false)
					damage(t, s, mem, 7, true)
					mustClose(t, s)

					c := &crasher{mem: mem}
					var done atomic.Int32 // the crash may come in a goroutine of the index
					var after *vfs.MemFS
					var then int32
					c.crash = func() {
						then = done.Load()
						after = crashClone(mem, vfs.CrashCloneCfg{UnsyncedDataPercent: survives, RNG: rand.New(rand.NewPCG(uint64(at), 5))})
					}
					s = open(t, c.fs())
					c.left.Store(at)
					for _, n := range []int{2, 7} {
						mustReplace(t, s, true, n)
						done.Add(1)
					}
					if _, err := s.Reclaim(); err != nil {
						t.Fatal(err)
					}
					c.left.Store(-1)
					mustClose(t, s)
					if after == nil {
						if at < 4 {
							t.Fatal("nothing was written")
						}
						return
					}
					if !index {
						removeIndex(t, after)
					}
					s = open(t, after)
					for i, n := range []int{2, 7} {
						_, err := s.Get(bg, key(n), 0, uint32(len(content(n))), nil)
						// Without the index a damaged record may not be found.
						if int32(i) >= then && (errors.Is(err, cluster.ECORRUPT) || !index && err == cluster.ENOBLOB) {
							if _, err := replace(s, n); err != nil {
								t.Fatalf("crash %d: %v", at, err)
							}
						}
						mustHave(t, s, n)
					}
					mustHave(t, s, ints(0, 12)...)
					check(t, s)
					mustClose(t, s)
				}
			})
		}
	}
}
