package sim

import (
	"context"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/collect"
)

// Paces of a node's duties.
const (
	fenceAfter   = 1500 * time.Millisecond
	garbageDelay = 2 * time.Second
)

// keep starts what a node does beside serving clients. What the leader does is
// done by any node that leads, or thinks so, when it looks, and goes on to the
// end of the step when another one leads meanwhile.
func (n *node) keep() {
	w := n.w
	every := func(lo, hi time.Duration, fn func(t *task)) {
		w.spawn(n.proc, func(t *task) {
			for {
				t.sleep(w.between(lo, hi))
				fn(t)
			}
		})
	}
	leads := func(fn func(t *task)) func(t *task) {
		return func(t *task) {
			if w.group.leader == n || !w.calm && w.oneIn(6) { // it may not know that it does not lead any more
				fn(t)
			}
		}
	}
	every(200*time.Millisecond, 3*time.Second, func(*task) { n.replica.snapshot() })
	every(time.Second, 5*time.Second, n.fe.flushOld)
	every(100*time.Millisecond, time.Second, n.fe.releaseUnlinked)
	every(100*time.Millisecond, time.Second, leads(n.fe.reap))
	every(200*time.Millisecond, 600*time.Millisecond, leads(n.fencer))
	if w.cfg.Pack {
		every(50*time.Millisecond, 600*time.Millisecond, leads(n.packer()))
	}
	if w.cfg.Repair {
		every(20*time.Millisecond, 300*time.Millisecond, leads(n.repairer))
	} else {
		every(50*time.Millisecond, 800*time.Millisecond, leads(n.fe.keepSets))
	}

	c := collect.New(collect.Config{
		Group: theGroup, Volume: collected{n}, Stores: reached{n}, Delay: garbageDelay, Batch: 16,
	})
	every(300*time.Millisecond, 2*time.Second, leads(func(*task) {
		_, _ = c.StepGarbage(context.Background(), time.Unix(0, int64(w.now)))
		w.count.collected = max(w.count.collected, c.Counters().Garbage)
	}))
	turn := 0
	// The collector's steps are one at a time; orphans has one of its own.
	o := collect.New(collect.Config{Group: theGroup, Volume: collected{n}, Stores: reached{n}, Delay: garbageDelay, Batch: 24})
	every(50*time.Millisecond, 500*time.Millisecond, leads(func(*task) {
		s := w.stores[turn%len(w.stores)]
		if done, err := o.StepOrphans(context.Background(), s.id); done || err != nil {
			turn++
		}
		w.count.orphans = max(w.count.orphans, o.Counters().Orphans)
	}))
}

// flushOld commits what has been held for long.
func (fe *frontEnd) flushOld(t *task) {
	for _, ino := range fe.heldInos() {
		_ = fe.flush(t, ino) // the client asks for it again
	}
}

// releaseUnlinked says which unlinked files nobody has open here.
func (fe *frontEnd) releaseUnlinked(t *task) {
	s := fe.writer.Current()
	if s == nil {
		return
	}
	var inos []cluster.Ino
	fe.n.replica.view.Unlinked(func(u volume.Unlinked) bool {
		if slices.Contains(u.Holders, s.ID()) && fe.busy[u.Ino] == 0 {
			inos = append(inos, u.Ino)
		}
		return len(inos) < 100
	})
	if len(inos) > 0 {
		_, _, _ = fe.proposeBy(s, volume.ReleaseUnlinked{Inos: inos})
	}
}

// reap frees unlinked files that nobody holds, as if what fenced writers hold
// had been kept for its time: their clients have nothing open.
func (fe *frontEnd) reap(*task) {
	w, later := fe.w, fe.w.time()+2*volume.HoldTime
	if fe.n.replica.view.Reapable(later) {
		b := volume.Reap{Max: uint32(1 + w.rng.IntN(20))}
		w.body = b
		_, _, _ = (proposer{fe.n}).Propose(context.Background(), fsm.AppendCommand(nil, fsm.Envelope{Time: later}, b))
	}
}

// fencer fences the writers of nodes that are gone for long.
func (n *node) fencer(t *task) {
	w := n.w
	for _, o := range w.nodes {
		since, p := o.since, o.proc
		if o == n || o.up && !o.cut || w.now-since < fenceAfter || o.fenced {
			continue
		}
		n.replica.waitApplied(t, w.readIndex(t, n))
		var ids []cluster.WriterID
		for _, x := range n.replica.m.Writers() {
			if x.Node == o.id && !x.Fenced {
				ids = append(ids, x.ID)
			}
		}
		for _, id := range ids {
			if w.broken(BreakFence) {
				w.rules.writers[id].fenced = true
				continue
			}
			w.fence(t, n, id)
		}
		if !o.up && o.since == since && o.proc == p {
			w.notef("node %s is fenced", o.id)
			o.fenced = true
		}
	}
}

// fence fences a writer, whatever it takes.
func (w *World) fence(t *task, n *node, id cluster.WriterID) {
	b := &fsm.FenceWriter{Writer: id}
	w.body = b
	if _, _, err := (proposer{n}).Propose(context.Background(), fsm.AppendCommand(nil, fsm.Envelope{Time: w.time()}, b)); err != nil {
		w.failf("fencing writer %d: %v", id, err)
	}
}

