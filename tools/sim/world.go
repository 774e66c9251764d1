package sim

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// A step is what happens at a time: a message arrives, a disk has synced, a
// task goes on. Steps of the same time happen in the order they were planned.
type step struct {
	at  time.Duration
	seq uint64
	fn  func()
}

// A clock is the simulated time with what is planned.
type clock struct {
	now   time.Duration
	seq   uint64
	heap  []step
	steps uint64 // done
}

func (c *clock) less(i, j int) bool {
	a, b := &c.heap[i], &c.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// after plans fn.
func (c *clock) after(d time.Duration, fn func()) {
	c.seq++
	c.heap = append(c.heap, step{c.now + d, c.seq, fn})
	for i := len(c.heap) - 1; i > 0; {
		p := (i - 1) / 2
		if !c.less(i, p) {
			break
		}
		c.heap[i], c.heap[p] = c.heap[p], c.heap[i]
		i = p
	}
}

// next does the next step, and reports whether there was one.
func (c *clock) next() bool {
	if len(c.heap) == 0 {
		return false
	}
	s := c.heap[0]
	n := len(c.heap) - 1
	c.heap[0], c.heap[n] = c.heap[n], step{}
	c.heap = c.heap[:n]
	for i := 0; ; {
		l := 2*i + 1
		if l >= n {
			break
		}
		if l+1 < n && c.less(l+1, l) {
			l++
		}
		if !c.less(l, i) {
			break
		}
		c.heap[i], c.heap[l] = c.heap[l], c.heap[i]
		i = l
	}
	c.now = s.at
	c.steps++
	s.fn()
	return true
}

// killed is the panic that unwinds a task whose process died.
type killed struct{}

// A proc is one incarnation of a process: its tasks die with it.
type proc struct {
	alive bool
	tasks []*task
}

// A task is a coroutine: it runs from one wait to the next.
type task struct {
	w       *World
	p       *proc
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	planned bool // to go on
	done    bool
	waits   uint64 // counts waits, so that old timers are known
}

// spawn starts a task of p, unless that is dead.
func (w *World) spawn(p *proc, fn func(t *task)) {
	if !p.alive {
		return // a task that is unwound tidies up
	}
	t := &task{w: w, p: p}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(killed); !ok {
					panic(r)
				}
			}
		}()
		t.yield = yield
		fn(t)
	})
	p.tasks = append(p.tasks, t)
	t.wake()
}

// kill ends p with all its tasks.
func (p *proc) kill() {
	p.alive = false
	for _, t := range p.tasks {
		if !t.done {
			t.done = true
			t.stop()
		}
	}
	p.tasks = nil
}

// tidy forgets the tasks that are done.
func (p *proc) tidy() {
	if len(p.tasks) < 64 {
		return
	}
	live := p.tasks[:0]
	for _, t := range p.tasks {
		if !t.done {
			live = append(live, t)
		}
	}
	clear(p.tasks[len(live):])
	p.tasks = live
}

// wake makes t look again at what it waits for.
func (t *task) wake() {
	if t == nil || t.done || t.planned {
		return
	}
	t.planned = true
	t.w.after(0, func() {
		t.planned = false
		if t.done {
			return
		}
		before := t.w.cur
		t.w.cur = t
		_, ok := t.next()
		t.w.cur = before
		if !ok {
			t.done = true
			t.p.tidy()
		}
	})
}

// wait waits until cond holds, at most limit (0: for ever), and reports whether
// it does. Whoever makes it true wakes the task.
func (t *task) wait(limit time.Duration, cond func() bool) bool {
	if cond() {
		return true
	}
	t.waits++
	end := t.w.now + limit
	if limit > 0 {
		n := t.waits
		t.w.after(limit, func() {
			if t.waits == n {
				t.wake()
			} else {
				t.w.steps-- // nothing happened
			}
		})
	}
	for {
		if !t.yield(struct{}{}) {
			panic(killed{})
		}
		if cond() {
			t.waits++
			return true
		}
		if limit > 0 && t.w.now >= end {
			t.waits++
			return false
		}
	}
}

// sleep waits for d.
func (t *task) sleep(d time.Duration) { t.wait(max(d, 1), func() bool { return false }) }

// A future is a value that one task waits for.
type future[T any] struct {
	set  bool
	val  T
	task *task
}

// resolve sets the value; only the first one counts.
func (f *future[T]) resolve(v T) {
	if !f.set {
		f.set, f.val = true, v
		f.task.wake()
	}
}

// A violation is a rule that does not hold.
type violation struct{ text string }

// failf ends the run: a rule does not hold.
func (w *World) failf(format string, args ...any) {
	panic(violation{fmt.Sprintf(format, args...)})
}

// between draws a duration.
func (w *World) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)+1))
}

// oneIn is true once in n times.
func (w *World) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// notef keeps a line of what happens for the report of a failure.
func (w *World) notef(format string, args ...any) {
	if w.cfg.Trace != nil {
		w.cfg.Trace(fmt.Sprintf("%10d %12v %s", w.steps, w.now, fmt.Sprintf(format, args...)))
	}
}
