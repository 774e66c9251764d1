package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/hawserfs/hawser/cluster"
)

// A history is a log and the hash of the state after each of its entries.
type history struct {
	entries []cluster.Entry // Index i+1
	results [][]byte
	hashes  [][sha256.Size]byte // [i]: after entry i; [0] is the empty state
}

// makeHistory makes a log of n random entries and the states it leads to.
func makeHistory(t *testing.T, rng *rand.Rand, n, valueSize int) *history {
	t.Helper()
	m, err := Open(Options{Dir: "model", FS: vfs.NewMem(), Core: scriptCore{}, CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	h := &history{hashes: [][sha256.Size]byte{StateHash(m.Reader())}}
	seqs := map[[2]uint32]uint64{}
	writers := uint32(0)
	for i := range n {
		var cmd []byte
		key := func() string { return fmt.Sprintf("A%d", rng.IntN(200)) }
		switch r := rng.IntN(40); {
		case r == 0 || writers == 0:
			writers++
			cmd = AppendCommand(nil, Envelope{Time: cluster.Time(i)},
				&OpenWriter{Node: cluster.NodeID(fmt.Sprintf("n%d", rng.IntN(3))), Nonce: uint64(writers)})
		case r == 1:
			cmd = AppendCommand(nil, Envelope{}, &FenceWriter{Writer: cluster.WriterID(1 + rng.Uint32N(writers))})
		default:
			w, lane := 1+rng.Uint32N(writers), rng.Uint32N(3)
			k := [2]uint32{w, lane}
			if rng.IntN(4) != 0 { // else again, or a first 0, which is refused
				seqs[k] += 1 + rng.Uint64N(2)
			}
			text := ""
			for range 1 + rng.IntN(4) {
				switch rng.IntN(8) {
				case 0:
					text += "del " + key() + ";"
				case 1:
					text += fmt.Sprintf("delrange %s A9 %d;", key(), rng.IntN(5))
				case 2:
					text += fmt.Sprintf("mirror %s %s;", key(), key())
				case 3:
					text += "add C 1;"
				case 4:
					text += "emit x;"
				default:
					text += fmt.Sprintf("set %s %0*d;", key(), 1+rng.IntN(valueSize), i)
				}
			}
			switch rng.IntN(20) {
			case 0:
				text += "fail ENOENT"
			case 1:
				text += "panic"
			}
			cmd = command(Envelope{Writer: cluster.WriterID(w), Lane: uint16(lane), Seq: seqs[k], LowWater: uint32(i)}, text)
		}
		e := cluster.Entry{Index: uint64(i + 1), Term: 1, Command: cmd}
		h.entries = append(h.entries, e)
		h.results = append(h.results, m.Apply([]cluster.Entry{e})[0])
		h.hashes = append(h.hashes, StateHash(m.Reader()))
	}
	return h
}

// check fails the test if m's state isn't that of its applied index.
func (h *history) check(t *testing.T, m *Machine, what string) (applied uint64) {
	t.Helper()
	applied, _ = m.Applied()
	if got := StateHash(m.Reader()); got != h.hashes[applied] {
		t.Fatalf("%s: the state is not that of index %d", what, applied)
	}
	return applied
}

// replay applies the log up to index upTo in batches of random size.
func (h *history) replay(t *testing.T, m *Machine, rng *rand.Rand, from, upTo uint64) {
	t.Helper()
	for from < upTo {
		n := min(1+rng.Uint64N(20), upTo-from)
		for i, r := range m.Apply(h.entries[from : from+n]) {
			if want := h.results[from+uint64(i)]; r != nil && string(r) != string(want) {
				t.Fatalf("entry %d: result %.200q, want %.200q", from+uint64(i)+1, r, want)
			}
		}
		from += n
	}
}

// TestBatchSplit: the state and the results do not depend on how the log was
// cut into batches, nor on restarts.
func TestBatchSplit(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := makeHistory(t, rng, 250, 40)
		for range 3 {
			m := openTest(t, vfs.NewMem())
			for {
				applied := h.check(t, m, "cut at random")
				if applied == uint64(len(h.entries)) {
					break
				}
				h.replay(t, m, rng, applied, min(applied+60, uint64(len(h.entries))))
			}
		}
	}
}

// TestCrashLeavesPrefix: whatever of the unsynced writes survives a crash, the
// state is that of an index at or above the last flush, and the log leads on.
func TestCrashLeavesPrefix(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	lost := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		h := makeHistory(t, rng, 400, 3000) // several memtables
		fs := vfs.NewCrashableMem()
		m := openTest(t, fs)
		at, flushed := uint64(0), uint64(0)
		for at < uint64(len(h.entries)) {
			to := min(at+1+rng.Uint64N(60), uint64(len(h.entries)))
			h.replay(t, m, rng, at, to)
			at = to
			if rng.IntN(4) == 0 {
				index, _, err := m.Flush()
				if err != nil || index != at {
					t.Fatalf("Flush = %d, %v, want %d", index, err, at)
				}
				flushed = index
			}
			if rng.IntN(2) == 0 {
				continue
			}
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			m = openTest(t, fs)
			applied := h.check(t, m, fmt.Sprintf("seed %d, crash at %d", seed, at))
			if applied < flushed {
				t.Fatalf("seed %d: crash at %d: applied %d, but %d was flushed", seed, at, applied, flushed)
			}
			lost += int(at - applied)
			at = applied
		}
		h.check(t, m, "at the end")
	}
	if lost == 0 {
		t.Error("no crash lost anything: the test tests nothing")
	}
}

