package vfs

import (
	"context"
	"errors"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

func showLock(l *volume.LockInfo) Lock {
	return Lock{
		Owner: LockOwner(l.Owner), Client: l.Client, Wire: append([]byte(nil), l.Wire...),
		Start: l.Start, End: l.End, Exclusive: l.Exclusive,
	}
}

// Lock implements FS.
func (s *System) Lock(r *Request, f File, l Lock) (*Lock, error) {
	if f == Root {
		return nil, cluster.EISDIR
	}
	c, err := s.begin(r, f)
	if err != nil {
		return nil, err
	}
	body, done, err := c.executed(volume.KindLock)
	if done {
		return lockResult(body, err)
	}
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
	return lockResult(c.propose(volume.Lock{
		Ino: f.Ino, Owner: volume.LockOwner(l.Owner), Client: l.Client, Wire: l.Wire,
		Start: l.Start, End: l.End, Exclusive: l.Exclusive, State: storedState(l.State),
	}))
}

// lockResult returns the lock that has kept one from being taken.
func lockResult(body []byte, err error) (*Lock, error) {
	if !errors.Is(err, cluster.ELOCKED) {
		return nil, err
	}
	res, derr := volume.DecodeLockResult(body)
	if derr != nil {
		return nil, derr
	}
	c := showLock(&res.Conflict)
	return &c, err
}

// Unlock implements FS.
func (s *System) Unlock(r *Request, f File, l Lock) error {
	c, err := s.begin(r, f)
	if err != nil {
		return err
	}
	if _, done, err := c.executed(volume.KindUnlock); done {
		return err
	}
	if l.Start > l.End {
		return cluster.EINVAL
	}
	if err := c.m.flush(r.ctx, f.Ino); err != nil && !errors.Is(err, cluster.ESTALE) {
		return err
	}
	_, err = c.propose(volume.Unlock{Ino: f.Ino, Owner: volume.LockOwner(l.Owner), Start: l.Start, End: l.End})
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
	h, ok := m.View.Conflict(f.Ino, volume.LockOwner(l.Owner), l.Start, l.End, l.Exclusive)
	if !ok {
		return nil, nil
	}
	c := showLock(&h)
	return &c, nil
}

// Locks implements FS.
func (s *System) Locks(r *Request, f File, client uint64) ([]Lock, error) {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return nil, err
	}
	if err := m.strict(r); err != nil {
		return nil, err
	}
	var list []Lock
	m.View.Locks(f.Ino, func(l *volume.LockInfo) bool {
		if l.Client == client {
			list = append(list, showLock(l))
		}
		return true
	})
	return list, nil
}

// ReleaseClient implements FS.
func (s *System) ReleaseClient(ctx context.Context, client uint64) error {
	return s.everywhere(func(m *mount) error {
		r := NewRequest(ctx, Cred{})
		if err := m.strict(r); err != nil {
			return err
		}
		for m.View.HasClient(client) {
			body, err := m.propose(r, volume.ReleaseClient{Client: client})
			if err != nil {
				return err
			}
			if res, err := volume.DecodeReleaseClientResult(body); err != nil || !res.More {
				return err
			}
		}
		return nil
	})
}

// everywhere calls fn for each volume, and returns the first error.
func (s *System) everywhere(fn func(*mount) error) error {
	var first error
	for _, m := range s.list() {
		if err := fn(m); err != nil && first == nil {
			first = err
		}
	}
	return first
}
