// Package oncrpc speaks ONC RPC version 2 (RFC 5531) over stream connections.
//
// A Server serves programs on the connections it accepts or is given with
// Attach. Calls of one connection run concurrently; their replies go out in
// any order, several in one write where they wait for each other, and payload
// goes from where it is to the socket. A connection carries calls both ways:
// Conn.Call sends one to the peer, which is the back channel of a server and
// all there is to a client.
//
// Memory is bounded. An idle connection holds no buffer: one is taken when a
// record has begun to arrive. Requests of all connections share a budget, and
// a peer that does not read its replies, or sends a record too slowly, is cut off.
// A call on an open connection is never dropped: it is answered, or the
// connection is closed (a Linux client never repeats a call on an open one).
package oncrpc
