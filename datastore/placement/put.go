package placement

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/erasure"
	"github.com/hawserfs/hawser/datastore/segment"
)

// Put puts a blob to all members of a replica set and returns where it is. alloc
// makes a blob id; each attempt needs one. abandoned are the ids of attempts
// that did not win, also when an error is returned: they will never be used,
// but copies of them may be there, or still arrive.
//
// data is not referred to any more after Put has returned. Where a store hangs,
// Put has to wait for it to give up; PutOwned has not.
//
// Errors: ENOSPC (every set whose members are up is out of space, or there is no
// set), EAGAIN (no set's members are all up and could be reached), EINVAL (no data, or too
// much), the error of alloc, or ctx's.
func (p *Placement) Put(ctx context.Context, g cluster.GroupID, copies uint8, alloc func() (cluster.BlobID, error), data [][]byte) (placed Placed, abandoned []cluster.BlobID, err error) {
	unused := make(chan struct{})
	placed, abandoned, err = p.PutOwned(ctx, g, copies, alloc, data, func() { close(unused) })
	<-unused
	return placed, abandoned, err
}

// PutOwned is Put for data that the caller gives away: release is called once,
// when nothing refers to data any more, which may be after PutOwned returned.
func (p *Placement) PutOwned(ctx context.Context, g cluster.GroupID, copies uint8, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placed Placed, abandoned []cluster.BlobID, err error) {
	n := 0
	for _, d := range data {
		n += len(d)
	}
	if n == 0 || n > cluster.MaxBlob {
		release()
		return Placed{}, nil, fmt.Errorf("placement: a blob of %d bytes: %w", n, cluster.EINVAL)
	}
	w := p.newPut(g, alloc, data, n, release)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer w.drop()
	return w.run(ctx, p.cfg.Map.Sets(g, copies))
}

func (p *Placement) newPut(g cluster.GroupID, alloc func() (cluster.BlobID, error), data [][]byte, n int, release func()) *put {
	sums := bufpool.Get(checksum.Size(n))
	w := &put{
		p: p, group: g, data: data, len: n, alloc: alloc,
		sums:    checksum.Sums(sums.B[:0]).Append(data...),
		results: make(chan result, p.cfg.Attempts),
	}
	w.refs.Store(1)
	w.release = func() {
		sums.Release()
		release()
	}
	return w
}

// A put is one call of Put.
type put struct {
	p       *Placement
	group   cluster.GroupID
	data    [][]byte
	sums    checksum.Sums
	len     int
	coded   *erasure.Coded // nil: each member gets all of data
	alloc   func() (cluster.BlobID, error)
	results chan result
	refs    atomic.Int32 // who refers to data and sums: Put itself, and each copy under way
	release func()

	attempts []*attempt
	tried    []cluster.ReplicaSetID
	avoid    []cluster.StoreID
}

// An attempt puts the blob to one set under one id.
type attempt struct {
	id     cluster.BlobID
	set    SetInfo
	left   atomic.Int32  // copies that are not there yet
	failed atomic.Bool   // a copy failed: the attempt is lost
	done   []atomic.Bool // by member
	begun  int64
	cancel context.CancelFunc
}

// A result is that of a whole attempt.
type result struct {
	a   *attempt
	err error
}

func (w *put) drop() {
	if w.refs.Add(-1) == 0 {
		w.release()
	}
}

func (w *put) run(ctx context.Context, sets []SetInfo) (Placed, []cluster.BlobID, error) {
	hedge := w.p.puts.hedge(w.p.cfg.Hedge)
	timer := time.NewTimer(hedge)
	defer timer.Stop()
	var last error
	if err := w.begin(ctx, sets); err != nil {
		return Placed{}, w.ids(nil), err
	}
	for running := 1; ; {
		select {
		case r := <-w.results:
			if r.err == nil {
				w.p.puts.observe(time.Duration(now() - r.a.begun))
				return w.placed(r.a), w.ids(r.a), nil
			}
			running--
			last = worse(last, r.err)
			if ctx.Err() != nil {
				return Placed{}, w.ids(nil), ctx.Err()
			}
		case <-timer.C:
			if running > 1 {
				continue // two at a time are enough
			}
			for _, a := range w.attempts {
				for i, id := range a.set.Members {
					if !a.done[i].Load() {
						w.avoid = append(w.avoid, id)
						w.p.stores.get(id).fail()
					}
				}
			}
		case <-ctx.Done():
			return Placed{}, w.ids(nil), ctx.Err()
		}
		switch err := w.begin(ctx, sets); {
		case err == nil:
			running++
			timer.Reset(hedge)
		case running == 0:
			if last == nil {
				last = err
			}
			return Placed{}, w.ids(nil), last
		}
	}
}

