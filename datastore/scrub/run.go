package scrub

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// RunConfig says how a store is scrubbed in the background.
type RunConfig struct {
	Scrubber *Scrubber
	Pace     Pace
	// FS and Dir are where the position is kept: the folder of the store.
	FS  vfs.FS
	Dir string
	// Used is how many bytes the store has, for the pace.
	Used func() uint64
	// Failed reports that the store is out of service: then there is nothing to
	// be repaired, and its disk is left in peace.
	Failed func() bool
	// Retry is how often what could not be repaired is tried again. 0: 10 min.
	Retry time.Duration
	// Save is how often the position is kept, at most. 0: 30 s.
	Save   time.Duration
	Logger *slog.Logger
}

// MaxDoubts bounds the copies that wait to be looked at after a read has met
// them. More are forgotten: the next pass finds them.
const MaxDoubts = 4096

// A Runner scrubs one store in the background, and on demand.
type Runner struct {
	cfg Config
	RunConfig

	turn sync.Mutex // the scrubber's: one step at a time
	next time.Time  // when the pass may take its next step; Run's

	mu      sync.Mutex
	state   State
	dirty   bool // state is not what is on the disk
	savedAt time.Time
	queue   []cluster.BlobKey // doubts, oldest first
	queued  map[cluster.BlobKey]bool
	dropped uint64 // doubts that found no room
	fault   error  // of the last step
	wake    chan struct{}
}

// NewRunner returns a runner that goes on where the one before it was.
func NewRunner(c RunConfig) *Runner {
	if c.Retry == 0 {
		c.Retry = 10 * time.Minute
	}
	if c.Save == 0 {
		c.Save = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runner{cfg: c.Scrubber.cfg, RunConfig: c, queued: map[cluster.BlobKey]bool{}, wake: make(chan struct{}, 1)}
	var err error
	if r.state, err = load(c.FS, c.Dir); err != nil {
		// It costs a pass that begins sooner.
		c.Logger.Warn("the scrub of a store begins anew", "store", uint32(r.cfg.ID), "err", err)
	}
	return r
}

// Doubt asks for a copy to be looked at soon: a read has found it damaged or
// missing. It does not block.
func (r *Runner) Doubt(keys ...cluster.BlobKey) {
	r.mu.Lock()
	for _, k := range keys {
		switch {
		case r.queued[k]:
		case len(r.queue) >= MaxDoubts:
			r.dropped++
		default:
			r.queue = append(r.queue, k)
			r.queued[k] = true
		}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Step takes a step of a scrub that was asked for, at the full rate: it returns
// once that much time has passed. Its position is the caller's.
func (r *Runner) Step(ctx context.Context, after cluster.BlobKey) (Result, error) {
	return r.demand(ctx, func() (Result, error) { return r.Scrubber.Step(ctx, after) })
}

// Check looks at some copies now, at the full rate.
func (r *Runner) Check(ctx context.Context, keys []cluster.BlobKey) (Result, error) {
	return r.demand(ctx, func() (Result, error) { return r.Scrubber.Check(ctx, keys) })
}

func (r *Runner) demand(ctx context.Context, do func() (Result, error)) (Result, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	begun := time.Now()
	res, err := do()
	r.noted(&res)
	if err == nil {
		pause(ctx, Wait(res.Bytes, r.Pace.Rate, time.Since(begun)), nil)
	}
	return res, err
}

// noted remembers what came of a step that is not the pass's.
func (r *Runner) noted(res *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.note(res) {
		r.dirty = true
	}
}

// Status is how the scrub of a store stands.
type Status struct {
	Store   cluster.StoreID `json:"store"`
	Running bool            `json:"running"` // a pass is under way
	Done    float64         `json:"done"`    // share of the pass, 0 to 1
	Rate    uint64          `json:"rate"`    // bytes a second, now
	Doubts  int             `json:"doubts"`  // copies that wait to be looked at
	State   State           `json:"state"`
	Fault   string          `json:"fault,omitempty"` // why it does not go on now
}

// Status returns how the scrub stands.
func (r *Runner) Status() Status {
	used := r.Used()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Store: r.cfg.ID, Running: r.state.running(), Doubts: len(r.queue), State: r.state}
	s.State.Problems = append([]Problem(nil), r.state.Problems...)
	if s.Running {
		s.Done = min(1, float64(r.state.Counts.Bytes)/float64(max(used, 1)))
		s.Rate = r.Pace.RateAt(r.state.Began, time.Now(), left(used, r.state.Counts.Bytes))
	}
	if r.fault != nil {
		s.Fault = r.fault.Error()
	}
	return s
}

func left(used, done uint64) uint64 { return used - min(used, done) }

// Run scrubs until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	defer r.keep(true)
	retried := time.Now()
	for ctx.Err() == nil {
		now := time.Now()
		switch {
		case r.Failed():
			pause(ctx, idlePause, nil)
			r.settle(r.takeDoubts(MaxDoubts)) // nothing is written to it any more
		case r.doubts(ctx):
		case now.Sub(retried) >= r.Retry:
			retried = now
			r.retry(ctx)
		default:
			r.passOn(ctx, now)
		}
		r.keep(false)
	}
}

// checkBatch is how many doubts are looked at in one turn.
const checkBatch = 16

func (r *Runner) takeDoubts(n int) []cluster.BlobKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.queue))
	keys := append([]cluster.BlobKey(nil), r.queue[:n]...)
	r.queue = append(r.queue[:0], r.queue[n:]...)
	return keys
}

