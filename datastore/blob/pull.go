package blob

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A Source is a store that a blob can be fetched from.
type Source struct {
	Store cluster.StoreID
	Addr  string // of its node; at most MaxAddr bytes
}

// Limits of a pull.
const (
	MaxSources = 16
	MaxAddr    = 255
)

// A PullRequest tells a store to fetch a blob from others.
type PullRequest struct {
	Key     cluster.BlobKey
	Meta    segment.Meta // that the copy is put with
	Len     uint32       // of the blob, as its volume says
	CRC     uint32       // crc32c of the whole, likewise
	Sources []Source     // are asked in order; at most MaxSources
	// Verify reads a copy that is there already, and replaces it if it is
	// damaged or is another content. Without it a copy of the right length and
	// checksum, as the store's index has them, is left alone, and one of
	// another content is ECONFLICT.
	Verify bool
	// Renew fetches also a copy that is there and was put at an earlier epoch, and
	// puts it anew: what DeleteMoved was told of the old one does not hurt it. One
	// of this epoch or a later one stays: this request is late, and the store may
	// be a member by now.
	Renew bool
}

// A PullResult says what a pull did.
type PullResult struct {
	Copied bool          // false: a right copy was there
	Usage  segment.Usage // of the store, then
}

// PullLimits bound what a server pulls.
type PullLimits struct {
	Concurrent int   // pulls at a time; 0: 4
	Waiting    int   // more that wait for their turn, beyond which a pull is EAGAIN; 0: 64
	Rate       int64 // bytes per second, over all stores of the server; 0: unbounded
}

// A puller fetches blobs for the stores of a server.
type puller struct {
	client  *Client
	running chan struct{}
	turns   chan struct{} // of those that run and those that wait
	bucket  bucket
}

// Pulls lets the server's stores fetch blobs from others over c, which is a
// client of this node. Until then a pull is ENOTSUP.
func (s *Server) Pulls(c *Client, l PullLimits) {
	if l.Concurrent <= 0 {
		l.Concurrent = 4
	}
	if l.Waiting <= 0 {
		l.Waiting = 64
	}
	s.pulls.Store(&puller{
		client: c, running: make(chan struct{}, l.Concurrent), turns: make(chan struct{}, l.Concurrent+l.Waiting),
		bucket: bucket{rate: l.Rate},
	})
}

// pull runs a pull, within the limits.
func (s *Server) pull(ctx context.Context, st Store, q *PullRequest) (PullResult, error) {
	p := s.pulls.Load()
	if p == nil {
		return PullResult{}, cluster.ENOTSUP
	}
	if q.Len == 0 || q.Len > segment.MaxPayload || len(q.Sources) == 0 || len(q.Sources) > MaxSources {
		return PullResult{}, cluster.EINVAL
	}
	select {
	case p.turns <- struct{}{}:
	default:
		return PullResult{}, fmt.Errorf("blob: %d pulls wait already: %w", cap(p.turns), cluster.EAGAIN)
	}
	defer func() { <-p.turns }()
	select {
	case p.running <- struct{}{}:
	case <-ctx.Done():
		return PullResult{}, ctx.Err()
	}
	defer func() { <-p.running }()
	there, replace, err := present(ctx, st, q)
	if err != nil {
		return PullResult{}, err
	}
	if there && !replace {
		return PullResult{Usage: st.Usage()}, nil
	}
	if err := p.bucket.take(ctx, int64(q.Len)); err != nil {
		return PullResult{}, err
	}
	memory := bufpool.Get(checksum.Size(int(q.Len)))
	defer memory.Release()
	buf, sums, err := p.fetch(ctx, q, memory.B[:0])
	if err != nil {
		return PullResult{}, err
	}
	defer buf.Release()
	if replace {
		s.moved.Lock()
		defer s.moved.Unlock()
		// Another pull may have put it anew meanwhile, and be counted on already.
		there, again, err := present(ctx, st, q)
		if err != nil || there && !again {
			return PullResult{Usage: st.Usage()}, err
		}
		// Only now: what replaces it is in our hands, and another store has it.
		if err := st.Delete(ctx, []cluster.BlobKey{q.Key}); err != nil {
			return PullResult{}, err
		}
	}
	if err := st.Put(ctx, q.Key, q.Meta, sums, buf.Bytes); err != nil {
		return PullResult{}, err
	}
	return PullResult{Copied: true, Usage: st.Usage()}, nil
}