// TestCrashAnywhere takes what a crash leaves before random operations of
// Pebble's, flushes and compactions among them.
func TestCrashAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	h := makeHistory(t, rng, 400, 3000)
	mem := vfs.NewCrashableMem()
	type image struct {
		fs      *vfs.MemFS
		flushed uint64
		op      errorfs.Op
	}
	var mu sync.Mutex
	var images []image
	flushed, ops := uint64(0), 0
	fs := crashFS(mem, func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if ops++; ops%7 == 0 {
			cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rng}
			images = append(images, image{crashClone(mem, cfg), flushed, op})
		}
		return nil
	})
	m := openTest(t, fs)
	replayRNG := rand.New(rand.NewPCG(5, 5))
	for at := uint64(0); at < 400; at += 40 {
		h.replay(t, m, replayRNG, at, at+40)
		if at%120 != 0 {
			continue
		}
		index, _, err := m.Flush()
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		flushed = index
		mu.Unlock()
	}
	mu.Lock()
	taken := images
	mu.Unlock()
	for i, image := range taken {
		m, err := Open(Options{Dir: "group", FS: image.fs, Core: scriptCore{}, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatalf("image %d of %d, before %+v: %v", i, len(taken), image.op, err)
		}
		if applied := h.check(t, m, fmt.Sprintf("before %+v", image.op)); applied < image.flushed {
			t.Errorf("image %d, before %+v: applied %d, but %d was flushed", i, image.op, applied, image.flushed)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d images", len(taken))
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

// crashFS calls hook before each operation that changes the file system.
func crashFS(fs vfs.FS, hook func(op errorfs.Op) error) vfs.FS {
	return errorfs.Wrap(lockingFS{fs}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		return hook(op)
	}))
}

// restoreFixture is a machine at index 60 on fs and, in folder ck, a
// checkpoint of index 40 of the same log, as a leader would have sent it.
func restoreFixture(t *testing.T, h *history, mem *vfs.MemFS) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	m, err := Open(Options{Dir: "other", FS: mem, Core: scriptCore{}, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h.replay(t, m, rng, 0, 60)
	if err := mkdirSynced(mem, "group"); err != nil {
		t.Fatal(err)
	}
	if c, err := m.Checkpoint("sent"); err != nil || c.Index != 60 {
		t.Fatalf("%+v, %v", c, err)
	}
	copyUnsynced(t, mem, "sent", "group/ck")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m, err = Open(Options{Dir: "group", FS: mem, Core: scriptCore{}, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h.replay(t, m, rng, 0, 40)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// survival is how much of the unsynced writes survives, in percent, in the
// images that are taken at one point.
var survival = []int{0, 50, 50, 50, 50, 50, 50, 100}

// copyUnsynced copies the files of a folder into a new one, none of it durable.
func copyUnsynced(t *testing.T, fs vfs.FS, from, to string) {
	t.Helper()
	names, err := fs.List(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		r, err := fs.Open(fs.PathJoin(from, name))
		if err != nil {
			t.Fatal(err)
		}
		w, err := fs.Create(fs.PathJoin(to, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestoreCrash crashes before each operation of a Restore, with none, some
// and all of the unsynced writes surviving: what is opened then is the old
// state or the new one, and the new one once Restore has returned.
func TestRestoreCrash(t *testing.T) {
	h := makeHistory(t, rand.New(rand.NewPCG(7, 7)), 80, 50)
	mem := vfs.NewCrashableMem()
	restoreFixture(t, h, mem)

	var mu sync.Mutex
	var images []*vfs.MemFS
	rng := rand.New(rand.NewPCG(8, 8))
	take := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, percent := range survival {
			images = append(images, crashClone(mem, vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
		}
	}
	on := false
	fs := crashFS(mem, func(errorfs.Op) error {
		mu.Lock()
		taking := on
		mu.Unlock()
		if taking {
			take()
		}
		return nil
	})
	m := openTest(t, fs)
	mu.Lock()
	on = true
	mu.Unlock()
	if err := m.Restore("group/ck"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	on = false
	mu.Unlock()
	if applied := h.check(t, m, "restored"); applied != 60 {
		t.Fatalf("restored %d", applied)
	}
	take()

	seen := map[uint64]int{}
	for i, image := range images {
		m, err := Open(Options{Dir: "group", FS: image, Core: scriptCore{}, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatalf("image %d of %d: %v", i, len(images), err)
		}
		applied := h.check(t, m, fmt.Sprintf("image %d of %d", i, len(images)))
		seen[applied]++
		if applied != 40 && applied != 60 || applied != 60 && i >= len(images)-len(survival) {
			t.Errorf("image %d of %d is at %d", i, len(images), applied)
		}
		h.replay(t, m, rng, applied, 80)
		h.check(t, m, "replayed")
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("images by index: %v", seen)
	if seen[40] == 0 || seen[60] == 0 {
		t.Errorf("images by index: %v", seen)
	}
}

// TestRestoreError fails each operation of a Restore once: the machine goes on
// with its old state, or with the new one if Restore says so.
func TestRestoreError(t *testing.T) {
	h := makeHistory(t, rand.New(rand.NewPCG(9, 9)), 80, 50)
	failed := 0
	for n := 0; ; n++ {
		mem := vfs.NewCrashableMem()
		restoreFixture(t, h, mem)
		var mu sync.Mutex
		count, on, hit := 0, false, errorfs.Op{}
		fs := crashFS(mem, func(op errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			// What fails within Pebble stops the program.
			if !on || strings.Contains(op.Path, statePrefix) {
				return nil
			}
			if count++; count == n+1 {
				hit = op
				return errors.New("disk says no")
			}
			return nil
		})
		arm := func(v bool) bool {
			mu.Lock()
			defer mu.Unlock()
			on = v
			return count > n
		}
		m, err := Open(Options{Dir: "group", FS: fs, Core: scriptCore{}, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		arm(true)
		err = m.Restore("group/ck")
		reached := arm(false)
		want := uint64(60)
		if err != nil {
			want = 40
			failed++
		}
		if applied := h.check(t, m, fmt.Sprint(hit)); applied != want {
			t.Fatalf("operation %d, %+v: restore said %v, applied %d", n, hit, err, applied)
		}
		h.replay(t, m, rand.New(rand.NewPCG(1, 2)), want, 80)
		h.check(t, m, "replayed")
		if err := m.Close(); err != nil {
			t.Logf("close after %+v: %v", hit, err)
		}
		m = openTest(t, mem)
		if applied := h.check(t, m, "reopened"); applied != 80 && applied != 60 {
			t.Fatalf("operation %d, %+v: reopened at %d", n, hit, applied)
		}
		if !reached {
			break
		}
	}
	if failed < 10 {
		t.Errorf("only %d operations made Restore fail", failed)
	}
}

// TestOpenCrash crashes before each operation of the first Open.
func TestOpenCrash(t *testing.T) {
	mem := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(3, 3))
	var mu sync.Mutex
	var images []*vfs.MemFS
	fs := crashFS(mem, func(errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		for _, percent := range survival {
			images = append(images, crashClone(mem, vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
		}
		return nil
	})
	openTest(t, fs)
	mu.Lock()
	defer mu.Unlock()
	if len(images) < 30 {
		t.Fatalf("%d images", len(images))
	}
	for i, image := range images {
		m, err := Open(Options{Dir: "group", FS: image, Core: scriptCore{}})
		if err != nil {
			t.Fatalf("image %d of %d: %v", i, len(images), err)
		}
		if applied, _ := m.Applied(); applied != 0 {
			t.Fatalf("image %d: applied %d", i, applied)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
