package repair

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// Totals count since the runner was made.
type Totals struct {
	Begun  uint64 `json:"begun"`  // moves
	Done   uint64 `json:"done"`   // moves
	Failed uint64 `json:"failed"` // moves; they are tried again
	Blobs  uint64 `json:"blobs"`  // copied
	Bytes  uint64 `json:"bytes"`  // copied
}

// A Status says what is done, and what is to be done.
type Status struct {
	Leads  bool         `json:"leads"` // else the rest says nothing
	Moves  []MoveStatus `json:"moves,omitempty"`
	Waits  []WaitStatus `json:"waits,omitempty"`
	Totals Totals       `json:"totals"`
}

// A MoveStatus is a move under way.
type MoveStatus struct {
	Set    cluster.ReplicaSetID `json:"set"`
	Reason string               `json:"reason"`
	From   cluster.StoreID      `json:"from,omitempty"`
	To     cluster.StoreID      `json:"to"`
	// What the new member has, of what it is to have.
	Blobs    uint64    `json:"blobs"`
	AllBlobs uint64    `json:"all_blobs"`
	Bytes    uint64    `json:"bytes"`
	AllBytes uint64    `json:"all_bytes"`
	Rate     float64   `json:"rate"` // bytes copied per second
	Since    time.Time `json:"since"`
}

// A WaitStatus is a set that should be changed and is not being changed yet.
type WaitStatus struct {
	Set    cluster.ReplicaSetID `json:"set"`
	Reason string               `json:"reason"`
	From   cluster.StoreID      `json:"from,omitempty"`
	Why    string               `json:"why,omitempty"` // it can't be; empty: it waits for its turn
	Blobs  uint64               `json:"blobs"`
	Bytes  uint64               `json:"bytes"`
}

// ETA estimates how long what is under way and what waits for its turn takes; 0
// if there is nothing by which to tell.
func (s *Status) ETA() time.Duration {
	var left, rate float64
	for _, m := range s.Moves {
		left += float64(m.AllBytes) - float64(min(m.Bytes, m.AllBytes))
		rate += m.Rate
	}
	for _, w := range s.Waits {
		if w.Why == "" {
			left += float64(w.Bytes)
		}
	}
	if rate == 0 {
		return 0
	}
	return time.Duration(left / rate * float64(time.Second)).Round(time.Second)
}

// Status returns how things are. It may be called at any time.
func (r *Runner) Status() Status {
	r.mu.Lock()
	s := Status{Leads: r.leads, Totals: r.total}
	for _, id := range slices.Sorted(maps.Keys(r.moves)) {
		m := r.moves[id]
		x := MoveStatus{
			Set: id, Reason: m.Reason.String(), From: m.From, To: m.To, Since: m.since.UTC(),
			Blobs: m.progress.Blobs.Load(), AllBlobs: m.progress.AllBlobs.Load(),
			Bytes: m.progress.Bytes.Load(), AllBytes: m.progress.AllBytes.Load(),
		}
		copied := m.progress.CopiedByt.Load()
		x.Rate = float64(copied) / max(time.Since(m.since).Seconds(), 0.001)
		s.Totals.Blobs += m.progress.CopiedBlobs.Load()
		s.Totals.Bytes += copied
		s.Moves = append(s.Moves, x)
	}
	waits := slices.Clone(r.waits)
	r.mu.Unlock()
	for _, w := range waits {
		n := r.sizeOf(w.Set, time.Minute)
		s.Waits = append(s.Waits, WaitStatus{w.Set, w.Reason.String(), w.From, w.Why, n.blobs, n.bytes})
	}
	return s
}

// sizeOf counts a set's blobs, unless that was done in the last maxAge.
func (r *Runner) sizeOf(id cluster.ReplicaSetID, maxAge time.Duration) size {
	now := time.Now()
	r.mu.Lock()
	n, ok := r.sizes[id]
	r.mu.Unlock()
	if ok && now.Sub(n.at) < maxAge {
		return n
	}
	n = size{at: now}
	for after := cluster.BlobID(0); ; {
		blobs := r.cfg.Volume.Blobs(id, after, page)
		for _, b := range blobs {
			n.blobs++
			n.bytes += uint64(b.Len)
		}
		if len(blobs) < page {
			break
		}
		after = blobs[len(blobs)-1].ID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sizes[id] = n
	return n
}

// count finds out how much a move is.
func (r *Runner) count(id cluster.ReplicaSetID, p *Progress) {
	n := r.sizeOf(id, time.Second)
	p.AllBlobs.Store(n.blobs)
	p.AllBytes.Store(n.bytes)
}

// Preview returns the moves that would even the stores out, as things are now.
func (r *Runner) Preview(ctx context.Context) (moves []Move) {
	stores, ok := r.cfg.Look()
	if !ok {
		return nil
	}
	in := r.input(ctx, stores)
	in.Parallel, in.Busy, in.Pause = previewMoves, nil, nil
	r.weigh(&in)
	for len(moves) < previewMoves {
		p := NewPlan(&in)
		if len(p.Moves) == 0 {
			break
		}
		for _, m := range p.Moves {
			moves = append(moves, m)
			i := slices.IndexFunc(in.Sets, func(s Set) bool { return s.ID == m.Set.ID })
			in.Sets[i].Members, in.Sets[i].State = m.Members(), Writable
		}
	}
	return moves
}

// previewMoves is how many moves a preview shows.
const previewMoves = 1000
