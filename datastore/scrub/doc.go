// Package scrub reads every copy that a store has, verifies it, and makes whole
// what is damaged or missing, from another member of the blob's replica set.
// Each node scrubs its own stores.
//
// A pass goes over a store in the order of the blobs' keys, side by side with
// what the store should have by the state of the volumes on this node. What looks
// damaged or missing is looked at again at a read index: a blob that no file uses
// any more, or that has moved, is left alone. Else a copy is fetched from another
// member, held against the length and the checksum in the blob's record, and
// takes the place of the damaged one once it is durable. So nothing is lost by a
// scrub that was not lost before, whatever it is interrupted by.
//
// A pass takes a share of a long period, so that it is hardly felt, and is bounded
// in its rate; its position is kept on the disk. What reads have met as damaged or
// missing is looked at soon. What could not be repaired is remembered, tried again
// and shown.
package scrub
