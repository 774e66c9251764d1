// Package segment is one disk's store of blobs.
//
// A store is a folder:
//
//	super          what the store is: its UUID, cluster and segment size
//	seg-XXXXXXXX   segments, a fixed size each, numbered from 1 up
//	free-XXXXXXXX  segments that are wholly free, to be used again
//	idx/           an index of the segments, in Pebble; it can be lost
//
// The segments are one log, in the order of their numbers: a segment is only
// added to once the one before is full. A segment has a header of 4 KiB, then
// records, each at a multiple of 4 KiB: a header of 64 bytes, the crc32c of
// each 4 KiB of the payload, padding, the payload, padding. The record's header
// names the store, the segment and the place that it was written for, so that a
// record left behind by the segment's earlier use, or one that the disk put in
// the wrong place, is not taken for one of the log's.
//
// A blob is stored by a blob record, and deleted by naming it in a tombstone
// record. Many callers put at the same time: each takes its place in the log,
// writes there, and one of them syncs for all whose predecessors are written
// too, updates the index, and wakes the others. So what is acknowledged is
// always a prefix of the log, and the log can be read by going from header to
// header.
//
// The index has no log of its own. Each of its batches holds the place in the
// log that it goes up to, and Pebble keeps a prefix of the batches through a
// crash; Open reads the log from there on. Space is given back (holes, free
// segments) only after the index that no longer refers to it is durable.
//
// A sync that fails takes the store out of service: the kernel may have dropped
// the pages, and a second sync would lie. Its blobs can still be read.
package segment
