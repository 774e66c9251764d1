package group

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
)

// liveID is the id of the snapshot that the state machine is. Received ones have
// ids of their own until they are restored.
const liveID = "live"

// A snapshotStore is Raft's snapshot store over a state machine: nothing is
// stored but what the state machine has. A snapshot for a lagging member is a
// checkpoint, sent as an archive; one that is received is unpacked beside the
// state machine and handed to its Restore.
type snapshotStore struct {
	dir     string // for checkpoints that are sent or received; emptied at start
	sm      cluster.StateMachine
	log     *logStore
	applied *applied

	mu       sync.Mutex
	seq      uint64
	received map[string]*receivedSnapshot
	opened   *receivedSnapshot // by Raft's state machine goroutine
}

// A receivedSnapshot is complete and waits for Restore.
type receivedSnapshot struct {
	meta raft.SnapshotMeta
	dir  string
}

func (r *receivedSnapshot) remove() { _ = os.RemoveAll(r.dir) }

// newSnapshotStore makes a store with an empty dir.
func newSnapshotStore(dir string, sm cluster.StateMachine, log *logStore, a *applied) (*snapshotStore, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &snapshotStore{dir: dir, sm: sm, log: log, applied: a, received: make(map[string]*receivedSnapshot)}, nil
}

// newDir returns a name for a new folder.
func (s *snapshotStore) newDir(prefix string) (id, dir string) {
	s.mu.Lock()
	s.seq++
	id = prefix + strconv.FormatUint(s.seq, 10)
	s.mu.Unlock()
	return id, filepath.Join(s.dir, id)
}

// acceptable refuses a snapshot that would take the state back. One that ends
// within the log is refused as well: a leader sends a snapshot to a member whose
// log ends before the leader's begins, so either it is an old one that the
// network kept, or the log's end is of a dead term, and Raft would not get over
// that; the leader's next one is newer.
func (s *snapshotStore) acceptable(index uint64) error {
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	if at := max(last, s.applied.index.Load()); index <= at {
		return fmt.Errorf("the snapshot at index %d is not newer than this member, which has %d", index, at)
	}
	return nil
}

// List returns the state machine as the one snapshot, if it has a state.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	index, term := s.sm.Applied()
	if index == 0 {
		return nil, nil
	}
	ci, conf := s.sm.Configuration()
	meta, err := snapshotMeta(liveID, index, term, ci, conf)
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{meta}, nil
}

func snapshotMeta(id string, index, term, ci uint64, conf []byte) (meta *raft.SnapshotMeta, err error) {
	if len(conf) == 0 {
		return nil, fmt.Errorf("the state machine at index %d has no Raft configuration: its state is damaged", index)
	}
	defer func() {
		if r := recover(); r != nil { // DecodeConfiguration panics
			err = fmt.Errorf("the Raft configuration of index %d cannot be decoded: %v", ci, r)
		}
	}()
	return &raft.SnapshotMeta{
		Version: 1, ID: id, Index: index, Term: term,
		Configuration: raft.DecodeConfiguration(conf), ConfigurationIndex: ci,
	}, nil
}

// Open opens a new checkpoint for sending, or a received one for Restore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if id != liveID {
		s.mu.Lock()
		defer s.mu.Unlock()
		in := s.received[id]
		if in == nil {
			return nil, nil, fmt.Errorf("no snapshot %s", id)
		}
		delete(s.received, id)
		s.opened = in
		meta := in.meta
		return &meta, io.NopCloser(eof{}), nil
	}
	_, dir := s.newDir("out-")
	cp, err := s.sm.Checkpoint(dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("cannot make a checkpoint: %w", err)
	}
	meta, err := snapshotMeta(liveID, cp.Index, cp.Term, cp.ConfigurationIndex, cp.Configuration)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	r, err := newArchiveReader(dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	meta.Size = r.size
	return meta, r, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// takeOpened returns the received snapshot that was opened last.
func (s *snapshotStore) takeOpened() *receivedSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.opened
	s.opened = nil
	return in
}

// Create begins a snapshot. Raft does not say whether it is one of its own (to
// which nothing is written) or one that the leader sends.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	return &sink{store: s, meta: raft.SnapshotMeta{
		Version: version, ID: liveID, Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex,
	}}, nil
}

// A sink receives a snapshot.
type sink struct {
	store *snapshotStore
	meta  raft.SnapshotMeta
	in    *archiveWriter // nil until something is written
	dir   string
	done  bool
}

// ID returns the snapshot's id.
func (k *sink) ID() string { return k.meta.ID }

// Write takes the next bytes of the archive.
func (k *sink) Write(p []byte) (int, error) {
	if k.done {
		return 0, errors.New("snapshot is closed")
	}
	if k.in == nil {
		if err := k.store.acceptable(k.meta.Index); err != nil {
			return 0, err
		}
		k.meta.ID, k.dir = k.store.newDir("in-")
		in, err := newArchiveWriter(k.dir)
		if err != nil {
			return 0, err
		}
		k.in = in
	}
	return k.in.Write(p)
}

// Close completes the snapshot.
func (k *sink) Close() error {
	if k.done {
		return nil
	}
	k.done = true
	if k.in == nil {
		return nil
	}
	if err := k.in.Close(); err != nil {
		_ = os.RemoveAll(k.dir)
		return err
	}
	k.store.mu.Lock()
	k.store.received[k.meta.ID] = &receivedSnapshot{meta: k.meta, dir: k.dir}
	k.store.mu.Unlock()
	return nil
}

// Cancel gives the snapshot up.
func (k *sink) Cancel() error {
	if k.done {
		return nil
	}
	k.done = true
	if k.in == nil {
		return nil
	}
	k.in.abort()
	return os.RemoveAll(k.dir)
}
