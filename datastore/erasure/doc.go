// Package erasure makes shards of blobs, and blobs of shards.
//
// A blob of n bytes is cut into k runs of the same length (cluster.Code's
// ShardLen), so that reading a range of it takes few of them; the last ones are
// filled up with zeros. The parity shards are Reed-Solomon's over these, with
// the Vandermonde matrix of klauspost/reedsolomon over GF(2^8): any k of the
// k+m shards make up the others, byte by byte, so that a range of a lost shard
// takes only that range of k others. The encoding is stored, and so never
// changes: TestGolden holds it.
package erasure
