package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// formatVersion is the newest layout of keys and folders that this program
// knows, and the one it writes.
const formatVersion = 1

// A machine's folder has one state folder, and a second one while the first is
// being replaced: the highest number with a file READY in it counts.
const (
	statePrefix = "state-"
	readyName   = "READY"
)

// A state is an open Pebble store. Each reader holds a reference to it, so that
// Restore can replace it under them; the last one closes it.
type state struct {
	m      *Machine
	db     *pebble.DB
	number uint64
	path   string
	refs   atomic.Int64
	// obsolete: the folder is removed once the store is closed.
	obsolete atomic.Bool
	closeErr error // read after Machine.states says that it is closed
}

// acquire returns the present state with a reference, or nil after Close.
func (m *Machine) acquire() *state {
	for {
		s := m.current.Load()
		if s == nil {
			return nil
		}
		for {
			n := s.refs.Load()
			if n == 0 {
				break // replaced meanwhile
			}
			if s.refs.CompareAndSwap(n, n+1) {
				return s
			}
		}
	}
}

func (s *state) release() {
	if s.refs.Add(-1) != 0 {
		return
	}
	defer s.m.states.Done()
	s.closeErr = s.db.Close()
	if s.closeErr != nil {
		s.m.log.Error("state not closed cleanly", "dir", s.path, "error", s.closeErr)
	}
	if s.obsolete.Load() {
		if err := s.m.opts.FS.RemoveAll(s.path); err != nil {
			s.m.log.Warn("replaced state not removed; the next start removes it", "dir", s.path, "error", err)
		}
	}
}

// Open opens the machine in o.Dir, which is made if it is not there. After a
// crash the state is that of an index at or above the last Flush.
func Open(o Options) (*Machine, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	o.FS = orderedFS{o.FS}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Machine{opts: o, log: o.Logger}
	m.subscribers.Store(new([]*subscriber))
	if err := mkdirSynced(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("fsm: make folder %s: %w", o.Dir, err)
	}
	number, err := m.tidy()
	if err != nil {
		return nil, fmt.Errorf("fsm: look through %s: %w", o.Dir, err)
	}
	fresh := number == 0
	if fresh {
		number = 1
	}
	s, err := m.openState(number, fresh)
	if err != nil {
		return nil, err
	}
	if err := m.install(s); err != nil {
		s.release()
		return nil, fmt.Errorf("fsm: load state %s: %w", s.path, err)
	}
	return m, nil
}

func (m *Machine) statePath(number uint64) string {
	return m.opts.FS.PathJoin(m.opts.Dir, fmt.Sprintf("%s%08d", statePrefix, number))
}

