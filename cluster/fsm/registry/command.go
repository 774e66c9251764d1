package registry

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// The kinds of the registry's commands. They are stored in logs: append only.
const (
	KindInitCluster fsm.Kind = fsm.FirstCoreKind + iota
	KindPutNode
	KindRemoveNode
	KindSetNodeState
	KindPutStore
	KindSetStoreState
	KindCreateVolume
	_ // a client's record by node, before there were identities
	_ // likewise
	KindPutIdentity
	KindRemoveIdentity
	KindPurgeIdentity
	KindAssignIdentity
	KindServeIdentity
	KindTakeLead
	KindDrainNode
	KindPutClient
	KindDeleteClient
	KindDrainStore
	KindRebalance
)

// InitCluster makes the cluster. It is the first command of the log; again
// with the same UUID it does nothing, with another one it fails with EEXIST.
// Every other command fails with EAGAIN before it.
type InitCluster struct {
	UUID UUID // random
	Name string
	Key  [32]byte // random
}

// Kind implements fsm.Body.
func (*InitCluster) Kind() fsm.Kind { return KindInitCluster }

// AppendTo implements fsm.Body.
func (c *InitCluster) AppendTo(dst []byte) []byte {
	dst = append(dst, c.UUID[:]...)
	dst = codec.AppendString(dst, c.Name)
	return append(dst, c.Key[:]...)
}

func (c *InitCluster) decode(d *codec.Dec) {
	copy(c.UUID[:], d.Fixed(len(c.UUID)))
	c.Name = d.String(MaxAddr)
	copy(c.Key[:], d.Fixed(len(c.Key)))
}

// PutNode adds a node, or changes the addresses, roles and rack of one; either
// way it is up then. A node that was removed stays so (EPERM) unless Rejoin is
// set. EINVAL for a name, address or role that makes no sense. The result is
// the node: DecodeNode.
type PutNode struct {
	ID       cluster.NodeID
	PeerAddr string
	NFSAddr  string
	Roles    Roles
	Rack     string
	Rejoin   bool
	// Incarnation of a member can't change, but by a Rejoin after its removal.
	Incarnation UUID
}

// Kind implements fsm.Body.
func (*PutNode) Kind() fsm.Kind { return KindPutNode }

// AppendTo implements fsm.Body.
func (c *PutNode) AppendTo(dst []byte) []byte {
	dst = codec.AppendString(dst, string(c.ID))
	dst = codec.AppendString(dst, c.PeerAddr)
	dst = codec.AppendString(dst, c.NFSAddr)
	dst = codec.AppendUint8(dst, uint8(c.Roles))
	dst = codec.AppendString(dst, c.Rack)
	dst = codec.AppendBool(dst, c.Rejoin)
	return append(dst, c.Incarnation[:]...)
}

func (c *PutNode) decode(d *codec.Dec) {
	c.ID = cluster.NodeID(d.String(MaxNodeName))
	c.PeerAddr = d.String(MaxAddr)
	c.NFSAddr = d.String(MaxAddr)
	c.Roles = Roles(d.Uint8())
	c.Rack = d.String(MaxAddr)
	c.Rejoin = d.Bool()
	copy(c.Incarnation[:], d.Fixed(len(c.Incarnation)))
}

// RemoveNode marks a node as removed. Its own identity is retired; floating
// addresses stay assigned to it until they are given to others. Its stores stay
// known. ENOENT if there never was such a node.
type RemoveNode struct {
	ID cluster.NodeID
}

// Kind implements fsm.Body.
func (*RemoveNode) Kind() fsm.Kind { return KindRemoveNode }

// AppendTo implements fsm.Body.
func (c *RemoveNode) AppendTo(dst []byte) []byte { return codec.AppendString(dst, string(c.ID)) }

func (c *RemoveNode) decode(d *codec.Dec) { c.ID = cluster.NodeID(d.String(MaxNodeName)) }

// SetNodeState says that a node is up or down. ENOENT if there is no such
// node, EPERM if it was removed.
type SetNodeState struct {
	ID    cluster.NodeID
	State NodeState
}

