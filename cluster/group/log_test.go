package group

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/hashicorp/raft"
)

func openLog(t *testing.T, kind LogStore) *logStore {
	disk, err := openDiskLog(kind, t.TempDir(), 1<<20, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &logStore{diskLog: disk}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func command(index, term uint64, cmd []byte) *raft.Log {
	data, sum := seal(cmd)
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: data, Extensions: sum}
}

// TestLogWithoutItsTail: a log whose last entries were replaced, as another
// leader's are, can be read when it is opened again.
func TestLogWithoutItsTail(t *testing.T) {
	for _, kind := range []LogStore{LogWAL, LogBoltDB} {
		dir := t.TempDir()
		open := func() *logStore {
			disk, err := openDiskLog(kind, dir, 1<<20, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			return &logStore{diskLog: disk}
		}
		s := open()
		for i := uint64(1); i <= 10; i++ {
			if err := s.StoreLog(command(i, 1, []byte("x"))); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.DeleteRange(8, 10); err != nil {
			t.Fatal(err)
		}
		if err := s.StoreLog(command(8, 2, []byte("y"))); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open()
		for i := uint64(1); i <= 8; i++ {
			var l raft.Log
			if err := s.GetLog(i, &l); err != nil || l.Term != 1+i/8 {
				t.Errorf("%s: entry %d has term %d, %v", kind, i, l.Term, err)
			}
		}
		if last, err := s.LastIndex(); err != nil || last != 8 {
			t.Errorf("%s: the log ends at %d, %v", kind, last, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogIsNotCutBeyondTheDurableIndex: Raft may ask for more, for its snapshots
// count entries that the state machine does not.
func TestLogIsNotCutBeyondTheDurableIndex(t *testing.T) {
	for _, kind := range []LogStore{LogWAL, LogBoltDB} {
		s := openLog(t, kind)
		var logs []*raft.Log
		for i := uint64(1); i <= 100; i++ {
			logs = append(logs, command(i, 1, []byte("x")))
		}
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ durable, high, first uint64 }{
			{0, 50, 1},    // nothing is durable
			{30, 50, 30},  // the entry at the durable index stays
			{80, 40, 41},  // Raft asks for less
			{90, 100, 90}, // the whole log
			{101, 100, 0}, // after the installation of a snapshot
		} {
			s.durable.Store(c.durable)
			first, _ := s.FirstIndex()
			if err := s.DeleteRange(first, c.high); err != nil {
				t.Fatal(err)
			}
			if got, _ := s.FirstIndex(); got != c.first {
				t.Fatalf("%s: durable %d, cut to %d: the log begins at %d, not %d", kind, c.durable, c.high, got, c.first)
			}
			var l raft.Log
			if c.first > 1 {
				if err := s.GetLog(c.first-1, &l); !errors.Is(err, raft.ErrLogNotFound) {
					t.Fatalf("%s: an entry that was cut off: %v", kind, err)
				}
				if err := s.GetLog(c.first, &l); err != nil || l.Index != c.first {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestLogTailIsNotCutBelowTheDurableIndex(t *testing.T) {
	s := openLog(t, LogWAL)
	for i := uint64(1); i <= 10; i++ {
		if err := s.StoreLog(command(i, 1, []byte("old"))); err != nil {
			t.Fatal(err)
		}
	}
	s.durable.Store(5)
	if err := s.DeleteRange(5, 10); err == nil {
		t.Fatal("an applied entry was removed")
	}
	if err := s.DeleteRange(6, 10); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(command(6, 2, []byte("new"))); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := s.GetLog(6, &l); err != nil || string(l.Data) != "new" {
		t.Fatalf("%q %v", l.Data, err)
	}
	if err := s.GetLog(7, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatal(err)
	}
}

func TestCorruptEntryIsNeitherStoredNorRead(t *testing.T) {
	s := openLog(t, LogBoltDB)
	bad := command(1, 1, []byte("payload"))
	bad.Data[3] ^= 4
	if err := s.StoreLog(bad); !errors.Is(err, errLogCorrupt) {
		t.Fatalf("stored: %v", err)
	}
	if err := s.diskLog.StoreLog(bad); err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := s.GetLog(1, &l); !errors.Is(err, errLogCorrupt) {
		t.Fatalf("read: %v", err)
	}
}

func TestLogCacheIsBounded(t *testing.T) {
	s := &logStore{}
	big := bytes.Repeat([]byte("x"), 1<<20)
	for i := uint64(1); i <= 100; i++ {
		s.cache(command(i, 1, big))
	}
	sum := 0
	for _, l := range s.ring {
		if l != nil {
			sum += entryBytes(l)
		}
	}
	if sum != s.bytes || sum > cacheBytes {
		t.Fatalf("%d bytes, %d counted, of %d", sum, s.bytes, cacheBytes)
	}
	for i := uint64(101); i <= 101+3*cacheEntries; i++ {
		s.cache(command(i, 1, []byte("x")))
	}
	if s.bytes > cacheEntries*300 {
		t.Fatalf("%d bytes", s.bytes)
	}
}
