package fsm

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hawserfs/hawser/cluster"
)

var errClosed = errors.New("fsm: the machine is closed")

// Flush implements cluster.StateMachine.
func (m *Machine) Flush() (index, term uint64, err error) {
	// The index is taken first: what is applied now will be durable.
	index, term = m.Applied()
	s := m.acquire()
	if s == nil {
		return 0, 0, errClosed
	}
	defer s.release()
	if a, t := readApplied(s.db); a < index {
		index, term = a, t // restored meanwhile, to an earlier state
	}
	if err := s.db.Flush(); err != nil {
		return 0, 0, fmt.Errorf("fsm: flush %s: %w", s.path, err)
	}
	return index, term, nil
}

// Checkpoint implements cluster.StateMachine. dir must not be there.
func (m *Machine) Checkpoint(dir string) (cluster.Checkpoint, error) {
	s := m.acquire()
	if s == nil {
		return cluster.Checkpoint{}, errClosed
	}
	defer s.release()
	if err := s.db.Flush(); err != nil {
		return cluster.Checkpoint{}, fmt.Errorf("fsm: flush %s: %w", s.path, err)
	}
	if err := s.db.Checkpoint(dir); err != nil {
		return cluster.Checkpoint{}, fmt.Errorf("fsm: checkpoint into %s: %w", dir, err)
	}
	// What has been flushed since is in it too, so it says itself what it is.
	c, err := m.describe(dir)
	if err != nil {
		return cluster.Checkpoint{}, errors.Join(err, m.opts.FS.RemoveAll(dir))
	}
	return c, nil
}

// describe reads what a checkpoint says of itself, without changing it.
func (m *Machine) describe(dir string) (c cluster.Checkpoint, err error) {
	fs := m.opts.FS
	o := &pebble.Options{
		FS: fs, ReadOnly: true, ErrorIfNotExists: true, DisableWAL: true,
		Logger: pebbleLogger{m.log}, FormatMajorVersion: pebble.FormatTableFormatV6, MaxOpenFiles: 100,
	}
	db, err := pebble.Open(dir, o)
	if err != nil {
		return c, fmt.Errorf("fsm: open checkpoint %s: %w", dir, err)
	}
	defer func() {
		err = errors.Join(err, db.Close())
		if e := fs.Remove(fs.PathJoin(dir, "LOCK")); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := checkFormat(db, dir); err != nil {
		return c, err
	}
	c.Index, c.Term = readApplied(db)
	c.ConfigurationIndex, c.Configuration = readConfiguration(db)
	return c, nil
}

// Restore implements cluster.StateMachine. Readers under way end on the state
// that they began on.
func (m *Machine) Restore(dir string) error {
	old := m.current.Load()
	if old == nil {
		return errClosed
	}
	fs := m.opts.FS
	if _, err := m.describe(dir); err != nil {
		return err
	}
	// Everything in the folder is durable before READY is, and READY before
	// the folder has a name that counts.
	if err := syncAll(fs, dir); err != nil {
		return fmt.Errorf("fsm: sync checkpoint %s: %w", dir, err)
	}
	if err := markReady(fs, dir); err != nil {
		return fmt.Errorf("fsm: mark checkpoint %s: %w", dir, err)
	}
	number := old.number + 1
	path := m.statePath(number)
	if err := fs.RemoveAll(path); err != nil { // of a Restore that failed
		return fmt.Errorf("fsm: remove %s: %w", path, err)
	}
	if err := fs.Rename(dir, path); err != nil {
		return fmt.Errorf("fsm: rename checkpoint %s to %s (it must be on the same file system): %w", dir, path, err)
	}
	if err := syncDir(fs, m.opts.Dir); err != nil {
		return errors.Join(fmt.Errorf("fsm: sync %s: %w", m.opts.Dir, err), fs.RemoveAll(path))
	}
	s, err := m.openState(number, false)
	if err != nil {
		return errors.Join(err, fs.RemoveAll(path))
	}
	if err := m.install(s); err != nil {
		s.obsolete.Store(true)
		s.release()
		return fmt.Errorf("fsm: load checkpoint %s: %w", path, err)
	}
	old.obsolete.Store(true)
	old.release()
	index, _ := m.Applied()
	m.notify(index, []any{Restored{}})
	return nil
}