// begin starts an attempt with another set.
func (w *put) begin(ctx context.Context, sets []SetInfo) error {
	if len(w.attempts) >= w.p.cfg.Attempts {
		return cluster.EAGAIN
	}
	set, ok := w.p.choose(sets, w.tried, w.avoid)
	if !ok {
		return fmt.Errorf("placement: none of the group's %d replica sets can be written: %w", len(sets), w.p.why(sets))
	}
	id, err := w.alloc()
	if err != nil {
		return err
	}
	w.tried = append(w.tried, set.ID)
	a := &attempt{id: id, set: set, begun: now(), done: make([]atomic.Bool, len(set.Members))}
	ctx, a.cancel = context.WithTimeout(ctx, w.p.cfg.Timeout) // ended by the result, or with Put
	a.left.Store(int32(len(set.Members)))
	w.attempts = append(w.attempts, a)
	w.refs.Add(int32(len(set.Members)))
	for i := range set.Members {
		go w.copyTo(ctx, a, i)
	}
	return nil
}

// copyTo puts the copy of member i. Whoever puts the last one, or is the first
// to fail, sends the attempt's result.
func (w *put) copyTo(ctx context.Context, a *attempt, i int) {
	defer w.drop()
	id := a.set.Members[i]
	addr, _ := w.p.cfg.Map.Addr(id)
	st := w.p.stores.get(id)
	key, data, sums, n := cluster.BlobKey{Group: w.group, Blob: a.id}, w.data, w.sums, w.len
	if w.coded != nil {
		s := &w.coded.Shards[i]
		key.Shard, data, sums, n = uint8(i+1), s.Data, s.Sums, w.len/int(w.coded.Code.K)
	}
	st.busy.Add(int64(n))
	u, err := w.p.cfg.Client.Put(ctx, addr, id, key, segment.Meta{Set: a.set.ID, Epoch: a.set.Epoch}, sums, data)
	st.busy.Add(-int64(n))
	a.done[i].Store(true)
	if err == nil {
		st.setUsage(u)
		if a.left.Add(-1) == 0 {
			a.cancel()
			w.results <- result{a: a}
		}
		return
	}
	switch {
	case errors.Is(err, cluster.ENOSPC):
		st.full.Store(now())
	case !errors.Is(err, context.Canceled):
		st.fail()
		w.p.cfg.Logger.Debug("put failed", "store", id, "blob", a.id, "err", err)
	}
	if a.failed.CompareAndSwap(false, true) {
		a.cancel()
		w.results <- result{a, err}
	}
}

func (w *put) placed(a *attempt) Placed {
	return Placed{Blob: a.id, Set: a.set.ID, Epoch: a.set.Epoch, Len: uint32(w.len), CRC: w.sums.Whole(w.len)}
}

// ids returns those of all attempts but the one that won.
func (w *put) ids(won *attempt) (ids []cluster.BlobID) {
	for _, a := range w.attempts {
		if a != won {
			ids = append(ids, a.id)
		}
	}
	return ids
}

// worse returns the error to report of two: out of space only if nothing else
// went wrong.
func worse(a, b error) error {
	if !errors.Is(b, cluster.ENOSPC) {
		b = &failure{"no replica set took the blob", cluster.EAGAIN, b}
	}
	if a == nil || errors.Is(a, cluster.ENOSPC) {
		return b
	}
	return a
}
