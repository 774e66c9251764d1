// Package group is a Raft group: it puts a cluster.StateMachine under
// hashicorp/raft and hides that behind Propose, ReadIndex and WaitApplied.
//
// What it adds to the library:
//
//   - Commands are proposed from any member, and again with the same bytes when
//     the outcome is not known: the state machine makes them exactly-once.
//   - The applied index is the state machine's own. Raft's runs ahead of it, and
//     counts entries (no-ops, barriers) that no state machine sees.
//   - Reads are linearizable by a quorum of terms (readindex.go), not by
//     Raft.VerifyLeader, which counts answers to heartbeats that were sent
//     before the read began: a leader that was paused could serve an old state.
//   - The state machine is the snapshot. Raft's snapshot store is built over its
//     checkpoints, and the log is never cut beyond what it has made durable.
//   - The leader's disk and the followers' write an entry at the same time, not
//     one after the other (tail.go, which says why nothing can be lost by that).
//   - An idle leader does not tell its followers every few milliseconds what
//     they know; one that waits for a commit index is told it at once
//     (pipeline.go).
//   - Log entries carry a crc32c, checked when they are stored and read.
//   - Nodes are known to Raft by their names; addresses are looked up at each
//     connect, so that a node may move.
package group
