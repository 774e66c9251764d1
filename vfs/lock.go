package vfs

import (
	"context"
	"errors"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

func showLock(l *volume.LockInfo) *Lock {
	return &Lock{
		Owner: LockOwner(l.Owner), Client: l.Client, Wire: l.Wire,
		Start: l.Start, End: l.End, Exclusive: l.Exclusive,
	}
}

// Lock implements FS.
func (s *System) Lock(r *Request, f File, l Lock) (*Lock, error) {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return nil, err
	}
	if l.Start > l.End {
		return nil, cluster.EINVAL
	}
	// Whoever locks wants to see, and to be seen.
	if err := m.flush(r.ctx, f.Ino); err != nil {
		return nil, err
	}
	m.lockersMu.Lock()
	m.lockers[l.Client] = struct{}{}
	m.lockersMu.Unlock()
	body, err := m.propose(r, volume.Lock{
		Ino: f.Ino, Owner: volume.LockOwner(l.Owner), Client: l.Client, Wire: l.Wire,
		Start: l.Start, End: l.End, Exclusive: l.Exclusive, Reclaim: l.Reclaim,
	})
	if errors.Is(err, cluster.ELOCKED) {
		res, derr := volume.DecodeLockResult(body)
		if derr != nil {
			return nil, derr
		}
		c := showLock(&res.Conflict)
		c.Wire = append([]byte(nil), c.Wire...)
		return c, err
	}
	return nil, err
}

// Unlock implements FS.
func (s *System) Unlock(r *Request, f File, l Lock) error {
	m, err := s.mount(f)
	if err != nil {
		return err
	}
	if l.Start > l.End {
		return cluster.EINVAL
	}
	if err := m.flush(r.ctx, f.Ino); err != nil && !errors.Is(err, cluster.ESTALE) {
		return err
	}
	_, err = m.propose(r, volume.Unlock{Ino: f.Ino, Owner: volume.LockOwner(l.Owner), Start: l.Start, End: l.End})
	return err
}

// TestLock implements FS.
func (s *System) TestLock(r *Request, f File, l Lock) (*Lock, error) {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return nil, err
	}
	if l.Start > l.End {
		return nil, cluster.EINVAL
	}
	if err := m.strict(r); err != nil {
		return nil, err
	}
	c, ok := m.View.Conflict(f.Ino, volume.LockOwner(l.Owner), l.Start, l.End, l.Exclusive)
	if !ok {
		return nil, nil
	}
	return showLock(&c), nil
}

// everywhere executes a command in each volume where it is wanted, and returns
// the first error.
func (s *System) everywhere(ctx context.Context, c fsm.Body, wanted func(*mount) bool, done func(*mount)) error {
	var first error
	for _, m := range s.list() {
		if !wanted(m) {
			continue
		}
		if _, err := m.propose(NewRequest(ctx, Cred{}), c); err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		done(m)
	}
	return first
}

// ReleaseClient implements FS.
func (s *System) ReleaseClient(ctx context.Context, client uint64) error {
	return s.everywhere(ctx, volume.ReleaseClient{Client: client}, func(m *mount) bool {
		m.lockersMu.Lock()
		defer m.lockersMu.Unlock()
		_, ok := m.lockers[client]
		return ok
	}, func(m *mount) {
		m.lockersMu.Lock()
		delete(m.lockers, client)
		m.lockersMu.Unlock()
	})
}

// EndGrace implements FS.
func (s *System) EndGrace(ctx context.Context) error {
	return s.everywhere(ctx, volume.ReleaseNode{Node: s.cfg.Node}, func(*mount) bool { return true }, func(*mount) {})
}