// present looks at what the store itself has of the blob, and says whether that
// is to be replaced.
func present(ctx context.Context, st Store, q *PullRequest) (there, replace bool, err error) {
	info, err := st.Stat(q.Key)
	switch {
	case errors.Is(err, cluster.ENOBLOB):
		return false, false, nil
	case err != nil:
		return false, false, err
	case info.Len != q.Len || info.CRC != q.CRC:
		if !q.Verify {
			return true, false, fmt.Errorf("blob: %v is stored with another content: %w", q.Key.Blob, cluster.ECONFLICT)
		}
		return true, true, nil
	case q.Renew && (info.Meta.Set != q.Meta.Set || info.Meta.Epoch < q.Meta.Epoch):
		return true, true, nil
	case !q.Verify:
		return true, false, nil
	}
	b, err := st.Read(ctx, q.Key, 0, q.Len)
	switch {
	case errors.Is(err, cluster.ECORRUPT) || errors.Is(err, cluster.EIO):
		return true, true, nil
	case errors.Is(err, cluster.ENOBLOB):
		return false, false, nil
	case err != nil:
		return true, false, err
	}
	replace = b.Sums.Verify(b.Data) >= 0 || b.Sums.Whole(len(b.Data)) != q.CRC
	b.Release()
	return true, replace, nil
}

