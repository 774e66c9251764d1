package repair

import (
	"slices"

	"github.com/hawserfs/hawser/cluster"
)

// A Store is a disk of a node, as far as planning goes.
type Store struct {
	ID   cluster.StoreID
	Node cluster.NodeID
	Rack string // may be empty
	// Up says that it can be reached now.
	Up bool
	// Lost says that its copies are not counted on any more: its disk failed, it
	// or its node was removed, or it has been down for long.
	Lost bool
	// Draining says that it is to be emptied.
	Draining bool
	// Full says that it is to get nothing more.
	Full     bool
	Capacity uint64 // bytes
}

// takes reports whether the store may be a member of new sets: also one that is
// away for a moment.
func (s *Store) takes() bool { return !s.Lost && !s.Draining }

// A SetState says what may be done with a set.
type SetState uint8

// The states, as in the volume's records.
const (
	Writable SetState = iota
	ReadOnly
	Retired
)

// A Set is a replica set.
type Set struct {
	ID      cluster.ReplicaSetID // 0: to be made
	Members []cluster.StoreID
	Copies  uint8 // that are asked for
	Epoch   uint32
	State   SetState
	// Used says that there are blobs on it.
	Used bool
	// Foreign sets are looked after by others, and left alone.
	Foreign bool
	// Bytes of its blobs, where that matters.
	Bytes uint64
	// Begun is a store that holds blobs put at this epoch and is no member: an
	// earlier leader has begun to move there. 0: none is known.
	Begun cluster.StoreID
	// Avoid is a store that the last move to it failed for: another one is better.
	Avoid cluster.StoreID
}

func (s *Set) has(id cluster.StoreID) bool { return slices.Contains(s.Members, id) }

// A Reason says why a member is exchanged. The lower, the more urgent.
type Reason uint8

// The reasons.
const (
	Lost    Reason = iota + 1 // a member is lost
	Widen                     // there are fewer members than copies are asked for
	Domain                    // members share a rack or node, and need not
	Drain                     // a member is to be emptied
	Balance                   // stores differ in how full they are
)

// String returns the reason as a word.
func (r Reason) String() string {
	return [...]string{"", "repair", "widen", "domain", "drain", "balance"}[r]
}

// A Move exchanges a member of a set, or adds one.
type Move struct {
	Set    Set
	Reason Reason
	From   cluster.StoreID // 0: one is added
	To     cluster.StoreID
}

// Members returns the set's members after the move, in order: the new one takes
// the place of the old one.
func (m *Move) Members() []cluster.StoreID {
	members := slices.Clone(m.Set.Members)
	if i := slices.Index(members, m.From); m.From != 0 && i >= 0 {
		members[i] = m.To
		return members
	}
	return append(members, m.To)
}

// A Wait is a set that should be changed and can't be now.
type Wait struct {
	Set    cluster.ReplicaSetID
	Reason Reason
	From   cluster.StoreID
	Why    string // empty: it waits for its turn
}

// An Input is what Plan goes by.
type Input struct {
	Sets   []Set
	Stores []Store
	// Busy are the moves under way.
	Busy []Move
	// Pause has sets that are left alone for now, since a move of theirs has
	// failed, with why.
	Pause map[cluster.ReplicaSetID]string
	// Balance asks for stores to be evened out.
	Balance bool
	// Parallel is how many moves there are at a time. 0: 2.
	Parallel int
}

// A Plan is what is to be done next.
type Plan struct {
	// Put has the sets to be made or changed at once: they have no blobs, or
	// become writable again.
	Put []Set
	// Moves are to be begun after that, the most urgent first: writers need sets
	// to go to meanwhile.
	Moves []Move
	// Waits are the sets that have to wait, the most urgent first.
	Waits []Wait
}
