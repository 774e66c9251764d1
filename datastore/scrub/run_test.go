package scrub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// runner returns a runner of store 1 with a quick pace.
func (w *world) runner(change ...func(*RunConfig)) *Runner {
	c := RunConfig{
		Scrubber: w.scrubber(1, func(c *Config) { c.Page = 4 }), Pace: Pace{Every: time.Hour, Rate: 1 << 30},
		FS: w.fs[0], Dir: "/disk", Used: func() uint64 { return 1 << 40 }, Failed: func() bool { return false },
	}
	for _, f := range change {
		f(&c)
	}
	return NewRunner(c)
}

// run runs a runner until cond holds, and ends it.
func run(t *testing.T, r *Runner, cond func(Status) bool) Status {
	t.Helper()
	ctx, stop := context.WithCancel(bg)
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	defer wg.Wait()
	defer stop()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		s := r.Status()
		if cond(s) {
			return s
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("it does not come to that: %+v", s)
		}
	}
}

func (s Status) over() bool { return !s.Running && !s.State.Ended.IsZero() }

// A pass begins by itself, ends, and is not taken again before its time; that is
// remembered over a restart.
func TestRun(t *testing.T) {
	w := newWorld(t, 3)
	keys := w.fill(30)
	w.flip(1, keys[4])
	w.drop(1, keys[9])
	s := run(t, w.runner(), Status.over)
	if c := s.State.Counts; c.Copies != 29 || c.Bad != 1 || c.Missing != 1 || c.Repaired != 2 || s.State.Before != c || len(s.State.Problems) != 0 {
		t.Errorf("%+v", s.State)
	}
	w.mustHave()
	r := w.runner()
	if got := r.Status().State; !got.Began.Equal(s.State.Began) || got.Counts != s.State.Counts {
		t.Errorf("after a restart: %+v", got)
	}
	w.flip(1, keys[5])
	ctx, stop := context.WithTimeout(bg, 50*time.Millisecond)
	defer stop()
	r.Run(ctx)
	if s := r.Status(); s.State.Counts != r.state.Before || s.Running {
		t.Errorf("a pass was taken before its time: %+v", s)
	}
	// And when it is time, it is.
	r = w.runner(func(c *RunConfig) { c.Pace.Every = time.Millisecond })
	run(t, r, func(s Status) bool { return s.State.Before.Repaired == 1 })
	w.mustHave()
}

// A pass that is interrupted goes on where it was.
func TestRunResumes(t *testing.T) {
	w := newWorld(t, 3)
	w.fill(40)
	slow := w.runner(func(c *RunConfig) { c.Pace, c.Save = Pace{Every: time.Hour, Rate: 200_000}, time.Millisecond })
	s := run(t, slow, func(s Status) bool { return s.State.Counts.Copies >= 12 })
	r := w.runner()
	got := r.Status()
	if !got.Running || got.State.Counts.Copies < s.State.Counts.Copies || Compare(got.State.After, s.State.After) < 0 {
		t.Errorf("it was at %+v and is at %+v", s.State, got.State)
	}
	if s := run(t, r, Status.over); s.State.Counts.Copies != 40 {
		t.Errorf("%+v", s.State.Counts)
	}
}

// The rate is kept, whatever wakes the runner.
func TestRunRate(t *testing.T) {
	w := newWorld(t, 3)
	keys := w.fill(40)
	const rate = 400_000
	r := w.runner(func(c *RunConfig) { c.Pace.Rate = rate })
	begun := time.Now()
	s := run(t, r, func(s Status) bool {
		r.Doubt(keys[0])
		return s.State.Counts.Bytes > 60_000
	})
	// The last step is not waited for.
	if took, least := time.Since(begun), Wait(s.State.Counts.Bytes-30_000, rate, 0); took < least {
		t.Errorf("%d bytes were read in %v: it takes %v", s.State.Counts.Bytes, took, least)
	}
}

// What a read has met is repaired soon, though no pass is due; too many doubts
// are bounded.
func TestDoubt(t *testing.T) {
	w := newWorld(t, 3)
	keys := w.fill(30)
	r := w.runner()
	run(t, r, Status.over)
	w.flip(1, keys[3])
	w.drop(1, keys[12])
	r.Doubt(keys[3], keys[12], keys[3], keys[0])
	if n := r.Status().Doubts; n != 3 {
		t.Errorf("%d doubts wait, want 3", n)
	}
	run(t, r, func(s Status) bool { return s.Doubts == 0 && w.read(1, keys[12]) == nil && w.read(1, keys[3]) == nil })
	w.mustHave()
	for i := range uint32(MaxDoubts + 10) {
		r.Doubt(key(1, 1000+i))
	}
	if s := r.Status(); s.Doubts != MaxDoubts || r.dropped != 10 {
		t.Errorf("%d doubts wait, %d were dropped", s.Doubts, r.dropped)
	}
}

