package scrub

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// fill puts n blobs of two groups to the stores 1 and 2, and some to 2 and 3.
func (w *world) fill(n uint32) (of1 []cluster.BlobKey) {
	for i := range n {
		k := key(1+cluster.GroupID(i%2), i)
		w.put(k, 1, 2)
		of1 = append(of1, k)
		w.put(key(5, i), 2, 3)
	}
	return of1
}

// A pass over a store in order reads every copy once and changes nothing.
func TestPassInOrder(t *testing.T) {
	w := newWorld(t, 3)
	keys := w.fill(50)
	r := w.pass(w.scrubber(1))
	bytes := uint64(0)
	for _, k := range keys {
		bytes += uint64(len(content(k)))
	}
	if want := (Counts{Copies: 50, Bytes: bytes}); r.Counts != want {
		t.Errorf("%+v, want %+v", r.Counts, want)
	}
	if w.syncs != 0 || w.fetch != 0 {
		t.Errorf("%d read indexes and %d copies were asked for", w.syncs, w.fetch)
	}
	// Small steps come to the same.
	r = w.pass(w.scrubber(2, func(c *Config) { c.Page, c.Bytes = 3, 1 }))
	if r.Copies != 100 || r.Bad+r.Missing != 0 {
		t.Errorf("%+v", r.Counts)
	}
}

// What is damaged or missing is made whole, wherever it is in the order, and a
// second pass finds nothing.
func TestPassRepairs(t *testing.T) {
	for _, page := range []int{1, 3, 8, 1000} {
		w := newWorld(t, 3)
		keys := w.fill(40)
		for _, i := range []int{0, 7, 38} {
			w.flip(1, keys[i])
		}
		for _, i := range []int{1, 2, 3, 20, 39} {
			w.drop(1, keys[i])
		}
		s := w.scrubber(1, func(c *Config) { c.Page = page })
		r := w.pass(s)
		if r.Bad != 3 || r.Missing != 5 || r.Repaired != 8 || r.Failed != 0 || len(r.Problems) != 0 {
			t.Errorf("pages of %d: %+v %v", page, r.Counts, r.Problems)
		}
		w.mustHave()
		if r := w.pass(s); r.Bad+r.Missing+r.Failed != 0 || r.Copies != 40 {
			t.Errorf("pages of %d, again: %+v", page, r.Counts)
		}
	}
}

// A store that lost everything gets everything.
func TestPassOverEmptyStore(t *testing.T) {
	w := newWorld(t, 3)
	keys := w.fill(40)
	w.drop(1, keys...)
	if r := w.pass(w.scrubber(1)); r.Missing != 40 || r.Repaired != 40 {
		t.Errorf("%+v", r.Counts)
	}
	w.mustHave()
}

// A copy whose blob no file uses is left alone, damaged or not, and so is one that
// this node only thinks should be there.
func TestPassLeavesUnused(t *testing.T) {
	w := newWorld(t, 2)
	for i := range uint32(10) {
		w.put(key(1, i), 1, 2)
	}
	w.store(1, key(1, 100), content(key(1, 100))) // an orphan
	w.store(1, key(1, 101), content(key(1, 101)))
	w.flip(1, key(1, 101))
	// This node has not heard yet that 3 and 4 were deleted.
	w.stale = map[cluster.BlobKey]Want{}
	for k, v := range w.want {
		w.stale[k] = v
	}
	delete(w.want, key(1, 3))
	delete(w.want, key(1, 4))
	w.drop(1, key(1, 3), key(1, 4))
	r := w.pass(w.scrubber(1))
	if r.Bad+r.Missing+r.Repaired+r.Failed != 0 {
		t.Errorf("%+v %v", r.Counts, r.Problems)
	}
	if w.fetch != 0 {
		t.Error("a copy was fetched of what no file uses")
	}
	w.mustHave()
}

