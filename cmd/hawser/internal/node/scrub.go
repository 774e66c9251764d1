package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/placement"
	"github.com/hawserfs/hawser/datastore/scrub"
	"github.com/hawserfs/hawser/datastore/segment"
)

// scrubs are the scrubs of this node's stores, and how those of other nodes are
// told of copies that reads have met.
type scrubs struct {
	n   *Node
	log *slog.Logger

	mu      sync.Mutex
	runners map[cluster.StoreID]*scrub.Runner

	doubts chan placement.Problem
}

// maxDoubts bounds the reports of reads that wait to be sent to other nodes.
const maxDoubts = 1024

func newScrubs(n *Node) *scrubs {
	return &scrubs{n: n, log: n.log, runners: map[cluster.StoreID]*scrub.Runner{}, doubts: make(chan placement.Problem, maxDoubts)}
}

// run scrubs each store that this node serves, from when it does.
func (s *scrubs) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.tell(ctx) })
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		for _, id := range s.n.disks.server.Stores() {
			local, ok := s.n.disks.server.Local(id)
			st, isSegment := local.(*segment.Store)
			if !ok || !isSegment || s.runner(id) != nil {
				continue
			}
			r := s.newRunner(id, st)
			s.mu.Lock()
			s.runners[id] = r
			s.mu.Unlock()
			for _, w := range s.n.disks.wear {
				if w.store.Load() == st {
					w.scrub.Store(r)
				}
			}
			wg.Go(func() { r.Run(ctx) })
		}
	}
}

func (s *scrubs) newRunner(id cluster.StoreID, st *segment.Store) *scrub.Runner {
	c := s.n.conf.Scrub
	return scrub.NewRunner(scrub.RunConfig{
		Scrubber: scrub.New(scrub.Config{ID: id, Store: scrub.OnStore(st), Map: scrubMap{s.n}, Source: scrubSource{s.n}, Logger: s.log}),
		Pace:     scrub.Pace{Every: c.Every, Rate: uint64(c.Rate)},
		FS:       vfs.Default, Dir: st.Dir(),
		Used:   func() uint64 { return st.Usage().Used },
		Failed: func() bool { return st.Failed() != nil },
		Logger: s.log,
	})
}

func (s *scrubs) runner(id cluster.StoreID) *scrub.Runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runners[id]
}

// status returns how the scrubs of this node's stores stand.
func (s *scrubs) status() []scrub.Status {
	s.mu.Lock()
	runners := maps.Clone(s.runners)
	s.mu.Unlock()
	out := []scrub.Status{}
	for _, id := range slices.Sorted(maps.Keys(runners)) {
		out = append(out, runners[id].Status())
	}
	return out
}

// problems returns a sentence for each copy on this node's stores that could not
// be made whole, a few of them.
func (s *scrubs) problems() (out []string) {
	const few = 5
	for _, st := range s.status() {
		p := st.State.Problems
		for i := range min(few, len(p)) {
			out = append(out, fmt.Sprintf("store %d: volume %d, blob %v %s", st.Store, p[i].Key.Group, p[i].Key.Blob, p[i].Text))
		}
		if n := uint64(len(p)) + st.State.Lost; n > few {
			out = append(out, fmt.Sprintf("store %d: %d more copies could not be repaired: `hawser scrub status` lists them", st.Store, n-few))
		}
	}
	return out
}

// report is placement.Config.Report: a read has met a copy that is damaged or
// missing. It does not block; what finds no room is found by the next pass.
func (s *scrubs) report(p placement.Problem) {
	s.log.Warn("a copy could not be read; another one was", "volume", uint32(p.Group), "blob", p.Blob, "store", uint32(p.Store), "err", p.Err)
	if r := s.runner(p.Store); r != nil {
		r.Doubt(keyOf(p))
		return
	}
	select {
	case s.doubts <- p:
	default:
	}
}

func keyOf(p placement.Problem) cluster.BlobKey {
	return cluster.BlobKey{Group: p.Group, Blob: p.Blob}
}

// tellPause is how long reports are gathered, so that those of one store travel
// together.
const tellPause = 200 * time.Millisecond

// tell sends what reads have met to the nodes that have the stores.
func (s *scrubs) tell(ctx context.Context) {
	for {
		var first placement.Problem
		select {
		case <-ctx.Done():
			return
		case first = <-s.doubts:
		}
		pause(ctx, tellPause)
		by := map[cluster.StoreID]map[cluster.BlobKey]bool{first.Store: {keyOf(first): true}}
		for range len(s.doubts) {
			p := <-s.doubts
			if by[p.Store] == nil {
				by[p.Store] = map[cluster.BlobKey]bool{}
			}
			by[p.Store][keyOf(p)] = true
		}
		for id, keys := range by {
			q := scrubRequest{Op: scrubDoubt, Store: id, Keys: slices.Collect(maps.Keys(keys))}
			if _, err := s.ask(ctx, id, q, 5*time.Second); err != nil && ctx.Err() == nil {
				s.log.Debug("a store's node could not be told of doubtful copies", "store", uint32(id), "err", err)
			}
		}
	}
}

