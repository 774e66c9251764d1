package node

import (
	"bytes"
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
	"github.com/hawserfs/hawser/datastore/erasure"
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

// begin scrubs a store of this node, from when it is served until the node stops.
func (s *scrubs) begin(id cluster.StoreID, st *segment.Store, w *wear) {
	r := s.newRunner(id, st)
	s.mu.Lock()
	s.runners[id] = r
	s.mu.Unlock()
	w.scrub.Store(r)
	s.n.wg.Go(func() { r.Run(s.n.ctx) })
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
	return w, ok && (w.Key == key || key.Shard == 0)
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

// wantOf returns what a store should have of the blob that stores know by an id.
func wantOf(view volume.View, g cluster.GroupID, id cluster.StoreID, stored cluster.BlobID) (scrub.Want, bool) {
	blob, ok := view.StoredBlob(stored)
	if !ok {
		return scrub.Want{}, false
	}
	set, ok := view.ReplicaSet(blob.Set)
	i := slices.Index(set.Members, id)
	if !ok || i < 0 {
		return scrub.Want{}, false
	}
	w := scrub.Want{
		Key: cluster.BlobKey{Group: g, Blob: stored}, Set: set.ID, Epoch: set.Epoch, Len: blob.Len, CRC: blob.CRC, Members: set.Members,
	}
	switch blob.Kind {
	case volume.Copies:
	case volume.Coded:
		w.Coded, w.Key.Shard, w.Len, w.CRC = true, uint8(i+1), set.Code.ShardLen(blob.Len), 0
	default:
		return scrub.Want{}, false // of a later version
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
	if w.Coded {
		return s.shard(ctx, w)
	}
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

// shard makes a shard anew: from the whole blob, which is read from the other
// shards and held against its record.
func (s scrubSource) shard(ctx context.Context, w scrub.Want) (scrub.Fetched, error) {
	v, err := s.n.member.Volume(w.Key.Group)
	if err != nil {
		return scrub.Fetched{}, err
	}
	blob, ok := v.View().StoredBlob(w.Key.Blob)
	set, there := v.View().ReplicaSet(w.Set)
	if i := int(w.Key.Shard) - 1; !ok || !there || blob.Set != w.Set || i < 0 || i >= set.Code.Shards() {
		return scrub.Fetched{}, fmt.Errorf("it has moved meanwhile: %w", cluster.EAGAIN)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	whole := bufpool.Get(int(blob.Len))
	defer whole.Release()
	err = s.n.data.placement.GetCoded(ctx, w.Key.Group, placement.Coded{Blob: w.Key.Blob, Code: set.Code, Members: set.Members, Len: blob.Len}, 0, whole.B)
	if err != nil {
		return scrub.Fetched{}, err
	}
	return shardOf(set.Code, whole.B, blob.CRC, w.Key.Shard)
}

// shardOf returns a shard of a whole blob, which must have the crc32c that its
// record says.
func shardOf(code cluster.Code, whole []byte, crc uint32, shard uint8) (scrub.Fetched, error) {
	sums := checksum.Sums(nil).Append(whole)
	if sums.Whole(len(whole)) != crc {
		return scrub.Fetched{}, fmt.Errorf("what the other shards make up is another content: %w", cluster.ECORRUPT)
	}
	coded, err := erasure.Encode(code, [][]byte{whole}, sums)
	if err != nil {
		return scrub.Fetched{}, err
	}
	defer coded.Release()
	x := coded.Shards[shard-1]
	return scrub.Fetched{Data: bytes.Join(x.Data, nil), Sums: slices.Clone(x.Sums)}, nil
}