// settle forgets doubts that were looked at. Until then they are not queued
// again: looking at a damaged copy raises a doubt itself.
func (r *Runner) settle(keys []cluster.BlobKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		delete(r.queued, k)
	}
}

// doubts looks at some copies that reads have met, and reports whether there were any.
func (r *Runner) doubts(ctx context.Context) bool {
	keys := r.takeDoubts(checkBatch)
	if len(keys) == 0 {
		return false
	}
	defer r.settle(keys)
	r.check(ctx, keys)
	return true
}

// retry tries again what could not be repaired.
func (r *Runner) retry(ctx context.Context) {
	r.mu.Lock()
	keys := make([]cluster.BlobKey, len(r.state.Problems))
	for i, p := range r.state.Problems {
		keys[i] = p.Key
	}
	r.mu.Unlock()
	for len(keys) > 0 && ctx.Err() == nil {
		n := min(checkBatch, len(keys))
		if !r.check(ctx, keys[:n]) {
			return
		}
		keys = keys[n:]
	}
}

// check looks at copies one by one, and reports false if that can't be done now.
func (r *Runner) check(ctx context.Context, keys []cluster.BlobKey) bool {
	for _, k := range keys {
		if _, err := r.Check(ctx, []cluster.BlobKey{k}); err != nil {
			r.stuck(err)
			if ctx.Err() == nil {
				r.cfg.Logger.Debug("a doubtful copy can't be judged now", "store", uint32(r.cfg.ID), "blob", k.Blob, "err", err)
			}
			// The group has no leader, or the disk does not answer: the next one
			// would fare no better. The next pass comes by it.
			return false
		}
	}
	return true
}

func (r *Runner) stuck(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = err
}

// faultPause is how long the pass waits after a step that failed.
const faultPause = 10 * time.Second

// idlePause is how often a scrub that has nothing to do looks whether it is due.
const idlePause = time.Minute

// passOn takes the pass's next step, or waits for a pass to be due.
func (r *Runner) passOn(ctx context.Context, now time.Time) {
	r.mu.Lock()
	if r.state.due(now, r.Pace.Every) {
		r.state.begin(now)
		r.dirty = true
	}
	running, after, began, done := r.state.running(), r.state.After, r.state.Began, r.state.Counts.Bytes
	r.mu.Unlock()
	if !running {
		pause(ctx, min(idlePause, r.Retry, max(time.Millisecond, r.Pace.Every-now.Sub(began))), r.wake)
		return
	}
	if wait := r.next.Sub(now); wait > 0 {
		pause(ctx, wait, r.wake)
		return
	}
	r.turn.Lock()
	res, err := r.Scrubber.Step(ctx, after)
	r.turn.Unlock()
	took := time.Since(now)
	r.mu.Lock()
	r.fault = err
	if err == nil {
		r.state.step(&res, time.Now())
	} else {
		r.state.note(&res) // what was found before is not lost
	}
	r.dirty = true
	counts := r.state.Counts
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.cfg.Logger.Debug("the scrub can't go on now", "store", uint32(r.cfg.ID), "err", err)
		r.next = time.Now().Add(faultPause)
	case res.Done:
		r.cfg.Logger.Info("a store is scrubbed", "store", uint32(r.cfg.ID), "copies", counts.Copies, "bytes", counts.Bytes,
			"bad", counts.Bad, "missing", counts.Missing, "repaired", counts.Repaired, "failed", counts.Failed)
	default:
		r.next = time.Now().Add(Wait(res.Bytes, r.Pace.RateAt(began, now, left(r.Used(), done)), took))
	}
}

// keep writes the state down, now and then.
func (r *Runner) keep(now bool) {
	r.mu.Lock()
	if !r.dirty || !now && time.Since(r.savedAt) < r.Save {
		r.mu.Unlock()
		return
	}
	s := r.state
	s.Problems = append([]Problem(nil), r.state.Problems...)
	r.dirty, r.savedAt = false, time.Now()
	r.mu.Unlock()
	if err := save(r.FS, r.Dir, &s); err != nil {
		r.cfg.Logger.Warn("the scrub's position can't be kept", "store", uint32(r.cfg.ID), "err", err)
	}
}

// pause waits for d, or less if ctx ends or wake has something.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-wake:
	}
}
