package segment

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/hawserfs/hawser/cluster"
)

// A model is what the store was told, and what it said.
type model struct {
	mu   sync.Mutex
	have map[int]bool // acknowledged: there, or deleted
	open map[int]bool // a put or a delete is under way: either
}

func newModel() *model { return &model{have: map[int]bool{}, open: map[int]bool{}} }

func (m *model) begin(ns ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range ns {
		m.open[n] = true
	}
}

func (m *model) end(there bool, ns ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range ns {
		delete(m.open, n)
		m.have[n] = there
	}
}

// clone is called with mu held, so that nothing begins or ends meanwhile.
func (m *model) clone() *model {
	c := newModel()
	c.have, c.open = maps.Clone(m.have), maps.Clone(m.open)
	return c
}

// settle compares the model with a store that was opened after a crash, and
// learns what became of what was under way.
func (m *model) settle(t *testing.T, s *Store) {
	t.Helper()
	m.mu.Lock()
	open := maps.Clone(m.open)
	m.mu.Unlock()
	for n := range open {
		_, err := s.Stat(key(n))
		if err != nil && err != cluster.ENOBLOB {
			t.Fatal(err)
		}
		m.end(err == nil, n)
	}
	m.mu.Lock()
	have := maps.Clone(m.have)
	m.mu.Unlock()
	for n, there := range have {
		if there {
			mustHave(t, s, n)
		} else {
			mustLack(t, s, n)
		}
	}
	check(t, s)
}

// cloning keeps clones apart from MemFS.Lock, which takes the lock of the file
// system for reading twice: it would wait for ever for a clone that came between.
var cloning sync.RWMutex

func crashClone(mem *vfs.MemFS, cfg vfs.CrashCloneCfg) *vfs.MemFS {
	cloning.Lock()
	defer cloning.Unlock()
	return mem.CrashClone(cfg)
}

// A lockingFS can be cloned at any time.
type lockingFS struct{ vfs.FS }

func (fs lockingFS) Lock(name string) (io.Closer, error) {
	cloning.RLock()
	defer cloning.RUnlock()
	return fs.FS.Lock(name)
}

// A crasher is a file system that crashes before its nth operation that
// changes something: what is there then is kept aside.
type crasher struct {
	mem   *vfs.MemFS
	left  atomic.Int64
	crash func()
}

func (c *crasher) fs() vfs.FS {
	return errorfs.Wrap(lockingFS{c.mem}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && c.left.Add(-1) == 0 {
			c.crash()
		}
		return nil
	}))
}

func seeds(t *testing.T, n int) []uint64 {
	if v := os.Getenv("HAWSER_SEED"); v != "" {
		s, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{s}
	}
	if v := os.Getenv("HAWSER_SEEDS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	var s []uint64
	for i := range n {
		s = append(s, uint64(i))
	}
	return s
}

// TestCrash runs random operations, from one or several callers at a time,
// crashes at a random operation of the file system, and opens what survived:
// what was acknowledged is there, what was deleted is not, whether the index
// survived or not; and so on for several crashes.
func TestCrash(t *testing.T) {
	for _, seed := range seeds(t, 24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 99))
			mem := vfs.NewCrashableMem()
			m := newModel()
			next := 0
			for round := range 5 {
				c := &crasher{mem: mem}
				var after *vfs.MemFS
				var then *model
				// Drawn here: the crash may come in a goroutine of the index.
				survives := []int{0, 30, 70, 100}[r.IntN(4)]
				c.crash = func() {
					m.mu.Lock()
					defer m.mu.Unlock()
					then = m.clone()
					after = crashClone(mem, vfs.CrashCloneCfg{
						UnsyncedDataPercent: survives,
						RNG:                 rand.New(rand.NewPCG(seed, uint64(round))),
					})
				}
				if round > 0 && r.IntN(3) == 0 {
					if err := mem.RemoveAll("/disk/idx"); err != nil {
						t.Fatal(err)
					}
				}
				c.left.Store(1 + int64(r.IntN(400)))
				s := open(t, c.fs())
				m.mu.Lock()
				crashed := then != nil
				m.mu.Unlock()
				if !crashed {
					m.settle(t, s)
				}
				callers := 1 + 5*r.IntN(2)
				for c.left.Load() > 0 {
					step(t, s, m, r, callers, &next)
				}
				mustClose(t, s)
				mem, m = after, then
			}
			s := open(t, mem)
			m.settle(t, s)
			mustClose(t, s)
			// A second opening finds the same.
			s = open(t, mem)
			m.settle(t, s)
			mustClose(t, s)
			// And so does one without the index.
			removeIndex(t, mem)
			s = open(t, mem)
			m.settle(t, s)
			mustClose(t, s)
		})
	}
}

// step does one random thing.
func step(t *testing.T, s *Store, m *model, r *rand.Rand, callers int, next *int) {
	switch k := r.IntN(10); {
	case k < 6:
		var wg sync.WaitGroup
		for range callers {
			n := *next
			*next++
			wg.Go(func() {
				m.begin(n)
				if err := put(s, n); err != nil {
					t.Errorf("put: %v", err)
				}
				m.end(true, n)
			})
		}
		wg.Wait()
	case k < 8:
		var ns []int
		var ks []cluster.BlobKey
		m.mu.Lock()
		for n, there := range m.have {
			if there && len(ns) < 1+3*callers {
				ns = append(ns, n)
				ks = append(ks, key(n))
			}
		}
		m.mu.Unlock()
		m.begin(ns...)
		if err := s.Delete(bg, ks); err != nil {
			t.Errorf("delete: %v", err)
		}
		m.end(false, ns...)
	case k < 9:
		if _, err := s.Reclaim(); err != nil {
			t.Errorf("reclaim: %v", err)
		}
	default:
		if err := s.Prepare(); err != nil {
			t.Errorf("prepare: %v", err)
		}
		if r.IntN(2) == 0 {
			if err := s.idx.db.Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
	}
}

func removeIndex(t *testing.T, fs vfs.FS) {
	t.Helper()
	if err := fs.RemoveAll("/disk/idx"); err != nil {
		t.Fatal(err)
	}
	if err := syncDir(fs, "/disk"); err != nil {
		t.Fatal(err)
	}
}
