package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// A fake is a volume and its stores, by the rules of the state machine.
type fake struct {
	deleted []string // store blob-shard

	index   uint64
	low     uint32 // the writer's low-water mark
	records map[cluster.BlobID]bool
	queue   map[cluster.ReplicaSetID]map[cluster.BlobID]uint64
	sets    []Set
	stores  map[cluster.StoreID]map[cluster.BlobID]bool
	down    map[cluster.StoreID]bool
	broken  map[cluster.StoreID]bool
	onSync  func()
	synced  int
	looks   int // at delete queues
	homes   map[cluster.BlobID]Home
	epochs  map[cluster.BlobID]uint32 // of copies
	onMoved func()
	hidden  int // blobs with lower numbers are not listed: their writer is not past them
}

func newFake() *fake {
	f := &fake{
		records: map[cluster.BlobID]bool{},
		queue:   map[cluster.ReplicaSetID]map[cluster.BlobID]uint64{1: {}, 2: {}},
		sets:    []Set{{ID: 1, Members: []cluster.StoreID{1, 2}}, {ID: 2, Members: []cluster.StoreID{2, 3}}},
		stores:  map[cluster.StoreID]map[cluster.BlobID]bool{1: {}, 2: {}, 3: {}},
		down:    map[cluster.StoreID]bool{},
		broken:  map[cluster.StoreID]bool{},
	}
	return f
}

func (f *fake) Sync(context.Context) error {
	f.synced++
	if f.onSync != nil {
		f.onSync()
	}
	return nil
}
func (f *fake) Applied() uint64 { return f.index }
func (f *fake) Sets() []Set     { return f.sets }
func (f *fake) Garbage(set cluster.ReplicaSetID, from cluster.BlobID, n int) (g []Freed) {
	f.looks++
	for b, i := range f.queue[set] {
		if b >= from && b.Counter() >= uint32(f.hidden) {
			g = append(g, Freed{b, i})
		}
	}
	slices.SortFunc(g, func(a, b Freed) int { return int(int64(a.Blob) - int64(b.Blob)) })
	return g[:min(n, len(g))]
}

func (f *fake) Deletable(b cluster.BlobID) bool {
	return !f.records[b] && b.Counter() < f.low
}

func (f *fake) Collected(_ context.Context, set cluster.ReplicaSetID, blobs []cluster.BlobID) error {
	f.index++
	for _, b := range blobs {
		delete(f.queue[set], b)
	}
	return nil
}

func (f *fake) All() []cluster.StoreID     { return []cluster.StoreID{1, 2, 3} }
func (f *fake) Up(id cluster.StoreID) bool { return !f.down[id] }
func (f *fake) put(b cluster.BlobID, ids ...cluster.StoreID) {
	for _, id := range ids {
		f.stores[id][b] = true
	}
}

func (f *fake) List(_ context.Context, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) (copies []Copy, err error) {
	if f.broken[id] {
		return nil, cluster.EDISK
	}
	for b := range f.stores[id] {
		if b > after.Blob {
			copies = append(copies, Copy{Key: cluster.BlobKey{Group: g, Blob: b}, Epoch: f.epochs[b]})
		}
	}
	slices.SortFunc(copies, func(a, b Copy) int { return int(int64(a.Key.Blob) - int64(b.Key.Blob)) })
	return copies[:min(n, len(copies))], nil
}

func (f *fake) Home(b cluster.BlobID) (Home, bool) {
	h, ok := f.homes[b]
	return h, ok && f.records[b]
}

func (f *fake) Has(_ context.Context, id cluster.StoreID, key cluster.BlobKey, _, _ uint32) bool {
	return f.stores[id][key.Blob]
}

func (f *fake) DeleteMoved(_ context.Context, id cluster.StoreID, _ cluster.GroupID, copies []Copy) error {
	if f.onMoved != nil {
		f.onMoved()
	}
	for _, x := range copies {
		if f.epochs[x.Key.Blob] == x.Epoch {
			delete(f.stores[id], x.Key.Blob)
		}
	}
	return nil
}

