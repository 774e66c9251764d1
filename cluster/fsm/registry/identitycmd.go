package registry

import (
	"net/netip"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// PutIdentity adds a floating address. Nobody serves it yet. The same again
// does nothing. EINVAL for an address that no server can have, or a group's
// name that makes no sense; ENOENT or EPERM if there is no node Home; EEXIST if
// the address is there and differs in anything, and then the result is that
// one; ENOSPC when all numbers are used. The result is the identity:
// DecodeIdentity.
type PutIdentity struct {
	Addr  netip.Prefix
	Group string
	Home  cluster.NodeID // "": none
}

// Kind implements fsm.Body.
func (*PutIdentity) Kind() fsm.Kind { return KindPutIdentity }

// AppendTo implements fsm.Body.
func (c *PutIdentity) AppendTo(dst []byte) []byte {
	dst = appendPrefix(dst, c.Addr)
	dst = codec.AppendString(dst, c.Group)
	return codec.AppendString(dst, string(c.Home))
}

func (c *PutIdentity) decode(d *codec.Dec) {
	c.Addr = readPrefix(d)
	c.Group = d.String(MaxNodeName)
	c.Home = cluster.NodeID(d.String(MaxNodeName))
}

// RemoveIdentity retires a floating address: it is given to no node any more,
// and goes with PurgeIdentity. ENOENT if there is none, EINVAL for a node's own.
type RemoveIdentity struct {
	ID cluster.IdentityID
}

// Kind implements fsm.Body.
func (*RemoveIdentity) Kind() fsm.Kind { return KindRemoveIdentity }

// AppendTo implements fsm.Body.
func (c *RemoveIdentity) AppendTo(dst []byte) []byte { return codec.AppendUint16(dst, uint16(c.ID)) }

func (c *RemoveIdentity) decode(d *codec.Dec) { c.ID = cluster.IdentityID(d.Uint16()) }

// PurgeIdentity forgets a retired identity that nobody serves, and its client
// records, whose locks and opens must have been released. ECONFLICT if it is
// not retired or somebody serves it, EFENCED in another epoch.
type PurgeIdentity struct {
	ID    cluster.IdentityID
	Epoch uint32
}

// Kind implements fsm.Body.
func (*PurgeIdentity) Kind() fsm.Kind { return KindPurgeIdentity }

// AppendTo implements fsm.Body.
func (c *PurgeIdentity) AppendTo(dst []byte) []byte { return appendEpoch(dst, c.ID, c.Epoch) }

func (c *PurgeIdentity) decode(d *codec.Dec) { c.ID, c.Epoch = readEpoch(d) }

// AssignIdentity gives an identity to a node, in a new epoch. In any epoch but
// the one that is expected it fails with EFENCED. The result, also of EFENCED,
// is the identity: DecodeIdentity.
type AssignIdentity struct {
	// ID is the identity; 0 is Node's own one, which is made if it is missing
	// (then Epoch is 0).
	ID    cluster.IdentityID
	Node  cluster.NodeID // "": nobody
	Epoch uint32         // the present one
	// Clean says that the node that had it has stopped serving it: everything
	// that it began is done. If not, it is added to Fence.
	Clean bool
	// Lead is the nonce of TakeLead of who decided this. It must be the last
	// one's (ECONFLICT) to take the identity from another node by force.
	Lead uint64
}

// Kind implements fsm.Body.
func (*AssignIdentity) Kind() fsm.Kind { return KindAssignIdentity }

// AppendTo implements fsm.Body.
func (c *AssignIdentity) AppendTo(dst []byte) []byte {
	dst = appendEpoch(dst, c.ID, c.Epoch)
	dst = codec.AppendString(dst, string(c.Node))
	dst = codec.AppendBool(dst, c.Clean)
	return codec.AppendUint64(dst, c.Lead)
}

func (c *AssignIdentity) decode(d *codec.Dec) {
	c.ID, c.Epoch = readEpoch(d)
	c.Node = cluster.NodeID(d.String(MaxNodeName))
	c.Clean = d.Bool()
	c.Lead = d.Uint64()
}

// ServeIdentity says that the node that has the identity has fenced all of
// Fence and serves it. It may be repeated. EFENCED in another epoch, EINVAL if
// no node has it. The result is the identity: DecodeIdentity.
type ServeIdentity struct {
	ID    cluster.IdentityID
	Epoch uint32
}

// Kind implements fsm.Body.
func (*ServeIdentity) Kind() fsm.Kind { return KindServeIdentity }

// AppendTo implements fsm.Body.
func (c *ServeIdentity) AppendTo(dst []byte) []byte { return appendEpoch(dst, c.ID, c.Epoch) }

func (c *ServeIdentity) decode(d *codec.Dec) { c.ID, c.Epoch = readEpoch(d) }

// TakeLead says that a leader of the cluster's group begins to decide: what
// earlier ones have decided and was not applied by now never is.
type TakeLead struct {
	Nonce uint64 // random, not 0
}

// Kind implements fsm.Body.
func (*TakeLead) Kind() fsm.Kind { return KindTakeLead }

// AppendTo implements fsm.Body.
func (c *TakeLead) AppendTo(dst []byte) []byte { return codec.AppendUint64(dst, c.Nonce) }

func (c *TakeLead) decode(d *codec.Dec) { c.Nonce = d.Uint64() }

// DrainNode says whether a node is to be given floating addresses. ENOENT if
// there is no such node, EPERM if it was removed.
type DrainNode struct {
	ID    cluster.NodeID
	Drain bool
}

// Kind implements fsm.Body.
func (*DrainNode) Kind() fsm.Kind { return KindDrainNode }

// AppendTo implements fsm.Body.
func (c *DrainNode) AppendTo(dst []byte) []byte {
	return codec.AppendBool(codec.AppendString(dst, string(c.ID)), c.Drain)
}

func (c *DrainNode) decode(d *codec.Dec) {
	c.ID = cluster.NodeID(d.String(MaxNodeName))
	c.Drain = d.Bool()
}

// PutClient stores the record of a client of an identity, and forgets the one
// of the client that it replaces, both or neither. It may be repeated. ENOENT
// if there is no such identity, EFENCED in another epoch; EINVAL for a client
// id that is not of the identity, or an empty record; ENOSPC beyond MaxClients
// or MaxClientBytes.
type PutClient struct {
	Identity cluster.IdentityID
	Epoch    uint32
	ID       uint64 // clientid4
	Record   []byte // 1 to MaxClientRecord bytes
	Replaces uint64 // clientid4; 0: none
}

// Kind implements fsm.Body.
func (*PutClient) Kind() fsm.Kind { return KindPutClient }

// AppendTo implements fsm.Body.
func (c *PutClient) AppendTo(dst []byte) []byte {
	dst = appendEpoch(dst, c.Identity, c.Epoch)
	dst = codec.AppendUint64(dst, c.ID)
	dst = codec.AppendUint64(dst, c.Replaces)
	return codec.AppendBytes(dst, c.Record)
}

func (c *PutClient) decode(d *codec.Dec) {
	c.Identity, c.Epoch = readEpoch(d)
	c.ID = d.Uint64()
	c.Replaces = d.Uint64()
	c.Record = d.Bytes(MaxClientRecord)
}

// DeleteClient forgets a client's record, if it is there. ENOENT if there is no
// such identity, EFENCED in another epoch.
type DeleteClient struct {
	Identity cluster.IdentityID
	Epoch    uint32
	ID       uint64
}

// Kind implements fsm.Body.
func (*DeleteClient) Kind() fsm.Kind { return KindDeleteClient }

// AppendTo implements fsm.Body.
func (c *DeleteClient) AppendTo(dst []byte) []byte {
	return codec.AppendUint64(appendEpoch(dst, c.Identity, c.Epoch), c.ID)
}

func (c *DeleteClient) decode(d *codec.Dec) {
	c.Identity, c.Epoch = readEpoch(d)
	c.ID = d.Uint64()
}

// DecodeIdentity returns the identity in the body of the result of PutIdentity,
// AssignIdentity or ServeIdentity.
func DecodeIdentity(body []byte) (Identity, error) {
	i, ok := decodeIdentity(body)
	return i, malformed(ok)
}

func appendEpoch(dst []byte, id cluster.IdentityID, epoch uint32) []byte {
	return codec.AppendUint32(codec.AppendUint16(dst, uint16(id)), epoch)
}

func readEpoch(d *codec.Dec) (cluster.IdentityID, uint32) {
	return cluster.IdentityID(d.Uint16()), d.Uint32()
}
