package vfs

import "github.com/hawserfs/hawser/cluster/fsm/volume"

// A StateID is the part of a stateid that names the state (stateid4.other).
type StateID = volume.StateID

// A StateKind says what a State is of.
type StateKind uint8

// The kinds of states.
const (
	StateOpen StateKind = iota
	StateLock
	StateCopy // a copy that goes on after its answer (RFC 7862 §4.8); Owner says what of
)

// A State is a stateid that outlives its front-end. Share reservations are
// decided between the states of kind StateOpen (RFC 8881 §9.7).
type State struct {
	Other        StateID
	Kind         StateKind
	Client       uint64    // whose it is, for ReleaseClient and ClientStates
	Access, Deny uint8     // OPEN4_SHARE_ACCESS_* and _DENY_*: 1 read, 2 write
	Owner        []byte    // the open- or lock-owner, at most 1024 bytes
	Digest       LockOwner // of kind StateLock: the Owner of its Locks
}

// A Watcher hears of what happens to files, through whatever front-end. Its
// methods are called one at a time for a volume, and must not call FS methods
// that change anything.
type Watcher interface {
	// Unlinked says that f has lost its last name, and is open here. It
	// returns the opens of f that this front-end has not replicated, which
	// are recorded then, so that f lives while they do. Without any it is
	// asked again, until f is closed.
	Unlinked(f File) []State
	// Unlocked says that locks on f, or states of f, were released: what
	// waits for them may try again. It is called for f once, however many.
	Unlocked(f File)
}

// A ChangeWatcher is a Watcher that is told of every change, too.
type ChangeWatcher interface {
	Watcher
	// Changed says that f, which is open here, was changed, or was opened so that it
	// may be, or so that others can't read it: through whatever front-end. It is
	// called soon after this node has applied that, once however many changes there
	// were, and also when there may have been some.
	Changed(f File)
}

// The bits of State.Access and Deny.
const (
	ShareRead  = volume.ShareRead
	ShareWrite = volume.ShareWrite
)

// Disturbs reports whether s is an open that may change the file, or keeps others
// from reading it: what a ChangeWatcher is told of.
func (s *State) Disturbs() bool {
	return s.Kind == StateOpen && (s.Access&ShareWrite != 0 || s.Deny&ShareRead != 0)
}

// Denies reports whether s keeps others from the access (AccessRead,
// AccessModify and AccessExtend count).
func (s *State) Denies(access uint32) bool {
	return s.Deny&ShareRead != 0 && access&AccessRead != 0 ||
		s.Deny&ShareWrite != 0 && access&(AccessModify|AccessExtend) != 0
}