// scrubMap is the volumes as they are on this node.
type scrubMap struct{ n *Node }

// Groups implements scrub.Map.
func (m scrubMap) Groups() (ids []cluster.GroupID) {
	for _, v := range m.n.member.Volumes() {
		ids = append(ids, v.Info.ID)
	}
	return ids
}

// Sync implements scrub.Map.
func (m scrubMap) Sync(ctx context.Context, g cluster.GroupID) error {
	v, err := m.n.member.Volume(g)
	if err != nil {
		return nil // nothing of it can be wanted
	}
	return v.Sync(ctx)
}

// Want implements scrub.Map.
func (m scrubMap) Want(id cluster.StoreID, key cluster.BlobKey) (scrub.Want, bool) {
	v, err := m.n.member.Volume(key.Group)
	if err != nil {
		return scrub.Want{}, false
	}
	w, ok := wantOf(v.View(), v.Info.ID, id, key.Blob)
	return w, ok && w.Key == key
}

// Wanted implements scrub.Map.
func (m scrubMap) Wanted(id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) (wants []scrub.Want) {
	v, err := m.n.member.Volume(g)
	if err != nil || n <= 0 {
		return nil
	}
	view := v.View()
	var blobs []cluster.BlobID
	for _, set := range view.ReplicaSets() {
		if !slices.Contains(set.Members, id) {
			continue
		}
		some := 0
		view.SetBlobs(set.ID, after.Blob, func(b cluster.BlobID) bool {
			blobs = append(blobs, b)
			some++
			return some < n
		})
	}
	slices.Sort(blobs)
	for _, b := range slices.Compact(blobs) {
		if w, ok := wantOf(view, g, id, b); ok {
			if wants = append(wants, w); len(wants) == n {
				break
			}
		}
	}
	return wants
}

// wantOf returns what a store should have of a blob.
func wantOf(view volume.View, g cluster.GroupID, id cluster.StoreID, b cluster.BlobID) (scrub.Want, bool) {
	blob, ok := view.Blob(b)
	if !ok || blob.Kind != volume.Copies {
		return scrub.Want{}, false
	}
	set, ok := view.ReplicaSet(blob.Set)
	if !ok || !slices.Contains(set.Members, id) {
		return scrub.Want{}, false
	}
	w := scrub.Want{
		Key: cluster.BlobKey{Group: g, Blob: b}, Set: set.ID, Epoch: set.Epoch, Len: blob.Len, CRC: blob.CRC, Members: set.Members,
	}
	return w, true
}

// scrubSource gets copies from other stores.
type scrubSource struct{ n *Node }

// fetchTimeout bounds how long a copy from one store may take.
const fetchTimeout = 20 * time.Second

// Fetch implements scrub.Source: from the other members, and where none has it,
// from any store that does, such as one that was a member before.
func (s scrubSource) Fetch(ctx context.Context, self cluster.StoreID, w scrub.Want) (scrub.Fetched, error) {
	ids := w.Others(self)
	for _, id := range s.n.data.All() {
		if id != self && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var errs []error
	for _, id := range ids {
		f, err := s.from(ctx, id, w)
		if err == nil {
			return f, nil
		}
		if ctx.Err() != nil {
			return f, ctx.Err()
		}
		// What a store that is no member does not have is not worth a word.
		if slices.Contains(w.Members, id) || !errors.Is(err, cluster.ENOBLOB) {
			errs = append(errs, fmt.Errorf("store %d: %w", id, err))
		}
	}
	if len(errs) == 0 {
		return scrub.Fetched{}, fmt.Errorf("there is no other copy: %w", cluster.ENOBLOB)
	}
	return scrub.Fetched{}, errors.Join(errs...)
}

func (s scrubSource) from(ctx context.Context, id cluster.StoreID, w scrub.Want) (scrub.Fetched, error) {
	addr, up := s.n.member.Addr(id)
	if !up {
		return scrub.Fetched{}, fmt.Errorf("it is down: %w", cluster.EAGAIN)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	buf, err := s.n.data.client.Get(ctx, addr, id, w.Key, 0, w.Len)
	if err != nil {
		return scrub.Fetched{}, err
	}
	memory := bufpool.Get(checksum.Size(len(buf.Bytes)))
	sums := checksum.Sums(memory.B[:0]).Append(buf.Bytes)
	if sums.Whole(len(buf.Bytes)) != w.CRC {
		memory.Release()
		buf.Release()
		return scrub.Fetched{}, fmt.Errorf("it has a copy of another content: %w", cluster.ECORRUPT)
	}
	return scrub.Fetched{Data: buf.Bytes, Sums: sums, Release: func() {
		memory.Release()
		buf.Release()
	}}, nil
}