// A copy of a blob that is in use goes from a store that is no member any more,
// but not while a store is being filled, nor while a member lacks its own.
func TestMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		home  Home
		put   []cluster.StoreID
		down  cluster.StoreID
		epoch uint32 // it is put anew meanwhile
		goes  bool
	}{
		"a member was exchanged":           {home: Home{Members: []cluster.StoreID{1, 2}, Settled: true}, put: []cluster.StoreID{1, 2, 3}, goes: true},
		"it is a member":                   {home: Home{Members: []cluster.StoreID{1, 3}, Settled: true}, put: []cluster.StoreID{1, 3}},
		"it may be about to become one":    {home: Home{Members: []cluster.StoreID{1, 2}}, put: []cluster.StoreID{1, 2, 3}},
		"a member lacks its copy":          {home: Home{Members: []cluster.StoreID{1, 2}, Settled: true}, put: []cluster.StoreID{1, 3}},
		"a member can't be reached":        {home: Home{Members: []cluster.StoreID{1, 2}, Settled: true}, put: []cluster.StoreID{1, 2, 3}, down: 2},
		"it was put anew since":            {home: Home{Members: []cluster.StoreID{1, 2}, Settled: true}, put: []cluster.StoreID{1, 2, 3}, epoch: 7},
		"it is not one of full copies":     {put: []cluster.StoreID{1, 2, 3}},
		"a set without members is nothing": {home: Home{Settled: true}, put: []cluster.StoreID{3}},
	} {
		f := newFake()
		c := f.collector(10)
		f.low = 100
		f.put(id(1), tc.put...)
		f.records[id(1)] = true
		if len(tc.home.Members) > 0 || tc.home.Settled {
			f.homes = map[cluster.BlobID]Home{id(1): tc.home}
		}
		if tc.down != 0 {
			f.down[tc.down] = true
		}
		f.epochs = map[cluster.BlobID]uint32{}
		f.onMoved = func() { f.epochs[id(1)] = tc.epoch }
		if _, err := c.StepOrphans(bg, 3); err != nil {
			t.Fatal(err)
		}
		if there := f.stores[3][id(1)]; there == tc.goes {
			t.Errorf("%s: the copy is there: %v", name, there)
		}
	}
}

func (f *fake) Delete(_ context.Context, id cluster.StoreID, _ cluster.GroupID, keys []cluster.BlobKey) error {
	if f.broken[id] {
		return cluster.EDISK
	}
	for _, k := range keys {
		f.deleted = append(f.deleted, fmt.Sprintf("%d %d-%d", id, k.Blob.Counter(), k.Shard))
		if f.records[k.Blob] {
			panic("a blob that is referred to was deleted")
		}
		delete(f.stores[id], k.Blob)
	}
	return nil
}

func (f *fake) collector(batch int) *Collector {
	return New(Config{Group: 3, Volume: f, Stores: f, Batch: batch})
}

func id(n int) cluster.BlobID { return cluster.MakeBlobID(1, uint32(n)) }

