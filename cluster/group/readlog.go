package group

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/hawserfs/hawser/cluster"
)

// readBatch is how many entries ReadLog hands over at a time.
const readBatch = 256

// LastLog returns the last entry's index and term in the log of a stopped
// member whose folder is dir; 0 for an empty log.
func LastLog(dir string, kind LogStore) (index, term uint64, err error) {
	s, err := openStopped(dir, kind)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = closing(s, err) }()
	if index, err = s.LastIndex(); err != nil || index == 0 {
		return 0, 0, err
	}
	var l raft.Log
	if err := s.GetLog(index, &l); err != nil {
		return 0, 0, err
	}
	return index, l.Term, nil
}

// ReadLog calls fn with the commands from index from to the end of the log of
// a stopped member, some at a time. Those at the end may never have been
// committed: what is made of them must not be taken for the group's state.
func ReadLog(dir string, kind LogStore, from uint64, fn func([]cluster.Entry) error) (err error) {
	s, err := openStopped(dir, kind)
	if err != nil {
		return err
	}
	defer func() { err = closing(s, err) }()
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil || from > last {
		return err
	}
	if first > from {
		return fmt.Errorf("the log in %s begins at %d, and the state ends before %d: entries are missing", dir, first, from)
	}
	batch := make([]cluster.Entry, 0, readBatch)
	for i := from; i <= last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			return err
		}
		if l.Type == raft.LogCommand {
			batch = append(batch, cluster.Entry{Index: l.Index, Term: l.Term, Command: l.Data})
		}
		if len(batch) == readBatch || i == last && len(batch) > 0 {
			if err := fn(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// StoppedLogStore returns which log store the folder of a stopped member has.
func StoppedLogStore(dir string) LogStore {
	if _, err := os.Stat(filepath.Join(dir, "log", "raft.db")); err == nil {
		return LogBoltDB
	}
	return LogWAL
}

// stoppedSegment is the size of a segment that ReadLog would begin, if the log
// has none.
const stoppedSegment = 1 << 20

// A stoppedLog is the log of a member that does not run.
type stoppedLog struct {
	*logStore
	lock *os.File
}

// openStopped opens a stopped member's log. While the member runs, that is an
// error.
func openStopped(dir string, kind LogStore) (*stoppedLog, error) {
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	disk, err := openDiskLog(kind, filepath.Join(dir, "log"), stoppedSegment, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &stoppedLog{&logStore{diskLog: disk}, lock}
	first, err := s.FirstIndex()
	if err != nil {
		return nil, closing(s, err)
	}
	s.first.Store(first)
	return s, nil
}

func closing(s *stoppedLog, err error) error {
	return errors.Join(err, s.Close(), s.lock.Close())
}
