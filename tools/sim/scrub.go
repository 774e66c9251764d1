package sim

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/scrub"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A hurtDisk is a disk some of whose copies are damaged, or gone without anybody
// having deleted them.
type hurtDisk struct {
	disk
	hurt    map[cluster.BlobID]bool // false: damaged; true: gone
	healing []cluster.BlobID        // with the next sync
}

func newHurtDisk(d disk) *hurtDisk { return &hurtDisk{disk: d, hurt: map[cluster.BlobID]bool{}} }

func (d *hurtDisk) get(b cluster.BlobID) ([]byte, error) {
	if gone, ok := d.hurt[b]; ok {
		if gone {
			return nil, cluster.ENOBLOB
		}
		return nil, cluster.ECORRUPT
	}
	return d.disk.get(b)
}

func (d *hurtDisk) list(after cluster.BlobID, n int) (ids []cluster.BlobID) {
	for _, b := range d.disk.list(after, n+len(d.hurt)) {
		if len(ids) < n && !d.hurt[b] {
			ids = append(ids, b)
		}
	}
	return ids
}

// put heals a copy that is hurt: whoever puts it has it whole. It is durable with
// the next sync, as a new one is.
func (d *hurtDisk) put(b cluster.BlobID, set cluster.ReplicaSetID, epoch uint32, data []byte) error {
	if _, ok := d.hurt[b]; ok {
		d.healing = append(d.healing, b)
	}
	return d.disk.put(b, set, epoch, data)
}

func (d *hurtDisk) drop(ids []cluster.BlobID) error {
	for _, b := range ids {
		delete(d.hurt, b)
	}
	return d.disk.drop(ids)
}

func (d *hurtDisk) sync() {
	for _, b := range d.healing {
		delete(d.hurt, b)
	}
	d.healing = nil
	d.disk.sync()
}

func (d *hurtDisk) crash() {
	d.healing = nil
	d.disk.crash()
}

// hurt damages a copy, or takes it away, if so many others are good that the one
// store that may be lost is not the last that has it.
func (w *World) hurt() {
	s := w.stores[w.rng.IntN(len(w.stores))]
	d := s.disk.(*hurtDisk)
	ids := d.list(0, 1<<20)
	if s.lost || len(ids) == 0 {
		return
	}
	id := ids[w.rng.IntN(len(ids))]
	b := w.rules.blobs[id]
	if b == nil || !b.committed || b.refs == 0 || !d.durable(id) || !slices.Contains(w.rules.sets[b.set].Members, s.id) {
		return
	}
	if _, hurt := d.hurt[id]; hurt {
		return
	}
	others := 0
	for _, o := range w.stores {
		_, hurt := o.disk.(*hurtDisk).hurt[id]
		if o != s && !o.lost && !hurt && o.disk.durable(id) && slices.Contains(w.rules.sets[b.set].Members, o.id) {
			others++
		}
	}
	if others < 1 || others < 2 && w.count.losses == 0 {
		return
	}
	d.hurt[id] = w.oneIn(2)
	w.count.hurts++
	w.notef("store %d: its copy of %v is hurt, gone %v", s.id, id, d.hurt[id])
}

// hurts goes on hurting copies.
func (w *World) hurts(t *task) {
	for !w.resting {
		t.sleep(w.between(10*time.Millisecond, 400*time.Millisecond))
		if !w.resting {
			w.hurt()
		}
	}
}

// scrub starts the scrubs of a node's stores.
func (n *node) scrub() {
	for _, s := range n.stores {
		m := scrubbed{n, s}
		x := scrub.New(scrub.Config{ID: s.id, Store: m, Map: m, Source: m, Page: 1 + n.w.rng.IntN(32), Bytes: 1 + n.w.rng.Int64N(1<<20)})
		n.w.spawn(n.proc, func(t *task) {
			var after cluster.BlobKey
			for {
				t.sleep(n.w.between(50*time.Millisecond, 500*time.Millisecond))
				if s.lost || n.w.broken(BreakScrub) {
					continue
				}
				r, err := x.Step(context.Background(), after)
				n.w.count.healed += r.Repaired
				if err == nil || scrub.Compare(r.After, after) > 0 {
					after = r.After
				}
				if err == nil && r.Done {
					after = cluster.BlobKey{}
				}
			}
		})
	}
}

// scrubbed is a store, and its node, as the scrub sees them.
type scrubbed struct {
	n *node
	s *store
}

