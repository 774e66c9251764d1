package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A client is an NFS client with its applications. It lives through everything;
// it stays with its front-end, until that is dead and fenced, or started anew.
type client struct {
	w  *World
	n  int
	at *node
	// A file that only this client writes, relaxed, and what it should hold.
	own      cluster.Ino
	content  []byte
	unstable []unstable // not known to be committed
	seq      uint32     // of its last request, if it wanders
}

type unstable struct {
	off uint64
	p   []byte
	v   verifier
}

// answer is a front-end's reply.
type answer struct {
	err  error
	v    verifier
	ino  cluster.Ino
	body []byte
}

// ask has an operation done by the front-end. ok is false if that died over it.
func (c *client) ask(t *task, do func(t *task, fe *frontEnd, early func()) answer) (answer, bool) {
	for !c.at.up {
		if c.at.fenced { // so nothing of it has an effect any more
			for _, n := range c.w.nodes {
				if n.up && !n.cut {
					c.at = n
					break
				}
			}
		}
		t.sleep(c.w.between(10*time.Millisecond, 300*time.Millisecond))
	}
	f := &future[answer]{task: t}
	fe, p := c.at.fe, c.at.proc
	c.w.after(c.w.between(20*time.Microsecond, 300*time.Microsecond), func() {
		if !p.alive {
			return
		}
		c.w.spawn(p, func(ft *task) {
			early := func() { f.resolve(answer{}) }
			a := do(ft, fe, early)
			c.w.after(c.w.between(20*time.Microsecond, 300*time.Microsecond), func() {
				if p.alive {
					f.resolve(a)
				}
			})
		})
	})
	t.wait(0, func() bool { return f.set || !p.alive })
	return f.val, f.set
}

// run is a client's life.
func (c *client) run(t *task) {
	w := c.w
	c.create(t)
	for !w.resting {
		t.sleep(w.between(100*time.Microsecond, 10*time.Millisecond))
		switch k := w.rng.IntN(100); {
		case k < 42:
			c.writeStrict(t)
		case k < 62:
			c.writeOwn(t)
		case k < 70:
			c.commitOwn(t)
		case k < 86:
			c.anyFile(t, func(t *task, fe *frontEnd, ino cluster.Ino) error { return fe.read(t, ino) })
		case k < 89:
			c.change(t, volume.Punch{Off: uint64(w.rng.IntN(maxFile)), Len: uint64(1 + w.rng.IntN(maxFile/2))})
		case k < 91:
			size := uint64(w.rng.IntN(maxFile))
			c.change(t, volume.SetAttr{Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: size}, Open: true})
		case k < 93:
			c.change(t, volume.Clone{})
		case k < 96:
			c.remove(t)
		default:
			c.create(t)
		}
	}
	c.commitOwn(t)
	w.clientsDone++
}

// data is the content of an operation: no two have the same.
func data(op uint64, n int) []byte {
	p := make([]byte, n)
	x := op*0x9e3779b97f4a7c15 + 1
	for i := range p {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x >> 32)
	}
	return p
}

func (w *World) nextOp() uint64 {
	w.ops++
	return w.ops
}

// size draws how much is written: often little, sometimes several blobs.
func (w *World) size() int {
	switch w.rng.IntN(4) {
	case 0:
		return 1 + w.rng.IntN(maxInline)
	case 1:
		return 1 + w.rng.IntN(3*maxBlob)
	}
	return maxInline + 1 + w.rng.IntN(maxBlob-maxInline)
}

func (c *client) writeStrict(t *task) {
	w := c.w
	ino, ok := w.sharedFile()
	if !ok {
		return
	}
	n := w.size()
	op, off := w.nextOp(), uint64(w.rng.IntN(maxFile-n))
	p := data(op, n)
	a, ok := c.ask(t, func(t *task, fe *frontEnd, early func()) answer {
		defer fe.use(ino)()
		return answer{err: fe.writeThrough(t, fe.session(t), ino, off, p, op, early)}
	})
	if ok && a.err == nil {
		w.rules.told(op)
		w.count.writes++
	}
}

// writeOwn writes Unstable to the client's own file.
func (c *client) writeOwn(t *task) {
	w := c.w
	if c.own == 0 {
		c.ownFile(t)
		return
	}
	n := w.size()
	off := uint64(w.rng.IntN(maxFile - n))
	p := data(w.nextOp(), n)
	c.content = overwrite(c.content, off, p)
	c.unstable = append(c.unstable, unstable{off: off, p: p})
	c.send(t, &c.unstable[len(c.unstable)-1])
}

func overwrite(dst []byte, off uint64, p []byte) []byte {
	if end := int(off) + len(p); end > len(dst) {
		dst = append(dst, make([]byte, end-len(dst))...)
	}
	copy(dst[off:], p)
	return dst
}

// send sends an unstable write until it is taken.
func (c *client) send(t *task, u *unstable) {
	for {
		a, ok := c.ask(t, func(t *task, fe *frontEnd, _ func()) answer {
			s := fe.session(t)
			v := fe.verifier(s) // from before
			return answer{err: fe.hold(s, c.own, u.off, u.p), v: v}
		})
		if ok && a.err == nil {
			u.v = a.v
			return
		}
		t.sleep(c.w.between(time.Millisecond, 50*time.Millisecond))
	}
}