// The last copy stays as it is: damaged, and told of.
func TestLastCopyStays(t *testing.T) {
	w := newWorld(t, 2)
	w.put(key(1, 1), 1, 2)
	w.put(key(1, 2), 1, 2)
	w.put(key(1, 3), 1)
	w.flip(1, key(1, 1))
	w.flip(2, key(1, 1))
	w.drop(1, key(1, 2))
	w.drop(2, key(1, 2))
	w.flip(1, key(1, 3))
	s := w.scrubber(1)
	r := w.pass(s)
	if r.Failed != 3 || r.Repaired != 0 || len(r.Problems) != 3 || !r.Problems[1].Missing || r.Problems[0].Missing {
		t.Errorf("%+v %v", r.Counts, r.Problems)
	}
	if err := w.read(1, key(1, 1)); !errors.Is(err, cluster.ECORRUPT) {
		t.Errorf("the damaged copy: %v", err)
	}
	// The other comes back: then it is repaired.
	w.drop(2, key(1, 1))
	w.store(2, key(1, 1), content(key(1, 1)))
	if r, err := s.Check(bg, []cluster.BlobKey{key(1, 1)}); err != nil || r.Repaired != 1 || len(r.Well) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// What comes from another member is stored only if it is what the volume says.
func TestFetchedIsVerified(t *testing.T) {
	for _, garble := range []func(cluster.StoreID, []byte) []byte{
		func(_ cluster.StoreID, b []byte) []byte { b[len(b)/2] ^= 4; return b },
		func(_ cluster.StoreID, b []byte) []byte { return b[:len(b)-1] },
		func(_ cluster.StoreID, b []byte) []byte { return append(b, 0) },
		func(cluster.StoreID, []byte) []byte { return nil },
	} {
		w := newWorld(t, 2)
		w.put(key(1, 1), 1, 2)
		w.put(key(1, 2), 1, 2)
		w.flip(1, key(1, 1))
		w.drop(1, key(1, 2))
		w.garble = garble
		r := w.pass(w.scrubber(1))
		if r.Failed != 2 || r.Repaired != 0 {
			t.Errorf("%+v %v", r.Counts, r.Problems)
		}
		if err := w.read(1, key(1, 2)); !errors.Is(err, cluster.ENOBLOB) {
			t.Errorf("the missing copy: %v", err)
		}
		w.garble = nil
		if r := w.pass(w.scrubber(1)); r.Repaired != 2 {
			t.Errorf("%+v %v", r.Counts, r.Problems)
		}
		w.mustHave()
	}
}

// A good copy of another content is never overwritten; it is told of.
func TestOtherContent(t *testing.T) {
	w := newWorld(t, 2)
	w.put(key(1, 1), 2)
	w.store(1, key(1, 1), []byte("something else"))
	want := w.want[key(1, 1)]
	want.Members = []cluster.StoreID{1, 2}
	w.want[key(1, 1)] = want
	r := w.pass(w.scrubber(1))
	if r.Failed != 1 || r.Repaired != 0 || len(r.Problems) != 1 {
		t.Errorf("%+v %v", r.Counts, r.Problems)
	}
	if got, err := w.stores[0].Get(bg, key(1, 1), 0, 14, nil); err != nil || string(got) != "something else" {
		t.Errorf("the copy is %q now, %v", got, err)
	}
}

// Without a leader nothing is judged, and the step can be taken again.
func TestPassWithoutLeader(t *testing.T) {
	w := newWorld(t, 2)
	for i := range uint32(6) {
		w.put(key(1, i), 1, 2)
	}
	w.drop(1, key(1, 3))
	w.cut = true
	s := w.scrubber(1)
	r, err := s.Step(bg, cluster.BlobKey{})
	if !errors.Is(err, cluster.EAGAIN) || r.After != key(1, 2) || r.Missing+r.Repaired != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.cut = false
	if r, err = s.Step(bg, r.After); err != nil || r.Repaired != 1 || !r.Done {
		t.Errorf("%+v, %v", r, err)
	}
	w.mustHave()
}

// Each rule is missed where it is off.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		rule rule
		run  func(w *world) (shown bool)
	}{
		{ruleFresh, func(w *world) bool {
			w.put(key(1, 1), 1, 2)
			w.stale = map[cluster.BlobKey]Want{key(1, 1): w.want[key(1, 1)]}
			delete(w.want, key(1, 1))
			w.drop(1, key(1, 1)) // deleted: it must not come back
			w.pass(w.scrubber(1))
			return w.read(1, key(1, 1)) == nil
		}},
		{ruleVerify, func(w *world) bool {
			w.put(key(1, 1), 1, 2)
			w.drop(1, key(1, 1))
			w.garble = func(_ cluster.StoreID, b []byte) []byte { b[0]++; return b }
			w.pass(w.scrubber(1))
			got, err := w.stores[0].Get(bg, key(1, 1), 0, uint32(len(content(key(1, 1)))), nil)
			return err == nil && !bytes.Equal(got, content(key(1, 1)))
		}},
		{ruleAgain, func(w *world) bool {
			// A disk that says it has written and has not.
			w.put(key(1, 1), 1, 2)
			w.flip(1, key(1, 1))
			r := w.pass(w.scrubber(1, func(c *Config) { c.Store = forgetful{c.Store} }))
			return r.Repaired > 0
		}},
	} {
		for _, off := range []bool{false, true} {
			if off {
				rulesOff.Store(uint32(c.rule))
			}
			shown := c.run(newWorld(t, 2))
			rulesOff.Store(0)
			if shown != off {
				t.Errorf("rule %#x, off %v: it shows %v", c.rule, off, shown)
			}
		}
	}
}

// TestAnyDamage: whatever is done to the copies of the store, a pass makes all
// whole of which another copy is left, and loses nothing.
func TestAnyDamage(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, 3)
		keys := w.fill(60)
		damaged := map[cluster.BlobKey]bool{}
		for range r.IntN(60) {
			k := keys[r.IntN(len(keys))]
			m := cluster.StoreID(1 + r.IntN(2))
			if damaged[k] {
				continue
			}
			damaged[k] = true
			if r.IntN(2) == 0 {
				w.flip(m, k)
			} else {
				w.drop(m, k)
			}
		}
		for _, m := range []cluster.StoreID{1, 2, 3} {
			w.pass(w.scrubber(m, func(c *Config) { c.Page, c.Bytes = 1+r.IntN(20), 1+r.Int64N(100_000) }))
		}
		w.mustHave()
	}
}

