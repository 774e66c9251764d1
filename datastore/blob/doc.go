// Package blob moves blobs between nodes: the server serves a node's stores on
// the peer connection, the client puts to and gets from any node's stores. A
// store of the client's own node is called directly.
//
// The payload of a put and of a get's reply is the checksum of each 4 KiB of
// the data, then the data. The store checks them when it stores and when it
// reads, the client when it receives; the sender of a put makes them once.
package blob
