package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// reader reads the machine's present state.
type reader Machine

// Get implements Reader.
func (r *reader) Get(dst, key []byte) (value []byte, ok bool) {
	s := (*Machine)(r).acquire()
	if s == nil {
		return dst, false
	}
	defer s.release()
	return dbGet(s.db, dst, key)
}

// Ascend implements Reader.
func (r *reader) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	s := (*Machine)(r).acquire()
	if s == nil {
		return
	}
	defer s.release()
	dbAscend(s.db, lower, upper, fn)
}

// A Snapshot is the state at one index. It must be closed; it is safe for
// concurrent use until then.
type Snapshot struct {
	s    *state
	snap *pebble.Snapshot
}

// Snapshot returns the present state, as it is after whole commands. It returns
// nil after Close.
func (m *Machine) Snapshot() *Snapshot {
	s := m.acquire()
	if s == nil {
		return nil
	}
	return &Snapshot{s: s, snap: s.db.NewSnapshot()}
}

// Index returns the index of the last command in the snapshot.
func (s *Snapshot) Index() uint64 {
	v, ok := s.Get(nil, keyApplied)
	if !ok || len(v) != 16 {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

// Get implements Reader.
func (s *Snapshot) Get(dst, key []byte) (value []byte, ok bool) { return dbGet(s.snap, dst, key) }

// Ascend implements Reader.
func (s *Snapshot) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	dbAscend(s.snap, lower, upper, fn)
}

// Close ends the snapshot.
func (s *Snapshot) Close() error {
	err := s.snap.Close()
	s.s.release()
	return err
}

// dbReader reads a store that its user holds open.
type dbReader struct{ db pebble.Reader }

// Get implements Reader.
func (r dbReader) Get(dst, key []byte) (value []byte, ok bool) { return dbGet(r.db, dst, key) }

// Ascend implements Reader.
func (r dbReader) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	dbAscend(r.db, lower, upper, fn)
}

func dbGet(db pebble.Reader, dst, key []byte) (value []byte, ok bool) {
	v, closer, err := db.Get(key)
	if err != nil {
		if errors.Is(err, pebble.ErrNotFound) {
			return dst, false
		}
		panic(fatalError{err})
	}
	dst = append(dst, v...)
	if err := closer.Close(); err != nil {
		panic(fatalError{err})
	}
	return dst, true
}

func dbAscend(db pebble.Reader, lower, upper []byte, fn func(key, value []byte) bool) {
	if upper != nil && bytes.Compare(lower, upper) >= 0 {
		return
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		panic(fatalError{err})
	}
	defer func() {
		if err := it.Close(); err != nil {
			panic(fatalError{err})
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			panic(fatalError{err})
		}
		if !fn(it.Key(), v) {
			return
		}
	}
}

// StateHash digests all keys and values that r has. Replicas that applied the
// same log up to the same index have the same hash.
func StateHash(r Reader) [sha256.Size]byte {
	h := sha256.New()
	var head []byte
	r.Ascend(nil, nil, func(key, value []byte) bool {
		head = binary.AppendUvarint(head[:0], uint64(len(key)))
		head = binary.AppendUvarint(head, uint64(len(value)))
		h.Write(head)
		h.Write(key)
		h.Write(value)
		return true
	})
	return [sha256.Size]byte(h.Sum(nil))
}
