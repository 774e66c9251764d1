package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// wanderers is how many clients go from front-end to front-end.
const wanderers = 3

// proposeFrom executes a command of a client's request.
func (fe *frontEnd) proposeFrom(t *task, o *fsm.Origin, b fsm.Body) ([]byte, error) {
	s := fe.session(t)
	fe.w.body = b
	_, body, err := s.ProposeFrom(context.Background(), o, b)
	if errors.Is(err, cluster.EFENCED) {
		fe.fenced(s)
		err = cluster.EAGAIN
	}
	return body, err
}

// any has an operation done by a front-end that is up. ok is false if that does
// not answer in time, or dies: it may do it yet.
func (c *client) any(t *task, do func(t *task, fe *frontEnd) answer) (a answer, ok bool) {
	w := c.w
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if !n.up {
		t.sleep(w.between(10*time.Millisecond, 300*time.Millisecond))
		return a, false
	}
	f := &future[answer]{task: t}
	fe, p := n.fe, n.proc
	w.after(w.between(20*time.Microsecond, 50*time.Millisecond), func() {
		if !p.alive {
			return
		}
		w.spawn(p, func(ft *task) {
			a := do(ft, fe)
			if w.calm || !w.oneIn(4) { // else the connection is lost
				w.after(w.between(20*time.Microsecond, 300*time.Microsecond), func() { f.resolve(a) })
			}
		})
	})
	t.wait(w.between(time.Millisecond, 2*time.Second), func() bool { return f.set || !p.alive })
	return f.val, f.set
}

// once has a request executed: it is repeated, as the same request, at one
// front-end after the other, while those before may still be at it, until one
// answers. It is executed once for all that.
func (c *client) once(t *task, b fsm.Body) ([]byte, error) {
	c.seq++
	for try := 0; ; try++ {
		if try > 0 {
			c.w.count.moved++
			if c.w.broken(BreakOrigin) {
				c.seq++
			}
		}
		o := fsm.Origin{Session: [16]byte{1, byte(c.n)}, Slot: 1, Seq: c.seq, Ordered: true}
		a, ok := c.any(t, func(t *task, fe *frontEnd) answer {
			body, err := fe.proposeFrom(t, &o, b)
			return answer{err: err, body: body}
		})
		if ok && !errors.Is(a.err, cluster.EAGAIN) {
			return a.body, a.err
		}
	}
}

// wander is the life of a client that is taken over all the time: each of its
// requests succeeds, for nobody else does what it asks for, and what it has
// open stays, for that is recorded.
func (c *client) wander(t *task) {
	w := c.w
	for !w.resting {
		t.sleep(w.between(100*time.Microsecond, 100*time.Millisecond))
		name := fmt.Sprintf("w%d-%d", c.n, w.nextOp())
		open := volume.State{Kind: volume.StateOpen, Client: uint64(c.n + 1), Access: 3, Owner: []byte(name)}
		copy(open.Other[:], name)
		body, err := c.once(t, volume.Create{
			Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, How: volume.Guarded, Gen: 7, Open: &open,
		})
		if err != nil {
			w.failf("client %d creates %s, which was not there, and is told: %v", c.n, name, err)
		}
		res, err := volume.DecodeCreateResult(body)
		if err != nil {
			w.failf("client %d: %v", c.n, err)
		}
		ino := res.Attr.Ino
		if _, err := c.once(t, volume.Remove{Dir: cluster.RootIno, Name: name}); err != nil {
			w.failf("client %d removes %s, which it has made, and is told: %v", c.n, name, err)
		}
		if w.oneIn(4) {
			t.sleep(w.between(time.Millisecond, 4*time.Second))
		}
		looked := false // by then it may be closed, and an earlier look be late
		for !looked {
			_, looked = c.any(t, func(t *task, fe *frontEnd) answer {
				fe.n.replica.waitApplied(t, w.readIndex(t, fe.n))
				if _, there := fe.n.replica.view.Inode(ino); !there && !looked {
					w.failf("inode %d is gone on node %s, but client %d has it open", ino, fe.n.id, c.n)
				}
				return answer{}
			})
		}
		if _, err := c.once(t, volume.DropStates{Refs: []volume.StateRef{{Ino: ino, Other: open.Other}}}); err != nil {
			w.failf("client %d closes inode %d and is told: %v", c.n, ino, err)
		}
	}
	w.clientsDone++
}

// repeated reports whether a command is of a request that was executed before:
// it has the result that it had.
func (r *rules) repeated(e *logEntry) bool {
	o := e.env.Origin
	if o.IsZero() {
		return false
	}
	first, known := r.requests[o]
	if !known {
		r.requests[o] = e.result
		return false
	}
	r.w.count.repeats++
	_, err := fsm.SplitResult(e.result)
	if err != cluster.EREPLAY && string(first) != string(e.result) {
		r.missf("entry %d is of a request that was executed before with another result: %x, %x", e.Index, first, e.result)
	}
	return true
}
