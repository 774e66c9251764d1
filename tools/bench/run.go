package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// stopGrace is how long operations under way may take to end when the benchmark
// is stopped, before they are given up.
const stopGrace = 3 * time.Second

// endTimeout is how long the servers may take to remove what was made.
const endTimeout = 10 * time.Minute

// A bench is a benchmark under way.
type bench struct {
	cfg     Config
	ctx     context.Context // of the caller: when it ends, no new work is begun
	targets []*target
	list    []*workload
	report  *Report
	done    int // steps
}

// Run measures. When ctx ends it removes what was made and returns ctx's error.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	// Operations under way get the time to end, so that what they make is there
	// to be removed.
	hard, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(stopGrace):
			giveUp()
		case <-hard.Done():
		}
	})()
	b := &bench{cfg: cfg, ctx: ctx, list: cfg.chosen()}
	err := b.all(hard)
	giveUp()
	b.progress(1, "removing what was made")
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err = errors.Join(err, b.end(end))
	if ctx.Err() != nil {
		err = ctx.Err() // what failed did so since it was stopped
	}
	if err != nil {
		return nil, err
	}
	b.report.sum()
	return b.report, nil
}

// end ends the work on all servers.
func (b *bench) end(ctx context.Context) error {
	var errs []error
	for _, t := range b.targets {
		errs = append(errs, b.watched(ctx, t, nil, t.end))
	}
	return errors.Join(errs...)
}

// all connects to the servers and measures all there is to measure.
func (b *bench) all(ctx context.Context) error {
	data := newContent(b.cfg.Seed, max(b.cfg.Block, b.cfg.RandomBlock, b.cfg.SmallSize))
	stopped := func() bool { return b.ctx.Err() != nil }
	for _, s := range b.cfg.Servers {
		b.progress(0, "connecting to "+s.String())
		t, err := connect(ctx, &b.cfg, s, data, stopped)
		if err != nil {
			return err
		}
		b.targets = append(b.targets, t)
	}
	b.report = newReport(&b.cfg, b.list, b.targets)
	for run := -b.cfg.Warmup; run < b.cfg.Runs; run++ {
		for wi, w := range b.list {
			for ti, t := range b.targets {
				if stopped() {
					return b.ctx.Err()
				}
				f, err := b.step(ctx, t, w, run)
				if err != nil {
					return t.explain(w.name, err)
				}
				if run >= 0 {
					r := &b.report.Workloads[wi].Results[ti]
					r.Runs = append(r.Runs, f)
				}
			}
		}
	}
	return nil
}

// step measures one run of one workload on one server. Runs below 0 are for
// warm-up: what they read is compared with what was written.
func (b *bench) step(ctx context.Context, t *target, w *workload, run int) (f Figures, err error) {
	steps := (b.cfg.Warmup + b.cfg.Runs) * len(b.list) * len(b.targets)
	what := fmt.Sprintf("%s, run %d of %d", w.name, run+1, b.cfg.Runs)
	if run < 0 {
		what = w.name + ", warm-up"
	}
	if len(b.targets) > 1 {
		what += ", " + t.server.String()
	}
	var begin atomic.Pointer[time.Time] // nil: it is being prepared
	tick := func() {
		part := 0.0
		if t := begin.Load(); t != nil {
			part = min(float64(time.Since(*t))/float64(b.cfg.Duration), 1)
		}
		b.progress((float64(b.done)+part)/float64(steps), what)
	}
	tick()
	err = b.watched(ctx, t, tick, func(ctx context.Context) error {
		if err := w.prepare(ctx, t); err != nil {
			return err
		}
		if run >= 0 && w.read && b.cfg.DropCaches != nil {
			if err := b.cfg.DropCaches(ctx, t.server); err != nil {
				return fmt.Errorf("dropping the server's caches: %w", err)
			}
		}
		now := time.Now()
		begin.Store(&now)
		jobs := t.jobs()
		if f, err = t.measure(ctx, w, jobs, run < 0); err != nil || w.complete == nil {
			return err
		}
		return w.complete(ctx, t, jobs)
	})
	b.done++
	return f, err
}

// watched calls do with a context that ends when the server has answered
// nothing for too long, and tick now and then.
func (b *bench) watched(ctx context.Context, t *target, tick func(), do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	last, since := t.answered.Load(), time.Now()
	for {
		select {
		case err := <-done:
			if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
				return cause
			}
			return err
		case <-ticker.C:
			if tick != nil {
				tick()
			}
		}
		if n := t.answered.Load(); n != last {
			last, since = n, time.Now()
		} else if time.Since(since) > b.cfg.Timeout {
			cancel(fmt.Errorf("%w for %v: see whether it is well, or give it longer with --timeout", errSilent, b.cfg.Timeout))
		}
	}
}

// errSilent: the server does not answer.
var errSilent = errors.New("the server has answered nothing")

func (b *bench) progress(done float64, what string) {
	if b.cfg.Progress != nil {
		b.cfg.Progress(Progress{Done: done, What: what})
	}
}

// jobs returns the workers of a run, at its start.
func (t *target) jobs() []*job {
	jobs := make([]*job, t.cfg.Jobs)
	for i := range jobs {
		jobs[i] = &job{t: t, id: i}
		if i < len(t.files) {
			jobs[i].file = t.files[i]
		}
	}
	return jobs
}

// measure has the jobs work until their amount is done or the time is over.
func (t *target) measure(ctx context.Context, w *workload, jobs []*job, verify bool) (Figures, error) {
	depth, amount := 1, 1<<62
	if w.data {
		depth = t.cfg.Depth
	}
	if w.amount != nil {
		amount = w.amount(t.cfg)
	}
	workers := make([]worker, len(jobs)*depth)
	begin := time.Now()
	end := begin.Add(t.cfg.Duration)
	g, ctx := errgroup.WithContext(ctx)
	for ji, j := range jobs {
		g.Go(func() error {
			err := j.work(ctx, w, workers[ji*depth:(ji+1)*depth], amount, end, verify)
			if err == nil && w.finish != nil {
				err = w.finish(ctx, j)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Figures{}, err
	}
	return figures(time.Since(begin), workers), nil
}

// work has a job's workers do its operations.
func (j *job) work(ctx context.Context, w *workload, workers []worker, amount int, end time.Time, verify bool) error {
	g, ctx := errgroup.WithContext(ctx)
	for k := range workers {
		wk := &workers[k]
		wk.job, wk.verify = j, verify
		g.Go(func() error {
			for begin := time.Now(); begin.Before(end); {
				if j.t.stopped() {
					return nil // what is under way is not given up
				}
				i := take(&j.next, amount)
				if i < 0 {
					return nil
				}
				if err := w.do(ctx, wk, i); err != nil {
					return err
				}
				now := time.Now()
				wk.hist.Record(now.Sub(begin))
				begin = now
				j.t.answered.Add(1)
			}
			return nil
		})
	}
	return g.Wait()
}

// take returns the next number below limit, or -1 if there is none.
func take(next *atomic.Int64, limit int) int {
	for {
		n := next.Load()
		if n >= int64(limit) {
			return -1
		}
		if next.CompareAndSwap(n, n+1) {
			return int(n)
		}
	}
}
