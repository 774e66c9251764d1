package placement

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// A world is stores in memory, reached through a client that fails as told.
type world struct {
	*blob.Client
	sets []SetInfo

	mu       sync.Mutex
	down     map[cluster.StoreID]bool
	local    map[cluster.StoreID]bool
	putErr   map[cluster.StoreID]error
	getErr   map[cluster.StoreID]error
	hang     map[cluster.StoreID]bool
	problems []Problem
	puts     map[cluster.StoreID]int
	next     uint32
	hedge    time.Duration
}

func newWorld(t *testing.T, stores int, sets ...SetInfo) *world {
	srv := blob.NewServer(nil)
	for id := 1; id <= stores; id++ {
		s, err := segment.Open("/d", segment.Options{FS: vfs.NewMem(), SegmentSize: 1 << 20, Manual: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		srv.Add(cluster.StoreID(id), s)
	}
	m := func() map[cluster.StoreID]bool { return map[cluster.StoreID]bool{} }
	e := func() map[cluster.StoreID]error { return map[cluster.StoreID]error{} }
	return &world{
		Client: blob.NewClient(nil, srv), sets: sets, down: m(), local: m(), hang: m(), putErr: e(), getErr: e(),
		puts: map[cluster.StoreID]int{},
	}
}

func set(id cluster.ReplicaSetID, copies uint8, members ...cluster.StoreID) SetInfo {
	return SetInfo{ID: id, Epoch: 10 + uint32(id), Copies: copies, Members: members}
}

func (w *world) place() *Placement {
	return New(Config{Map: w, Client: w, Hedge: cmp.Or(w.hedge, 10*time.Second), Suspect: time.Minute, Report: func(p Problem) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.problems = append(w.problems, p)
	}})
}

func (w *world) Sets(cluster.GroupID, uint8) []SetInfo { return w.sets }

func (w *world) CodedSets(_ cluster.GroupID, code cluster.Code) (sets []SetInfo) {
	for _, s := range w.sets {
		if s.Code == code {
			sets = append(sets, s)
		}
	}
	return sets
}

func (w *world) Addr(id cluster.StoreID) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(id), !w.down[id]
}

func (w *world) Local(id cluster.StoreID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.local[id]
}

