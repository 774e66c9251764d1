package scrub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A Want is a copy that a store should have.
type Want struct {
	Key   cluster.BlobKey
	Set   cluster.ReplicaSetID
	Epoch uint32 // of the set
	Len   uint32 // bytes of the copy
	CRC   uint32 // crc32c of the whole copy
	// Members are the stores of the replica set, by place, with this one.
	Members []cluster.StoreID
	// Coded: the copy is a shard of an erasure-coded blob. Its Len and CRC are
	// not known.
	Coded bool
}

// A Store is the store that is scrubbed.
type Store interface {
	// ListAll returns up to n blobs with keys after a key, in order.
	ListAll(after cluster.BlobKey, n int) ([]segment.Info, error)
	// Verify reads a whole copy: ENOBLOB, ECORRUPT or EIO say that it is missing,
	// damaged or unreadable.
	Verify(ctx context.Context, key cluster.BlobKey) (segment.Info, error)
	// Replace stores a copy durably if the one that is there is damaged or
	// missing: ECONFLICT if it is good and of another content.
	Replace(ctx context.Context, key cluster.BlobKey, meta segment.Meta, sums checksum.Sums, data []byte) (written bool, err error)
}

// A Map is what this node knows of the volumes.
type Map interface {
	// Groups returns the groups of the volumes, in order.
	Groups() []cluster.GroupID
	// Wanted returns up to n copies that the store should have of a group, behind
	// a key, in order, by the state that this node has.
	Wanted(store cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) []Want
	// Sync waits until this node has all of a group that was committed before.
	Sync(ctx context.Context, g cluster.GroupID) error
	// Want returns what the store should have under a key, if anything. A key
	// without a shard stands for whichever the store has.
	Want(store cluster.StoreID, key cluster.BlobKey) (Want, bool)
}

// A Fetched is a copy from elsewhere. Release, if not nil, gives its memory back.
type Fetched struct {
	Data    []byte
	Sums    checksum.Sums
	Release func()
}

// A Source has the copies of other stores.
type Source interface {
	// Fetch returns what the store should have, from the other members.
	Fetch(ctx context.Context, store cluster.StoreID, w Want) (Fetched, error)
}

// Config says what is scrubbed.
type Config struct {
	ID     cluster.StoreID
	Store  Store
	Map    Map
	Source Source
	// Page is how many copies one Step looks at, at most. 0: 256.
	Page int
	// Bytes is how many bytes one Step reads, about. 0: 16 MiB.
	Bytes  int64
	Logger *slog.Logger
}

// A Problem is a copy that could not be made whole.
type Problem struct {
	Key  cluster.BlobKey `json:"key"`
	Text string          `json:"text"`
	// Missing tells a copy that is not there from one that is damaged.
	Missing bool `json:"missing,omitempty"`
}

// Counts say what was looked at and what came of it.
type Counts struct {
	Copies   uint64 `json:"copies"`
	Bytes    uint64 `json:"bytes"`    // read
	Bad      uint64 `json:"bad"`      // copies that were damaged or could not be read
	Missing  uint64 `json:"missing"`  // copies that were not there
	Repaired uint64 `json:"repaired"` // of both
	Failed   uint64 `json:"failed"`   // of both: could not be repaired
}

// Add adds what d counts.
func (c *Counts) Add(d Counts) {
	c.Copies += d.Copies
	c.Bytes += d.Bytes
	c.Bad += d.Bad
	c.Missing += d.Missing
	c.Repaired += d.Repaired
	c.Failed += d.Failed
}

// A Result is what came of a step.
type Result struct {
	Counts
	After    cluster.BlobKey   `json:"after"` // everything up to here is verified
	Done     bool              `json:"done"`  // there is nothing behind it
	Problems []Problem         `json:"problems,omitempty"`
	Well     []cluster.BlobKey `json:"-"` // copies that were repaired, or need not be
}

// A Scrubber scrubs one store. Its methods are called one at a time.
type Scrubber struct{ cfg Config }