// TestCrash crashes at random during passes; the store opens, and passes to the
// end make everything whole. Nothing that was whole is lost on the way.
func TestCrash(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := newWorld(t, 2)
		var keys []cluster.BlobKey
		for i := range uint32(40) {
			w.put(key(1, i), 1, 2)
			keys = append(keys, key(1, i))
		}
		for range 6 {
			k := keys[r.IntN(len(keys))]
			if w.read(1, k) == nil {
				if r.IntN(2) == 0 {
					w.flip(1, k)
				} else {
					w.drop(1, k)
				}
			}
			s := w.scrubber(1, func(c *Config) { c.Page = 5 })
			var after cluster.BlobKey
			for range r.IntN(8) {
				res, err := s.Step(bg, after)
				if err != nil {
					t.Fatal(err)
				}
				after = res.After
			}
			whole := map[cluster.BlobKey]bool{}
			for _, k := range keys {
				whole[k] = w.read(1, k) == nil
			}
			fs := w.fs[0].CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(3) * 50, RNG: r})
			if err := w.stores[0].Close(); err != nil {
				t.Fatal(err)
			}
			w.fs[0], w.stores[0] = fs, openStore(t, fs, 0)
			for _, k := range keys {
				if err := w.read(1, k); whole[k] && err != nil {
					t.Fatalf("seed %d: %v was whole before the crash: %v", seed, k, err)
				}
			}
		}
		w.pass(w.scrubber(1))
		w.mustHave()
	}
}

// A pass takes its share of the period, and never more than the rate.
func TestPace(t *testing.T) {
	t0 := time.Unix(1000, 0)
	p := Pace{Every: 100 * time.Hour, Rate: 64 << 20}
	for _, c := range []struct {
		at   time.Duration
		left uint64
		want uint64
	}{
		{0, 80 * 3600 * (10 << 20), 10 << 20},              // just in time for 80 hours
		{40 * time.Hour, 40 * 3600 * (10 << 20), 10 << 20}, // as planned
		{40 * time.Hour, 80 * 3600 * (10 << 20), 20 << 20}, // behind
		{0, 1 << 30, 1 << 20},                              // little: not slower than a 64th
		{0, 1 << 60, 64 << 20},                             // too much
		{81 * time.Hour, 1 << 30, 64 << 20},                // late
	} {
		if got := p.RateAt(t0, t0.Add(c.at), c.left); got < c.want-c.want/100 || got > c.want+c.want/100 {
			t.Errorf("at %v with %d left: %d bytes a second, want %d", c.at, c.left, got, c.want)
		}
	}
	if d := Wait(10<<20, 10<<20, 300*time.Millisecond); d != 700*time.Millisecond {
		t.Errorf("wait %v", d)
	}
	if d := Wait(1<<20, 10<<20, 300*time.Millisecond); d != 0 {
		t.Errorf("wait %v", d)
	}
}

// A simulated pass at the pace of the plan ends within its share of the period.
func TestPaceEnds(t *testing.T) {
	t0 := time.Unix(1000, 0)
	for _, used := range []uint64{1 << 20, 1 << 33, 1 << 40, 40 << 40} {
		p := Pace{Every: 14 * 24 * time.Hour, Rate: 50_000_000}
		now, done := t0, uint64(0)
		for done < used {
			n := min(used-done, 1<<30)
			now = now.Add(Wait(n, p.RateAt(t0, now, used-done), 0))
			done += n
		}
		if took := now.Sub(t0); took > p.Every*4/5+time.Hour {
			t.Errorf("%d bytes take %v", used, took)
		}
	}
}

// A disk with too many damaged copies in a window is told from one with some.
func TestTally(t *testing.T) {
	t0 := time.Unix(1000, 0)
	tally := Tally[int]{Max: 3, Window: time.Hour}
	for i, c := range []struct {
		key  int
		at   time.Duration
		want bool
	}{
		{1, 0, false},
		{1, time.Minute, false}, // the same again
		{1, 2 * time.Minute, false},
		{2, 30 * time.Minute, false},
		{3, 61 * time.Minute, false}, // 1 is out of the window
		{1, 62 * time.Minute, true},
		{1, 63 * time.Minute, true}, // and stays
		{9, 4 * time.Hour, false},   // the window is what counts
	} {
		if got := tally.Note(c.key, t0.Add(c.at)); got != c.want {
			t.Errorf("%d: copy %d at %v: %v", i, c.key, c.at, got)
		}
	}
	var never Tally[int]
	for i := range 100 {
		if never.Note(i, t0) {
			t.Fatal("a tally without a limit has one")
		}
	}
}
