// Package datastore is where file bytes live. It has no code itself:
//
//	checksum   the crc32c of each 4 KiB, and of a whole blob
//	bufpool    payload buffers
//	segment    one disk's store of blobs
//	blob       the protocol by which nodes put and get blobs
//	placement  which stores a blob goes to, and which copy is read
//	collect    deletes blobs that nothing refers to
//
// A blob is written with one content, once, under an id that is never used
// again, and each 4 KiB of it has a checksum. So a copy is right or an error;
// it cannot be stale, and two copies cannot differ.
package datastore
