// Package repair keeps the replica sets of a volume as they should be: it makes
// them, puts other stores in the place of members that are lost or are to be
// emptied, gives members to sets that have too few, moves members so that they
// differ in rack, node and disk, and evens the stores out. The leader of the
// volume's group runs it, and nobody else changes replica sets.
//
// What is to be done is decided by Plan, which is pure, from the sets and
// stores as they are. A member is exchanged in three steps, each of which can be
// repeated by this or another leader: the set is made read-only, which gives it
// a new epoch, so that no blob is added any more; each blob of the set is copied
// to the new member, verified and durable, with that epoch; and one command
// makes it a member and the set writable again, if the epoch is still the same.
// So every blob that is referred to is durable on every member of its set, at
// any time, and never on fewer stores than before.
//
// Nothing but the sets' records is remembered: a set that is read-only is one
// that is being moved, and a leader that finds one takes it up or makes it
// writable again.
package repair