// commitOwn commits the client's own file: what a verifier says to be lost is
// written again. Then all of it is in the log.
func (c *client) commitOwn(t *task) {
	if len(c.unstable) == 0 {
		return
	}
	for {
		a, ok := c.ask(t, func(t *task, fe *frontEnd, _ func()) answer {
			if err := fe.flush(t, c.own); err != nil {
				return answer{err: err}
			}
			return answer{v: fe.verifier(fe.session(t))} // from after
		})
		if !ok || a.err != nil {
			t.sleep(c.w.between(time.Millisecond, 50*time.Millisecond))
			if !ok || errors.Is(a.err, cluster.EAGAIN) || errors.Is(a.err, cluster.ENOSPC) || errors.Is(a.err, cluster.ERETRY) {
				if !ok {
					c.resend(t, func(*unstable) bool { return true })
				}
				continue
			}
			c.w.failf("client %d: commit: %v", c.n, a.err)
		}
		if !c.resend(t, func(u *unstable) bool { return u.v != a.v }) {
			break
		}
	}
	c.unstable = c.unstable[:0]
	f := c.w.rules.files[c.own]
	now, _ := f.at(c.w.rules.front)
	if string(now) != string(c.content) {
		c.w.failf("client %d was told that inode %d is committed, but the log has another content (%d bytes, want %d)", c.n, c.own, len(now), len(c.content))
	}
	c.w.rules.acked = max(c.w.rules.acked, f.versions[len(f.versions)-1].index)
	c.w.count.flushes++
}

// resend writes again what was lost. If anything was, all that came later is,
// too, so that nothing older lies on top of it.
func (c *client) resend(t *task, lost func(*unstable) bool) (any bool) {
	for i := range c.unstable {
		if u := &c.unstable[i]; any || lost(u) {
			any = true
			c.send(t, u)
		}
	}
	return any
}

// ownFile makes the client's own file.
func (c *client) ownFile(t *task) {
	ino, ok := c.make(t, fmt.Sprintf("own-%d-%d", c.n, c.w.nextOp()))
	if ok {
		c.own, c.content = ino, nil
	}
}

func (c *client) make(t *task, name string) (cluster.Ino, bool) {
	a, ok := c.ask(t, func(t *task, fe *frontEnd, _ func()) answer {
		_, body, err := fe.propose(t, volume.Create{Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, Gen: 7})
		if err != nil {
			return answer{err: err}
		}
		res, err := volume.DecodeCreateResult(body)
		return answer{err: err, ino: res.Attr.Ino}
	})
	return a.ino, ok && a.err == nil
}

// maxShared is how many files all clients work on.
const maxShared = 6

func (c *client) create(t *task) {
	if len(c.w.shared) >= maxShared {
		return
	}
	name := fmt.Sprintf("f%d", c.w.nextOp())
	if ino, ok := c.make(t, name); ok {
		c.w.shared = append(c.w.shared, sharedFile{ino, name})
	}
}

// A sharedFile is one that all clients work on.
type sharedFile struct {
	ino  cluster.Ino
	name string
}

// sharedFile draws one; now and then one that was removed, as by a client that
// has it open.
func (w *World) sharedFile() (cluster.Ino, bool) {
	if n := len(w.removed); n > 0 && w.oneIn(25) {
		return w.removed[w.rng.IntN(n)], true
	}
	if len(w.shared) == 0 {
		return 0, false
	}
	return w.shared[w.rng.IntN(len(w.shared))].ino, true
}

func (c *client) remove(t *task) {
	w := c.w
	if len(w.shared) < maxShared {
		return
	}
	i := w.rng.IntN(len(w.shared))
	f := w.shared[i]
	w.shared = append(w.shared[:i:i], w.shared[i+1:]...)
	const remembered = 3
	w.removed = append(w.removed[max(0, len(w.removed)-remembered+1):], f.ino)
	c.ask(t, func(t *task, fe *frontEnd, _ func()) answer {
		_, _, err := fe.propose(t, volume.Remove{Dir: cluster.RootIno, Name: f.name})
		return answer{err: err}
	})
}

// anyFile does something with a file that all work on.
func (c *client) anyFile(t *task, do func(t *task, fe *frontEnd, ino cluster.Ino) error) {
	ino, ok := c.w.sharedFile()
	if !ok {
		return
	}
	c.ask(t, func(t *task, fe *frontEnd, _ func()) answer {
		defer fe.use(ino)()
		return answer{err: do(t, fe, ino)}
	})
}

// change changes the extents of a shared file without new data.
func (c *client) change(t *task, b any) {
	c.anyFile(t, func(t *task, fe *frontEnd, ino cluster.Ino) error {
		var err error
		switch b := b.(type) {
		case volume.Punch:
			b.Ino = ino
			_, _, err = fe.propose(t, b)
		case volume.SetAttr:
			b.Ino = ino
			_, _, err = fe.propose(t, b)
		case volume.Clone:
			other, ok := c.w.sharedFile()
			if !ok || other == ino {
				return nil
			}
			b.Src, b.Dst = other, ino
			_, _, err = fe.propose(t, b)
		}
		return err
	})
}
