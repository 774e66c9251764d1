// Package placement decides which stores a blob is put to, and from which of
// them it is read.
//
// A put goes to all members of one replica set in parallel. If one of them
// fails, or is not done after 200 ms (or four times what is usual), the same bytes are put to another set
// under another id as well, and the first set that has all its copies wins. So
// a node that died costs a fraction of a second, and no copy ever has to be
// taken back: what did not win is an orphan that nothing refers to.
//
// A read asks the nearest member. If that has no good copy, or is slow, the
// next one is asked as well.
package placement
