package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

var bg = context.Background()

// A world is a volume and its stores in memory, by the rules of the state
// machine, with a check after each change that every blob is on every member of
// its set.
type world struct {
	t      *testing.T
	mu     sync.Mutex
	sets   []Set
	blobs  map[cluster.BlobID]worldBlob
	stores []Store
	copies map[cluster.StoreID]map[cluster.BlobID]Copy
	calls  int
	dieAt  int // the call that is not made, nor any later one; 0: none
	onPull func(b cluster.BlobID, to cluster.StoreID)
	pulled int // blobs that were copied
	bad    map[cluster.StoreID]bool
	gone   cluster.BlobID // that members lack by the test's doing
	hang   chan struct{}  // pulls wait for it
}

type worldBlob struct {
	Blob
	set cluster.ReplicaSetID
}

var errDied = errors.New("the leader died")

func newWorld(t *testing.T, stores, sets string, blobs int) *world {
	w := &world{
		t: t, stores: readStores(stores), sets: readSets(t, sets), blobs: map[cluster.BlobID]worldBlob{},
		copies: map[cluster.StoreID]map[cluster.BlobID]Copy{}, bad: map[cluster.StoreID]bool{},
	}
	for _, s := range w.stores {
		w.copies[s.ID] = map[cluster.BlobID]Copy{}
	}
	for i := range w.sets {
		for n := range blobs {
			w.commit(w.sets[i].ID, uint32(100*i+n))
		}
	}
	return w
}

// commit is what writers do.
func (w *world) commit(set cluster.ReplicaSetID, n uint32) bool {
	s := w.set(set)
	if s.State != Writable {
		return false
	}
	b := Blob{cluster.MakeBlobID(1, n+1), 1000 + n, n}
	w.blobs[b.ID] = worldBlob{b, set}
	s.Used = true
	for _, m := range s.Members {
		w.copies[m][b.ID] = Copy{b, set, s.Epoch}
	}
	return true
}

func (w *world) set(id cluster.ReplicaSetID) *Set {
	i := slices.IndexFunc(w.sets, func(s Set) bool { return s.ID == id })
	return &w.sets[i]
}

func (w *world) store(id cluster.StoreID) *Store {
	return &w.stores[slices.IndexFunc(w.stores, func(s Store) bool { return s.ID == id })]
}

func (w *world) call() error {
	w.calls++
	if w.dieAt > 0 && w.calls >= w.dieAt {
		return errDied
	}
	return nil
}

func (w *world) check() {
	for _, b := range w.blobs {
		for _, m := range w.set(b.set).Members {
			if _, ok := w.copies[m][b.ID]; !ok && !w.store(m).Lost && b.ID != w.gone {
				w.t.Fatalf("blob %v is not on member %d of its set %d", b.ID, m, b.set)
			}
		}
	}
}

func (w *world) Sync(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.call()
}

func (w *world) Sets() []Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	sets := slices.Clone(w.sets)
	for i := range sets {
		sets[i].Used = false
		for _, b := range w.blobs {
			sets[i].Used = sets[i].Used || b.set == sets[i].ID
		}
	}
	return sets
}

func (w *world) Blobs(set cluster.ReplicaSetID, after cluster.BlobID, n int) (list []Blob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, b := range w.blobs {
		if id > after && b.set == set {
			list = append(list, b.Blob)
		}
	}
	slices.SortFunc(list, func(a, b Blob) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(n, len(list))]
}

func (w *world) PutSet(_ context.Context, s Set) (Set, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call(); err != nil {
		return s, err
	}
	if s.ID == 0 {
		s.ID, s.Epoch = cluster.ReplicaSetID(len(w.sets)+1), 1
		w.sets = append(w.sets, s)
		return s, nil
	}
	old := w.set(s.ID)
	if old.Epoch != s.Epoch {
		return *old, cluster.ECONFLICT
	}
	used := false
	for _, b := range w.blobs {
		used = used || b.set == s.ID
	}
	if used && old.State != ReadOnly && !slices.Equal(old.Members, s.Members) {
		return *old, cluster.EINVAL
	}
	s.Epoch++
	*old = s
	w.check()
	return s, nil
}

