package repair

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// Config says what is kept in repair.
type Config struct {
	Volume Volume
	Stores Stores
	// Look returns the stores of the cluster as they are now; ok is false while
	// that is not known, and then nothing is begun.
	Look func() (stores []Store, ok bool)
	// Balance reports whether the stores are to be evened out. nil: never.
	Balance func() bool
	// Parallel is how many moves there are at a time. 0: 2.
	Parallel int
	// Pulls is how many blobs a move copies at a time. 0: 4.
	Pulls int
	// Retry is how long a set rests after a move of it has failed: doubled each
	// time, up to 30 times as long. 0: 10 s.
	Retry  time.Duration
	Logger *slog.Logger
}

// A Runner keeps one volume in repair.
type Runner struct {
	cfg   Config
	mover mover

	mu     sync.Mutex
	leads  bool
	moves  map[cluster.ReplicaSetID]*running
	failed map[cluster.ReplicaSetID]failure
	waits  []Wait
	sizes  map[cluster.ReplicaSetID]size
	begun  map[cluster.ReplicaSetID]begun
	total  Totals

	workers sync.WaitGroup
}

// running is a move under way.
type running struct {
	Move
	cancel   context.CancelFunc
	since    time.Time
	progress Progress
}

// failure is why a set's last move has failed, and until when it rests.
type failure struct {
	why   string
	to    cluster.StoreID
	rest  time.Duration
	until time.Time
}

// size is how much a set has, as of a time.
type size struct {
	blobs, bytes uint64
	at           time.Time
}

// begun is where an earlier leader began to move a set, found at an epoch.
type begun struct {
	epoch uint32
	store cluster.StoreID
}