// New returns a scrubber.
func New(cfg Config) *Scrubber {
	if cfg.Page == 0 {
		cfg.Page = 256
	}
	if cfg.Bytes == 0 {
		cfg.Bytes = 16 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scrubber{cfg}
}

// Compare orders keys as stores list them.
func Compare(a, b cluster.BlobKey) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Blob, b.Blob), cmp.Compare(a.Shard, b.Shard))
}

// maxKey is behind all keys.
var maxKey = cluster.BlobKey{Group: ^cluster.GroupID(0), Blob: ^cluster.BlobID(0), Shard: ^uint8(0)}

// Step looks at the next copies behind a key: at those that are there, and at
// those that should be. The zero key begins a pass. After an error, the same step
// may be taken again.
func (s *Scrubber) Step(ctx context.Context, after cluster.BlobKey) (Result, error) {
	r := Result{After: after}
	// What should be there is looked up first: what is put meanwhile is found
	// there then, and what is deleted is judged again.
	want, upto := s.wanted(after)
	held, err := s.cfg.Store.ListAll(after, s.cfg.Page)
	if err != nil {
		return r, err
	}
	if len(held) == s.cfg.Page {
		if last := held[len(held)-1].Key; Compare(last, upto) < 0 {
			upto = last
		}
	}
	r.Done = upto == maxKey
	for len(held) > 0 || len(want) > 0 {
		if int64(r.Bytes) >= s.cfg.Bytes {
			r.Done = false
			return r, nil
		}
		here := len(held) > 0 && (len(want) == 0 || Compare(held[0].Key, want[0].Key) <= 0)
		should := len(want) > 0 && (len(held) == 0 || Compare(want[0].Key, held[0].Key) <= 0)
		var key cluster.BlobKey
		var w *Want
		if here {
			key = held[0].Key
			held = held[1:]
		}
		if should {
			w = &want[0]
			key = w.Key
			want = want[1:]
		}
		if Compare(key, upto) > 0 {
			break
		}
		if err := s.look(ctx, &r, key, w); err != nil {
			return r, err
		}
		r.After = key
	}
	return r, nil
}

// Check looks at the copies of some keys, now.
func (s *Scrubber) Check(ctx context.Context, keys []cluster.BlobKey) (Result, error) {
	r := Result{}
	for _, key := range keys {
		w, ok := s.cfg.Map.Want(s.cfg.ID, key)
		if !ok {
			// This node may not have heard of it yet.
			if err := s.cfg.Map.Sync(ctx, key.Group); err != nil {
				return r, err
			}
			if w, ok = s.cfg.Map.Want(s.cfg.ID, key); !ok {
				r.Well = append(r.Well, key)
				continue
			}
		}
		if err := s.look(ctx, &r, w.Key, &w); err != nil {
			return r, err
		}
	}
	r.Done = true
	return r, nil
}

// wanted returns the next copies that should be there, and up to which key they
// are all that should.
func (s *Scrubber) wanted(after cluster.BlobKey) (all []Want, upto cluster.BlobKey) {
	for _, g := range s.cfg.Map.Groups() {
		if g < after.Group {
			continue
		}
		from := cluster.BlobKey{Group: g}
		if g == after.Group {
			from = after
		}
		n := s.cfg.Page - len(all)
		some := s.cfg.Map.Wanted(s.cfg.ID, g, from, n)
		all = append(all, some...)
		if len(some) == n {
			return all, all[len(all)-1].Key
		}
	}
	return all, maxKey
}

// look verifies a copy, and makes it whole if it must be. w is what should be
// there, by the state that this node has; nil: nothing. An error says that no
// judgement is possible now.
func (s *Scrubber) look(ctx context.Context, r *Result, key cluster.BlobKey, w *Want) error {
	info, err := s.cfg.Store.Verify(ctx, key)
	switch {
	case err == nil:
		r.Copies++
		r.Bytes += uint64(info.Len)
		if w == nil || w.matches(info) {
			r.Well = append(r.Well, key)
			return nil
		}
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, cluster.ENOBLOB):
		if w == nil {
			return nil // deleted meanwhile
		}
	case damaged(err):
		r.Copies++
	default:
		return err
	}
	return s.heal(ctx, r, key)
}

