// Package state is what an NFSv4 server remembers about its clients: client ids,
// sessions with their slots and cached replies, opens, share reservations and
// byte-range locks, and leases (RFC 8881 §2.4, §2.10, §8, §9).
//
// A Manager has the clients of one identity, for as long as this front-end
// serves it. What another front-end needs to go on is not only here: a client's
// record, with its sessions, goes to a vfs.ClientStore; opens for writing, deny modes
// and locks are recorded as vfs.States with the file. After a take-over Load makes
// the clients of the records; Learn brings in a file's states when a client first
// uses one; and an open for reading, which is recorded nowhere, is made again of its
// own stateid, which proves itself. So there is no grace period.
//
// The package is a pure core: it has no goroutine, clock, socket or random source.
// Time is passed in; what has to be done to the file system is returned to the
// caller. All methods are safe for concurrent use. The hot paths lock no more than
// a shard of a table and the client or slot at hand.
package state
