package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/collect"
	"github.com/hawserfs/hawser/datastore/repair"
	"github.com/hawserfs/hawser/datastore/segment"
)

// maxCopies is how many copies all data is to have.
const maxCopies = 3

// awayFor is how long a node may be away before its copies are made anew.
const awayFor = 1200 * time.Millisecond

// repaired is the volume as repair sees it, from a node.
type repaired struct{ n *node }

func (v repaired) Sync(ctx context.Context) error { return collected(v).Sync(ctx) }

func (v repaired) Sets() (sets []repair.Set) {
	view := v.n.replica.view
	for _, s := range view.ReplicaSets() {
		sets = append(sets, repair.Set{
			ID: s.ID, Members: s.Members, Copies: s.Copies, Epoch: s.Epoch, State: repair.SetState(s.State), Used: view.HasBlobs(s.ID),
		})
	}
	return sets
}

func (v repaired) Blobs(set cluster.ReplicaSetID, after cluster.BlobID, n int) (blobs []repair.Blob) {
	view := v.n.replica.view
	view.SetBlobs(set, after, func(id cluster.BlobID) bool {
		if b, ok := view.StoredBlob(id); ok {
			blobs = append(blobs, repair.Blob{ID: id, Len: b.Len, CRC: b.CRC})
		}
		return len(blobs) < n
	})
	return blobs
}

func (v repaired) PutSet(_ context.Context, s repair.Set) (repair.Set, error) {
	w := v.n.w
	put, ok := v.n.fe.putSet(w.cur, volume.ReplicaSet{
		ID: s.ID, Members: s.Members, Copies: s.Copies, Epoch: s.Epoch, State: volume.SetState(s.State),
	})
	if !ok {
		return s, cluster.ECONFLICT
	}
	s.ID, s.Epoch = put.ID, put.Epoch
	return s, nil
}

// filled is the stores as repair reaches them, from a node.
type filled struct{ n *node }

func (f filled) List(ctx context.Context, id cluster.StoreID, after cluster.BlobID, n int) ([]repair.Copy, error) {
	list, err := reached(f).List(ctx, id, theGroup, keyOf(after), n)
	copies := make([]repair.Copy, len(list))
	for i, x := range list {
		copies[i] = repair.Copy{Blob: repair.Blob{ID: x.Key.Blob, Len: x.Len, CRC: x.CRC}, Set: x.Set, Epoch: x.Epoch}
	}
	return copies, err
}

// Pull sends the store's node a request; that fetches the blob from the others.
func (f filled) Pull(_ context.Context, to cluster.StoreID, b repair.Blob, set cluster.ReplicaSetID, epoch uint32, from []cluster.StoreID) (bool, error) {
	w, s := f.n.w, f.n.w.store(to)
	if w.broken(BreakFill) {
		return true, nil
	}
	err, ok := call(w.cur, f.n, s.n, 3*time.Second, func(reply func(error)) {
		w.spawn(s.n.proc, func(t *task) { s.pull(t, b, segment.Meta{Set: set, Epoch: epoch}, from, reply) })
	})
	if !ok {
		return false, cluster.EAGAIN
	}
	return err == nil, err
}

// pull is the arrival of a PULL: what datastore/blob does.
func (s *store) pull(t *task, b repair.Blob, meta segment.Meta, from []cluster.StoreID, reply func(error)) {
	w := s.w
	if s.lost {
		reply(cluster.EDISK)
		return
	}
	have, err := s.disk.get(b.ID)
	if err == nil && s.newEnough(b.ID, meta) {
		s.put(b.ID, meta.Set, meta.Epoch, have, reply) // it may not be durable yet
		return
	}
	missing := true
	for _, id := range from {
		src := w.store(id)
		p, ok := call(t, s.n, src.n, time.Second, func(reply func([]byte)) {
			var p []byte
			if !src.lost {
				p, _ = src.disk.get(b.ID)
			}
			reply(p)
		})
		if !ok || src.lost {
			missing = false
			continue
		}
		if len(p) != int(b.Len) || checksum.Sum(p) != b.CRC {
			continue
		}
		if now, err := s.disk.get(b.ID); err == nil {
			if s.newEnough(b.ID, meta) && !w.broken(BreakTwice) {
				s.put(b.ID, meta.Set, meta.Epoch, now, reply) // another pull was faster
				return
			}
			if err := s.disk.drop([]cluster.BlobID{b.ID}); err != nil {
				w.failf("store %d: %v", s.id, err)
			}
		}
		w.count.pulled++
		s.put(b.ID, meta.Set, meta.Epoch, p, reply)
		return
	}
	if missing {
		reply(cluster.ENOBLOB)
	} else {
		reply(cluster.EAGAIN)
	}
}

// newEnough reports whether a copy was put at the epoch, or at a later one.
func (s *store) newEnough(b cluster.BlobID, meta segment.Meta) bool {
	at := s.disk.meta(b)
	return at == meta || at.Set == meta.Set && at.Epoch > meta.Epoch && !s.w.broken(BreakLate)
}

// seen is the stores as a node sees them.
func (n *node) seen() (stores []repair.Store) {
	w := n.w
	for _, s := range w.stores {
		away := !linked(n, s.n)
		stores = append(stores, repair.Store{
			ID: s.id, Node: s.n.id, Up: !away && !s.lost, Draining: s.draining,
			Lost: s.lost || away && w.now-s.n.since > awayFor,
		})
	}
	return stores
}

