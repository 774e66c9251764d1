package sim

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// seedOf returns the seed that HAWSER_SEED asks for.
func seedOf(t *testing.T) (uint64, bool) {
	v := os.Getenv("HAWSER_SEED")
	if v == "" {
		return 0, false
	}
	seed, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed, true
}

// long returns how long to simulate: HAWSER_SIM, or short.
func long(t *testing.T, short time.Duration) time.Duration {
	v := os.Getenv("HAWSER_SIM")
	if v == "" {
		return short
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func trace(t *testing.T) func(string) {
	if os.Getenv("HAWSER_TRACE") == "" {
		return nil
	}
	return func(line string) { t.Log(line) }
}

// TestWorlds simulates one world after the other, on each core.
func TestWorlds(t *testing.T) { simulate(t, long(t, 4*time.Second), Config{}) }

// TestWorldsOnSegments does it with the real stores.
func TestWorldsOnSegments(t *testing.T) {
	simulate(t, long(t, 8*time.Second)/4, Config{Segments: true})
}

// TestTakeOvers has clients besides that go on at another front-end in the
// middle of a request.
func TestTakeOvers(t *testing.T) {
	simulate(t, long(t, 8*time.Second)/4, Config{TakeOver: true})
}

// simulate runs the world of the seed that is given, or new ones for a while.
func simulate(t *testing.T, length time.Duration, c Config) {
	if seed, ok := seedOf(t); ok {
		c.Seed, c.Trace = seed, trace(t)
		n, err := Run(c)
		t.Log(n)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	first := uint64(time.Now().UnixNano())
	t.Logf("seeds from %d on", first)
	worlds(t, length, func(i uint64) Config {
		c := c
		c.Seed = first + i
		return c
	})
}

func worlds(t *testing.T, length time.Duration, config func(i uint64) Config) {
	var mu sync.Mutex
	var total Counts
	var next atomic.Uint64
	var wg sync.WaitGroup
	cores := runtime.GOMAXPROCS(0)
	begun, used := time.Now(), cpuTime()
	for range cores {
		wg.Go(func() {
			for time.Since(begun) < length && !t.Failed() {
				c, err := Run(config(next.Add(1) - 1))
				if err != nil {
					t.Errorf("%v\n(repeat: HAWSER_SEED=%d)", err, err.(*Failure).Config.Seed)
				}
				mu.Lock()
				total.add(&c)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d worlds, %.0f steps a second, %.0f a second of CPU time: %v", next.Load(),
		float64(total.Steps)/time.Since(begun).Seconds(), float64(total.Steps)/(cpuTime()-used).Seconds(), total)
}

// cpuTime returns what this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStep is a step of a world.
func BenchmarkStep(b *testing.B) {
	for _, segments := range []bool{false, true} {
		b.Run(map[bool]string{false: "model stores", true: "segment stores"}[segments], func(b *testing.B) {
			for done, seed := uint64(0), uint64(1); done < uint64(b.N); seed++ {
				c, err := Run(Config{Seed: seed, Segments: segments, Steps: min(20_000, max(2000, uint64(b.N)-done))})
				if err != nil {
					b.Fatal(err)
				}
				done += c.Steps
			}
		})
	}
}

// TestAllHappens: the worlds are bad enough.
func TestAllHappens(t *testing.T) {
	if raceDetector {
		t.Skip("it says the same without the race detector, and sooner")
	}
	var total Counts
	for seed := uint64(1); total.Steps < 500_000; seed++ {
		c, err := Run(Config{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		total.add(&c)
		missing := ""
		for name, n := range total.faults() {
			if *n == 0 {
				missing = name
			}
		}
		if missing == "" {
			return
		}
	}
	for name, n := range total.faults() {
		if *n == 0 {
			t.Errorf("no %s in %d steps", name, total.Steps)
		}
	}
}

// TestSameSeed: a seed says all that happens.
func TestSameSeed(t *testing.T) {
	for _, segments := range []bool{false, true} {
		var lines [2][]string
		var counts [2]Counts
		for i := range lines {
			var err error
			counts[i], err = Run(Config{Seed: 7, Steps: 3000, Segments: segments, Trace: func(l string) { lines[i] = append(lines[i], l) }})
			if err != nil {
				t.Fatal(err)
			}
		}
		if counts[0] != counts[1] {
			t.Errorf("segments %v: two runs of a seed differ:\n%v\n%v", segments, counts[0], counts[1])
		}
		for i := range min(len(lines[0]), len(lines[1])) {
			if lines[0][i] != lines[1][i] {
				t.Fatalf("segments %v: two runs of a seed differ:\n%s\n%s", segments, lines[0][i], lines[1][i])
			}
		}
	}
}
