package recode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/placement"
)

// A Form is how a blob is stored.
type Form struct {
	Stored  cluster.BlobID // as stores know it
	Len     uint32         // bytes
	CRC     uint32         // crc32c of the whole
	Code    cluster.Code   // none: copies
	Members []cluster.StoreID
}

// A Listed blob is to be coded.
type Listed struct {
	Blob  cluster.BlobID
	Since cluster.Time // when a file of such a class got it
	Code  cluster.Code
}

// A Volume is the state machine of the volume's group.
type Volume interface {
	// ToCode returns up to n blobs that are to be coded, with ids above after,
	// in order.
	ToCode(after cluster.BlobID, n int) []Listed
	// Form returns how a blob is stored, and whether anything refers to it.
	Form(b cluster.BlobID) (Form, bool)
	// Writer returns who numbers the new blobs.
	Writer(ctx context.Context) (Writer, error)
}

// A Writer is one incarnation of a front-end in the group.
type Writer interface {
	// Alloc returns a new blob id, which is final only after Finish.
	Alloc() (cluster.BlobID, error)
	Finish(ids ...cluster.BlobID)
	// Recode makes to the form of b in place of from (volume.Recode). If to has
	// no blob, b is only taken off the list. finished says that the outcome is
	// known: if it is not, the blob may still become b's form.
	Recode(ctx context.Context, b, from cluster.BlobID, to placement.Placed) (finished bool, err error)
}

// Blobs reads and puts blobs; *placement.Placement is one.
type Blobs interface {
	placement.Reader
	Put(ctx context.Context, g cluster.GroupID, copies uint8, alloc func() (cluster.BlobID, error), data [][]byte) (placement.Placed, []cluster.BlobID, error)
	PutCoded(ctx context.Context, g cluster.GroupID, code cluster.Code, alloc func() (cluster.BlobID, error), data [][]byte, release func()) (placement.Placed, []cluster.BlobID, error)
}

// Config says what is recoded.
type Config struct {
	Group  cluster.GroupID
	Volume Volume
	Blobs  Blobs
	// After is how long a blob is left as copies. 0: 1 h.
	After time.Duration
	// Batch is how many listed blobs are looked at in one step. 0: 64.
	Batch  int
	Logger *slog.Logger
}

// Counters count since New.
type Counters struct {
	Blobs, Bytes uint64 // that were given another form
	Gone         uint64 // that were freed, or recoded by others, meanwhile
	Errors       uint64
}

// A Recoder recodes the blobs of one volume. Step is called by one goroutine at
// a time; the others by any.
type Recoder struct {
	cfg   Config
	after cluster.BlobID // where the list goes on

	blobs, bytes, gone, errors atomic.Uint64
}

// New returns a Recoder.
func New(cfg Config) *Recoder {
	if cfg.After == 0 {
		cfg.After = time.Hour
	}
	if cfg.Batch == 0 {
		cfg.Batch = 64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Recoder{cfg: cfg}
}

// Counters returns what was done so far.
func (r *Recoder) Counters() Counters {
	return Counters{r.blobs.Load(), r.bytes.Load(), r.gone.Load(), r.errors.Load()}
}

// Step codes what is cold of the next blobs of the list. n is how many bytes it
// has moved; done says that the list was gone through to its end. A blob that
// can't be coded now stays in the list, and does not keep others from it.
func (r *Recoder) Step(ctx context.Context, now cluster.Time) (n uint64, done bool, err error) {
	list := r.cfg.Volume.ToCode(r.after, r.cfg.Batch)
	var errs []error
	for _, x := range list {
		if ctx.Err() != nil {
			return n, false, ctx.Err()
		}
		r.after = x.Blob
		if now-x.Since < cluster.Time(r.cfg.After) {
			continue
		}
		moved, err := r.Recode(ctx, x.Blob, x.Code, 0)
		n += moved
		if err != nil {
			r.cfg.Logger.Debug("a blob stays copies", "group", r.cfg.Group, "blob", x.Blob, "err", err)
			errs = append(errs, err)
		}
	}
	if len(list) < r.cfg.Batch {
		r.after, done = 0, true
	}
	return n, done, errors.Join(errs...)
}

// tries is how often a blob is put again because a replica set has changed.
const tries = 3

// Recode gives a blob another form: shards of code, or, if that is none, the
// number of copies. n is how many bytes it has moved: 0 if there was nothing to do.
//
// Errors: EIO if its bytes are not those that its record tells of, and those of
// reading and putting.
func (r *Recoder) Recode(ctx context.Context, b cluster.BlobID, code cluster.Code, copies uint8) (n uint64, err error) {
	defer func() {
		if err != nil {
			r.errors.Add(1)
		}
	}()
	w, err := r.cfg.Volume.Writer(ctx)
	if err != nil {
		return 0, err
	}
	for range tries {
		form, ok := r.cfg.Volume.Form(b)
		if !ok {
			r.gone.Add(1)
			return 0, nil
		}
		if form.Code == code {
			// It has that form already: it may be in the list still.
			_, err := w.Recode(ctx, b, form.Stored, placement.Placed{})
			return 0, r.settled(err)
		}
		err = r.move(ctx, w, b, form, code, copies)
		switch {
		case err == nil:
			r.blobs.Add(1)
			r.bytes.Add(uint64(form.Len))
			return uint64(form.Len), nil
		case errors.Is(err, cluster.ENOENT), errors.Is(err, cluster.ECONFLICT):
			return 0, r.settled(err)
		case !errors.Is(err, cluster.ERETRY) && !errors.Is(err, cluster.ENOBLOB):
			return 0, err
		}
	}
	return 0, fmt.Errorf("recode: blob %v: its replica sets change all the time: %w", b, cluster.EAGAIN)
}

// settled is err without what says that others were there first.
func (r *Recoder) settled(err error) error {
	if errors.Is(err, cluster.ENOENT) || errors.Is(err, cluster.ECONFLICT) {
		r.gone.Add(1)
		return nil
	}
	return err
}

// move is one attempt to give a blob another form.
func (r *Recoder) move(ctx context.Context, w Writer, b cluster.BlobID, form Form, code cluster.Code, copies uint8) error {
	buf := bufpool.Get(int(form.Len))
	defer buf.Release()
	if err := r.read(ctx, form, buf.B); err != nil {
		return err
	}
	if on(ruleVerify) && checksum.Sum(buf.B) != form.CRC {
		return fmt.Errorf("recode: the bytes of blob %v are not those that were written: it is left as it is: %w", b, cluster.EIO)
	}
	data := [][]byte{buf.B}
	var placed placement.Placed
	var abandoned []cluster.BlobID
	var err error
	if code.IsZero() {
		placed, abandoned, err = r.cfg.Blobs.Put(ctx, r.cfg.Group, copies, w.Alloc, data)
	} else {
		unused := make(chan struct{})
		placed, abandoned, err = r.cfg.Blobs.PutCoded(ctx, r.cfg.Group, code, w.Alloc, data, func() { close(unused) })
		<-unused
	}
	w.Finish(abandoned...)
	if err != nil {
		return err
	}
	finished, err := w.Recode(ctx, b, form.Stored, placed)
	if finished || !on(ruleUnknown) {
		w.Finish(placed.Blob)
	}
	return err
}

// read fills dst with a blob.
func (r *Recoder) read(ctx context.Context, f Form, dst []byte) error {
	return placement.Fill(ctx, r.cfg.Blobs, r.cfg.Group, placement.Coded{Blob: f.Stored, Len: f.Len, Code: f.Code, Members: f.Members}, 0, dst)
}