// keepSets changes replica sets: it moves members away from lost stores, and
// now and then from others, and makes sets read-only and writable again.
func (fe *frontEnd) keepSets(t *task) {
	w, r := fe.w, fe.n.replica
	sets := r.view.ReplicaSets()
	if len(sets) == 0 {
		return
	}
	set := sets[w.rng.IntN(len(sets))]
	bad := -1
	for i, m := range set.Members {
		if w.store(m).lost {
			bad = i
		}
	}
	if bad < 0 && set.State == volume.Writable && !w.oneIn(3) {
		return
	}
	if set.State == volume.Writable {
		set.State = volume.ReadOnly
		var ok bool
		if set, ok = fe.putSet(t, set); !ok {
			return
		}
	}
	if bad < 0 && w.oneIn(2) {
		bad = w.rng.IntN(len(set.Members))
	}
	if bad >= 0 && !fe.move(t, &set, bad) {
		return // read-only until it works
	}
	if !w.calm && w.oneIn(6) {
		t.sleep(w.between(100*time.Millisecond, 4*time.Second)) // others may lead meanwhile
	}
	set.State = volume.Writable
	fe.putSet(t, set)
}

func (fe *frontEnd) putSet(t *task, set volume.ReplicaSet) (volume.ReplicaSet, bool) {
	_, body, err := fe.propose(t, volume.PutReplicaSet{Set: set})
	if err != nil {
		return set, false
	}
	res, err := volume.DecodePutReplicaSetResult(body)
	return res.Set, err == nil
}

// move copies a read-only set's blobs to another store, which takes the place of
// member bad.
func (fe *frontEnd) move(t *task, set *volume.ReplicaSet, bad int) bool {
	w, r := fe.w, fe.n.replica
	to := w.stores[w.rng.IntN(len(w.stores))]
	if to.lost || slices.Contains(set.Members, to.id) {
		return false
	}
	r.waitApplied(t, w.readIndex(t, fe.n))
	var ids []cluster.BlobID
	r.view.SetBlobs(set.ID, 0, func(id cluster.BlobID) bool {
		ids = append(ids, id)
		return true
	})
	for _, id := range ids {
		var p []byte
		for _, m := range set.Members {
			s := w.store(m)
			got, ok := call(t, fe.n, s.n, time.Second, func(reply func([]byte)) {
				var p []byte
				if !s.lost {
					p, _ = s.disk.get(id)
				}
				reply(p)
			})
			if ok && got != nil {
				p = got
				break
			}
		}
		if p == nil {
			if _, used := r.view.Blob(id); !used {
				continue // it went meanwhile
			}
			return false
		}
		err, ok := call(t, fe.n, to.n, 3*time.Second, func(reply func(error)) { to.put(id, set.ID, set.Epoch, p, reply) })
		if !ok || err != nil {
			return false
		}
	}
	set.Members = slices.Clone(set.Members)
	set.Members[bad] = to.id
	w.count.moves++
	return true
}

// collected is the volume as the collector sees it.
type collected struct{ n *node }

func (v collected) Sync(context.Context) error {
	w := v.n.w
	v.n.replica.waitApplied(w.cur, w.readIndex(w.cur, v.n))
	return nil
}

func (v collected) Applied() uint64 { return v.n.replica.applied }

func (v collected) Sets() (sets []collect.Set) {
	for _, s := range v.n.replica.view.ReplicaSets() {
		sets = append(sets, collect.Set{ID: s.ID, Members: s.Members})
	}
	return sets
}

func (v collected) Garbage(set cluster.ReplicaSetID, from cluster.BlobID, n int) (freed []collect.Freed) {
	v.n.replica.view.Garbage(set, from, func(g volume.Garbage) bool {
		freed = append(freed, collect.Freed{Blob: g.Blob, Index: g.Index})
		return len(freed) < n
	})
	return freed
}

func (v collected) Deletable(b cluster.BlobID) bool {
	if v.n.w.broken(BreakCollect) {
		_, used := v.n.replica.view.Blob(b)
		return !used
	}
	return v.n.replica.view.Deletable(b)
}

func (v collected) Collected(_ context.Context, set cluster.ReplicaSetID, blobs []cluster.BlobID) error {
	_, _, err := v.n.fe.propose(v.n.w.cur, volume.Collected{Set: set, Blobs: blobs})
	return err
}

// reached is the stores as the collector reaches them.
type reached struct{ n *node }

func (r reached) All() (ids []cluster.StoreID) {
	for _, s := range r.n.w.stores {
		ids = append(ids, s.id)
	}
	return ids
}

func (r reached) Up(id cluster.StoreID) bool {
	s := r.n.w.store(id)
	return !s.lost && linked(r.n, s.n)
}

func (r reached) List(_ context.Context, id cluster.StoreID, _ cluster.GroupID, after cluster.BlobKey, n int) ([]collect.Copy, error) {
	w := r.n.w
	s := w.store(id)
	ids, ok := call(w.cur, r.n, s.n, time.Second, func(reply func([]collect.Copy)) {
		if !s.lost {
			reply(s.copies(after.Blob, n))
		}
	})
	if !ok {
		return nil, cluster.EAGAIN
	}
	return ids, nil
}

func (r reached) Delete(_ context.Context, id cluster.StoreID, _ cluster.GroupID, keys []cluster.BlobKey) error {
	w := r.n.w
	s := w.store(id)
	ids := make([]cluster.BlobID, len(keys))
	for i := range keys {
		ids[i] = keys[i].Blob
	}
	err, ok := call(w.cur, r.n, s.n, time.Second, func(reply func(error)) { s.drop(ids, reply) })
	if !ok {
		return cluster.EAGAIN
	}
	return err
}