func (w *world) before(ctx context.Context, errs map[cluster.StoreID]error, id cluster.StoreID) error {
	w.mu.Lock()
	hang, err := w.hang[id], errs[id]
	w.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (w *world) Put(ctx context.Context, addr string, id cluster.StoreID, k cluster.BlobKey, m segment.Meta, s checksum.Sums, d [][]byte) (segment.Usage, error) {
	w.mu.Lock()
	w.puts[id]++
	w.mu.Unlock()
	if err := w.before(ctx, w.putErr, id); err != nil {
		return segment.Usage{}, err
	}
	return w.Client.Put(ctx, addr, id, k, m, s, d)
}

func (w *world) Get(ctx context.Context, addr string, id cluster.StoreID, k cluster.BlobKey, off, n uint32) (*blob.Buf, error) {
	if err := w.before(ctx, w.getErr, id); err != nil {
		return nil, err
	}
	return w.Client.Get(ctx, addr, id, k, off, n)
}

func (w *world) alloc() (cluster.BlobID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	return cluster.MakeBlobID(1, w.next), nil
}

func (w *world) set(id cluster.ReplicaSetID) SetInfo {
	return w.sets[slices.IndexFunc(w.sets, func(s SetInfo) bool { return s.ID == id })]
}

var data = [][]byte{bytes.Repeat([]byte("a"), 5000), bytes.Repeat([]byte("b"), 70000)}

// mustPut puts and checks that every member of the set has the blob.
func (w *world) mustPut(t *testing.T, p *Placement) (Placed, []cluster.BlobID) {
	t.Helper()
	pl, abandoned, err := p.Put(bg, 1, 3, w.alloc, data)
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.Join(data, nil)
	s := w.set(pl.Set)
	if pl.Epoch != s.Epoch || int(pl.Len) != len(whole) || pl.CRC != checksum.Sum(whole) || slices.Contains(abandoned, pl.Blob) {
		t.Fatalf("placed %+v, abandoned %v", pl, abandoned)
	}
	for _, id := range s.Members {
		i, err := w.Stat(bg, "", id, cluster.BlobKey{Group: 1, Blob: pl.Blob})
		if err != nil || i.CRC != pl.CRC || i.Meta != (segment.Meta{Set: s.ID, Epoch: s.Epoch}) {
			t.Fatalf("store %d: %+v %v", id, i, err)
		}
	}
	return pl, abandoned
}

func TestPutChoosesSets(t *testing.T) {
	all := []SetInfo{set(1, 3, 1, 2, 3), set(2, 3, 3, 4, 5), set(3, 3, 1, 2), set(4, 3, 4, 5), set(5, 3, 6)}
	for _, c := range []struct {
		name  string
		setup func(w *world)
		want  []cluster.ReplicaSetID
	}{
		{"full sets, in turn", func(*world) {}, []cluster.ReplicaSetID{1, 2}},
		{"this node first", func(w *world) { w.local[5] = true }, []cluster.ReplicaSetID{2}},
		{"none with a member that is down", func(w *world) { w.down[2] = true }, []cluster.ReplicaSetID{2}},
		{"smaller ones, if all full sets are hit", func(w *world) { w.down[3] = true }, []cluster.ReplicaSetID{3, 4}},
		{"even one copy", func(w *world) { w.down[3], w.down[1], w.down[4] = true, true, true }, []cluster.ReplicaSetID{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 6, all...)
			c.setup(w)
			p := w.place()
			got := map[cluster.ReplicaSetID]bool{}
			for range 40 {
				pl, abandoned := w.mustPut(t, p)
				got[pl.Set] = true
				if len(abandoned) > 0 {
					t.Errorf("abandoned %v", abandoned)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("used %v, want %v", got, c.want)
			}
			for _, id := range c.want {
				if !got[id] {
					t.Errorf("used %v, want %v", got, c.want)
				}
			}
		})
	}
}

// A store that fails, hangs or is full costs one attempt under another id, and
// is avoided for a while.
func TestPutHedges(t *testing.T) {
	for name, breakIt := range map[string]func(w *world, id cluster.StoreID){
		"error": func(w *world, id cluster.StoreID) { w.putErr[id] = cluster.EDISK },
		"full":  func(w *world, id cluster.StoreID) { w.putErr[id] = cluster.ENOSPC },
		"hangs": func(w *world, id cluster.StoreID) { w.hang[id], w.hedge = true, 500*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5, set(1, 3, 1, 2, 3), set(2, 3, 3, 4, 5))
			w.local[1] = true // so that set 1 comes first
			breakIt(w, 2)
			p := w.place()
			begin := time.Now()
			pl, abandoned := w.mustPut(t, p)
			if pl.Set != 2 || len(abandoned) != 1 {
				t.Fatalf("%+v, abandoned %v", pl, abandoned)
			}
			if d := time.Since(begin); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
			n := w.puts[2]
			for range 5 {
				if pl, abandoned := w.mustPut(t, p); pl.Set != 2 || len(abandoned) != 0 {
					t.Fatalf("%+v, abandoned %v", pl, abandoned)
				}
			}
			if w.puts[2] != n {
				t.Error("the store that failed was tried again at once")
			}
		})
	}
}

func TestPutFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(w *world)
		want  error
		ids   int
	}{
		{"no set", func(w *world) { w.sets = nil }, cluster.ENOSPC, 0},
		{"all down", func(w *world) { w.down[1], w.down[3] = true, true }, cluster.EAGAIN, 0},
		{"full or down", func(w *world) { w.putErr[2], w.down[3] = cluster.ENOSPC, true }, cluster.ENOSPC, 1},
		{"all full", func(w *world) { w.putErr[2], w.putErr[4] = cluster.ENOSPC, cluster.ENOSPC }, cluster.ENOSPC, 2},
		{"all broken", func(w *world) { w.putErr[2], w.putErr[4] = cluster.EDISK, cluster.ENOSPC }, cluster.EAGAIN, 2},
		{"all hang", func(w *world) { w.hang[2], w.hang[4], w.hedge = true, true, 10*time.Millisecond }, context.DeadlineExceeded, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 4, set(1, 2, 1, 2), set(2, 2, 3, 4))
			c.setup(w)
			limit := time.Minute
			if c.want == context.DeadlineExceeded { //nolint:errorlint // the table's
				limit = 500 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(bg, limit)
			defer cancel()
			_, abandoned, err := w.place().Put(ctx, 1, 2, w.alloc, data)
			if !errors.Is(err, c.want) || len(abandoned) != c.ids {
				t.Errorf("%v, abandoned %v; want %v and %d ids", err, abandoned, c.want, c.ids)
			}
			if e, ok := errors.AsType[cluster.Errno](err); ok && e != c.want {
				t.Errorf("unwraps to %v", e)
			}
		})
	}
	w := newWorld(t, 2, set(1, 2, 1, 2))
	if _, _, err := w.place().Put(bg, 1, 2, w.alloc, nil); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("no data: %v", err)
	}
	if _, _, err := w.place().Put(bg, 1, 2, func() (cluster.BlobID, error) { return 0, cluster.EFENCED }, data); !errors.Is(err, cluster.EFENCED) {
		t.Errorf("no id: %v", err)
	}
}

// stubborn does not return from a put to store 2 when it is cancelled.
type stubborn struct {
	*world
	free chan struct{}
}

