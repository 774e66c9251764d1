package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hawserfs/hawser/cluster"
)

// A Blob is a blob of a set, as its volume has it.
type Blob struct {
	ID  cluster.BlobID
	Len uint32 // bytes
	CRC uint32 // crc32c of the whole
}

// A Copy is what a store has of a blob.
type Copy struct {
	Blob
	Set   cluster.ReplicaSetID // that it was put to
	Epoch uint32               // of the set then
}

// A Volume is the state machine of the volume's group.
type Volume interface {
	// Sync waits until everything committed before the call is applied here.
	Sync(ctx context.Context) error
	// Sets returns all replica sets. Bytes and Begun are not filled in.
	Sets() []Set
	// Blobs returns up to n blobs of a set that have ids above after, by id.
	Blobs(set cluster.ReplicaSetID, after cluster.BlobID, n int) []Blob
	// PutSet makes or changes a set, if it is at its epoch still, and returns it
	// as it is then, applied here.
	PutSet(ctx context.Context, s Set) (Set, error)
}

// Stores reaches the stores of all nodes.
type Stores interface {
	// List returns up to n copies that a store has of the volume's blobs above
	// after, by id.
	List(ctx context.Context, id cluster.StoreID, after cluster.BlobID, n int) ([]Copy, error)
	// Pull makes a store fetch a blob from the first of others that has it right,
	// verified, and put it durably with a set and epoch; one that it has with
	// these is left alone. ENOBLOB or ECORRUPT: none of them has it right.
	Pull(ctx context.Context, to cluster.StoreID, b Blob, set cluster.ReplicaSetID, epoch uint32, from []cluster.StoreID) (copied bool, err error)
}

// Limits of a move.
const (
	page        = 512             // blobs looked at at a time
	pullTimeout = 5 * time.Minute // of one blob: there is a rate to be kept
)

// A mover carries moves out.
type mover struct {
	volume Volume
	stores Stores
	// others are stores beside a set's members that may have copies of its blobs,
	// for when no member has one.
	others func(Set) []cluster.StoreID
	// pulls is how many blobs a move copies at a time.
	pulls int
}

// Progress is how far a move has come. It may be read while the move goes on.
type Progress struct {
	Blobs, Bytes           atomic.Uint64 // that the new member has
	AllBlobs, AllBytes     atomic.Uint64 // of the set; 0: not counted yet
	CopiedBlobs, CopiedByt atomic.Uint64 // that were copied by this leader
}

// A lostError says that there are blobs of which no right copy was found.
type lostError struct {
	set   cluster.ReplicaSetID
	blobs []cluster.BlobID // some of them
	count int
	err   error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("%d blobs of set %d have no right copy that can be reached, the first ones %v: %v", e.count, e.set, e.blobs, e.err)
}

func (e *lostError) Unwrap() error { return e.err }

// Carry carries out a move by itself, one blob after the other, as a Runner does.
// others are stores that may have copies of the set's blobs beside its members.
func Carry(ctx context.Context, v Volume, s Stores, others func(Set) []cluster.StoreID, x Move) error {
	m := mover{volume: v, stores: s, others: others, pulls: 1}
	return m.move(ctx, x, &Progress{})
}

// move carries a move out, from wherever an earlier one was left. ECONFLICT says
// that somebody else has changed the set meanwhile.
func (m *mover) move(ctx context.Context, x Move, p *Progress) error {
	set := x.Set
	if set.State == Writable {
		set.State = ReadOnly
		var err error
		if set, err = m.volume.PutSet(ctx, set); err != nil {
			return fmt.Errorf("making set %d read-only: %w", set.ID, err)
		}
	}
	// What an earlier epoch has let in is applied here from now on, and nothing
	// is added to the set as long as it has this one.
	if err := m.volume.Sync(ctx); err != nil {
		return err
	}
	if err := m.fill(ctx, set, x.To, p); err != nil {
		return err
	}
	set.Members = (&Move{Set: set, From: x.From, To: x.To}).Members()
	set.State = Writable
	if _, err := m.volume.PutSet(ctx, set); err != nil {
		return fmt.Errorf("making store %d a member of set %d: %w", x.To, set.ID, err)
	}
	return nil
}

