package segment

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// A Store is one disk's store of blobs. Its methods may be called concurrently.
type Store struct {
	dir     string
	fs      vfs.FS
	opts    Options
	log     *slog.Logger
	super   super
	lock    io.Closer
	idx     *index
	segSize int64
	spare   int64 // bytes at each segment's end that only tombstones may take

	ops    sync.RWMutex // held for reading by each operation, for writing by Close
	closed bool

	failure atomic.Pointer[error]

	files sync.Map // of the segments in segs, by number: *file

	inflightMu sync.Mutex
	inflight   map[cluster.BlobKey]*entry // puts that are not in the index yet

	mu         sync.Mutex // what follows
	segs       map[uint32]*seg
	active     *seg
	next       *seg    // the one after active, ready
	free       []*file // to be used again
	freeNames  []string
	lastNo     uint32
	seq        uint64
	queue      []*entry // records in the order of the log that are not committed
	committing bool
	batchSeg   uint32     // of the first record that is being committed; 0: none
	drained    *sync.Cond // on mu: a batch was committed

	pos position // of the index; the committer's

	blobs, used atomic.Uint64
	dead        atomic.Int64 // bytes of holes that are not punched yet
	noHoles     atomic.Bool

	applied    atomic.Uint32 // segment that the index goes up to
	maintainMu sync.Mutex
	makeMu     sync.Mutex // of new segments; before mu
	flushed    uint32     // segment that the index was flushed at; the upkeep's
	wake       chan struct{}
	stop       chan struct{}
	stopped    sync.WaitGroup
}

// A seg is a segment of the log. Its numbers are under Store.mu.
type seg struct {
	no     uint32
	f      *file
	end    int64 // where the records end
	sealed bool
	live   int64 // bytes of blobs
	dead   int64 // bytes of holes that are not punched yet
	tombs  int64 // bytes of tombstones that still count
	forced bool  // beyond the store's capacity, for tombstones only
}

// Open opens the store in folder dir, making one if there is none. It reads the
// end of the log into the index, or the whole log if the index is lost.
func Open(dir string, opts Options) (_ *Store, err error) {
	if opts.FS == nil {
		opts.FS = vfs.Default
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.SegmentSize == 0 {
		opts.SegmentSize = DefaultSegmentSize
	}
	if opts.IndexCache == 0 {
		opts.IndexCache = 32 << 20
	}
	s := &Store{
		dir: dir, fs: opts.FS, opts: opts, log: opts.Logger.With("store", dir),
		inflight: map[cluster.BlobKey]*entry{},
		segs:     map[uint32]*seg{},
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
	}
	s.drained = sync.NewCond(&s.mu)
	if err := s.fs.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	if s.lock, err = s.fs.Lock(s.fs.PathJoin(dir, "LOCK")); err != nil {
		return nil, fmt.Errorf("segment: store %s is in use by another process: %w", dir, err)
	}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if err := s.openSuper(); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	s.spare = max(2*Align, min(s.segSize/1024, 256<<10)&^(Align-1))
	s.idx, err = openIndex(s.fs, s.fs.PathJoin(dir, "idx"), opts.IndexCache, s.log, func(err error) {
		s.log.Error("index", "err", err)
	})
	if err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		return nil, fmt.Errorf("segment: store %s: %w", dir, err)
	}
	if !opts.Manual {
		s.stopped.Add(1)
		go s.maintain()
	}
	return s, nil
}

