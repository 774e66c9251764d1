package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errLogCorrupt is what reading a damaged log entry returns.
var errLogCorrupt = errors.New("a Raft log entry's checksum does not match")

// seal returns a copy of cmd and its checksum, which travels as the entry's
// Extensions. Raft keeps both for as long as it likes.
func seal(cmd []byte) (data, sum []byte) {
	b := make([]byte, len(cmd), len(cmd)+4)
	copy(b, cmd)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(cmd, castagnoli))
	return b[:len(cmd):len(cmd)], b[len(cmd):]
}

// checkSeal verifies a command's checksum.
func checkSeal(l *raft.Log) error {
	if l.Type != raft.LogCommand {
		return nil
	}
	if len(l.Extensions) != 4 || binary.BigEndian.Uint32(l.Extensions) != crc32.Checksum(l.Data, castagnoli) {
		return fmt.Errorf("%w: index %d", errLogCorrupt, l.Index)
	}
	return nil
}

// A diskLog is what a library's log store can do.
type diskLog interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// lockDir makes sure that no other process uses dir. Closing the file unlocks.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use by another process: stop that first: %w", dir, err)
	}
	return f, nil
}

// openDiskLog opens the log in dir.
func openDiskLog(kind LogStore, dir string, segmentSize int, logger *slog.Logger) (diskLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	walDir, boltFile := filepath.Join(dir, "wal"), filepath.Join(dir, "raft.db")
	other := boltFile
	if kind == LogBoltDB {
		other = walDir
	}
	if _, err := os.Stat(other); err == nil {
		return nil, fmt.Errorf("%s holds a log of another kind: set raft.log back, or remove the node from the cluster, wipe it and join it again", other)
	}
	if kind == LogBoltDB {
		return raftboltdb.New(raftboltdb.Options{
			Path:                    boltFile,
			BoltOptions:             &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, Timeout: time.Second},
			MsgpackUseNewTimeFormat: true,
		})
	}
	if err := os.MkdirAll(walDir, 0o700); err != nil {
		return nil, err
	}
	l := &walLog{meta: &walMeta{}}
	var err error
	l.WAL, err = wal.Open(walDir, wal.WithSegmentSize(segmentSize), wal.WithLogger(newHCLog(logger)), wal.WithMetaStore(l.meta))
	if err != nil {
		_ = l.meta.Close()
		return nil, err
	}
	return l, nil
}

// A walLog is a wal that closes all of itself: the library's Close leaves its
// table of segments open, and locked.
type walLog struct {
	*wal.WAL
	meta *walMeta
}

// Close closes the log.
func (l *walLog) Close() error { return errors.Join(l.WAL.Close(), l.meta.Close()) }

// Bounds of the cache of recent entries.
const (
	cacheEntries = 4096
	cacheBytes   = 16 << 20
)

// A logStore is the log as Raft sees it: a disk log with checksums, a cache of
// the newest entries (each follower reads each entry), and a guard that keeps
// what the state machine has not made durable.
type logStore struct {
	diskLog
	tail    *tailLog      // the diskLog of a member that runs
	durable atomic.Uint64 // the state machine's durable index
	first   atomic.Uint64 // of the log; 0 if it is empty

	mu    sync.RWMutex
	ring  [cacheEntries]*raft.Log // by index modulo cacheEntries
	low   uint64                  // no entry below it is cached
	high  uint64                  // nor above it
	bytes int
}

// newLogStore puts a log with a tail over a disk log.
func newLogStore(disk diskLog) (*logStore, error) {
	tail, err := newTailLog(disk)
	if err != nil {
		return nil, err
	}
	return &logStore{diskLog: tail, tail: tail}, nil
}

// IsMonotonic says that entries have no gaps, so that Raft removes all older
// entries after installing a snapshot. For a log that may have gaps it would
// leave them, among them entries of dead terms, and a later leader would
// replicate those.
func (s *logStore) IsMonotonic() bool { return true }