func (w *Want) matches(i segment.Info) bool { return w.Coded || i.Len == w.Len && i.CRC == w.CRC }

func damaged(err error) bool {
	return errors.Is(err, cluster.ECORRUPT) || errors.Is(err, cluster.EIO)
}

// heal makes a copy whole that looks damaged or missing, or seems to be of
// another content.
func (s *Scrubber) heal(ctx context.Context, r *Result, key cluster.BlobKey) error {
	if on(ruleFresh) {
		if err := s.cfg.Map.Sync(ctx, key.Group); err != nil {
			return err
		}
	}
	w, ok := s.cfg.Map.Want(s.cfg.ID, key)
	if !ok {
		// No file uses it, or it has moved: it is collected in time.
		r.Well = append(r.Well, key)
		return nil
	}
	info, why := s.cfg.Store.Verify(ctx, key)
	switch {
	case why == nil && w.matches(info):
		r.Well = append(r.Well, key)
		return nil // it came meanwhile
	case why != nil && !damaged(why) && !errors.Is(why, cluster.ENOBLOB):
		return why
	}
	missing := errors.Is(why, cluster.ENOBLOB)
	if missing {
		r.Missing++
	} else {
		r.Bad++
	}
	err := s.repair(ctx, w)
	switch {
	case err == nil:
		r.Repaired++
		r.Bytes += uint64(w.Len)
		r.Well = append(r.Well, key)
		s.cfg.Logger.Warn("a copy was made whole from another member", "store", uint32(s.cfg.ID),
			"volume", uint32(key.Group), "blob", key.Blob, "shard", key.Shard, "was", describe(why))
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		r.Failed++
		r.Problems = append(r.Problems, Problem{Key: key, Missing: missing, Text: fmt.Sprintf("%s, and could not be repaired: %v", describe(why), err)})
	}
	return nil
}

func describe(why error) string {
	switch {
	case why == nil:
		return "has another content than the volume says"
	case errors.Is(why, cluster.ENOBLOB):
		return "is missing"
	}
	return "is damaged"
}

// repair fetches a copy, holds it against the blob's record and stores it.
func (s *Scrubber) repair(ctx context.Context, w Want) error {
	f, err := s.cfg.Source.Fetch(ctx, s.cfg.ID, w)
	if err != nil {
		return err
	}
	if f.Release != nil {
		defer f.Release()
	}
	if on(ruleVerify) {
		if err := w.verify(f); err != nil {
			return err
		}
	}
	if _, err = s.cfg.Store.Replace(ctx, w.Key, segment.Meta{Set: w.Set, Epoch: w.Epoch}, f.Sums, f.Data); err != nil {
		return err
	}
	if !on(ruleAgain) {
		return nil
	}
	info, err := s.cfg.Store.Verify(ctx, w.Key)
	if err == nil && !w.matches(info) {
		err = fmt.Errorf("what was stored has %d bytes with checksum %08x: %w", info.Len, info.CRC, cluster.ECORRUPT)
	}
	return err
}

// verify holds a fetched copy against the blob's record.
func (w *Want) verify(f Fetched) error {
	n := len(f.Data)
	switch {
	case n == 0 || len(f.Sums) != checksum.Size(n) || f.Sums.Verify(f.Data) >= 0:
		return fmt.Errorf("the copy of another member was damaged on the way: %w", cluster.ECORRUPT)
	case !w.Coded && (uint32(n) != w.Len || f.Sums.Whole(n) != w.CRC):
		return fmt.Errorf("the copy of another member has %d bytes with checksum %08x, and the volume says %d with %08x: %w",
			n, f.Sums.Whole(n), w.Len, w.CRC, cluster.ECORRUPT)
	}
	return nil
}

// Others returns the members but the store itself.
func (w *Want) Others(self cluster.StoreID) []cluster.StoreID {
	return slices.DeleteFunc(slices.Clone(w.Members), func(id cluster.StoreID) bool { return id == self })
}