// Kind implements fsm.Body.
func (*SetNodeState) Kind() fsm.Kind { return KindSetNodeState }

// AppendTo implements fsm.Body.
func (c *SetNodeState) AppendTo(dst []byte) []byte {
	return codec.AppendUint8(codec.AppendString(dst, string(c.ID)), uint8(c.State))
}

func (c *SetNodeState) decode(d *codec.Dec) {
	c.ID = cluster.NodeID(d.String(MaxNodeName))
	c.State = NodeState(d.Uint8())
}

// PutStore reports a store, which gets a number when its UUID is first seen,
// and keeps it on whichever node it turns up. ENOENT if there is no such node,
// EPERM if it was removed. The result is the store: DecodeStore.
type PutStore struct {
	UUID     UUID
	Node     cluster.NodeID
	Capacity uint64
	Used     uint64
	State    StoreState
}

// Kind implements fsm.Body.
func (*PutStore) Kind() fsm.Kind { return KindPutStore }

// AppendTo implements fsm.Body.
func (c *PutStore) AppendTo(dst []byte) []byte {
	dst = append(dst, c.UUID[:]...)
	dst = codec.AppendString(dst, string(c.Node))
	dst = codec.AppendUvarint(dst, c.Capacity)
	dst = codec.AppendUvarint(dst, c.Used)
	return codec.AppendUint8(dst, uint8(c.State))
}

func (c *PutStore) decode(d *codec.Dec) {
	copy(c.UUID[:], d.Fixed(len(c.UUID)))
	c.Node = cluster.NodeID(d.String(MaxNodeName))
	c.Capacity = d.Uvarint()
	c.Used = d.Uvarint()
	c.State = StoreState(d.Uint8())
}

// SetStoreState says what is thought of a store. ENOENT if there is no such;
// EPERM for one that was removed, which stays so.
type SetStoreState struct {
	ID    cluster.StoreID
	State StoreState
}

// Kind implements fsm.Body.
func (*SetStoreState) Kind() fsm.Kind { return KindSetStoreState }

// AppendTo implements fsm.Body.
func (c *SetStoreState) AppendTo(dst []byte) []byte {
	return codec.AppendUint8(codec.AppendUvarint(dst, uint64(c.ID)), uint8(c.State))
}

func (c *SetStoreState) decode(d *codec.Dec) {
	c.ID = cluster.StoreID(d.Uvarint32())
	c.State = StoreState(d.Uint8())
}

// CreateVolume makes a volume, whose group begins with the members Voters. The
// result is the volume: DecodeVolume. With EEXIST it is the one that has the
// name. EBADNAME and ENAMETOOLONG are as of CheckName; EINVAL for a class that
// makes no sense, or voters that are not 1 to MaxVoters different nodes, all
// there.
type CreateVolume struct {
	Name   string
	Class  cluster.Class
	Voters []cluster.NodeID
}

// Kind implements fsm.Body.
func (*CreateVolume) Kind() fsm.Kind { return KindCreateVolume }

// AppendTo implements fsm.Body.
func (c *CreateVolume) AppendTo(dst []byte) []byte {
	return appendNodes(appendClass(codec.AppendString(dst, c.Name), c.Class), c.Voters)
}

func (c *CreateVolume) decode(d *codec.Dec) {
	c.Name = d.String(cluster.MaxCommand)
	c.Class = readClass(d)
	c.Voters = readNodes(d)
}

// DecodeNode returns the node in the body of PutNode's result.
func DecodeNode(body []byte) (Node, error) {
	n, ok := decodeNode(body)
	return n, malformed(ok)
}

// DecodeStore returns the store in the body of PutStore's result.
func DecodeStore(body []byte) (Store, error) {
	s, ok := decodeStore(body)
	return s, malformed(ok)
}

// DecodeVolume returns the volume in the body of CreateVolume's result.
func DecodeVolume(body []byte) (Volume, error) {
	v, ok := decodeVolume(body)
	return v, malformed(ok)
}

func malformed(ok bool) error {
	if ok {
		return nil
	}
	return codec.ErrMalformed
}
