package sim

import (
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// A node is a machine: a replica of the volume's state machine, a front-end and
// stores. All of it dies when it does, and what is on its disks stays.
type node struct {
	w       *World
	id      cluster.NodeID
	n       int // from 0
	up      bool
	cut     bool // from the other nodes; clients reach it
	since   time.Duration
	fenced  bool // since it is down: its clients may go elsewhere
	proc    *proc
	replica *replica
	fe      *frontEnd
	stores  []*store
}

// linked reports whether a and b reach each other now.
func linked(a, b *node) bool { return a.up && b.up && (a == b || !a.cut && !b.cut) }

// send carries a message that fn receives at b. It may be lost, late or come
// twice; it finds b's present incarnation, whichever sent for.
func (w *World) send(a, b *node, fn func()) {
	if a == b {
		w.after(w.between(time.Microsecond, 20*time.Microsecond), func() {
			if b.up {
				fn()
			}
		})
		return
	}
	if !linked(a, b) && !w.oneIn(8) { // else it is under way already
		return
	}
	times := 1
	if !w.calm {
		if w.oneIn(200) {
			return
		}
		if w.oneIn(80) {
			times = 2
		}
	}
	for range times {
		d := w.between(30*time.Microsecond, 500*time.Microsecond)
		if !w.calm && w.oneIn(100) {
			d = w.between(time.Millisecond, 6*time.Second)
		}
		w.after(d, func() {
			if b.up && !b.cut {
				fn()
			}
		})
	}
}

// call sends a request from the current task's node to b, where handle answers
// it, and waits for the answer at most limit.
func call[T any](t *task, a, b *node, limit time.Duration, handle func(reply func(T))) (T, bool) {
	f := &future[T]{task: t}
	request(t.w, a, b, handle, f.resolve)
	ok := t.wait(limit, func() bool { return f.set })
	return f.val, ok
}

// request is call without waiting: done has the answer, if it comes; more than
// once if the request does.
func request[T any](w *World, a, b *node, handle func(reply func(T)), done func(T)) {
	p := a.proc
	w.send(a, b, func() {
		q := b.proc
		handle(func(v T) {
			if !q.alive {
				return
			}
			w.send(b, a, func() {
				if p.alive {
					done(v)
				}
			})
		})
	})
}