func (s *Store) openSuper() error {
	sb, ok, err := readSuper(s.fs, s.dir)
	if err != nil {
		return err
	}
	changed := !ok
	if !ok {
		names, err := s.fs.List(s.dir)
		if err != nil {
			return err
		}
		for _, n := range names {
			if _, ok := parseName(n, segPrefix); ok {
				return fmt.Errorf("%s has segments but no superblock: restore the file %q, or empty the folder", s.dir, "super")
			}
		}
		if o := s.opts.SegmentSize; !validSegmentSize(o) {
			return fmt.Errorf("segment size %d: must be a multiple of %d, and 32 KiB to 1 TiB", o, Align)
		}
		sb = super{uuid: s.opts.UUID, segmentSize: s.opts.SegmentSize}
		if sb.uuid == ([16]byte{}) {
			rand.Read(sb.uuid[:])
		}
	}
	if id := s.opts.ClusterID; id != "" && sb.clusterID != id {
		if sb.clusterID != "" {
			return fmt.Errorf("%s belongs to cluster %q, not %q: empty it, or use another folder", s.dir, sb.clusterID, id)
		}
		if len(id) > maxClusterIDLen {
			return fmt.Errorf("a cluster's id has at most %d bytes", maxClusterIDLen)
		}
		sb.clusterID, changed = id, true
	}
	if changed {
		if err := writeSuper(s.fs, s.dir, &sb); err != nil {
			return err
		}
	}
	if !ok {
		// The folder may be new, too.
		if err := syncDir(s.fs, s.fs.PathDir(s.dir)); err != nil {
			return err
		}
	}
	s.super, s.segSize = sb, sb.segmentSize
	return nil
}

// Dir returns the store's folder.
func (s *Store) Dir() string { return s.dir }

// UUID returns the store's UUID. A store that was wiped has another one.
func (s *Store) UUID() [16]byte { return s.super.uuid }

// SetClusterID records the cluster that the store belongs to, once.
func (s *Store) SetClusterID(id string) error {
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	if s.super.clusterID == id {
		return nil
	}
	if s.super.clusterID != "" || id == "" || len(id) > maxClusterIDLen {
		return fmt.Errorf("segment: store %s belongs to cluster %q, not %q: %w", s.dir, s.super.clusterID, id, cluster.EINVAL)
	}
	sb := s.super
	sb.clusterID = id
	if err := writeSuper(s.fs, s.dir, &sb); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	s.super.clusterID = id
	return nil
}

// Failed returns why the store takes no more blobs, or nil. It does not heal:
// the store must be opened again, on a disk that works.
func (s *Store) Failed() error {
	if p := s.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail takes the store out of service.
func (s *Store) fail(what string, err error) error {
	err = fmt.Errorf("segment: store %s is out of service: %s: %w: %w", s.dir, what, err, cluster.EDISK)
	if s.failure.CompareAndSwap(nil, &err) {
		s.log.Error("disk failed, store is out of service", "what", what, "err", err)
	}
	return s.Failed()
}

var errClosed = fmt.Errorf("segment: store is closed: %w", cluster.EDISK)

// enter begins an operation; leave ends it.
func (s *Store) enter() error {
	s.ops.RLock()
	if s.closed {
		s.ops.RUnlock()
		return errClosed
	}
	return nil
}

func (s *Store) leave() { s.ops.RUnlock() }

// Close waits for the operations under way, makes the index durable and closes
// the store.
func (s *Store) Close() error {
	s.ops.Lock()
	if s.closed {
		s.ops.Unlock()
		return nil
	}
	s.closed = true
	s.ops.Unlock()
	close(s.stop)
	s.stopped.Wait()
	s.maintainMu.Lock()
	defer s.maintainMu.Unlock()
	var err error
	if s.Failed() == nil {
		err = s.idx.db.Flush()
	}
	return errors.Join(err, s.release())
}

// release closes what is open.
func (s *Store) release() (err error) {
	for _, g := range s.segs {
		g.f.drop()
	}
	for _, f := range s.free {
		f.drop()
	}
	if s.idx != nil {
		err = s.idx.close()
	}
	return errors.Join(err, s.lock.Close())
}

// hold returns the file of a segment, held, or nil if there is none.
func (s *Store) hold(no uint32) *file {
	if v, ok := s.files.Load(no); ok && v.(*file).tryHold() {
		return v.(*file)
	}
	return nil
}