// repairer is what a leader does for the sets, one move at a time.
func (n *node) repairer(*task) {
	w, v := n.w, repaired{n}
	if v.Sync(context.Background()) != nil {
		return
	}
	in := repair.Input{Sets: v.Sets(), Stores: n.seen(), Parallel: 1}
	plan := repair.NewPlan(&in)
	// Here a front-end takes any set: none may have less than the clients count on.
	plan.Put = slices.DeleteFunc(plan.Put, func(s repair.Set) bool { return s.Copies < maxCopies || len(s.Members) < 2 })
	for _, s := range plan.Put {
		if _, err := v.PutSet(context.Background(), s); err != nil {
			return
		}
	}
	if len(plan.Put) > 0 || len(plan.Moves) == 0 {
		return
	}
	others := func(repair.Set) (ids []cluster.StoreID) {
		for _, s := range n.seen() {
			if s.Up {
				ids = append(ids, s.ID)
			}
		}
		return ids
	}
	err := repair.Carry(context.Background(), v, filled{n}, others, plan.Moves[0])
	if err == nil {
		w.count.moves++
	} else if errors.Is(err, cluster.ENOBLOB) && w.calm {
		w.failf("repair: %v", err)
	}
}

// drainer empties a store for a while, now and then.
func (w *World) drainer(t *task) {
	for !w.resting {
		t.sleep(w.between(500*time.Millisecond, 4*time.Second))
		s := w.stores[w.rng.IntN(len(w.stores))]
		s.draining = !s.draining && !w.resting
	}
}

// whole reports whether every set with blobs has members that live, as many as
// there can be, and is writable, and no store has copies that it is not to have.
func (w *World) whole() bool {
	l := w.group.leader
	if l == nil || l.replica.applied != w.group.last() {
		return false
	}
	for _, s := range (repaired{l}).Sets() {
		if !s.Used {
			continue
		}
		if s.State != repair.Writable || len(s.Members) < int(s.Copies) {
			return false
		}
		for _, m := range s.Members {
			if w.store(m).lost {
				return false
			}
		}
	}
	for _, s := range w.stores {
		if s.lost {
			continue
		}
		for _, x := range s.copies(0, 1<<20) {
			if h, ok := (collected{l}).Home(x.Key.Blob); ok && !slices.Contains(h.Members, s.id) {
				return false
			}
		}
	}
	return true
}

// copies returns what the store has above after, durably, as a store's index does.
func (s *store) copies(after cluster.BlobID, n int) (list []collect.Copy) {
	for _, id := range s.disk.list(after, n) {
		if s.w.cfg.Repair && !s.disk.durable(id) {
			continue
		}
		meta := s.disk.meta(id)
		x := collect.Copy{Key: keyOf(id), Set: meta.Set, Epoch: meta.Epoch}
		if p, err := s.disk.get(id); err == nil {
			x.Len, x.CRC = uint32(len(p)), checksum.Sum(p)
		}
		list = append(list, x)
	}
	return list
}

// Home implements collect.Volume.
func (v collected) Home(b cluster.BlobID) (h collect.Home, ok bool) {
	if !v.n.w.cfg.Repair {
		return h, false
	}
	view := v.n.replica.view
	x, ok := view.StoredBlob(b)
	if !ok {
		return h, false
	}
	set, ok := view.ReplicaSet(x.Set)
	return collect.Home{Members: set.Members, Len: x.Len, CRC: x.CRC, Settled: set.State == volume.Writable}, ok
}

// Has implements collect.Stores.
func (r reached) Has(_ context.Context, id cluster.StoreID, key cluster.BlobKey, length, crc uint32) bool {
	w, s := r.n.w, r.n.w.store(id)
	has, ok := call(w.cur, r.n, s.n, time.Second, func(reply func(bool)) {
		p, err := s.disk.get(key.Blob)
		reply(!s.lost && err == nil && s.disk.durable(key.Blob) && len(p) == int(length) && checksum.Sum(p) == crc)
	})
	return ok && has
}

// DeleteMoved implements collect.Stores.
func (r reached) DeleteMoved(_ context.Context, id cluster.StoreID, _ cluster.GroupID, copies []collect.Copy) error {
	w, s := r.n.w, r.n.w.store(id)
	err, ok := call(w.cur, r.n, s.n, time.Second, func(reply func(error)) { s.dropMoved(copies, reply) })
	if !ok {
		return cluster.EAGAIN
	}
	return err
}

// dropMoved is the arrival of a DELETE of copies that are needed no more where
// they are.
func (s *store) dropMoved(copies []collect.Copy, reply func(error)) {
	if s.lost {
		reply(cluster.EDISK)
		return
	}
	var ids []cluster.BlobID
	for _, x := range copies {
		meta := s.disk.meta(x.Key.Blob)
		if _, err := s.disk.get(x.Key.Blob); err != nil || meta != (segment.Meta{Set: x.Set, Epoch: x.Epoch}) && !s.w.broken(BreakMoved) {
			continue
		}
		if b := s.w.rules.blobs[x.Key.Blob]; b != nil && b.committed && b.refs > 0 && slices.Contains(s.w.rules.sets[b.set].Members, s.id) {
			s.w.rules.missf("store %d deletes its copy of blob %v, and is a member of its set %d", s.id, x.Key.Blob, b.set)
		}
		ids = append(ids, x.Key.Blob)
		s.w.count.given++
	}
	if err := s.disk.drop(ids); err != nil {
		s.w.failf("store %d: delete: %v", s.id, err)
	}
	s.planSync()
	reply(nil)
}