// fetch gets the blob from the first source that has it whole and right, and
// appends its checksums to memory.
func (p *puller) fetch(ctx context.Context, q *PullRequest, memory checksum.Sums) (*Buf, checksum.Sums, error) {
	missing, unreached := 0, 0
	var errs []error
	for _, s := range q.Sources {
		buf, err := p.client.Get(ctx, s.Addr, s.Store, q.Key, 0, q.Len)
		if err == nil {
			if sums := memory.Append(buf.Bytes); sums.Whole(len(buf.Bytes)) == q.CRC {
				return buf, sums, nil
			}
			buf.Release()
			err = cluster.ECORRUPT
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		switch {
		case errors.Is(err, cluster.ENOBLOB):
			missing++
		case errors.Is(err, cluster.ECORRUPT), errors.Is(err, cluster.EIO), errors.Is(err, cluster.EINVAL):
		default:
			unreached++
		}
		errs = append(errs, fmt.Errorf("store %d: %w", s.Store, err))
	}
	e := cluster.ECORRUPT
	switch {
	case unreached > 0:
		e = cluster.EAGAIN
	case missing == len(errs):
		e = cluster.ENOBLOB
	}
	// The sources' own errors are text: their EDISK is not this store's.
	return nil, nil, fmt.Errorf("blob: no source has a right copy of %v (%v): %w", q.Key.Blob, errors.Join(errs...), e)
}

// A bucket bounds a rate. What is taken may exceed what is there: the next one
// waits for it.
type bucket struct {
	rate int64 // bytes per second; 0: unbounded
	mu   sync.Mutex
	next time.Time // when all that was taken is paid for
}

// burst is how much may be taken at once after a rest.
const burst = 100 * time.Millisecond

func (b *bucket) take(ctx context.Context, n int64) error {
	if b.rate <= 0 {
		return nil
	}
	b.mu.Lock()
	now := time.Now()
	if first := now.Add(-burst); b.next.Before(first) {
		b.next = first
	}
	wait := b.next.Sub(now)
	if deadline, ok := ctx.Deadline(); ok && now.Add(wait).After(deadline) {
		b.mu.Unlock()
		return fmt.Errorf("blob: the rate of pulls does not let this one begin in time: %w", cluster.EAGAIN)
	}
	b.next = b.next.Add(time.Duration(float64(n) / float64(b.rate) * float64(time.Second)))
	b.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pull makes a store fetch a blob from others, verified, and returns when it is
// durable there. Again, it finds the copy and does nothing.
//
// Errors: ENOBLOB (no source has it), ECORRUPT (every copy that a source has is
// damaged), EAGAIN (a source that could not be reached may have it, or too many
// pulls wait), ECONFLICT (another content is stored under the key), ENOSPC,
// EDISK (of the store itself), ENOTSUP (its node does not pull), EINVAL.
func (c *Client) Pull(ctx context.Context, addr string, id cluster.StoreID, q *PullRequest) (PullResult, error) {
	if st := c.store(id); st != nil {
		return c.local.pull(ctx, st, q)
	}
	body, err := appendPull(nil, q)
	if err != nil {
		return PullResult{}, err
	}
	h := head{
		op: opPull, store: id, blob: q.Key.Blob, shard: q.Key.Shard, set: q.Meta.Set, epoch: q.Meta.Epoch,
		off: q.CRC, n: q.Len,
	}
	r, err := c.call(ctx, addr, q.Key.Group, &h, body)
	if err != nil {
		return PullResult{}, err
	}
	defer r.free()
	if len(r.Head) != 33 {
		return PullResult{}, cluster.ECORRUPT
	}
	u, err := parseUsage(r.Head[1:])
	return PullResult{Copied: r.Head[0] == 1, Usage: u}, err
}

// The body of a pull: flags, the number of sources, each source's store and
// address, and a crc32c of all that, since the connection has none for bodies.
const (
	pullVerify = 1 << iota // flags
	pullRenew
)

func appendPull(dst []byte, q *PullRequest) ([]byte, error) {
	if len(q.Sources) == 0 || len(q.Sources) > MaxSources {
		return nil, fmt.Errorf("blob: a pull from %d sources: %w", len(q.Sources), cluster.EINVAL)
	}
	flags := byte(0)
	if q.Verify {
		flags |= pullVerify
	}
	if q.Renew {
		flags |= pullRenew
	}
	dst = append(dst, flags, byte(len(q.Sources)))
	for _, s := range q.Sources {
		if len(s.Addr) > MaxAddr {
			return nil, fmt.Errorf("blob: an address of %d bytes: %w", len(s.Addr), cluster.EINVAL)
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(s.Store))
		dst = append(append(dst, byte(len(s.Addr))), s.Addr...)
	}
	return binary.BigEndian.AppendUint32(dst, checksum.Sum(dst)), nil
}

func parsePull(h *head, g cluster.GroupID, b []byte) (*PullRequest, error) {
	if len(b) < 6 || checksum.Sum(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, cluster.EINVAL
	}
	q := &PullRequest{
		Key: cluster.BlobKey{Group: g, Blob: h.blob, Shard: h.shard}, Meta: segment.Meta{Set: h.set, Epoch: h.epoch},
		Len: h.n, CRC: h.off, Verify: b[0]&pullVerify != 0, Renew: b[0]&pullRenew != 0,
	}
	n := int(b[1])
	if b[0]&^(pullVerify|pullRenew) != 0 || n > MaxSources {
		return nil, cluster.EINVAL
	}
	for b = b[2 : len(b)-4]; n > 0; n-- {
		if len(b) < 5 || len(b) < 5+int(b[4]) {
			return nil, cluster.EINVAL
		}
		q.Sources = append(q.Sources, Source{cluster.StoreID(binary.BigEndian.Uint32(b)), string(b[5:][:b[4]])})
		b = b[5+int(b[4]):]
	}
	if len(b) != 0 {
		return nil, cluster.EINVAL
	}
	return q, nil
}