func (s stubborn) Put(ctx context.Context, addr string, id cluster.StoreID, k cluster.BlobKey, m segment.Meta, sums checksum.Sums, d [][]byte) (segment.Usage, error) {
	if id == 2 {
		<-s.free
	}
	return s.world.Put(ctx, addr, id, k, m, sums, d)
}

// PutOwned returns while a store still holds on to the data, and releases it
// only afterwards; Put waits.
func TestPutOwned(t *testing.T) {
	w := newWorld(t, 4, set(1, 2, 1, 2), set(2, 2, 3, 4))
	w.local[1] = true
	s := stubborn{w, make(chan struct{})}
	p := New(Config{Map: w, Client: s, Hedge: 300 * time.Millisecond})
	released := make(chan struct{})
	pl, abandoned, err := p.PutOwned(bg, 1, 2, w.alloc, data, func() { close(released) })
	if err != nil || pl.Set != 2 || len(abandoned) != 1 {
		t.Fatal(pl, abandoned, err)
	}
	select {
	case <-released:
		t.Fatal("released while a put is under way")
	case <-time.After(20 * time.Millisecond):
	}
	close(s.free)
	<-released
}

func TestGet(t *testing.T) {
	const members = 3
	whole := bytes.Join(data, nil)
	for _, c := range []struct {
		name     string
		setup    func(w *world, k cluster.BlobKey)
		want     error
		problems int
	}{
		{"all well", func(*world, cluster.BlobKey) {}, nil, 0},
		{"local", func(w *world, _ cluster.BlobKey) {
			w.local[2], w.getErr[1], w.getErr[3] = true, cluster.EINTERNAL, cluster.EINTERNAL
		}, nil, 0},
		{"local is damaged", func(w *world, _ cluster.BlobKey) { w.local[2], w.getErr[2] = true, cluster.ECORRUPT }, nil, 1},
		{"two hang", func(w *world, _ cluster.BlobKey) { w.hang[1], w.hang[2] = true, true }, nil, 0},
		{"all missing", func(w *world, k cluster.BlobKey) {
			for id := range cluster.StoreID(members) {
				_ = w.Delete(bg, "", id+1, 1, []cluster.BlobKey{k})
			}
		}, cluster.ENOBLOB, 3},
		{"missing or damaged", func(w *world, _ cluster.BlobKey) {
			w.getErr[1], w.getErr[2], w.getErr[3] = cluster.ENOBLOB, cluster.ECORRUPT, cluster.EIO
		}, cluster.EIO, 3},
		{"missing or unknown", func(w *world, _ cluster.BlobKey) {
			w.getErr[1], w.getErr[2], w.getErr[3] = cluster.ENOBLOB, cluster.ENOBLOB, errors.New("no route")
		}, cluster.EAGAIN, 2},
		{"all hang", func(w *world, _ cluster.BlobKey) { w.hang[1], w.hang[2], w.hang[3] = true, true, true }, cluster.EAGAIN, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, members, set(1, 3, 1, 2, 3))
			pl, _ := w.mustPut(t, w.place())
			w.hedge = 20 * time.Millisecond
			p := w.place()
			c.setup(w, cluster.BlobKey{Group: 1, Blob: pl.Blob})
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			b, err := p.Get(ctx, 1, pl.Blob, []cluster.StoreID{1, 2, 3}, 4000, 9000)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if e, ok := errors.AsType[cluster.Errno](err); ok && e != c.want {
				t.Errorf("unwraps to %v", e)
			}
			if err == nil && !bytes.Equal(b.Bytes, whole[4000:13000]) {
				t.Error("wrong bytes")
			}
			b.Release()
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.problems) != c.problems {
				t.Errorf("problems %v", w.problems)
			}
		})
	}
	w := newWorld(t, members, set(1, 3, 1, 2, 3))
	p := w.place()
	pl, _ := w.mustPut(t, p)
	if _, err := p.Get(bg, 1, pl.Blob, []cluster.StoreID{1, 2, 3}, 0, 1<<20); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("outside: %v", err)
	}
	if _, err := p.Get(bg, 1, pl.Blob, nil, 0, 1); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("no members: %v", err)
	}
}

func TestConcurrentPuts(t *testing.T) {
	w := newWorld(t, 5, set(1, 3, 1, 2, 3), set(2, 3, 3, 4, 5), set(3, 3, 1, 5))
	p := w.place()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				pl, _, err := p.Put(bg, 1, 3, w.alloc, data)
				if err != nil {
					t.Error(err)
					return
				}
				b, err := p.Get(bg, 1, pl.Blob, w.set(pl.Set).Members, 0, pl.Len)
				if err != nil {
					t.Error(err)
					return
				}
				b.Release()
			}
		})
	}
	wg.Wait()
}
