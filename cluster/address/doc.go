// Package address puts floating addresses on this machine's network interfaces
// and takes them off, on Linux.
//
// A floating address is what clients take for the server; it moves between
// nodes. Two nodes that have the same address at the same time disturb each
// other's clients, and a node that was killed, frozen or cut off can't take
// its addresses off itself. So an address is put on with a short lifetime,
// which is renewed only while the node knows that it is still the one to have
// it: otherwise the kernel itself drops the address. An address that was
// dropped is not put on again by renewing, but only by Add, whose caller has
// made sure again that it is this node's.
//
// None of this decides what is true: a node whose address lives a little too
// long answers nothing on it, since its front-end is fenced.
//
// A new holder announces the address to the neighbours, with gratuitous ARP or
// unsolicited neighbour advertisements, and sends to each client that was
// connected to the old one an acknowledgement that the client can't place. The
// client answers with what it expects, this machine's kernel, which knows no
// such connection, answers with a reset, and the client connects anew at once,
// instead of waiting for its retransmission timer.
package address
