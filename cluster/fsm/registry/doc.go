// Package registry is the state machine of the cluster's own group: the
// cluster's identity, its nodes, stores and volumes, the identities that NFS
// clients take for servers, who serves each, and what is kept of their clients. New returns the Core, View reads it, and the
// command types change it.
//
// Keys:
//
//	C                  the cluster, and the next store, volume and identity numbers
//	N node             node
//	S store            store
//	U uuid             the store that has this UUID
//	V volume           volume
//	M name             the volume that has this name
//	I identity         identity
//	O node             the identity of the node's own addresses
//	T identity client  client record
//	Q identity         how many client records there are, and their size
package registry