// Garbage is deleted once it is old, not before, from the members that are up;
// what a member that was down kept is an orphan.
func TestGarbage(t *testing.T) {
	f := newFake()
	c := f.collector(10)
	now := time.Unix(1000, 0)
	step := func(d time.Duration) bool {
		t.Helper()
		now = now.Add(d)
		more, err := c.StepGarbage(bg, now)
		if err != nil {
			t.Fatal(err)
		}
		return more
	}
	step(0)
	f.low = 1000
	for n := range 25 {
		f.put(id(n), 1, 2)
		f.index++
		f.queue[1][id(n)] = f.index
	}
	for range 3 {
		if _, err := c.StepOrphans(bg, 1); err != nil || len(f.stores[1]) != 25 {
			t.Fatal("garbage that has its time still was taken for orphans", err)
		}
	}
	f.down[2] = true
	step(30 * time.Second)
	step(30 * time.Second)
	step(29 * time.Second)
	if len(f.queue[1]) != 25 {
		t.Fatal("garbage was deleted before its time")
	}
	f.index++
	f.queue[1][id(99)] = f.index // younger
	f.put(id(99), 1, 2)
	for _, want := range []int{16, 6, 1} {
		more := step(time.Second)
		if len(f.queue[1]) != want || more != (want > 1) {
			t.Fatalf("%d left, more %v; want %d", len(f.queue[1]), more, want)
		}
	}
	if len(f.stores[1]) != 1 || len(f.stores[2]) != 26 {
		t.Fatalf("stores have %d and %d", len(f.stores[1]), len(f.stores[2]))
	}
	for done := false; !done; {
		var err error
		if done, err = c.StepOrphans(bg, 2); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.stores[2]) != 1 {
		t.Fatalf("store 2 still has %d", len(f.stores[2]))
	}
	if got := c.Counters(); got != (Counters{Garbage: 25, Orphans: 25, Listed: 51}) {
		t.Fatalf("%+v", got)
	}
}

// A delete queue is not looked at while nothing in it can be old enough; and
// nothing is forgotten because of that.
func TestQuietQueues(t *testing.T) {
	f := newFake()
	f.sets = f.sets[:1]
	c := f.collector(10)
	now := time.Unix(1000, 0)
	// steps takes some in the next seconds, and returns how often they looked.
	steps := func(seconds int) int {
		t.Helper()
		before := f.looks
		for range seconds {
			now = now.Add(time.Second)
			if _, err := c.StepGarbage(bg, now); err != nil {
				t.Fatal(err)
			}
		}
		return f.looks - before
	}
	free := func(n int) {
		f.index++
		f.queue[1][id(n)] = f.index
	}
	f.index = 100
	steps(200)
	if n := steps(600); n != 0 {
		t.Errorf("%d looks at an empty queue", n)
	}
	free(5)
	f.hidden = 8
	free(7) // its writer is not past it
	if n := steps(60); n > 2 || len(f.queue[1]) != 2 {
		t.Errorf("%d looks, %d in the queue", n, len(f.queue[1]))
	}
	free(9)
	if n := steps(30); n > 2 {
		t.Errorf("%d looks at what is young", n)
	}
	f.hidden = 0
	f.index++ // which says that the writer is past it
	if n := steps(150); n > 8 || len(f.queue[1]) != 0 {
		t.Errorf("%d looks, %d in the queue", n, len(f.queue[1]))
	}
}

// Whether a blob is an orphan is asked after the store was listed, at a new
// read index: what is committed in between is not deleted.
func TestOrphanCommittedMeanwhile(t *testing.T) {
	f := newFake()
	c := f.collector(10)
	f.put(id(1), 1)
	f.put(id(2), 1)
	f.onSync = func() {
		// The writer commits 1 and is past 3 now.
		f.records[id(1)], f.low = true, 3
	}
	if _, err := c.StepOrphans(bg, 1); err != nil {
		t.Fatal(err)
	}
	if f.synced != 1 || !f.stores[1][id(1)] || f.stores[1][id(2)] {
		t.Fatalf("synced %d, store has %v", f.synced, f.stores[1])
	}
}