// fill copies every blob of a read-only set to a store.
func (m *mover) fill(ctx context.Context, set Set, to cluster.StoreID, p *Progress) error {
	held := &walker{list: func(after cluster.BlobID) ([]Copy, error) { return m.stores.List(ctx, to, after, page) }}
	var gone lostError
	for after := cluster.BlobID(0); ; {
		blobs := m.volume.Blobs(set.ID, after, page)
		var missing []Blob
		for _, b := range blobs {
			c, there, err := held.find(b.ID)
			if err != nil {
				return fmt.Errorf("listing store %d: %w", to, err)
			}
			// One that was put at another epoch may be about to be deleted, as one
			// that is not needed any more.
			if there && c.Blob == b && c.Set == set.ID && c.Epoch == set.Epoch {
				p.Blobs.Add(1)
				p.Bytes.Add(uint64(b.Len))
				continue
			}
			missing = append(missing, b)
		}
		if err := m.pullAll(ctx, set, to, missing, p, &gone); err != nil {
			return err
		}
		if len(blobs) < page {
			break
		}
		after = blobs[len(blobs)-1].ID
	}
	if gone.count > 0 {
		return &gone
	}
	return nil
}

func (m *mover) pullAll(ctx context.Context, set Set, to cluster.StoreID, blobs []Blob, p *Progress, gone *lostError) error {
	if m.pulls <= 1 {
		for _, b := range blobs {
			if err := m.pullOne(ctx, set, to, b, p, gone, nil); err != nil {
				return err
			}
		}
		return nil
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(m.pulls)
	for _, b := range blobs {
		g.Go(func() error { return m.pullOne(ctx, set, to, b, p, gone, &mu) })
	}
	return g.Wait()
}

// someLost is how many blobs without a right copy are named.
const someLost = 8

func (m *mover) pullOne(ctx context.Context, set Set, to cluster.StoreID, b Blob, p *Progress, gone *lostError, mu *sync.Mutex) error {
	copied, err := m.pull(ctx, set, to, b)
	if err != nil {
		if !errors.Is(err, cluster.ENOBLOB) && !errors.Is(err, cluster.ECORRUPT) {
			return fmt.Errorf("copying blob %v of set %d to store %d: %w", b.ID, set.ID, to, err)
		}
		if e := m.volume.Sync(ctx); e != nil {
			return e
		}
		if now := m.volume.Blobs(set.ID, b.ID-1, 1); len(now) == 0 || now[0].ID != b.ID {
			return nil // nothing refers to it any more
		}
		if mu != nil {
			mu.Lock()
			defer mu.Unlock()
		}
		gone.set, gone.err = set.ID, err
		if gone.count++; len(gone.blobs) < someLost {
			gone.blobs = append(gone.blobs, b.ID)
		}
		return nil
	}
	p.Blobs.Add(1)
	p.Bytes.Add(uint64(b.Len))
	if copied {
		p.CopiedBlobs.Add(1)
		p.CopiedByt.Add(uint64(b.Len))
	}
	return nil
}

// pull copies a blob from a member, else from whichever store has it.
func (m *mover) pull(ctx context.Context, set Set, to cluster.StoreID, b Blob) (copied bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	// Not all from the first one.
	turn := int(uint64(b.ID) % uint64(len(set.Members)))
	from := slices.Concat(set.Members[turn:], set.Members[:turn])
	if copied, err = m.stores.Pull(ctx, to, b, set.ID, set.Epoch, from); err == nil || ctx.Err() != nil || m.others == nil {
		return copied, err
	}
	others := slices.DeleteFunc(m.others(set), func(id cluster.StoreID) bool { return id == to || set.has(id) })
	for len(others) > 0 {
		n := min(len(others), 8)
		copied, e := m.stores.Pull(ctx, to, b, set.ID, set.Epoch, others[:n])
		if e == nil {
			return copied, nil
		}
		if ctx.Err() != nil {
			return false, e
		}
		others = others[n:]
	}
	return false, err
}

// A walker walks the copies that a store has.
type walker struct {
	list   func(after cluster.BlobID) ([]Copy, error)
	after  cluster.BlobID
	copies []Copy // not yet walked
	done   bool
}

// find returns what the store has of a blob. Blobs must be asked for in the
// order of their ids. What is below the first one is not listed.
func (w *walker) find(id cluster.BlobID) (Copy, bool, error) {
	for {
		if i, found := slices.BinarySearchFunc(w.copies, id, func(c Copy, id cluster.BlobID) int {
			return cmp.Compare(c.ID, id)
		}); i < len(w.copies) {
			w.copies = w.copies[i:]
			return w.copies[0], found, nil
		}
		if w.done {
			return Copy{}, false, nil
		}
		w.after = max(w.after, id-1)
		page, err := w.list(w.after)
		if err != nil {
			return Copy{}, false, err
		}
		w.copies, w.done = page, len(page) == 0
		if len(page) > 0 {
			w.after = page[len(page)-1].ID
		}
	}
}
