package collect

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// A Set is a replica set of the volume.
type Set struct {
	ID      cluster.ReplicaSetID
	Members []cluster.StoreID
	// Code, if it is one, says that member i has shard i+1 of the set's blobs.
	Code cluster.Code
}

// key returns the key under which member i has a blob of the set.
func (s *Set) key(g cluster.GroupID, b cluster.BlobID, i int) cluster.BlobKey {
	k := cluster.BlobKey{Group: g, Blob: b}
	if !s.Code.IsZero() {
		k.Shard = uint8(i + 1)
	}
	return k
}

// A Freed blob is in a delete queue.
type Freed struct {
	Blob  cluster.BlobID
	Index uint64 // Raft index of the command that put it there
}

// A Copy is what a store has of a blob.
type Copy struct {
	Key   cluster.BlobKey
	Set   cluster.ReplicaSetID // that it was put to
	Epoch uint32               // of the set then
	Len   uint32               // bytes
	CRC   uint32               // crc32c of the whole
}

// A Home says where the copies of a blob belong.
type Home struct {
	Members []cluster.StoreID
	Len     uint32 // bytes
	CRC     uint32 // crc32c of the whole
	// Settled says that no store is being filled to become a member.
	Settled bool
}

// A Volume is the state machine of the volume's group.
type Volume interface {
	// Sync waits until everything committed before the call is applied here.
	Sync(ctx context.Context) error
	// Applied returns the last applied index.
	Applied() uint64
	// Sets returns all replica sets, also those that are not writable.
	Sets() []Set
	// Garbage returns up to n blobs of a set's delete queue, in order, with ids
	// from `from` on.
	Garbage(set cluster.ReplicaSetID, from cluster.BlobID, n int) []Freed
	// Deletable reports whether no record names the blob, and none can in the
	// future. It may be in a delete queue.
	Deletable(b cluster.BlobID) bool
	// Home returns where a blob belongs that a record names and of which every
	// member of its set has a full copy; ok is false for any other blob.
	Home(b cluster.BlobID) (h Home, ok bool)
	// Collected takes blobs off a set's delete queue.
	Collected(ctx context.Context, set cluster.ReplicaSetID, blobs []cluster.BlobID) error
}

// Stores reaches the stores of all nodes.
type Stores interface {
	// All returns the stores of the cluster.
	All() []cluster.StoreID
	// Up reports whether a store is thought to be reachable.
	Up(id cluster.StoreID) bool
	// List returns up to n copies that a store has of a group's blobs, after a key.
	List(ctx context.Context, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) ([]Copy, error)
	// Has reports whether a store has a copy of that length and checksum.
	Has(ctx context.Context, id cluster.StoreID, key cluster.BlobKey, length, crc uint32) bool
	// DeleteMoved deletes copies from a store that are still what they were when
	// they were listed.
	DeleteMoved(ctx context.Context, id cluster.StoreID, g cluster.GroupID, copies []Copy) error
	// Delete deletes blobs of a group from a store.
	Delete(ctx context.Context, id cluster.StoreID, g cluster.GroupID, keys []cluster.BlobKey) error
}

// Config says what is collected and how gently.
type Config struct {
	Group  cluster.GroupID
	Volume Volume
	Stores Stores
	// Delay is how long a blob stays in the delete queue. 0: 60 s.
	Delay time.Duration
	// Batch is how many blobs are deleted or listed at a time. 0: 1000.
	Batch  int
	Logger *slog.Logger
}

// Counters count since New.
type Counters struct {
	Garbage uint64 // blobs taken off the delete queues
	Orphans uint64 // copies deleted that nothing referred to
	Moved   uint64 // copies deleted that others were made for elsewhere
	Listed  uint64 // copies looked at for that
	Errors  uint64
}

// A Collector collects one volume. Its steps are called one at a time.
type Collector struct {
	cfg     Config
	samples []sample                            // oldest first
	next    map[cluster.StoreID]cluster.BlobKey // where the search for orphans goes on
	// The delete queue of a set has nothing below this index, as far as a look
	// at all of it could tell. A look goes over what was taken off lately, too.
	none map[cluster.ReplicaSetID]uint64

	garbage, orphans, moved, listed, errors atomic.Uint64
}