func TestBrokenStore(t *testing.T) {
	f := newFake()
	c := New(Config{Volume: f, Stores: f, Delay: time.Second})
	f.broken[2] = true
	f.put(id(1), 1, 2)
	f.queue[1][id(1)] = 0
	now := time.Unix(1, 0)
	for range 3 {
		if _, err := c.StepGarbage(bg, now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if len(f.queue[1]) != 0 || len(f.stores[1]) != 0 || len(f.stores[2]) != 1 {
		t.Fatal("a broken store holds the queue up")
	}
	if _, err := c.StepOrphans(bg, 2); !errors.Is(err, cluster.EDISK) || c.Counters().Errors != 2 {
		t.Fatal(err, c.Counters())
	}
}

// Random histories: a blob that is referred to is never deleted (Delete
// panics), one that is on its way to be committed neither, and in the end only
// what is referred to is left.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFake()
		c := f.collector(3)
		now := time.Unix(0, 0)
		next := 1
		pending := map[cluster.BlobID]Set{} // put, not committed
		var live []cluster.BlobID
		setOf := map[cluster.BlobID]Set{}
		collectAll := func() {
			for _, s := range f.All() {
				for done := false; !done; {
					done, _ = c.StepOrphans(bg, s)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f.index++
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1: // put
				b, s := id(next), f.sets[next%2]
				next++
				f.put(b, s.Members...)
				pending[b], setOf[b] = s, s
			case 2: // commit or abandon the oldest, which moves the low-water mark
				if len(pending) > 0 {
					b := slices.Min(keysOf(pending))
					delete(pending, b)
					for _, m := range setOf[b].Members {
						if !f.stores[m][b] {
							t.Fatalf("blob %v was deleted before it was committed", b)
						}
					}
					if rapid.Bool().Draw(t, "commit") {
						f.records[b] = true
						live = append(live, b)
					}
					f.low = b.Counter() + 1
				}
			case 3: // free
				if len(live) > 0 {
					b := live[0]
					live = live[1:]
					delete(f.records, b)
					f.queue[setOf[b].ID][b] = f.index
				}
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
				_, _ = c.StepGarbage(bg, now)
			case 5:
				_, _ = c.StepOrphans(bg, f.All()[rapid.IntRange(0, 2).Draw(t, "store")])
			case 6:
				s := f.All()[rapid.IntRange(0, 2).Draw(t, "store")]
				f.down[s] = !f.down[s]
			}
		}
		clear(f.down)
		clear(pending)
		f.low = uint32(next)
		for range 30 {
			now = now.Add(61 * time.Second)
			_, _ = c.StepGarbage(bg, now)
		}
		collectAll() // from where the search is
		collectAll() // from the beginning
		for s, blobs := range f.stores {
			for b := range blobs {
				if !f.records[b] {
					t.Fatalf("store %d still has %v", s, b)
				}
			}
		}
		for b := range f.records {
			for _, m := range setOf[b].Members {
				if !f.stores[m][b] {
					t.Fatalf("store %d lost %v", m, b)
				}
			}
		}
	})
}

func keysOf(m map[cluster.BlobID]Set) (ks []cluster.BlobID) {
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

func TestRun(t *testing.T) {
	f := newFake()
	f.low = 100
	f.put(id(1), 1, 2, 3)
	c := New(Config{Volume: f, Stores: f, Delay: time.Millisecond})
	ctx, cancel := context.WithCancel(bg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx, func() bool { return true }, Pace{Garbage: time.Millisecond, Orphans: time.Millisecond, Rest: 10 * time.Millisecond})
	}()
	for c.Counters().Orphans < 3 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
}

// TestGarbageCoded: what the members of a coded set have of a blob is deleted
// under the keys that they have it under, and nothing else is.
func TestGarbageCoded(t *testing.T) {
	f := newFake()
	f.low = 1000
	f.sets = []Set{
		{ID: 1, Members: []cluster.StoreID{3, 1, 2}, Code: cluster.Code{K: 2, M: 1}},
		{ID: 2, Members: []cluster.StoreID{1, 2}},
	}
	for set := range cluster.ReplicaSetID(2) {
		f.index++
		f.queue[set+1][id(int(set))] = f.index
	}
	c := f.collector(10)
	now := time.Unix(1000, 0)
	for range 2 {
		if _, err := c.StepGarbage(bg, now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
	}
	want := []string{"1 0-2", "1 1-0", "2 0-3", "2 1-0", "3 0-1"}
	slices.Sort(f.deleted)
	if !slices.Equal(f.deleted, want) {
		t.Errorf("deleted %v, want %v", f.deleted, want)
	}
}