// GetLog reads an entry. The wal would still give some that were cut off, if they
// share a segment with others.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	if index < s.first.Load() {
		return raft.ErrLogNotFound
	}
	s.mu.RLock()
	cached := s.ring[index%cacheEntries]
	s.mu.RUnlock()
	if cached != nil && cached.Index == index {
		*l = *cached
		return nil
	}
	if err := s.diskLog.GetLog(index, l); err != nil {
		return err
	}
	if l.Index != index {
		return fmt.Errorf("%w: index %d says it is %d", errLogCorrupt, index, l.Index)
	}
	return checkSeal(l)
}

// StoreLog appends an entry.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if err := checkSeal(l); err != nil {
			return err
		}
	}
	if err := s.diskLog.StoreLogs(logs); err != nil {
		return err
	}
	if len(logs) > 0 && s.first.Load() == 0 {
		s.first.Store(logs[0].Index)
	}
	s.mu.Lock()
	for _, l := range logs {
		s.cache(l)
	}
	s.mu.Unlock()
	return nil
}

func entryBytes(l *raft.Log) int { return len(l.Data) + 256 }

// cache remembers an entry and forgets the oldest ones beyond the bounds.
func (s *logStore) cache(l *raft.Log) {
	slot := &s.ring[l.Index%cacheEntries]
	if *slot != nil {
		s.bytes -= entryBytes(*slot)
	}
	*slot = l
	s.bytes += entryBytes(l)
	if s.low == 0 || l.Index < s.low {
		s.low = l.Index
	}
	s.high = l.Index
	s.low = max(s.low, l.Index-min(l.Index, cacheEntries-1))
	for s.bytes > cacheBytes && s.low < s.high {
		s.forget(s.low)
		s.low++
	}
}

func (s *logStore) forget(index uint64) {
	slot := &s.ring[index%cacheEntries]
	if *slot != nil && (*slot).Index == index {
		s.bytes -= entryBytes(*slot)
		*slot = nil
	}
}

// DeleteRange cuts the log's head or its tail.
//
// The head is cut only before the entry at the durable index, whatever Raft
// asks for: Raft's snapshots may count a barrier that the state machine does
// not. That entry itself stays, so that a member which has applied as much can
// be brought on from the log.
func (s *logStore) DeleteRange(low, high uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	durable := s.durable.Load()
	if low <= first {
		if durable == 0 {
			return nil
		}
		high = min(high, durable-1)
	} else if low <= durable {
		return fmt.Errorf("bug: Raft removes log entries from %d on, but those up to %d are applied", low, durable)
	}
	if low > high {
		return nil
	}
	s.mu.Lock()
	for i := max(low, s.low); s.low > 0 && i <= min(high, s.high); i++ {
		s.forget(i)
	}
	s.mu.Unlock()
	return s.cut(low, high)
}

// cut deletes entries and sees where the log begins now.
func (s *logStore) cut(low, high uint64) error {
	if err := s.diskLog.DeleteRange(low, high); err != nil {
		return err
	}
	first, err := s.FirstIndex()
	if err == nil {
		s.first.Store(first)
	}
	return err
}

// checkStart refuses a log that does not continue the state machine's state, and
// removes one that ends before it (a crash came between the installation of a
// snapshot and the removal of the log before it).
func (s *logStore) checkStart(applied uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	term, err := s.GetUint64([]byte("CurrentTerm"))
	if err != nil && err.Error() != "not found" {
		return err
	}
	if applied > 0 && term == 0 {
		return fmt.Errorf("the state machine is at index %d but the Raft log is empty: it was lost; "+
			"remove this node from the cluster, wipe it and join it again", applied)
	}
	if first > applied+1 {
		return fmt.Errorf("the Raft log begins at index %d but the state machine is at %d: part of its state was lost; "+
			"remove this node from the cluster, wipe it and join it again", first, applied)
	}
	s.durable.Store(applied)
	s.first.Store(first)
	if last > 0 && last < applied {
		return s.cut(first, last)
	}
	return nil
}