// A sample says that the applied index was index at a time.
type sample struct {
	at    time.Time
	index uint64
}

// New returns a collector. It starts with no memory: what is in the delete
// queues now stays for Delay.
func New(cfg Config) *Collector {
	if cfg.Delay == 0 {
		cfg.Delay = 60 * time.Second
	}
	if cfg.Batch == 0 {
		cfg.Batch = 1000
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Collector{cfg: cfg, next: map[cluster.StoreID]cluster.BlobKey{}, none: map[cluster.ReplicaSetID]uint64{}}
}

// Counters returns what was done so far. It may be called at any time.
func (c *Collector) Counters() Counters {
	return Counters{c.garbage.Load(), c.orphans.Load(), c.moved.Load(), c.listed.Load(), c.errors.Load()}
}

// maxSamples bounds how finely Delay is kept.
const maxSamples = 64

// old returns the index up to which the delete queues are older than Delay.
func (c *Collector) old(now time.Time) uint64 {
	limit := now.Add(-c.cfg.Delay)
	index := uint64(0)
	drop := 0
	for i, s := range c.samples {
		if s.at.After(limit) {
			break
		}
		index, drop = s.index, i
	}
	c.samples = append(c.samples[:0], c.samples[drop:]...)
	if n := len(c.samples); n == 0 || now.Sub(c.samples[n-1].at) >= c.cfg.Delay/maxSamples {
		c.samples = append(c.samples, sample{now, c.cfg.Volume.Applied()})
	}
	return index
}

// StepGarbage deletes a batch of each set's garbage that is old enough. more
// says that there is more of it now.
func (c *Collector) StepGarbage(ctx context.Context, now time.Time) (more bool, err error) {
	upTo := c.old(now)
	var errs []error
	for _, set := range c.cfg.Volume.Sets() {
		m, err := c.stepSet(ctx, set, upTo)
		more = more || m
		if err != nil {
			c.errors.Add(1)
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return more && len(errs) == 0, errors.Join(errs...)
}

func (c *Collector) stepSet(ctx context.Context, set Set, upTo uint64) (more bool, err error) {
	if upTo < c.none[set.ID] {
		return false, nil
	}
	var blobs []cluster.BlobID
	// What comes into the queue from now on has a higher index. What is in it and
	// not listed, since its writer is not past it, waits until then as well.
	none := c.cfg.Volume.Applied() + 1
	// The queue is in the order of the ids, not of the time.
	for from := cluster.BlobID(0); ; {
		freed := c.cfg.Volume.Garbage(set.ID, from, c.cfg.Batch)
		for _, f := range freed {
			if f.Index <= upTo && len(blobs) < c.cfg.Batch {
				blobs = append(blobs, f.Blob)
			} else {
				none = min(none, f.Index)
			}
		}
		if len(blobs) == c.cfg.Batch {
			more = true
			break
		}
		if len(freed) < c.cfg.Batch || freed[len(freed)-1].Blob == ^cluster.BlobID(0) || ctx.Err() != nil {
			break
		}
		from = freed[len(freed)-1].Blob + 1
	}
	if len(blobs) == 0 {
		if ctx.Err() == nil {
			c.none[set.ID] = none
		}
		return false, ctx.Err()
	}
	keys := make([]cluster.BlobKey, len(blobs))
	for i, id := range set.Members {
		if !c.cfg.Stores.Up(id) {
			continue
		}
		for j, b := range blobs {
			keys[j] = set.key(c.cfg.Group, b, i)
		}
		if err := c.cfg.Stores.Delete(ctx, id, c.cfg.Group, keys); err != nil {
			// Not up, as it turns out: its copies are orphans from now on.
			c.cfg.Logger.Debug("deleting garbage", "store", id, "blobs", len(keys), "err", err)
			c.errors.Add(1)
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
		}
	}
	if err := c.cfg.Volume.Collected(ctx, set.ID, blobs); err != nil {
		return false, err
	}
	c.garbage.Add(uint64(len(blobs)))
	return more, nil
}

// StepOrphans looks at the next batch of a store's blobs and deletes the orphans
// among them. done says that the store was gone through to the end.
func (c *Collector) StepOrphans(ctx context.Context, id cluster.StoreID) (done bool, err error) {
	done, err = c.stepOrphans(ctx, id)
	if err != nil {
		c.errors.Add(1)
	}
	return done, err
}

func (c *Collector) stepOrphans(ctx context.Context, id cluster.StoreID) (done bool, err error) {
	copies, err := c.cfg.Stores.List(ctx, id, c.cfg.Group, c.next[id], c.cfg.Batch)
	if err != nil {
		return false, err
	}
	if done = len(copies) < c.cfg.Batch; done {
		delete(c.next, id)
	} else {
		c.next[id] = copies[len(copies)-1].Key
	}
	if len(copies) == 0 {
		return done, nil
	}
	// After the list was made: a blob in it that is committed later has a
	// writer that is not past it now.
	if err := c.cfg.Volume.Sync(ctx); err != nil {
		return false, err
	}
	var orphans []cluster.BlobKey
	var moved []Copy
	sets := setsOf(c.cfg.Volume.Sets(), id)
	for i := range copies {
		x := &copies[i]
		switch {
		case !c.cfg.Volume.Deletable(x.Key.Blob):
			if c.elsewhere(ctx, id, x) {
				moved = append(moved, *x)
			}
		case !c.queued(sets, x.Key.Blob):
			orphans = append(orphans, x.Key)
		}
	}
	c.listed.Add(uint64(len(copies)))
	if len(orphans) > 0 {
		if err := c.cfg.Stores.Delete(ctx, id, c.cfg.Group, orphans); err != nil {
			return false, err
		}
		c.orphans.Add(uint64(len(orphans)))
		c.cfg.Logger.Debug("deleted orphans", "store", id, "blobs", len(orphans))
	}
	if len(moved) > 0 {
		if err := c.cfg.Stores.DeleteMoved(ctx, id, c.cfg.Group, moved); err != nil {
			return false, err
		}
		c.moved.Add(uint64(len(moved)))
		c.cfg.Logger.Debug("deleted copies that were moved", "store", id, "blobs", len(moved))
	}
	return done, nil
}

// elsewhere reports whether a copy of a blob that is in use is not needed where
// it is: its store is no member of the blob's set, nor is it being filled to
// become one, and all members have theirs. A set may begin to be moved to this
// very store after that was asked; then the copy is put anew, at another epoch,
// and DeleteMoved leaves it alone.
func (c *Collector) elsewhere(ctx context.Context, id cluster.StoreID, x *Copy) bool {
	if x.Key.Shard != 0 {
		return false
	}
	h, ok := c.cfg.Volume.Home(x.Key.Blob)
	if !ok || on(ruleSettled) && !h.Settled || slices.Contains(h.Members, id) {
		return false
	}
	for _, m := range h.Members {
		if on(ruleEverywhere) && (!c.cfg.Stores.Up(m) || !c.cfg.Stores.Has(ctx, m, x.Key, h.Len, h.CRC)) {
			return false // it may be the last one
		}
	}
	return len(h.Members) > 0
}

// setsOf returns the sets that a store is a member of.
func setsOf(all []Set, id cluster.StoreID) (sets []Set) {
	for _, s := range all {
		if slices.Contains(s.Members, id) {
			sets = append(sets, s)
		}
	}
	return sets
}

// queued reports whether the blob is garbage that has its time still: reads
// that have looked up the old map find it.
func (c *Collector) queued(sets []Set, b cluster.BlobID) bool {
	for _, s := range sets {
		if g := c.cfg.Volume.Garbage(s.ID, b, 1); len(g) > 0 && g[0].Blob == b {
			return true
		}
	}
	return false
}