// ListAll implements scrub.Store.
func (x scrubbed) ListAll(after cluster.BlobKey, n int) (infos []segment.Info, err error) {
	if after.Group > theGroup {
		return nil, nil
	}
	for _, b := range x.s.disk.list(after.Blob, n) {
		infos = append(infos, segment.Info{Key: keyOf(b)})
	}
	return infos, nil
}

// Verify implements scrub.Store.
func (x scrubbed) Verify(_ context.Context, key cluster.BlobKey) (segment.Info, error) {
	p, err := x.s.disk.get(key.Blob)
	if err != nil {
		return segment.Info{}, err
	}
	return segment.Info{Key: key, Len: uint32(len(p)), CRC: checksum.Sum(p)}, nil
}

// Replace implements scrub.Store.
func (x scrubbed) Replace(_ context.Context, key cluster.BlobKey, meta segment.Meta, _ checksum.Sums, data []byte) (bool, error) {
	w, t := x.n.w, x.n.w.cur
	if w.broken(BreakScrubOrder) {
		// The damaged copy goes before the other one is there.
		x.s.drop([]cluster.BlobID{key.Blob}, func(error) {})
	}
	f := &future[error]{task: t}
	x.s.put(key.Blob, meta.Set, meta.Epoch, bytes.Clone(data), f.resolve)
	t.wait(0, func() bool { return f.set })
	return f.val == nil, f.val
}

// Groups implements scrub.Map.
func (x scrubbed) Groups() []cluster.GroupID { return []cluster.GroupID{theGroup} }

// Sync implements scrub.Map.
func (x scrubbed) Sync(ctx context.Context, _ cluster.GroupID) error { return collected{x.n}.Sync(ctx) }

// Want implements scrub.Map.
func (x scrubbed) Want(_ cluster.StoreID, key cluster.BlobKey) (scrub.Want, bool) {
	view := x.n.replica.view
	b, ok := view.Blob(key.Blob)
	if !ok || b.Kind != volume.Copies {
		return scrub.Want{}, false
	}
	set, _ := view.ReplicaSet(b.Set)
	return scrub.Want{
		Key: key, Set: set.ID, Epoch: set.Epoch, Len: b.Len, CRC: b.CRC, Members: set.Members,
		Coded: x.n.w.broken(BreakScrubVerify), // then nothing is compared
	}, slices.Contains(set.Members, x.s.id)
}

// Wanted implements scrub.Map.
func (x scrubbed) Wanted(id cluster.StoreID, _ cluster.GroupID, after cluster.BlobKey, n int) (all []scrub.Want) {
	view := x.n.replica.view
	var ids []cluster.BlobID
	for _, set := range view.ReplicaSets() {
		if slices.Contains(set.Members, id) {
			view.SetBlobs(set.ID, after.Blob, func(b cluster.BlobID) bool {
				ids = append(ids, b)
				return true
			})
		}
	}
	slices.Sort(ids)
	for _, b := range ids[:min(n, len(ids))] {
		if w, ok := x.Want(id, keyOf(b)); ok {
			all = append(all, w)
		}
	}
	return all
}

// Fetch implements scrub.Source.
func (x scrubbed) Fetch(_ context.Context, self cluster.StoreID, want scrub.Want) (scrub.Fetched, error) {
	w := x.n.w
	type answer struct {
		p   []byte
		err error
	}
	err := error(cluster.ENOBLOB)
	for _, id := range want.Others(self) {
		s := w.store(id)
		a, ok := call(w.cur, x.n, s.n, time.Second, func(reply func(answer)) {
			if s.lost {
				reply(answer{nil, cluster.EDISK})
				return
			}
			p, err := s.disk.get(want.Key.Blob)
			if err == nil && !w.calm && w.oneIn(8) {
				// Damaged where no checksum of the way shows it.
				p = bytes.Clone(p)
				p[len(p)/2] ^= 1
			}
			reply(answer{p, err})
		})
		switch {
		case !ok:
			err = cluster.EAGAIN
		case a.err != nil:
			err = a.err
		default:
			return scrub.Fetched{Data: a.p, Sums: checksum.Sums(nil).Append(a.p)}, nil
		}
	}
	return scrub.Fetched{}, err
}

// healedAll reports whether every copy that should be there is whole.
func (w *World) healedAll() bool {
	l := w.group.leader
	if l == nil || l.replica.applied != w.group.last() {
		return false
	}
	for _, s := range w.stores {
		if s.lost {
			continue
		}
		for b := range s.disk.(*hurtDisk).hurt {
			blob, used := l.replica.view.Blob(b)
			if set, _ := l.replica.view.ReplicaSet(blob.Set); used && slices.Contains(set.Members, s.id) {
				return false
			}
		}
	}
	return true
}
