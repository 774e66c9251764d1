package pack

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// A Mark says that a file got extents that may be better elsewhere, by the
// command of an index last.
type Mark struct {
	Ino   cluster.Ino
	Index uint64
}

// A File is what matters of an inode.
type File struct {
	Size    uint64
	Changed time.Time // when it was changed last
	Class   Class
}

// A Class says how blobs are kept: those of one blob's files are the same.
type Class struct {
	Copies uint8
	Code   cluster.Code
}

// An Extent is a run of a file's bytes: in a blob, or the bytes themselves.
type Extent struct {
	Off     uint64
	Len     uint32
	Blob    cluster.BlobID // 0: the bytes are in Bytes
	BlobOff uint32
	Bytes   []byte // valid during the call that it was given to
}

// A Blob is what matters of a blob's record.
type Blob struct {
	Len   uint32
	Bytes uint64      // of extents that refer to it
	Only  cluster.Ino // the only file that may refer to it; 0: there may be others
	Fixed bool        // it can't be read here, or not all that refers to it is known
}

// A Placed blob is durable on the members of its set.
type Placed struct {
	ID    cluster.BlobID
	Set   cluster.ReplicaSetID
	Epoch uint32
	Len   uint32
	CRC   uint32
}

// A Move puts a part of the new blob in place of a part of a file, if that is
// what it says still: a part of Blob, or bytes of the file's own (Blob 0) with
// the crc32c Sum.
type Move struct {
	Ino     cluster.Ino
	Off     uint64
	Len     uint32
	Blob    cluster.BlobID
	BlobOff uint32
	Sum     uint32
	NewOff  uint32
}

// A Volume is the state of the volume as this node has it.
type Volume interface {
	// Marks returns up to n marked files from an inode on, by inode.
	Marks(from cluster.Ino, n int) []Mark
	// File returns a regular file, and whether it is there.
	File(ino cluster.Ino) (File, bool)
	// Extents calls fn for each extent of a file from off on until it returns false.
	Extents(ino cluster.Ino, off uint64, fn func(e *Extent) bool)
	// Blob returns a blob's record, and whether there is one.
	Blob(id cluster.BlobID) (Blob, bool)
	// Thin returns up to n blobs from an id on of which less than half is
	// referred to, by id.
	Thin(from cluster.BlobID, n int) []cluster.BlobID
	// Owners returns the files that may refer to a blob.
	Owners(id cluster.BlobID) []cluster.Ino
}

// A Mover reads and puts blobs and proposes moves.
type Mover interface {
	// Read fills dst with the bytes of a blob from off on.
	Read(ctx context.Context, id cluster.BlobID, off uint32, dst []byte) error
	// Put makes a blob of a class.
	Put(ctx context.Context, class Class, data []byte) (Placed, error)
	// Relocate proposes moves into a blob that Put has made, and returns how many
	// were done. It ends the use of the blob, whatever comes of it. There is none if
	// there are no moves.
	Relocate(ctx context.Context, blobs []Placed, moves []Move, done []Mark) (did int, err error)
}

// Config says what is packed, when and how fast.
type Config struct {
	Volume Volume
	Mover  Mover
	// After is how long a file stays as it is before it is touched. 0: a minute.
	After time.Duration
	// Linger is how long a file is written on before its bytes are moved
	// nonetheless, and how long little waits for more. 0: ten times After.
	Linger time.Duration
	// Min and Max are the sizes of blobs that small files are packed into, in
	// bytes. 0: 1 MiB and cluster.MaxBlob.
	Min, Max int
	// Wait is called before n bytes are put, and returns when that is not too
	// fast, or with an error. nil: it never is.
	Wait func(ctx context.Context, n int) error
	// Lead reports whether this node is to go on. nil: it is.
	Lead   func() bool
	Logger *slog.Logger
}

const (
	// InlineLimit is the size of files that stay in the state machine.
	InlineLimit = 1 << 10
	// MaxMoves is how many moves one command has at most: others wait for it.
	MaxMoves = 1024
	// window is the part of a file that is defragmented at a time.
	window = 4 << 20
	// manyExtents in a window are too many, where they are short.
	manyExtents = 16
	shortExtent = 256 << 10
	// maxSeen bounds the files that are known to be written on all the time.
	maxSeen = 1 << 16
	// maxThin is how many thin blobs one pass takes up, and how many it looks at.
	maxThin, lookThin = 64, 4096
)

// Counters count since New.
type Counters struct {
	Packed      uint64 // bytes moved out of the state machine
	Compacted   uint64 // bytes moved out of blobs of which little was left
	Joined      uint64 // bytes of short extents that were joined
	Blobs       uint64 // made
	Moves       uint64 // done
	LeftOut     uint64 // moves of what had changed meanwhile
	Waiting     uint64 // marked files that the last pass left for later
	Thin        uint64 // thin blobs that the last pass left for later
	Errors      uint64
	PassSeconds float64 // what the last pass took
}

// A Packer packs one volume. Its passes are one at a time.
type Packer struct {
	cfg  Config
	seen map[cluster.Ino]time.Time // since when a file is written on
	thin cluster.BlobID            // where Compact goes on

	packed, compacted, joined, blobs, moves, leftOut, waiting, thinLeft, errors atomic.Uint64
	pass                                                                        atomic.Int64
}

