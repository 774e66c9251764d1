// Package state is what an NFSv4.1 server remembers about its clients: client
// ids, sessions with their slots and cached replies, opens, share reservations
// and byte-range locks, leases and the grace period (RFC 8881 §2.4, §2.10, §8, §9).
//
// It is a pure core: it has no goroutine, clock, socket or random source. Time is
// passed in; what has to be done to the file system is returned to the caller.
// All methods are safe for concurrent use. The hot paths lock no more than a
// shard of a table and the slot or state at hand.
package state
