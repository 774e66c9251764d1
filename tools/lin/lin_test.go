package lin

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/hawserfs/hawser/nfsd/proto"
)

// run has workers of all nodes do op until stop is closed.
func run(t *testing.T, c *testCluster, at *place, each int, seed uint64, op func(*worker), stop <-chan struct{}) *Recorder {
	rec := NewRecorder()
	var wg sync.WaitGroup
	var done, unknown atomic.Int64
	for i, n := range c.nodes {
		for j := range each {
			id := i*each + j
			w := &worker{
				t: t, id: id, addr: n.nfs, rng: rand.New(rand.NewPCG(seed, uint64(id))), rec: rec, at: at,
				done: &done, unknown: &unknown,
			}
			wg.Go(func() { w.work(func() { op(w) }, stop) })
		}
	}
	wg.Wait()
	t.Logf("%d operations, %d of unknown outcome", done.Load(), unknown.Load())
	return rec
}

// check returns whether a history is linearizable. It fails the test if that
// was not found out.
func check(t *testing.T, what string, m porcupine.Model, r *Recorder) bool {
	t.Helper()
	begin := time.Now()
	result := porcupine.CheckOperationsTimeout(m, r.History(), time.Minute)
	t.Logf("%s: %s after %v", what, result, time.Since(begin).Round(time.Millisecond))
	if result == porcupine.Unknown {
		t.Errorf("%s: too hard to check", what)
	}
	return result == porcupine.Ok
}

// show writes a history for a browser, and what of it can't be as text.
func show(t *testing.T, m porcupine.Model, r *Recorder) {
	dir := os.Getenv("HAWSER_LIN_SHOW")
	if dir == "" {
		return
	}
	if m.Partition != nil {
		for _, part := range m.Partition(r.History()) {
			if porcupine.CheckOperations(m, part) {
				continue
			}
			slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			var text []byte
			for _, o := range part {
				text = fmt.Appendf(text, "%d %d %d %+v %+v\n", o.Call, o.Return, o.ClientId, o.Input, o.Output)
			}
			_, info := porcupine.CheckOperationsVerbose(m, part, 30*time.Second)
			for _, done := range info.PartialLinearizationsOperations()[0] {
				text = fmt.Appendf(text, "possible: %d operations, then %+v\n", len(done), done[max(0, len(done)-4):])
			}
			if err := os.WriteFile(dir+"/history.txt", text, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	_, info := porcupine.CheckOperationsVerbose(m, r.History(), 30*time.Second)
	if err := porcupine.VisualizePath(m, info, dir+"/history.html"); err != nil {
		t.Error(err)
	}
}

// drawn returns for how long a test is to run, and what it draws from.
func drawn(t *testing.T) (length time.Duration, seed uint64) {
	t.Helper()
	length, seed = 12*time.Second, rand.Uint64()
	if s := os.Getenv("HAWSER_LIN"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		length = d
	}
	if s := os.Getenv("HAWSER_LIN_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("HAWSER_LIN=%v HAWSER_LIN_SEED=%d", length, seed)
	return length, seed
}

// TestCluster kills, freezes and cuts off nodes of a cluster while clients of all of
// them work, and checks that what they saw could be. HAWSER_LIN is for how
// long (12s), HAWSER_LIN_SEED what the clients and the trouble draw from,
// HAWSER_LIN_SHOW a folder for a history that can't be.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a cluster of processes for a while")
	}
	length, seed := drawn(t)
	c := startCluster(t, nil)

	// The relaxed class breaks the rule on purpose: readers use no read index,
	// and what is written UNSTABLE is seen elsewhere later.
	t.Run("the check finds out the relaxed class", func(t *testing.T) {
		at := makePlace(t, c.nodes[0].nfs, "relaxed", "unstable", proto.Unstable)
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		if check(t, "blocks", Blocks, run(t, c, at, 1, seed, (*worker).block, stop)) {
			t.Error("relaxed reads pass for linearizable")
		}
	})

	for left := length; left > 0 && !t.Failed(); left -= 15 * time.Second {
		// Long histories are checked in parts: nothing is remembered of the
		// one before but what it left behind, so each has a place of its own.
		at := makePlace(t, c.nodes[0].nfs, "main", left.String(), proto.FileSync)
		relaxed := makePlace(t, c.nodes[0].nfs, "relaxed", left.String(), proto.Unstable)
		now := min(left, 15*time.Second)
		stop, calm := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		var blockRec, nameRec *Recorder
		wg.Go(func() { c.trouble(rand.New(rand.NewPCG(seed, uint64(left))), calm) })
		wg.Go(func() { blockRec = run(t, c, at, 2, seed, (*worker).block, stop) })
		wg.Go(func() { nameRec = run(t, c, at, 2, seed+1, (*worker).name, stop) })
		var closed, lost atomic.Int64
		for i, n := range c.nodes {
			k := &courier{
				t: t, rng: rand.New(rand.NewPCG(seed, uint64(100+i))), dir: relaxed.dirs[0],
				addr: [2]string{n.nfs, c.nodes[(i+1)%len(c.nodes)].nfs}, closed: &closed, lost: &lost,
			}
			wg.Go(func() { k.run(stop) })
		}
		time.Sleep(now)
		close(calm)
		time.Sleep(2 * time.Second)
		close(stop)
		wg.Wait()
		t.Logf("relaxed: %d files written, closed and read elsewhere, %d writes done again", closed.Load(), lost.Load())
		if !check(t, "blocks", Blocks, blockRec) {
			t.Error("reads and writes of blocks are not linearizable")
			show(t, Blocks, blockRec)
		}
		if !check(t, "names", Directories, nameRec) {
			t.Error("operations on names are not linearizable")
			show(t, Directories, nameRec)
		}
		c.healthy(time.Minute)
	}
}
