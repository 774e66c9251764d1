package scrub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// A world has some stores, and says what they should have.
type world struct {
	t      testing.TB
	fs     []*vfs.MemFS
	stores []*segment.Store
	want   map[cluster.BlobKey]Want // by the newest state
	stale  map[cluster.BlobKey]Want // as this node has it; nil: the newest
	syncs  int
	cut    bool                                 // no leader
	garble func(cluster.StoreID, []byte) []byte // of what is fetched
	fetch  int
}

const testSegment = 256 << 10

func newWorld(t testing.TB, n int) *world {
	w := &world{t: t, want: map[cluster.BlobKey]Want{}}
	for i := range n {
		w.fs = append(w.fs, vfs.NewCrashableMem())
		w.stores = append(w.stores, openStore(t, w.fs[i], byte(i)))
	}
	t.Cleanup(func() {
		for _, s := range w.stores {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

func openStore(t testing.TB, fs vfs.FS, n byte) *segment.Store {
	t.Helper()
	s, err := segment.Open("/disk", segment.Options{FS: fs, Manual: true, SegmentSize: testSegment, UUID: [16]byte{n + 1}, IndexCache: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func key(g cluster.GroupID, n uint32) cluster.BlobKey {
	return cluster.BlobKey{Group: g, Blob: cluster.MakeBlobID(3, n)}
}

func content(k cluster.BlobKey) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%d/%v ", k.Group, k.Blob)), 200+int(uint64(k.Blob)%700))
}

// put puts a blob to its members, and records it.
func (w *world) put(k cluster.BlobKey, members ...cluster.StoreID) {
	w.t.Helper()
	data := content(k)
	for _, m := range members {
		w.store(m, k, data)
	}
	w.want[k] = Want{Key: k, Set: 9, Epoch: 1, Len: uint32(len(data)), CRC: checksum.Sum(data), Members: members}
}

func (w *world) store(m cluster.StoreID, k cluster.BlobKey, data []byte) {
	w.t.Helper()
	if err := w.stores[m-1].Put(bg, k, segment.Meta{Set: 9, Epoch: 1}, checksum.Sums(nil).Append(data), data); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) drop(m cluster.StoreID, keys ...cluster.BlobKey) {
	w.t.Helper()
	if err := w.stores[m-1].Delete(bg, keys); err != nil {
		w.t.Fatal(err)
	}
}

// flip damages a copy: a byte of its payload, on the disk.
func (w *world) flip(m cluster.StoreID, k cluster.BlobKey) {
	w.t.Helper()
	fs := w.fs[m-1]
	names, err := fs.List("/disk")
	if err != nil {
		w.t.Fatal(err)
	}
	mark := content(k)[:64]
	for _, name := range names {
		if len(name) < 4 || name[:4] != "seg-" {
			continue
		}
		f, err := fs.OpenReadWrite(fs.PathJoin("/disk", name), vfs.WriteCategoryUnspecified)
		if err != nil {
			w.t.Fatal(err)
		}
		b := make([]byte, testSegment)
		_, _ = f.ReadAt(b, 0)
		// Also where it was before: that does no harm.
		for i := 0; ; i += len(mark) {
			j := bytes.Index(b[i:], mark)
			if j < 0 {
				break
			}
			if i += j; i%segment.Align == 0 {
				if _, err := f.WriteAt([]byte{b[i] ^ 1}, int64(i)); err != nil {
					w.t.Fatal(err)
				}
			}
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.read(m, k); !errors.Is(err, cluster.ECORRUPT) {
		w.t.Fatalf("a damaged copy of %v on store %d: %v", k, m, err)
	}
}

func (w *world) read(m cluster.StoreID, k cluster.BlobKey) error {
	_, err := OnStore(w.stores[m-1]).Verify(bg, k)
	return err
}

// mustHave: every copy that should be there is, with its content.
func (w *world) mustHave() {
	w.t.Helper()
	for k, want := range w.want {
		for _, m := range want.Members {
			got, err := w.stores[m-1].Get(bg, k, 0, want.Len, nil)
			if err != nil || !bytes.Equal(got, content(k)) {
				w.t.Errorf("store %d, %v: %v, or another content", m, k, err)
			}
		}
	}
}

func (w *world) scrubber(m cluster.StoreID, change ...func(*Config)) *Scrubber {
	c := Config{ID: m, Store: OnStore(w.stores[m-1]), Map: w, Source: w, Page: 8}
	for _, f := range change {
		f(&c)
	}
	return New(c)
}

// pass takes all steps of a pass.
func (w *world) pass(s *Scrubber) Result {
	w.t.Helper()
	var sum Result
	var after cluster.BlobKey
	for range 10_000 {
		r, err := s.Step(bg, after)
		if err != nil {
			w.t.Fatal(err)
		}
		if Compare(r.After, after) < 0 || !r.Done && r.After == after {
			w.t.Fatalf("a step from %v leads to %v", after, r.After)
		}
		after = r.After
		sum.Add(r.Counts)
		sum.Problems = append(sum.Problems, r.Problems...)
		if r.Done {
			return sum
		}
	}
	w.t.Fatal("the pass has no end")
	return sum
}

func (w *world) Groups() []cluster.GroupID { return []cluster.GroupID{1, 2, 5} }

func (w *world) state() map[cluster.BlobKey]Want {
	if w.stale != nil {
		return w.stale
	}
	return w.want
}

func (w *world) Wanted(m cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) (all []Want) {
	for k, want := range w.state() {
		if k.Group == g && Compare(k, after) > 0 && slices.Contains(want.Members, m) {
			all = append(all, want)
		}
	}
	slices.SortFunc(all, func(a, b Want) int { return Compare(a.Key, b.Key) })
	return all[:min(n, len(all))]
}

func (w *world) Sync(context.Context, cluster.GroupID) error {
	if w.cut {
		return cluster.EAGAIN
	}
	w.syncs++
	w.stale = nil
	return nil
}

func (w *world) Want(m cluster.StoreID, k cluster.BlobKey) (Want, bool) {
	want, ok := w.state()[k]
	return want, ok && slices.Contains(want.Members, m)
}

func (w *world) Fetch(_ context.Context, self cluster.StoreID, want Want) (Fetched, error) {
	w.fetch++
	err := error(cluster.ENOBLOB)
	for _, m := range want.Others(self) {
		var b segment.Blocks
		if b, err = w.stores[m-1].Read(bg, want.Key, 0, want.Len); err == nil {
			data := b.Data
			sums := b.Sums
			if w.garble != nil {
				data = w.garble(m, bytes.Clone(data))
				sums = checksum.Sums(nil).Append(data)
			}
			return Fetched{data, sums, b.Release}, nil
		}
	}
	return Fetched{}, fmt.Errorf("no other member has it: %w", err)
}

// forgetful says that it has stored what it has not.
type forgetful struct{ Store }

func (forgetful) Replace(context.Context, cluster.BlobKey, segment.Meta, checksum.Sums, []byte) (bool, error) {
	return true, nil
}

// crashing is a file system that calls crash before an operation that changes
// something.
func crashing(fs vfs.FS, left *atomic.Int64, crash func()) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) == 0 {
			crash()
		}
		return nil
	}))
}

func syncParent(fs vfs.FS) error {
	d, err := fs.OpenDir("/")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