// tidy returns the number of the state folder that counts, or 0, and removes
// the others.
func (m *Machine) tidy() (uint64, error) {
	fs := m.opts.FS
	names, err := fs.List(m.opts.Dir)
	if err != nil {
		return 0, err
	}
	var numbers []uint64
	for _, name := range names {
		if digits, ok := strings.CutPrefix(fs.PathBase(name), statePrefix); ok {
			if n, err := strconv.ParseUint(digits, 10, 63); err == nil && n > 0 {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	best := uint64(0)
	for _, n := range slices.Backward(numbers) {
		if best == 0 {
			if _, err := fs.Stat(fs.PathJoin(m.statePath(n), readyName)); err == nil {
				best = n
				continue
			}
		}
		if err := fs.RemoveAll(m.statePath(n)); err != nil {
			return 0, err
		}
	}
	return best, nil
}

// openState opens a state folder; a fresh one is made.
func (m *Machine) openState(number uint64, fresh bool) (*state, error) {
	s := &state{m: m, number: number, path: m.statePath(number)}
	db, err := m.openPebble(s.path, fresh)
	if err != nil {
		return nil, fmt.Errorf("fsm: open state %s: %w", s.path, err)
	}
	if fresh {
		err = db.Set(keyFormat, binary.BigEndian.AppendUint32(nil, formatVersion), pebble.NoSync)
		if err == nil {
			err = db.Flush()
		}
		if err == nil {
			err = markReady(m.opts.FS, s.path)
		}
	}
	if err == nil {
		err = checkFormat(db, s.path)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.db = db
	s.refs.Store(1)
	m.states.Add(1)
	return s, nil
}

func checkFormat(db pebble.Reader, path string) error {
	v, ok := dbGet(db, nil, keyFormat)
	if !ok || len(v) != 4 {
		return fmt.Errorf("fsm: %s is not the state of a group: %w", path, cluster.ECORRUPT)
	}
	if f := binary.BigEndian.Uint32(v); f > formatVersion {
		return fmt.Errorf("fsm: state %s has format %d, this program knows up to %d: upgrade it: %w",
			path, f, formatVersion, cluster.EVERSION)
	}
	return nil
}

func readApplied(db pebble.Reader) (index, term uint64) {
	if v, ok := dbGet(db, nil, keyApplied); ok && len(v) == 16 {
		return binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:])
	}
	return 0, 0
}

func readConfiguration(db pebble.Reader) (index uint64, configuration []byte) {
	if v, ok := dbGet(db, nil, keyConfiguration); ok && len(v) >= 8 {
		return binary.BigEndian.Uint64(v), v[8:]
	}
	return 0, nil
}

// install makes s the present state and loads what is kept of it in memory. If
// that fails, nothing has changed.
func (m *Machine) install(s *state) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fatalError:
			err = p // nothing rests on s yet
		default:
			panic(p)
		}
	}()
	index, term := readApplied(s.db)
	confIndex, configuration := readConfiguration(s.db)
	var loaded writerTable
	if err := loaded.load(dbReader{s.db}); err != nil {
		return err
	}

	m.writers.replace(&loaded)
	m.tx.db = s.db
	m.tx.writers = &m.writers
	m.tx.overlay.reset()
	if m.tx.result == nil {
		m.tx.result = make([]byte, 0, 4096)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current.Store(s)
	m.index, m.term = index, term
	m.confIndex, m.configuration = confIndex, configuration
	return nil
}

// Close implements cluster.StateMachine. It waits for the readers under way.
func (m *Machine) Close() error {
	s := m.current.Load()
	if s == nil {
		return nil
	}
	err := s.db.Flush()
	m.current.Store(nil)
	s.release()
	m.states.Wait()
	return errors.Join(err, s.closeErr)
}

func (m *Machine) openPebble(path string, fresh bool) (*pebble.DB, error) {
	cache := pebble.NewCache(m.opts.CacheBytes)
	defer cache.Unref()
	logger := pebbleLogger{m.log.With("dir", path)}
	listener := pebble.EventListener{
		BackgroundError: func(err error) { m.log.Error("state store failed in the background", "dir", path, "error", err) },
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			m.log.Warn("applying waits for the disk", "dir", path, "reason", i.Reason)
		},
		WriteStallEnd: func() { m.log.Info("applying goes on", "dir", path) },
	}
	o := &pebble.Options{
		FS:           m.opts.FS,
		Cache:        cache,
		DisableWAL:   true, // the Raft log is the write-ahead log
		Logger:       logger,
		MaxOpenFiles: 1000,

		ErrorIfExists:               fresh,
		ErrorIfNotExists:            !fresh,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                m.opts.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               64 << 20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, max(1, min(3, runtime.GOMAXPROCS(0)/2)) },
		EventListener:               &listener,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	o.EnsureDefaults()
	return pebble.Open(path, o)
}

// pebbleLogger gives Pebble's log to slog.
type pebbleLogger struct{ l *slog.Logger }

func (p pebbleLogger) Infof(format string, args ...any) {
	p.l.Debug("pebble", "text", fmt.Sprintf(format, args...))
}

func (p pebbleLogger) Errorf(format string, args ...any) {
	p.l.Error("pebble", "text", fmt.Sprintf(format, args...))
}

func (p pebbleLogger) Fatalf(format string, args ...any) {
	panic(fatalError{fmt.Errorf(format, args...)})
}
