package volume

import (
	"bytes"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func init() {
	register(KindPutState, command(applyPutState))
	register(KindPutStates, command(applyPutStates))
	register(KindDropStates, command(applyDropStates))
}

// EventUnlocked says that locks or states of a file were released: what waits
// for them may try again.
type EventUnlocked struct {
	Ino cluster.Ino
}

// conflicts reports whether s and o, of one file, exclude each other. What an
// open-owner denies, it does not deny itself (RFC 8881 §9.7): after a take-over it can
// have an open under two names.
func (s *State) conflicts(o *State) bool {
	return s.Kind == StateOpen && o.Kind == StateOpen && s.Other != o.Other &&
		(s.Access&o.Deny != 0 || s.Deny&o.Access != 0) &&
		(s.Client != o.Client || !bytes.Equal(s.Owner, o.Owner))
}

// shared checks the share reservation of s against the others of a file.
// Only if one of them denies something there is anything to look at.
func shared(tx *fsm.Tx, ino cluster.Ino, s *State) cluster.Errno {
	if !on(ruleShare) || s.Kind != StateOpen || s.Deny == 0 && loadDenying(tx) == 0 {
		return cluster.OK
	}
	errno := cluster.OK
	ascendStates(tx, ino, func(o *State) bool {
		if o.conflicts(s) {
			errno = cluster.ESHARE
		}
		return errno == cluster.OK
	})
	return errno
}

// applyPutState runs PutState.
func applyPutState(tx *fsm.Tx, _ *fsm.Envelope, c *PutState, dst []byte) ([]byte, cluster.Errno) {
	if !c.State.valid() {
		return dst, cluster.EINVAL
	}
	if _, errno := loadFile(tx, c.Ino); errno != cluster.OK {
		return dst, errno
	}
	return dst, recordState(tx, c.Ino, &c.State)
}

// recordState records a state of a file that is there.
func recordState(tx *fsm.Tx, ino cluster.Ino, s *State) cluster.Errno {
	if !s.valid() {
		return cluster.EINVAL
	}
	if errno := shared(tx, ino, s); errno != cluster.OK {
		return errno
	}
	s.tellOpened(tx, ino)
	old, had := getState(tx, ino, &s.Other)
	if had {
		replaceState(tx, ino, &old, s)
		return cluster.OK
	}
	putState(tx, ino, s)
	return cluster.OK
}

// replaceState puts s in the place of old, which has the same Other.
func replaceState(tx *fsm.Tx, ino cluster.Ino, old, s *State) {
	deleteState(tx, ino, old)
	putState(tx, ino, s)
	if old.Access&^s.Access != 0 || old.Deny&^s.Deny != 0 {
		tx.Emit(EventUnlocked{Ino: ino})
	}
}

// applyPutStates runs PutStates. The opens were granted, so that nothing can
// conflict with them any more.
func applyPutStates(tx *fsm.Tx, env *fsm.Envelope, c *PutStates, dst []byte) ([]byte, cluster.Errno) {
	for i := range c.Files {
		for j := range c.Files[i].States {
			if !c.Files[i].States[j].valid() {
				return dst, cluster.EINVAL
			}
		}
	}
	for i := range c.Files {
		f := &c.Files[i]
		if !holds(tx, f.Ino, env.Writer) {
			continue
		}
		for j := range f.States {
			if old, had := getState(tx, f.Ino, &f.States[j].Other); had {
				deleteState(tx, f.Ino, &old)
			}
			putState(tx, f.Ino, &f.States[j])
		}
		releaseHold(tx, f.Ino, env.Writer)
	}
	return dst, cluster.OK
}

// applyDropStates runs DropStates.
func applyDropStates(tx *fsm.Tx, _ *fsm.Envelope, c *DropStates, dst []byte) ([]byte, cluster.Errno) {
	for i := range c.Refs {
		ino := c.Refs[i].Ino
		if s, ok := getState(tx, ino, &c.Refs[i].Other); ok {
			dropState(tx, ino, &s)
		}
	}
	return dst, cluster.OK
}

// dropState deletes a state that is there, and lets go of its file if that has
// no name and this was the last that kept it.
func dropState(tx *fsm.Tx, ino cluster.Ino, s *State) {
	deleteState(tx, ino, s)
	tx.Emit(EventUnlocked{Ino: ino})
	settleHeld(tx, ino)
}

// maxRelease is how many locks and states one ReleaseClient drops.
const maxRelease = 4096

// applyReleaseClient runs ReleaseClient.
func applyReleaseClient(tx *fsm.Tx, _ *fsm.Envelope, c *ReleaseClient, dst []byte) ([]byte, cluster.Errno) {
	left := maxRelease
	var told cluster.Ino
	release := func(prefix []byte, fn func(key []byte) cluster.Ino) (more bool) {
		if c.Ino != 0 {
			prefix = codec.AppendUint64(prefix, uint64(c.Ino))
		}
		tx.Ascend(prefix, codec.AppendUpper(nil, prefix), func(key, _ []byte) bool {
			if left == 0 {
				more = true
				return false
			}
			left--
			if ino := fn(key); ino != told {
				told = ino
				tx.Emit(EventUnlocked{Ino: ino})
			}
			return true
		})
		return more
	}
	more := release(appendClientLocks(nil, c.Client), func(key []byte) cluster.Ino {
		l, ok := parseHolderKey(key)
		if !ok {
			damaged("the lock index of client", c.Client)
		}
		deleteLock(tx, &l)
		return l.Ino
	})
	told = 0
	more = more || release(appendClientStates(nil, c.Client), func(key []byte) cluster.Ino {
		_, ino, other, ok := parseClientStateKey(key)
		if !ok {
			damaged("the state index of client", c.Client)
		}
		s, ok := getState(tx, ino, &other)
		if !ok {
			damaged("a state of inode", uint64(ino))
		}
		deleteState(tx, ino, &s)
		settleHeld(tx, ino)
		return ino
	})
	return ReleaseClientResult{More: more}.AppendTo(dst), cluster.OK
}
