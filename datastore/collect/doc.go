// Package collect deletes the copies of blobs that nothing refers to. The
// leader of a volume's group runs it.
//
// Garbage is a blob whose last reference went away: it is in its replica set's
// delete queue. Its copies are deleted once it has been there for a while, so
// that a read that has just looked up the old map still finds it, and then it
// is taken off the queue. A member that is down keeps its copy, as an orphan.
//
// An orphan is a copy of a blob that was never committed, or that is garbage no
// more. It may be deleted if no record names the blob and none ever will: its
// writer is fenced, or says that it is past it. That is asked at a read index
// which is newer than the list of the store's blobs. No clock decides.
//
// A copy that was moved is one of a blob that is in use, on a store that is no
// member of the blob's set any more: another one took its place. It is deleted
// when all members have theirs.
package collect
