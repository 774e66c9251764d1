package vfs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// storedState returns a state as commands have it; nil stays nil.
func storedState(s *State) *volume.State {
	if s == nil {
		return nil
	}
	return &volume.State{
		Other: s.Other, Kind: uint8(s.Kind), Client: s.Client, Access: s.Access, Deny: s.Deny,
		Owner: s.Owner, Digest: volume.LockOwner(s.Digest),
	}
}

func showState(s *volume.State) State {
	return State{
		Other: s.Other, Kind: StateKind(s.Kind), Client: s.Client, Access: s.Access, Deny: s.Deny,
		Owner: append([]byte(nil), s.Owner...), Digest: LockOwner(s.Digest),
	}
}

// PutState implements FS.
func (s *System) PutState(r *Request, f File, st State) error {
	if f == Root {
		return cluster.EISDIR
	}
	c, err := s.begin(r, f)
	if err != nil {
		return err
	}
	if _, done, err := c.executed(volume.KindPutState); done {
		return err
	}
	if _, err := c.m.regular(r, f); err != nil {
		return err
	}
	c.m.drops.remove(f.Ino, st.Other)
	c.m.beforeShare(r, &st)
	_, err = c.propose(volume.PutState{Ino: f.Ino, State: *storedState(&st)})
	return err
}

// beforeShare has the states dropped that are to be, before one is put that
// denies something: it must not conflict with what was closed.
func (m *mount) beforeShare(r *Request, st *State) {
	if st != nil && st.Deny != 0 {
		m.dropAll(r.ctx)
	}
}

// DropState implements FS.
func (s *System) DropState(r *Request, f File, other StateID, wait bool) error {
	c, err := s.begin(r, f)
	if err != nil {
		return err
	}
	ref := volume.StateRef{Ino: f.Ino, Other: other}
	if !wait && c.m.drops.add(ref) {
		return nil
	}
	_, err = c.once(volume.DropStates{Refs: []volume.StateRef{ref}})
	return err
}

// States implements FS.
func (s *System) States(r *Request, f File) ([]State, error) {
	m, _, err := s.regularMount(r, f)
	if err != nil {
		return nil, err
	}
	if err := m.strict(r); err != nil {
		return nil, err
	}
	var list []State
	m.View.States(f.Ino, func(st *volume.State) bool {
		if !m.drops.has(f.Ino, st.Other) {
			list = append(list, showState(st))
		}
		return true
	})
	return list, nil
}

// ClientStates implements FS.
func (s *System) ClientStates(r *Request, client uint64, fn func(File, State) bool) error {
	for _, m := range s.list() {
		if err := m.strict(r); err != nil {
			return err
		}
		more := true
		m.View.ClientStates(client, func(ino Ino, st *volume.State) bool {
			if m.drops.has(ino, st.Other) {
				return true
			}
			if a, ok := m.View.Inode(ino); ok {
				more = fn(m.file(&a), showState(st))
			}
			return more
		})
		if !more {
			break
		}
	}
	return nil
}

// Denied implements FS.
func (s *System) Denied(r *Request, f File, self StateID, access uint32) error {
	m, err := s.mount(f)
	if err != nil {
		return err
	}
	if err := m.settleOwn(r); err != nil {
		return err
	}
	// What denies access may have ended, or begun, at another front-end. Whoever
	// asks reads the attributes, too, so this costs no more rounds.
	if _, err := m.inode(r, f); err != nil && !errors.Is(err, cluster.ESTALE) {
		return err
	}
	if !m.View.Denying() {
		return nil
	}
	denied := false
	m.View.States(f.Ino, func(st *volume.State) bool {
		o := State{Deny: st.Deny}
		denied = st.Kind == volume.StateOpen && st.Other != self && o.Denies(access)
		return !denied
	})
	if denied {
		return cluster.ELOCKED
	}
	return nil
}

// DropSessions implements FS.
func (s *System) DropSessions(ctx context.Context, sessions [][16]byte) error {
	return s.everywhere(func(m *mount) error {
		r := NewRequest(ctx, Cred{})
		if err := m.strict(r); err != nil {
			return err
		}
		var has [][16]byte
		for _, id := range sessions {
			if fsm.HasSession(m.View.Reader, id) {
				has = append(has, id)
			}
		}
		for part := range slices.Chunk(has, fsm.MaxDropSessions) {
			for more := true; more; {
				body, err := m.propose(r, &fsm.DropSessions{Sessions: part})
				if err != nil {
					return err
				}
				if more, err = fsm.DecodeDropSessions(body); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

const (
	dropEvery = 100 * time.Millisecond // how often states are dropped
	maxDrops  = 65536                  // states that wait to be dropped
	dropBatch = 1000                   // of one command
)

// A dropQueue has the states that are to be dropped, but not at once.
type dropQueue struct {
	wake chan struct{}

	mu   sync.Mutex
	refs map[volume.StateRef]struct{}
}

func (q *dropQueue) init() {
	q.wake = make(chan struct{}, 1)
	q.refs = make(map[volume.StateRef]struct{})
}

// add queues a state, if there is room.
func (q *dropQueue) add(ref volume.StateRef) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.refs) >= maxDrops {
		return false
	}
	q.refs[ref] = struct{}{}
	if len(q.refs) == dropBatch {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return true
}

func (q *dropQueue) has(ino Ino, other StateID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.refs[volume.StateRef{Ino: ino, Other: other}]
	return ok
}

func (q *dropQueue) remove(ino Ino, other StateID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.refs, volume.StateRef{Ino: ino, Other: other})
}

// dropAll drops the states that are queued, until ctx ends.
func (m *mount) dropAll(ctx context.Context) {
	for {
		q := &m.drops
		q.mu.Lock()
		refs := make([]volume.StateRef, 0, min(len(q.refs), dropBatch))
		for ref := range q.refs {
			if len(refs) == dropBatch {
				break
			}
			refs = append(refs, ref)
		}
		q.mu.Unlock()
		if len(refs) == 0 {
			return
		}
		r := NewRequest(ctx, Cred{})
		if _, err := m.propose(r, volume.DropStates{Refs: refs}); err != nil {
			m.sys.cfg.Logger.Debug("states not dropped yet", "volume", m.Name, "error", err)
			return
		}
		// They are queued until this node has applied it, so that they are
		// never shown again.
		if m.settle(r) != nil {
			return
		}
		q.mu.Lock()
		for _, ref := range refs {
			delete(q.refs, ref)
		}
		q.mu.Unlock()
	}
}
