package cluster

// An IdentityID numbers an identity: what an NFS client takes for "the
// server". It is a floating address, or a node's own addresses. Numbers are 1
// to MaxIdentity and never reused; 0 is no identity.
type IdentityID uint16

// MaxIdentity is the highest identity number.
const MaxIdentity IdentityID = 1<<identityBits - 1

// How a clientid4 is put together, from the top.
const (
	identityBits = 12
	epochBits    = 20
)

// MakeClientID returns a clientid4 (RFC 8881 §3.2): the identity that gave it,
// the low 20 bits of the epoch in which it did, and a number that is new in
// that epoch. So no two of a cluster's servers, nor two incarnations of one,
// give the same.
func MakeClientID(i IdentityID, epoch, n uint32) uint64 {
	return uint64(i&MaxIdentity)<<(32+epochBits) | uint64(epoch&(1<<epochBits-1))<<32 | uint64(n)
}

// ClientIdentity returns the identity that gave a clientid4.
func ClientIdentity(clientID uint64) IdentityID { return IdentityID(clientID >> (32 + epochBits)) }

// A ClientRecord is what is kept of an NFS client so that another front-end can
// take over its sessions. Record is the front-end's own format.
type ClientRecord struct {
	ID     uint64 // clientid4
	Record []byte
}