// New returns a packer.
func New(cfg Config) *Packer {
	if cfg.After == 0 {
		cfg.After = time.Minute
	}
	if cfg.Linger == 0 {
		cfg.Linger = 10 * cfg.After
	}
	if cfg.Max == 0 {
		cfg.Max = cluster.MaxBlob
	}
	if cfg.Min == 0 {
		cfg.Min = 1 << 20
	}
	if cfg.Wait == nil {
		cfg.Wait = func(context.Context, int) error { return nil }
	}
	if cfg.Lead == nil {
		cfg.Lead = func() bool { return true }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Packer{cfg: cfg, seen: make(map[cluster.Ino]time.Time)}
}

// Counters returns what was done so far. It may be called at any time.
func (p *Packer) Counters() Counters {
	return Counters{
		Packed: p.packed.Load(), Compacted: p.compacted.Load(), Joined: p.joined.Load(), Blobs: p.blobs.Load(),
		Moves: p.moves.Load(), LeftOut: p.leftOut.Load(), Waiting: p.waiting.Load(), Thin: p.thinLeft.Load(),
		Errors: p.errors.Load(), PassSeconds: time.Duration(p.pass.Load()).Seconds(),
	}
}

// ripe reports whether a file has been left alone for long enough, or written
// on for too long.
func (p *Packer) ripe(ino cluster.Ino, f *File, now time.Time) bool {
	if now.Sub(f.Changed) >= p.cfg.After {
		delete(p.seen, ino)
		return true
	}
	since, known := p.seen[ino]
	switch {
	case !known && len(p.seen) < maxSeen:
		p.seen[ino] = now
	case known && now.Sub(since) >= p.cfg.Linger:
		delete(p.seen, ino)
		return true
	}
	return false
}

// Pack goes over the marked files once.
func (p *Packer) Pack(ctx context.Context, now time.Time) error {
	b := p.newBatches(now)
	waiting := uint64(0)
	for from := cluster.Ino(0); ; {
		const page = 512
		marks := p.cfg.Volume.Marks(from, page)
		for _, m := range marks {
			f, ok := p.cfg.Volume.File(m.Ino)
			switch {
			case !ok || f.Size <= InlineLimit:
				delete(p.seen, m.Ino)
				b.done(m)
			case !p.ripe(m.Ino, &f, now):
				waiting++
			default:
				left, err := p.packFile(ctx, b, m, &f)
				if err != nil {
					return p.failed(err)
				}
				if left {
					waiting++
				}
			}
			if len(b.marks) >= MaxMoves {
				if err := b.flushMarks(ctx); err != nil {
					return p.failed(err)
				}
			}
		}
		if len(marks) < page || marks[page-1].Ino == ^cluster.Ino(0) {
			break
		}
		from = marks[page-1].Ino + 1
	}
	err := b.end(ctx, false)
	p.waiting.Store(waiting + b.unripe)
	return p.failed(err)
}

func (p *Packer) failed(err error) error {
	if err != nil {
		p.errors.Add(1)
	}
	return err
}

// packFile adds what is to be moved of a marked file. left says that not all
// of it could be.
func (p *Packer) packFile(ctx context.Context, b *batches, m Mark, f *File) (left bool, err error) {
	pl := planner{volume: p.cfg.Volume, ino: m.Ino}
	pl.plan()
	if pl.full {
		left = true // what is behind is for the next pass
	}
	if err := b.add(ctx, f, pl.pieces, m, !left); err != nil {
		return left, err
	}
	return left, nil
}

// Compact goes on through the thin blobs and moves what is left in some of them
// elsewhere.
func (p *Packer) Compact(ctx context.Context, now time.Time) error {
	take := make(map[cluster.BlobID]bool)
	var owners []cluster.Ino
	left := uint64(0)
	thin := p.cfg.Volume.Thin(p.thin, lookThin)
	at := cluster.BlobID(0)
	if len(thin) == lookThin {
		at = thin[len(thin)-1] + 1
	}
	for _, id := range thin {
		if len(take) == maxThin {
			at = id
			break
		}
		if rec, ok := p.cfg.Volume.Blob(id); !ok || rec.Fixed {
			left++
			continue
		}
		of := p.cfg.Volume.Owners(id)
		quiet := true
		for _, ino := range of {
			if f, ok := p.cfg.Volume.File(ino); ok && now.Sub(f.Changed) < p.cfg.After {
				quiet = false // it may be being overwritten: then the blob goes by itself
			}
		}
		if !quiet {
			left++
			continue
		}
		take[id] = true
		owners = append(owners, of...)
	}
	p.thin = at
	p.thinLeft.Store(left)
	if len(take) == 0 {
		return nil
	}
	b := p.newBatches(now)
	b.compacting = true
	for _, ino := range unique(owners) {
		f, ok := p.cfg.Volume.File(ino)
		if !ok {
			continue
		}
		pl := planner{volume: p.cfg.Volume, ino: ino}
		pl.pick(take)
		if err := b.add(ctx, &f, pl.pieces, Mark{}, false); err != nil {
			return p.failed(err)
		}
	}
	return p.failed(b.end(ctx, true))
}
