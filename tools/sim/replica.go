package sim

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A replica is a node's state machine: the real one, on a file system that
// forgets what was not synced.
type replica struct {
	w       *World
	n       *node
	fs      *vfs.MemFS
	m       *fsm.Machine
	view    volume.View
	applied uint64
	first   uint64 // index of the first log entry that this node still has
	flushed uint64
	planned bool
	slow    time.Duration // until when it is slow
	answers map[uint64]func(outcome)
	waiting []waiter
	entries []cluster.Entry
}

const (
	stateDir  = "volume"
	memTable  = 1 << 20
	cacheSize = 8 << 20
)

func (w *World) newReplica(n *node) *replica {
	return &replica{w: w, n: n, fs: vfs.NewCrashableMem(), first: 1}
}

// start opens the state machine as it is on the disk.
func (r *replica) start() {
	m, err := fsm.Open(fsm.Options{Dir: stateDir, FS: r.fs, Core: volume.New(), CacheBytes: cacheSize, MemTableBytes: memTable})
	if err != nil {
		r.w.failf("node %s: the state does not open: %v", r.n.id, err)
	}
	r.m, r.view = m, volume.View{Reader: m.Reader()}
	r.applied, _ = m.Applied()
	r.answers, r.waiting, r.planned = map[uint64]func(outcome){}, nil, false
	if r.applied < r.flushed {
		r.w.failf("node %s: flushed up to %d, after the crash there is %d", r.n.id, r.flushed, r.applied)
	}
	if r.applied+1 < r.first {
		r.w.failf("node %s: the log begins at %d, but the state ends at %d", r.n.id, r.first, r.applied)
	}
	r.plan()
}

// crash loses what was not synced.
func (r *replica) crash() {
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: r.w.rng.IntN(2) * 50, RNG: newRand(r.w.rng.Uint64(), 1)}
	fs := r.fs.CrashClone(cfg)
	r.close()
	r.fs = fs
}

func (r *replica) close() {
	if r.m == nil {
		return
	}
	m := r.m
	r.m = nil
	if err := m.Close(); err != nil {
		r.w.failf("node %s: closing the state: %v", r.n.id, err)
	}
}

// plan makes the replica apply what is committed, soon or late.
func (r *replica) plan() {
	g := r.w.group
	if r.planned || r.m == nil || r.applied >= g.last() {
		return
	}
	if !r.n.up || g.leader == nil || !linked(r.n, g.leader) {
		return // check plans it
	}
	d := r.w.between(20*time.Microsecond, 200*time.Microsecond)
	if r.n != g.leader {
		d = r.w.between(100*time.Microsecond, 3*time.Millisecond)
		if !r.w.calm && r.w.oneIn(2000) {
			r.slow = r.w.now + r.w.between(20*time.Millisecond, 3*time.Second)
		}
		if r.w.now < r.slow {
			d = r.slow - r.w.now
		}
	}
	r.planned = true
	p := r.n.proc
	r.w.after(d, func() {
		if r.n.proc != p || !p.alive {
			return
		}
		r.planned = false
		r.apply()
		r.plan()
	})
}

func (r *replica) apply() {
	g := r.w.group
	if r.applied >= g.last() || g.leader == nil || !linked(r.n, g.leader) {
		return
	}
	if from := g.leader.replica; r.applied+1 < from.first && from != r {
		r.install(from)
		return
	}
	n := min(g.last()-r.applied, uint64(1+r.w.rng.IntN(64)))
	r.entries = r.entries[:0]
	for i := range n {
		r.entries = append(r.entries, g.log[r.applied+i].Entry)
	}
	results := r.m.Apply(r.entries)
	r.applied += n
	for i, result := range results {
		e := &g.log[r.entries[i].Index-1]
		if !e.known {
			e.known, e.result = true, result
			r.w.rules.applied(r, e)
		} else if !bytes.Equal(e.result, result) {
			r.w.failf("entry %d: on node %s the result is %x, elsewhere it was %x", e.Index, r.n.id, result, e.result)
		}
		if reply := r.answers[e.Index]; reply != nil {
			delete(r.answers, e.Index)
			reply(outcome{ok: true, index: e.Index, result: result})
		}
	}
	r.advanced()
}

// advanced wakes those who wait for what is applied now.
func (r *replica) advanced() {
	later := r.waiting[:0]
	for _, x := range r.waiting {
		if x.index <= r.applied {
			x.t.wake()
		} else {
			later = append(later, x)
		}
	}
	r.waiting = later
}

// A waiter waits for an index.
type waiter struct {
	t     *task
	index uint64
}

// waitApplied waits until the replica has applied index.
func (r *replica) waitApplied(t *task, index uint64) {
	if r.applied < index {
		r.waiting = append(r.waiting, waiter{t, index})
		t.wait(0, func() bool { return r.applied >= index })
	}
}

// snapshot cuts the log behind what is durable.
func (r *replica) snapshot() {
	if r.w.broken(BreakLogCut) {
		r.first = r.applied + 1
		return
	}
	index, _, err := r.m.Flush()
	if err != nil {
		r.w.failf("node %s: flush: %v", r.n.id, err)
	}
	r.flushed = index
	r.first = max(r.first, index+1-min(index, uint64(r.w.rng.IntN(40))))
}

// install replaces the state by that of another replica, as files.
func (r *replica) install(from *replica) {
	r.w.count.installs++
	dir := fmt.Sprintf("copy-%d", r.w.count.installs)
	c, err := from.m.Checkpoint(dir)
	if err == nil {
		err = copyFiles(r.fs, from.fs, dir)
	}
	if err == nil {
		err = from.fs.RemoveAll(dir)
	}
	if err == nil {
		err = r.m.Restore(dir)
	}
	if err != nil {
		r.w.failf("node %s: installing the state of %s: %v", r.n.id, from.n.id, err)
	}
	applied, _ := r.m.Applied()
	if applied != c.Index || applied < r.applied {
		r.w.failf("node %s: from %d on, a state of %d was installed as %d", r.n.id, r.applied, c.Index, applied)
	}
	r.w.notef("node %s installs %d over %d", r.n.id, applied, r.applied)
	r.applied, r.flushed, r.first = applied, applied, applied+1
	r.advanced()
}

func copyFiles(to, from vfs.FS, dir string) error {
	names, err := from.List(dir)
	if err != nil {
		return err
	}
	if err := to.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		if err := copyFile(to, from, from.PathJoin(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from vfs.FS, path string) error {
	src, err := from.Open(path)
	if err != nil {
		return err
	}
	defer src.Close()
	p, err := io.ReadAll(src)
	if err != nil {
		return err
	}
	dst, err := to.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := dst.Write(p); err != nil {
		return err
	}
	return dst.Close()
}