// New returns a runner.
func New(cfg Config) *Runner {
	if cfg.Parallel == 0 {
		cfg.Parallel = 2
	}
	if cfg.Pulls == 0 {
		cfg.Pulls = 4
	}
	if cfg.Retry == 0 {
		cfg.Retry = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{cfg: cfg}
	r.mover = mover{volume: cfg.Volume, stores: cfg.Stores, others: r.others, pulls: cfg.Pulls}
	r.forget()
	return r
}

// forget drops what a leader remembers.
func (r *Runner) forget() {
	r.moves = map[cluster.ReplicaSetID]*running{}
	r.failed = map[cluster.ReplicaSetID]failure{}
	r.sizes = map[cluster.ReplicaSetID]size{}
	r.begun = map[cluster.ReplicaSetID]begun{}
	r.waits = nil
}

// others returns the stores that can be reached, for blobs that no member has.
func (r *Runner) others(Set) (ids []cluster.StoreID) {
	stores, _ := r.cfg.Look()
	for i := range stores {
		if stores[i].Up {
			ids = append(ids, stores[i].ID)
		}
	}
	return ids
}

// Run looks every so often what is to be done, while lead reports that this node
// leads the volume's group, until ctx ends.
func (r *Runner) Run(ctx context.Context, lead func() bool, every time.Duration) {
	defer r.workers.Wait()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		r.look(ctx, lead())
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// look takes the next steps.
func (r *Runner) look(ctx context.Context, leads bool) {
	r.mu.Lock()
	led := r.leads
	r.leads = leads
	if led && !leads {
		for _, m := range r.moves {
			m.cancel()
		}
		r.forget()
	}
	r.mu.Unlock()
	if !leads {
		return
	}
	if !led && r.cfg.Volume.Sync(ctx) != nil {
		r.mu.Lock()
		r.leads = false
		r.mu.Unlock()
		return
	}
	stores, ok := r.cfg.Look()
	if !ok {
		return
	}
	in := r.input(ctx, stores)
	r.abandon(&in)
	plan := NewPlan(&in)
	put := 0
	for _, s := range plan.Put {
		if _, err := r.cfg.Volume.PutSet(ctx, s); err != nil {
			if ctx.Err() == nil {
				r.cfg.Logger.Debug("a replica set will be put again", "set", uint32(s.ID), "err", err)
			}
			break
		}
		put++
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = plan.Waits
	if put > 0 {
		return // the moves go by what is there then
	}
	for _, m := range plan.Moves {
		r.begin(ctx, m)
	}
}

// input gathers what a plan goes by.
func (r *Runner) input(ctx context.Context, stores []Store) Input {
	in := Input{Sets: r.cfg.Volume.Sets(), Stores: stores, Parallel: r.cfg.Parallel, Pause: map[cluster.ReplicaSetID]string{}}
	if r.cfg.Balance != nil && r.cfg.Balance() {
		r.weigh(&in)
	}
	for i := range in.Sets {
		if s := &in.Sets[i]; s.Used && s.State == ReadOnly && !s.Foreign {
			s.Begun = r.whereBegun(ctx, s, stores)
		}
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(r.moves)) {
		in.Busy = append(in.Busy, r.moves[id].Move)
	}
	for i := range in.Sets {
		in.Sets[i].Avoid = r.failed[in.Sets[i].ID].to
	}
	for id, f := range r.failed {
		if now.Before(f.until) {
			in.Pause[id] = f.why
		}
	}
	return in
}

// weigh asks for stores to be evened out, by what the sets have.
func (r *Runner) weigh(in *Input) {
	in.Balance = true
	for i := range in.Sets {
		if s := &in.Sets[i]; s.Used && !s.Foreign {
			s.Bytes = r.sizeOf(s.ID, 20*time.Second).bytes
		}
	}
}

// whereBegun finds the store that an earlier leader has begun to move a set to:
// it has a copy of the first blob, put at this epoch.
func (r *Runner) whereBegun(ctx context.Context, s *Set, stores []Store) cluster.StoreID {
	r.mu.Lock()
	known, ok := r.begun[s.ID]
	_, moving := r.moves[s.ID]
	r.mu.Unlock()
	if moving || ok && known.epoch == s.Epoch {
		return known.store
	}
	known = begun{epoch: s.Epoch}
	if blobs := r.cfg.Volume.Blobs(s.ID, 0, 1); len(blobs) > 0 {
		for i := range stores {
			st := &stores[i]
			if !st.Up || !st.takes() || s.has(st.ID) {
				continue
			}
			ask, cancel := context.WithTimeout(ctx, time.Second)
			copies, err := r.cfg.Stores.List(ask, st.ID, blobs[0].ID-1, 1)
			cancel()
			if err == nil && len(copies) == 1 && copies[0].ID == blobs[0].ID && copies[0].Set == s.ID && copies[0].Epoch == s.Epoch {
				known.store = st.ID
				break
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun[s.ID] = known
	return known.store
}

// abandon ends the moves that are not needed any more: their member has come
// back, or is not to be emptied after all.
func (r *Runner) abandon(in *Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.moves {
		if !Needed(in, &m.Move) {
			m.cancel()
		}
	}
}

// begin starts a move, with mu held.
func (r *Runner) begin(ctx context.Context, m Move) {
	ctx, cancel := context.WithCancel(ctx)
	x := &running{Move: m, cancel: cancel, since: time.Now()}
	r.moves[m.Set.ID] = x
	r.total.Begun++
	r.cfg.Logger.Info("a replica set is moved", "set", uint32(m.Set.ID), "why", m.Reason.String(), "from", uint32(m.From), "to", uint32(m.To))
	r.workers.Go(func() {
		defer cancel()
		r.count(m.Set.ID, &x.progress)
		err := r.mover.move(ctx, m, &x.progress)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.moves[m.Set.ID] != x {
			return // this node does not lead any more
		}
		delete(r.moves, m.Set.ID)
		delete(r.begun, m.Set.ID)
		delete(r.sizes, m.Set.ID)
		r.total.Blobs += x.progress.CopiedBlobs.Load()
		r.total.Bytes += x.progress.CopiedByt.Load()
		switch {
		case err == nil:
			r.total.Done++
			delete(r.failed, m.Set.ID)
			r.cfg.Logger.Info("a replica set was moved", "set", uint32(m.Set.ID), "why", m.Reason.String(),
				"from", uint32(m.From), "to", uint32(m.To), "blobs", x.progress.Blobs.Load(), "bytes", x.progress.Bytes.Load(), "took", time.Since(x.since))
		case errors.Is(err, cluster.ECONFLICT) || ctx.Err() != nil:
			r.cfg.Logger.Debug("a replica set was changed meanwhile", "set", uint32(m.Set.ID), "err", err)
		default:
			r.total.Failed++
			rest := min(max(2*r.failed[m.Set.ID].rest, r.cfg.Retry), 30*r.cfg.Retry)
			r.failed[m.Set.ID] = failure{why: err.Error(), to: m.To, rest: rest, until: time.Now().Add(rest)}
			r.cfg.Logger.Warn("a replica set could not be moved; it will be tried again", "set", uint32(m.Set.ID), "why", m.Reason.String(), "err", err)
		}
	})
}
