// Package volume is the state machine of one file system: its tree, extents,
// blobs, replica sets and locks. New returns the core that gives the commands
// of command.go their meaning; a View reads what they have made.
//
// Permissions and errors follow Linux, in its order: what is checked when a
// name is looked up (search permission, then whether it is there) comes before
// what is checked when it is changed (write permission, the sticky bit, types).
// Every check of a command comes before its first change.
package volume