func (w *world) List(_ context.Context, id cluster.StoreID, after cluster.BlobID, n int) (list []Copy, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call(); err != nil {
		return nil, err
	}
	for b, c := range w.copies[id] {
		if b > after {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Copy) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(n, len(list))], nil
}

func (w *world) Pull(ctx context.Context, to cluster.StoreID, b Blob, set cluster.ReplicaSetID, epoch uint32, from []cluster.StoreID) (bool, error) {
	if w.hang != nil {
		select {
		case <-w.hang:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call(); err != nil {
		return false, err
	}
	if w.onPull != nil {
		w.onPull(b.ID, to)
	}
	if !w.store(to).Up {
		return false, cluster.EAGAIN
	}
	c := Copy{b, set, epoch}
	if w.copies[to][b.ID] == c {
		return false, nil
	}
	for _, id := range from {
		if _, ok := w.copies[id][b.ID]; ok && w.store(id).Up && !w.bad[id] {
			w.copies[to][b.ID] = c
			w.pulled++
			return true, nil
		}
	}
	return false, cluster.ENOBLOB
}

func (w *world) look() ([]Store, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stores), true
}

// runner is a leader.
func (w *world) runner() *Runner {
	return New(Config{Volume: w, Stores: w, Look: w.look, Parallel: 1, Pulls: 1, Retry: time.Millisecond})
}

// steps lets a leader look and work until it has nothing to do, or dies.
func (w *world) steps(r *Runner) {
	for range 300 {
		r.look(bg, true)
		r.workers.Wait()
		w.mu.Lock()
		dead := w.dieAt > 0 && w.calls >= w.dieAt
		w.mu.Unlock()
		if dead {
			return
		}
		in := r.input(bg, w.stores)
		if p := NewPlan(&in); len(p.Put) == 0 && len(p.Moves) == 0 && len(in.Pause) == 0 {
			return
		}
		if st := r.Status(); len(st.Moves) == 0 && len(in.Pause) > 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	w.t.Error("no end of steps")
}

const (
	fiveStores = "1 n1\n2 n2\n3 n3\n4 n4\n5 n5"
	threeSets  = "1: 1 2 3\n2: 1 3 4\n3: 2 3 copies=3"
)

// lookUntil lets a leader look until cond holds.
func (w *world) lookUntil(r *Runner, cond func(Status) bool) {
	w.t.Helper()
	for range 1000 {
		r.look(bg, true)
		if cond(r.Status()) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("%+v", r.Status())
}

// whole reports whether every set with blobs has as many members as copies, none
// of them lost, and is writable.
func (w *world) whole() error {
	for _, s := range w.Sets() {
		if !s.Used {
			continue
		}
		if len(s.Members) != int(s.Copies) || s.State != Writable {
			return fmt.Errorf("set %d is %+v", s.ID, s)
		}
		for _, m := range s.Members {
			if st := w.store(m); st.Lost || st.Draining {
				return fmt.Errorf("set %d still has member %d", s.ID, m)
			}
		}
	}
	w.check()
	return nil
}

// TestMoveTakenUp: a leader that dies before any of its steps leaves nothing
// behind that the next one can't go on from, nor repeats what is done.
func TestMoveTakenUp(t *testing.T) {
	const blobs = 12
	total := 0
	for die := 1; die < 500; die++ {
		w := newWorld(t, fiveStores, threeSets, blobs)
		w.steps(w.runner()) // the sets that writers go to
		w.store(3).Lost, w.store(3).Up = true, false
		w.calls, w.dieAt, w.pulled = 0, die, 0
		w.steps(w.runner())
		ended := w.calls < die
		w.dieAt = 0
		w.steps(w.runner())
		if err := w.whole(); err != nil {
			t.Fatalf("died at call %d: %v", die, err)
		}
		if w.pulled != 3*blobs {
			t.Fatalf("died at call %d: %d blobs were copied, want %d", die, w.pulled, 3*blobs)
		}
		if total++; ended {
			break
		}
	}
	if total < 40 {
		t.Errorf("only %d places to die at", total)
	}
}

// TestMoveOnce: two leaders that both think they lead do the same set; one of
// them makes the change, and nothing is lost whichever it is.
func TestMoveOnce(t *testing.T) {
	w := newWorld(t, fiveStores, "1: 1 2 3", 10)
	w.store(3).Lost, w.store(3).Up = true, false
	a := mover{volume: w, stores: w, pulls: 1}
	x := Move{Set: w.sets[0], Reason: Lost, From: 3, To: 4}
	first := true
	w.onPull = func(cluster.BlobID, cluster.StoreID) {
		if !first {
			return
		}
		first = false
		// The other one, whose move is over before this one goes on.
		w.mu.Unlock()
		y := x
		y.Set, y.To = *w.set(1), 5
		if err := a.move(bg, y, &Progress{}); err != nil {
			t.Error(err)
		}
		w.commit(1, 50) // a writer goes on
		w.mu.Lock()
	}
	if err := a.move(bg, x, &Progress{}); !errors.Is(err, cluster.ECONFLICT) {
		t.Errorf("the late one: %v", err)
	}
	if got := w.set(1).Members; !slices.Equal(got, []cluster.StoreID{1, 2, 5}) {
		t.Errorf("members %v", got)
	}
	w.check()
}

// TestMoveStale: a copy that the new member has of an earlier time is not
// counted on: it may be about to be deleted. It is put anew.
func TestMoveStale(t *testing.T) {
	w := newWorld(t, fiveStores, "1: 1 2 3", 5)
	for id, c := range w.copies[3] {
		w.copies[4][id] = c // of epoch 1
	}
	w.store(3).Lost, w.store(3).Up = true, false
	m := mover{volume: w, stores: w, pulls: 1}
	if err := m.move(bg, Move{Set: w.sets[0], Reason: Lost, From: 3, To: 4}, &Progress{}); err != nil {
		t.Fatal(err)
	}
	for id, c := range w.copies[4] {
		if c.Epoch != 2 {
			t.Errorf("blob %v is of epoch %d", id, c.Epoch)
		}
	}
}

// TestNoRightCopy: a blob that nobody has keeps its set as it is; what else the
// set has is copied. What a store has that left the set before helps.
func TestNoRightCopy(t *testing.T) {
	w := newWorld(t, fiveStores, "1: 1 2 3", 10)
	w.steps(w.runner())
	w.store(3).Lost, w.store(3).Up = true, false
	gone := cluster.MakeBlobID(1, 4)
	kept := w.copies[1][gone]
	w.gone = gone
	delete(w.copies[1], gone)
	delete(w.copies[2], gone)
	r := w.runner()
	r.cfg.Retry = time.Hour
	w.lookUntil(r, func(s Status) bool { return s.Totals.Failed > 0 })
	r.look(bg, true)
	s := r.Status()
	if len(s.Waits) != 1 || s.Waits[0].Why == "" || w.pulled != 9 || w.set(1).State != ReadOnly {
		t.Fatalf("%+v, %d pulled, %+v", s, w.pulled, w.set(1))
	}
	// It turns up on the very store that the set is moved to, from before: that
	// copy may be about to be deleted, and is left as it is. Another store gets it.
	for _, id := range []cluster.StoreID{4, 5} {
		if len(w.copies[id]) > 0 {
			w.copies[id][gone] = kept
		}
	}
	r.mu.Lock()
	clear(r.failed)
	r.mu.Unlock()
	r.cfg.Retry = time.Millisecond
	w.steps(r)
	if err := w.whole(); err != nil {
		t.Fatal(err, w.pulled)
	}
}

// TestComesBack: a member that comes back while its set is being repaired stays
// a member; a store that was being filled and goes away is not waited for.
func TestComesBack(t *testing.T) {
	w := newWorld(t, fiveStores, "1: 1 2 3", 10)
	w.steps(w.runner())
	w.store(3).Lost, w.store(3).Up = true, false
	w.hang = make(chan struct{})
	r := w.runner()
	w.lookUntil(r, func(s Status) bool { return len(s.Moves) > 0 })
	if st := r.Status(); len(st.Moves) != 1 || st.Moves[0].From != 3 || !st.Leads {
		t.Fatalf("%+v", st)
	}
	w.store(3).Lost, w.store(3).Up = false, true
	r.look(bg, true)
	r.workers.Wait()
	close(w.hang)
	w.steps(r)
	if s := w.set(1); !slices.Equal(s.Members, []cluster.StoreID{1, 2, 3}) || s.State != Writable {
		t.Errorf("after the member came back: %+v", s)
	}
	if w.pulled != 0 {
		t.Errorf("%d blobs were copied", w.pulled)
	}

	w.store(3).Lost, w.store(3).Up = true, false
	n := 0
	w.onPull = func(_ cluster.BlobID, to cluster.StoreID) {
		if n++; n == 5 {
			w.store(to).Up = false
		}
	}
	w.steps(r)
	if err := w.whole(); err != nil {
		t.Error(err)
	}
	for _, m := range w.set(1).Members {
		if !w.store(m).Up {
			t.Errorf("a store that is gone was made a member: %+v", w.set(1))
		}
	}
}

// TestFlapping: a store that comes and goes costs what was under way, not more.
func TestFlapping(t *testing.T) {
	w := newWorld(t, fiveStores, "1: 1 2 3\n2: 1 3 4\n3: 3 4 5\n4: 3 2 5\n5: 3 1 5", 10)
	w.steps(w.runner())
	w.hang = make(chan struct{})
	r := w.runner()
	for range 10 {
		w.store(3).Lost, w.store(3).Up = true, false
		w.lookUntil(r, func(s Status) bool { return len(s.Moves) > 0 })
		w.store(3).Lost, w.store(3).Up = false, true
		r.look(bg, true)
		r.workers.Wait()
	}
	close(w.hang)
	w.steps(r)
	if w.pulled > 0 || r.Status().Totals.Begun > 10 {
		t.Errorf("%d copied, %+v", w.pulled, r.Status().Totals)
	}
	if err := w.whole(); err != nil {
		t.Error(err)
	}
}

// TestLeads: who does not lead any more ends what it does; who leads again
// begins anew.
func TestLeads(t *testing.T) {
	w := newWorld(t, fiveStores, "1: 1 2 3", 10)
	w.steps(w.runner())
	w.store(3).Lost, w.store(3).Up = true, false
	w.hang = make(chan struct{})
	r := New(Config{Volume: w, Stores: w, Look: w.look})
	ctx, cancel := context.WithCancel(bg)
	var mu sync.Mutex
	leads := true
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx, func() bool { mu.Lock(); defer mu.Unlock(); return leads }, time.Millisecond)
	}()
	wait := func(what string, cond func(Status) bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !cond(r.Status()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, r.Status())
			}
		}
	}
	lead := func(x bool) {
		mu.Lock()
		defer mu.Unlock()
		leads = x
	}
	wait("it begins", func(s Status) bool { return s.Leads && len(s.Moves) == 1 && s.Moves[0].AllBlobs == 10 })
	lead(false)
	wait("it ends", func(s Status) bool { return !s.Leads && len(s.Moves) == 0 })
	lead(true)
	wait("it begins again", func(s Status) bool { return len(s.Moves) == 1 })
	close(w.hang)
	wait("it is done", func(s Status) bool { return s.Totals.Done == 1 && s.Totals.Blobs == 10 && len(s.Moves) == 0 })
	cancel()
	<-done
	if err := w.whole(); err != nil {
		t.Error(err)
	}
}
