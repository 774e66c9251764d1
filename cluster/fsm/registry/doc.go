// Package registry is the state machine of the cluster's own group: the
// cluster's identity, its nodes, stores and volumes, and the NFS clients that
// hold state with each front-end. New returns the Core, View reads it, and the
// command types change it.
//
// Keys:
//
//	C               the cluster, and the next store and volume numbers
//	N node          node
//	S store         store
//	U uuid          the store that has this UUID
//	V volume        volume
//	M name          the volume that has this name
//	K node 0 owner  client record
package registry
