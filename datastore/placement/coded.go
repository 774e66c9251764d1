package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/erasure"
)

// PutCoded is PutOwned of a blob as the shards of a code, one to each member of
// a replica set of that code. All of them have to be there.
func (p *Placement) PutCoded(ctx context.Context, g cluster.GroupID, code cluster.Code, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placed Placed, abandoned []cluster.BlobID, err error) {
	n := 0
	for _, d := range data {
		n += len(d)
	}
	if n == 0 || n > cluster.MaxBlob {
		release()
		return Placed{}, nil, fmt.Errorf("placement: a blob of %d bytes: %w", n, cluster.EINVAL)
	}
	sets := p.cfg.Map.CodedSets(g, code)
	if !p.writable(sets) { // known without encoding anything
		release()
		return Placed{}, nil, fmt.Errorf("placement: none of the group's %d replica sets of code %v can be written: %w", len(sets), code, p.why(sets))
	}
	w := p.newPut(g, alloc, data, n, release)
	defer w.drop()
	coded, err := erasure.Encode(code, data, w.sums)
	if err != nil {
		return Placed{}, nil, err
	}
	w.coded = coded
	unused := w.release
	w.release = func() {
		coded.Release()
		unused()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return w.run(ctx, sets)
}

// writable reports whether any of sets may be written to now.
func (p *Placement) writable(sets []SetInfo) bool {
	for i := range sets {
		if _, ok := p.rank(&sets[i], nil); ok {
			return true
		}
	}
	return false
}

// A Coded says where the shards of a blob are.
type Coded struct {
	Blob    cluster.BlobID // as stores know it
	Len     uint32
	Code    cluster.Code
	Members []cluster.StoreID // member i has shard i+1
}

// GetCoded reads len(dst) bytes from off on of a coded blob into dst. Only the
// data shards that have them are read; where one of those is missing, damaged
// or slow, the same range of others, from which it is made.
//
// Errors: ENOBLOB if more shards are missing than the code makes up for (the
// caller's map is old, then: read it again), EAGAIN if members that could not
// be reached may have enough, EIO if what is there is damaged, EINVAL for a
// range outside the blob.
func (p *Placement) GetCoded(ctx context.Context, g cluster.GroupID, c Coded, off uint32, dst []byte) error {
	if !c.Code.Valid() || len(c.Members) != c.Code.Shards() || len(dst) == 0 || uint64(off)+uint64(len(dst)) > uint64(c.Len) {
		return fmt.Errorf("placement: reading [%d, %d) of blob %v of %d bytes, code %v: %w",
			off, int(off)+len(dst), c.Blob, c.Len, c.Code, cluster.EINVAL)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	r := p.newCodedGet(g, &c, off, dst)
	defer r.end(cancel)
	return r.run(ctx)
}

// Rebuild makes shard i+1 of a coded blob, that of member i, of the shards that
// other members have, and leaves it in dst, which has room for all of it. It is
// for making a lost shard again, on whatever store: member i is not asked.
//
// Errors: as GetCoded.
func (p *Placement) Rebuild(ctx context.Context, g cluster.GroupID, c Coded, i int, dst []byte) error {
	if !c.Code.Valid() || len(c.Members) != c.Code.Shards() || i < 0 || i >= len(c.Members) ||
		c.Len == 0 || len(dst) != int(c.Code.ShardLen(c.Len)) {
		return fmt.Errorf("placement: making shard %d of blob %v of %d bytes, code %v, in %d bytes: %w",
			i+1, c.Blob, c.Len, c.Code, len(dst), cluster.EINVAL)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	r := p.newCodedGet(g, &c, 0, nil)
	defer r.end(cancel)
	r.shards[i].skip = true
	r.askParts(ctx)
	hedge := p.gets.hedge(p.cfg.Hedge)
	timer := time.NewTimer(hedge)
	defer timer.Stop()
	for r.running > 0 {
		select {
		case a := <-r.answers:
			r.running--
			r.take(&a)
			if parts := r.parts(); parts != nil {
				into := make([][]byte, len(parts))
				into[i] = dst
				return erasure.Reconstruct(c.Code, parts, into)
			}
			r.askParts(ctx)
		case <-timer.C:
			r.late()
			r.askParts(ctx)
			timer.Reset(hedge)
		case <-ctx.Done():
			return r.interrupted(ctx)
		}
	}
	return r.verdict()
}

func (p *Placement) newCodedGet(g cluster.GroupID, c *Coded, off uint32, dst []byte) *codedGet {
	return &codedGet{
		p: p, c: c, key: cluster.BlobKey{Group: g, Blob: c.Blob}, size: c.Code.ShardLen(c.Len), off: off, dst: dst,
		shards: make([]shardGet, c.Code.Shards()), answers: make(chan shardAnswer, 2*c.Code.Shards()),
	}
}

// A codedGet is one call of GetCoded.
type codedGet struct {
	p    *Placement
	c    *Coded
	key  cluster.BlobKey
	size uint32 // of a shard
	off  uint32
	dst  []byte

	shards  []shardGet
	answers chan shardAnswer // has room for all: two for each shard
	running int
}

// A shardGet is what is known of one shard.
type shardGet struct {
	wanted bool      // it has bytes that are asked for, and they are not in dst yet
	skip   bool      // it is not to be asked for
	slow   bool      // it was asked for and has not answered in time
	err    error     // its member does not have it, or can't be reached
	asked  bool      // the lost range of it was asked for
	part   []byte    // that range
	buf    *blob.Buf // what part is in
}

type shardAnswer struct {
	i   int
	lo  uint32 // of what buf has
	buf *blob.Buf
	err error
}

// within returns which bytes of shard i are asked for, by their place in it.
func (r *codedGet) within(i int) (lo, hi uint32) {
	begin := uint32(i) * r.size
	lo, hi = max(r.off, begin), min(r.off+uint32(len(r.dst)), begin+r.size)
	return lo - begin, hi - begin
}

// lostRange returns the range of shards from which what is missing is made: all
// of them, unless what is asked for is within one.
func (r *codedGet) lostRange() (lo, hi uint32) {
	if len(r.dst) == 0 {
		return 0, r.size
	}
	first := r.off / r.size
	if (r.off+uint32(len(r.dst))-1)/r.size == first {
		return r.within(int(first))
	}
	return 0, r.size
}

// ask asks for bytes [lo, hi) of shard i.
func (r *codedGet) ask(ctx context.Context, i int, lo, hi uint32) {
	if first, end := r.lostRange(); lo <= first && end <= hi {
		r.shards[i].asked = true
	}
	r.running++
	key := r.key
	key.Shard = uint8(i + 1)
	go func() {
		buf, err := r.p.getFrom(ctx, r.c.Members[i], key, lo, hi-lo)
		r.answers <- shardAnswer{i, lo, buf, err}
	}()
}

// end gives back what is left.
func (r *codedGet) end(cancel context.CancelFunc) {
	cancel()
	for i := range r.shards {
		r.shards[i].buf.Release()
	}
	if n := r.running; n > 0 {
		go func() {
			for range n {
				(<-r.answers).buf.Release()
			}
		}()
	}
}

func (r *codedGet) run(ctx context.Context) error {
	end := r.off + uint32(len(r.dst))
	left := 0
	for i := int(r.off / r.size); uint32(i)*r.size < end; i++ {
		lo, hi := r.within(i)
		if end == r.c.Len && lo == 0 {
			hi = r.size // with what fills it up: others are made of it, too
		}
		r.shards[i].wanted = true
		r.shards[i].slow = r.doubtful(r.c.Members[i])
		left++
		r.ask(ctx, i, lo, hi)
	}
	lost := r.isLost()
	if lost { // the others are asked at once
		r.askParts(ctx)
	}
	hedge := r.p.gets.hedge(r.p.cfg.Hedge)
	timer := time.NewTimer(hedge)
	defer timer.Stop()
	for left > 0 {
		if r.running == 0 {
			return r.verdict()
		}
		select {
		case a := <-r.answers:
			r.running--
			if r.take(&a) {
				left--
			}
			if lost = lost || a.err != nil; !lost || left == 0 {
				continue
			}
			if done, err := r.decode(); done || err != nil {
				return err
			}
			r.askParts(ctx)
		case <-timer.C:
			r.late()
			lost = true
			r.askParts(ctx)
			timer.Reset(hedge)
		case <-ctx.Done():
			return r.interrupted(ctx)
		}
	}
	return nil
}

// late notes that what has not answered by now is slow.
func (r *codedGet) late() {
	for i := range r.shards {
		if s := &r.shards[i]; s.wanted || s.asked && s.part == nil {
			s.slow = true
		}
	}
}

func (r *codedGet) interrupted(ctx context.Context) error {
	return &failure{"reading blob " + r.c.Blob.String(), cluster.EAGAIN, errors.Join(append(r.problems(), ctx.Err())...)}
}

// take puts an answer where it belongs. It reports whether a shard that was
// wanted is not any more.
func (r *codedGet) take(a *shardAnswer) bool {
	s := &r.shards[a.i]
	if a.err != nil {
		s.err = a.err
		return false
	}
	got := false
	if s.wanted {
		// What was asked for begins where what is wanted does, or is the lost range.
		if lo, hi := r.within(a.i); a.lo <= lo && hi-a.lo <= uint32(len(a.buf.Bytes)) {
			copy(r.into(a.i), a.buf.Bytes[lo-a.lo:hi-a.lo])
			s.wanted, got = false, true
		}
	}
	if lo, hi := r.lostRange(); s.part == nil && a.lo <= lo && hi-a.lo <= uint32(len(a.buf.Bytes)) {
		s.part, s.buf = a.buf.Bytes[lo-a.lo:hi-a.lo], a.buf
	} else {
		a.buf.Release()
	}
	return got
}

// into returns where the bytes of data shard i belong.
func (r *codedGet) into(i int) []byte {
	begin := uint32(i) * r.size
	lo, hi := r.within(i)
	return r.dst[begin+lo-r.off : begin+hi-r.off]
}

// doubtful reports whether a store is down, or failed a moment ago.
func (r *codedGet) doubtful(id cluster.StoreID) bool {
	if r.p.cfg.Client.Local(id) {
		return false
	}
	_, up := r.p.cfg.Map.Addr(id)
	return !up || r.p.stores.get(id).suspect(r.p.cfg.Suspect)
}

func (r *codedGet) isLost() bool {
	for i := range r.shards {
		if s := &r.shards[i]; s.wanted && (s.err != nil || s.slow) {
			return true
		}
	}
	return false
}

// askParts asks for the lost range of as many shards as it takes: k that have
// it, or were asked and may answer soon.
func (r *codedGet) askParts(ctx context.Context) {
	lo, hi := r.lostRange()
	have := 0
	for i := range r.shards {
		if s := &r.shards[i]; s.asked && s.err == nil && (s.part != nil || !s.slow) {
			have++
		}
	}
	for _, sure := range []bool{true, false} {
		for i := range r.shards {
			s := &r.shards[i]
			if have >= int(r.c.Code.K) {
				return
			}
			if s.asked || s.skip || s.err != nil || sure && (s.slow || r.doubtful(r.c.Members[i])) {
				continue
			}
			have++
			r.ask(ctx, i, lo, hi)
		}
	}
}

// decode makes what is missing once the lost range of k shards is there.
func (r *codedGet) decode() (done bool, err error) {
	parts, dst := r.parts(), make([][]byte, len(r.shards))
	if parts == nil {
		return false, nil
	}
	begin, end := r.lostRange()
	for i := range r.shards {
		if r.shards[i].wanted {
			buf := bufpool.Get(int(end - begin))
			defer buf.Release()
			dst[i] = buf.B
		}
	}
	if err := erasure.Reconstruct(r.c.Code, parts, dst); err != nil {
		return false, err
	}
	for i := range r.shards {
		if r.shards[i].wanted {
			lo, hi := r.within(i)
			copy(r.into(i), dst[i][lo-begin:hi-begin])
		}
	}
	return true, nil
}

// parts returns the lost range of all shards of which it is there, by shard, or
// nil if they are too few.
func (r *codedGet) parts() [][]byte {
	parts := make([][]byte, len(r.shards))
	have := 0
	for i := range r.shards {
		if parts[i] = r.shards[i].part; parts[i] != nil {
			have++
		}
	}
	if have < int(r.c.Code.K) {
		return nil
	}
	return parts
}

// problems returns the errors of the shards that have one.
func (r *codedGet) problems() (errs []error) {
	for i := range r.shards {
		if err := r.shards[i].err; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// verdict is the error that the shards' errors amount to.
func (r *codedGet) verdict() error {
	errs := r.problems()
	missing, bad, invalid := tally(errs)
	if invalid {
		return fmt.Errorf("placement: reading blob %v: %w", r.c.Blob, cluster.EINVAL)
	}
	for i := range r.shards {
		if r.shards[i].skip { // it is lost: that is why it is made again
			missing++
		}
	}
	e := cluster.EAGAIN
	switch m := int(r.c.Code.M); {
	case missing > m:
		e = cluster.ENOBLOB
	case missing+bad > m:
		e = cluster.EIO
	}
	return &failure{"too few shards of blob " + r.c.Blob.String() + " could be read", e, errors.Join(errs...)}
}
