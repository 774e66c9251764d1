// Package peer is the connection between nodes: one TCP listener a node, and
// on it framed, pipelined remote calls (Endpoint.Call, Endpoint.Handle) and raw
// streams for Raft (Endpoint.DialStream, Endpoint.Streams).
//
// The first bytes of a connection (the hello, see hello.go) name its use, the
// cluster and the node. Calls to one address share a few connections, those
// with bulk data apart from the small ones. Every queue is bounded: a
// connection carries so many calls and so many bytes of requests at a time,
// and Call waits for its turn.
//
// A frame's header and head are protected by a crc32c. Bodies are too, except
// those of ServiceBlob, which carries a checksum of every 4 KiB end to end.
package peer
