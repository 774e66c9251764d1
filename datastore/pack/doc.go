// Package pack puts bytes together that belong together. Whoever leads a
// volume's group runs it.
//
// Packing moves the bytes that small writes have left in the state machine into
// blobs of some MiB, which many files share. Defragmentation, in the same pass,
// makes one extent of many short ones. Compaction moves what is left out of
// blobs of which less than half is referred to, so that they go.
//
// All three read what is there, put it into a new blob, and ask for moves that
// are done only where the file has not changed meanwhile. So nothing is lost by
// a crash at any point, by two nodes that do the same, or by files that are
// written, truncated, cloned or removed in between: the worst is a blob that
// nothing refers to, which the collector deletes. What a reader sees is the same
// before and after, and readers with the old map find the old blob for a while.
package pack