// What could not be repaired is remembered over a restart, tried again, and
// forgotten once it is whole, or is not wanted any more.
func TestProblemsAreRetried(t *testing.T) {
	w := newWorld(t, 2)
	for i := range uint32(6) {
		w.put(key(1, i), 1, 2)
	}
	for _, i := range []uint32{1, 2} {
		w.flip(1, key(1, i))
		w.drop(2, key(1, i))
	}
	s := run(t, w.runner(), Status.over)
	if len(s.State.Problems) != 2 || s.State.Counts.Failed != 2 || s.State.Problems[0].Key != key(1, 1) {
		t.Fatalf("%+v", s.State)
	}
	r := w.runner(func(c *RunConfig) { c.Retry = 5 * time.Millisecond })
	if len(r.Status().State.Problems) != 2 {
		t.Fatal("the problems are forgotten")
	}
	w.store(2, key(1, 1), content(key(1, 1))) // it comes back
	run(t, r, func(s Status) bool { return len(s.State.Problems) == 1 })
	delete(w.want, key(1, 2))
	r = w.runner(func(c *RunConfig) { c.Retry = 5 * time.Millisecond })
	run(t, r, func(s Status) bool { return len(s.State.Problems) == 0 })
	w.mustHave()
}

// A store that is out of service is left in peace.
func TestFailedStore(t *testing.T) {
	w := newWorld(t, 2)
	w.put(key(1, 1), 1, 2)
	r := w.runner(func(c *RunConfig) { c.Failed = func() bool { return true } })
	ctx, stop := context.WithTimeout(bg, 50*time.Millisecond)
	defer stop()
	r.Run(ctx)
	if s := r.Status(); s.Running || s.State.Counts.Copies != 0 {
		t.Errorf("%+v", s)
	}
}

// A scrub on demand has a position of its own, and takes turns with the pass.
func TestDemand(t *testing.T) {
	w := newWorld(t, 3)
	keys := w.fill(40)
	w.flip(1, keys[8])
	r := w.runner(func(c *RunConfig) { c.Pace.Every = time.Millisecond })
	ctx, stop := context.WithCancel(bg)
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	var sum Counts
	var after cluster.BlobKey
	for {
		res, err := r.Step(bg, after)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(res.Counts)
		if after = res.After; res.Done {
			break
		}
	}
	stop()
	wg.Wait()
	if sum.Copies != 40 {
		t.Errorf("%+v", sum)
	}
	w.mustHave()
}

// The problems that are remembered are bounded; the rest is counted.
func TestProblemsAreBounded(t *testing.T) {
	var s State
	for i := range uint32(MaxProblems + 7) {
		s.note(&Result{Problems: []Problem{{Key: key(1, i*7919%100_000)}}})
	}
	if len(s.Problems) != MaxProblems || s.Lost != 7 {
		t.Errorf("%d problems, %d more", len(s.Problems), s.Lost)
	}
	for i := 1; i < len(s.Problems); i++ {
		if Compare(s.Problems[i-1].Key, s.Problems[i].Key) >= 0 {
			t.Fatal("not in order")
		}
	}
}

// TestStateCrash crashes at each operation while a position is kept: afterwards
// there is the one before, or the new one.
func TestStateCrash(t *testing.T) {
	states := func(n uint64) *State {
		return &State{Began: time.Unix(int64(n), 0).UTC(), After: key(1, uint32(n)), Counts: Counts{Copies: n}}
	}
	for at := int64(1); ; at++ {
		mem := vfs.NewCrashableMem()
		if err := errors.Join(mem.MkdirAll("/disk", 0o700), save(mem, "/disk", states(1)), syncParent(mem)); err != nil {
			t.Fatal(err)
		}
		var left atomic.Int64
		var after *vfs.MemFS
		left.Store(at)
		fs := crashing(mem, &left, func() {
			after = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(uint64(at), 1))})
		})
		if err := save(fs, "/disk", states(2)); err != nil {
			t.Fatal(err)
		}
		if s, err := load(mem, "/disk"); err != nil || s.Counts.Copies != 2 {
			t.Fatalf("%+v, %v", s, err)
		}
		if after == nil {
			if at < 4 {
				t.Fatal("nothing is written")
			}
			return
		}
		if s, err := load(after, "/disk"); err != nil || s.Counts.Copies != 1 && s.Counts.Copies != 2 {
			t.Fatalf("crash %d: %+v, %v", at, s, err)
		}
	}
}

// A position that can't be read is no reason not to scrub; one of a newer format
// is refused.
func TestStateDamaged(t *testing.T) {
	mem := vfs.NewMem()
	if err := errors.Join(mem.MkdirAll("/disk", 0o700), save(mem, "/disk", &State{Counts: Counts{Copies: 12345}})); err != nil {
		t.Fatal(err)
	}
	f, err := mem.OpenReadWrite("/disk/scrub", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	b = b[:n]
	write := func(b []byte) {
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	write(bytes.Replace(b, []byte("12345"), []byte("12346"), 1))
	if s, err := load(mem, "/disk"); err == nil || s.Counts.Copies != 0 {
		t.Errorf("damaged: %+v, %v", s, err)
	}
	write(bytes.Replace(b, []byte(fmt.Sprintf(`"version":%d`, fileVersion)), []byte(`"version":9`), 1))
	if _, err := load(mem, "/disk"); err == nil {
		t.Error("a newer format is accepted")
	}
	write([]byte("garbage"))
	if _, err := load(mem, "/disk"); err == nil {
		t.Error("garbage is accepted")
	}
}
