package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/blob"
)

// Get reads n bytes from off on of a blob that the stores members hold. The
// nearest is asked first; where it has no good copy, the next one; where it
// does not answer within the hedge time, the next one as well.
//
// Errors: ENOBLOB if no member has the blob (the caller's map is old, then:
// read it again), EAGAIN if a member that could not be reached may have it, EIO
// if every copy that is there is damaged, EINVAL for a range outside the blob.
func (p *Placement) Get(ctx context.Context, g cluster.GroupID, id cluster.BlobID, members []cluster.StoreID, off, n uint32) (*blob.Buf, error) {
	if len(members) == 0 {
		return nil, fmt.Errorf("placement: blob %v has no members: %w", id, cluster.EINVAL)
	}
	key := cluster.BlobKey{Group: g, Blob: id}
	order := p.nearest(members)
	if p.cfg.Client.Local(order[0]) {
		// A store of this node needs no goroutine; the others are for when it fails.
		buf, err := p.getFrom(ctx, order[0], key, off, n)
		if err == nil {
			return buf, nil
		}
		if len(order) == 1 || ctx.Err() != nil {
			return nil, verdict(id, []error{err})
		}
		return p.race(ctx, key, order[1:], []error{err}, off, n)
	}
	return p.race(ctx, key, order, nil, off, n)
}

// A Reader reads blobs of copies and of shards; *Placement is one.
type Reader interface {
	Get(ctx context.Context, g cluster.GroupID, id cluster.BlobID, members []cluster.StoreID, off, n uint32) (*blob.Buf, error)
	GetCoded(ctx context.Context, g cluster.GroupID, c Coded, off uint32, dst []byte) error
}

// Fill reads len(dst) bytes from off on of a blob into dst, whichever form it has:
// c with no code is a blob of copies.
//
// Errors: as Get and GetCoded.
func Fill(ctx context.Context, r Reader, g cluster.GroupID, c Coded, off uint32, dst []byte) error {
	if !c.Code.IsZero() {
		return r.GetCoded(ctx, g, c, off, dst)
	}
	buf, err := r.Get(ctx, g, c.Blob, c.Members, off, uint32(len(dst)))
	if err != nil {
		return err
	}
	defer buf.Release()
	if copy(dst, buf.Bytes) != len(dst) {
		return fmt.Errorf("placement: blob %v: a short read: %w", c.Blob, cluster.EIO)
	}
	return nil
}

// race asks the stores in order, the next one whenever one fails or is slow.
func (p *Placement) race(ctx context.Context, key cluster.BlobKey, order []cluster.StoreID, errs []error, off, n uint32) (*blob.Buf, error) {
	type answer struct {
		buf *blob.Buf
		err error
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	answers := make(chan answer, len(order))
	asked, running := 0, 0
	ask := func() {
		if asked < len(order) {
			id := order[asked]
			asked++
			running++
			go func() {
				buf, err := p.getFrom(ctx, id, key, off, n)
				answers <- answer{buf, err}
			}()
		}
	}
	defer func() {
		cancel()
		if running > 0 {
			go func() {
				for range running {
					(<-answers).buf.Release()
				}
			}()
		}
	}()
	hedge := p.gets.hedge(p.cfg.Hedge)
	timer := time.NewTimer(hedge)
	defer timer.Stop()
	for ask(); running > 0; {
		select {
		case a := <-answers:
			running--
			if a.err == nil {
				return a.buf, nil
			}
			errs = append(errs, a.err)
			ask()
		case <-timer.C:
			ask()
			timer.Reset(hedge)
		case <-ctx.Done():
			return nil, &failure{"reading blob " + key.Blob.String(), cluster.EAGAIN, errors.Join(append(errs, ctx.Err())...)}
		}
	}
	return nil, verdict(key.Blob, errs)
}

func (p *Placement) getFrom(ctx context.Context, id cluster.StoreID, key cluster.BlobKey, off, n uint32) (*blob.Buf, error) {
	addr, _ := p.cfg.Map.Addr(id)
	st := p.stores.get(id)
	begin := now()
	buf, err := p.cfg.Client.Get(ctx, addr, id, key, off, n)
	switch {
	case err == nil:
		d := time.Duration(now() - begin)
		st.observe(d)
		p.gets.observe(d)
	case damaged(err) || errors.Is(err, cluster.ENOBLOB):
		if p.cfg.Report != nil {
			p.cfg.Report(Problem{Group: key.Group, Blob: key.Blob, Store: id, Err: err})
		}
	case ctx.Err() == nil:
		st.fail()
	}
	return buf, err
}

// nearest sorts members: those of this node, then by latency those that are
// up, then those that failed a moment ago, then those that are down.
func (p *Placement) nearest(members []cluster.StoreID) []cluster.StoreID {
	type near struct {
		id    cluster.StoreID
		class int
		ns    int64
	}
	var few [8]near
	order := few[:0]
	for _, id := range members {
		st := p.stores.get(id)
		v := near{id: id, class: 1, ns: st.latency.Load() / int64(100*time.Microsecond)}
		_, up := p.cfg.Map.Addr(id)
		switch {
		case p.cfg.Client.Local(id):
			v.class = 0
		case !up:
			v.class = 3
		case st.suspect(p.cfg.Suspect):
			v.class = 2
		}
		// Equals take turns, so that the same member is not asked by all.
		v.ns = v.ns<<8 | int64(p.cfg.Rand(256))
		order = append(order, v)
	}
	slices.SortFunc(order, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.ns, b.ns))
	})
	ids := make([]cluster.StoreID, len(order))
	for i := range order {
		ids[i] = order[i].id
	}
	return ids
}

func damaged(err error) bool {
	return errors.Is(err, cluster.ECORRUPT) || errors.Is(err, cluster.EIO)
}

// verdict is the error that the members' errors amount to.
func verdict(id cluster.BlobID, errs []error) error {
	all := errors.Join(errs...)
	missing, bad, invalid := tally(errs)
	if invalid {
		return fmt.Errorf("placement: reading blob %v: %w", id, cluster.EINVAL)
	}
	e := cluster.EAGAIN
	switch {
	case missing == len(errs):
		e = cluster.ENOBLOB
	case missing+bad == len(errs):
		e = cluster.EIO
	}
	return &failure{"no copy of blob " + id.String() + " could be read", e, all}
}

// tally counts the members that have nothing, and those of which what they have is
// damaged. invalid: one says that the request makes no sense.
func tally(errs []error) (missing, bad int, invalid bool) {
	for _, err := range errs {
		switch {
		case errors.Is(err, cluster.EINVAL):
			invalid = true
		case errors.Is(err, cluster.ENOBLOB):
			missing++
		case damaged(err):
			bad++
		}
	}
	return missing, bad, invalid
}

// A failure unwraps to its Errno only: the stores' own errors are text.
type failure struct {
	what  string
	errno cluster.Errno
	why   error
}

func (e *failure) Error() string {
	return fmt.Sprintf("placement: %s: %v (%v)", e.what, e.errno, e.why)
}

func (e *failure) Unwrap() error { return e.errno }
