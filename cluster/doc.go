// Package cluster holds what the nodes of a Hawser cluster agree on: the
// identifiers, attributes and errors that the Raft groups, the state machines,
// the datastore and the file system share. It has types only; the machinery
// is in its sub-packages:
//
//	peer    the framed, multiplexed connection between nodes
//	group   a Raft group: Propose, ReadIndex, WaitApplied
//	fsm     the replicated state machines on Pebble
//	member  nodes, health, replica sets, and which groups run on this node
package cluster
