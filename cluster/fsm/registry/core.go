package registry

import (
	"encoding/binary"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

type core struct{}

// New returns the registry's Core.
func New() fsm.Core { return core{} }

// command is one of the registry's commands, in Apply.
type command interface {
	decode(d *codec.Dec)
	// run returns the error number and the body of the result.
	run(tx *fsm.Tx, h *head) (cluster.Errno, []byte)
}

// newCommand makes an empty command of each kind.
var newCommand = map[fsm.Kind]func() command{
	KindInitCluster:   func() command { return new(InitCluster) },
	KindPutNode:       func() command { return new(PutNode) },
	KindRemoveNode:    func() command { return new(RemoveNode) },
	KindSetNodeState:  func() command { return new(SetNodeState) },
	KindPutStore:      func() command { return new(PutStore) },
	KindSetStoreState: func() command { return new(SetStoreState) },
	KindCreateVolume:  func() command { return new(CreateVolume) },

	KindPutIdentity:    func() command { return new(PutIdentity) },
	KindRemoveIdentity: func() command { return new(RemoveIdentity) },
	KindPurgeIdentity:  func() command { return new(PurgeIdentity) },
	KindAssignIdentity: func() command { return new(AssignIdentity) },
	KindServeIdentity:  func() command { return new(ServeIdentity) },
	KindTakeLead:       func() command { return new(TakeLead) },
	KindDrainNode:      func() command { return new(DrainNode) },
	KindPutClient:      func() command { return new(PutClient) },
	KindDeleteClient:   func() command { return new(DeleteClient) },
	KindDrainStore:     func() command { return new(DrainStore) },
	KindRebalance:      func() command { return new(Rebalance) },
}

// Apply implements fsm.Core.
func (core) Apply(tx *fsm.Tx, _ uint64, env *fsm.Envelope, body []byte) []byte {
	create := newCommand[env.Kind]
	if create == nil {
		return tx.Result(cluster.EINVAL)
	}
	c := create()
	d := codec.NewDec(body)
	if c.decode(&d); d.Done() != nil {
		return tx.Result(cluster.EINVAL)
	}
	h, there := loadHead(tx)
	if !there && env.Kind != KindInitCluster {
		return tx.Result(cluster.EAGAIN)
	}
	e, result := c.run(tx, &h)
	return append(tx.Result(e), result...)
}

func loadHead(r fsm.Reader) (head, bool) {
	v, ok := r.Get(nil, keyCluster)
	if !ok {
		return head{}, false
	}
	return decodeHead(v)
}

func (c *InitCluster) run(tx *fsm.Tx, h *head) (cluster.Errno, []byte) {
	switch {
	case h.UUID == c.UUID && c.UUID != UUID{}:
		return cluster.OK, nil
	case h.UUID != UUID{}:
		return cluster.EEXIST, nil
	case c.UUID == UUID{} || c.Name == "" || binary.BigEndian.Uint64(c.UUID[:]) == 0:
		return cluster.EINVAL, nil // an FSID's Major would be 0
	}
	made := head{Cluster: Cluster{UUID: c.UUID, Name: c.Name, Key: c.Key, Created: tx.Time()}, nextStore: 1, nextVolume: 1, nextIdentity: 1}
	tx.Set(keyCluster, appendHead(nil, &made))
	return cluster.OK, nil
}

func putNode(tx *fsm.Tx, n *Node) []byte {
	v := appendNode(nil, n)
	tx.Set(nodeKey(nil, n.ID), v)
	return v
}

func (c *PutNode) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	if checkName(string(c.ID), MaxNodeName) != cluster.OK || c.PeerAddr == "" || c.Roles == 0 || !AllRoles.Has(c.Roles) {
		return cluster.EINVAL, nil
	}
	old, there := View{tx}.Node(c.ID)
	if old.State == NodeRemoved && !c.Rejoin {
		return cluster.EPERM, nil
	}
	if there && old.State != NodeRemoved && old.Incarnation != c.Incarnation {
		return cluster.EEXIST, nil
	}
	n := Node{
		ID: c.ID, PeerAddr: c.PeerAddr, NFSAddr: c.NFSAddr, Roles: c.Roles, Rack: c.Rack,
		State: old.State, Since: old.Since, Joined: old.Joined, Incarnation: c.Incarnation,
		Draining: old.Draining && old.State != NodeRemoved,
	}
	if !there || old.State == NodeRemoved {
		n.State, n.Since, n.Joined = NodeUp, tx.Time(), tx.Time()
	}
	if !there || n != old {
		tx.Emit(NodeChanged{n})
	}
	return cluster.OK, putNode(tx, &n)
}

func (c *RemoveNode) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	n, ok := View{tx}.Node(c.ID)
	if !ok {
		return cluster.ENOENT, nil
	}
	if n.State == NodeRemoved {
		return cluster.OK, nil
	}
	n.State, n.Since = NodeRemoved, tx.Time()
	putNode(tx, &n)
	retireOwn(tx, c.ID)
	tx.Emit(NodeChanged{n})
	return cluster.OK, nil
}

func (c *SetNodeState) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	if c.State != NodeUp && c.State != NodeDown {
		return cluster.EINVAL, nil
	}
	n, e := member(tx, c.ID)
	if e != cluster.OK || n.State == c.State {
		return e, nil
	}
	n.State, n.Since = c.State, tx.Time()
	putNode(tx, &n)
	tx.Emit(NodeChanged{n})
	return cluster.OK, nil
}

// member returns a node that is not removed.
func member(tx *fsm.Tx, id cluster.NodeID) (Node, cluster.Errno) {
	n, ok := View{tx}.Node(id)
	switch {
	case !ok:
		return n, cluster.ENOENT
	case n.State == NodeRemoved:
		return n, cluster.EPERM
	}
	return n, cluster.OK
}

func (c *PutStore) run(tx *fsm.Tx, h *head) (cluster.Errno, []byte) {
	if c.UUID == (UUID{}) || c.State > StoreFailed {
		return cluster.EINVAL, nil
	}
	if _, e := member(tx, c.Node); e != cluster.OK {
		return e, nil
	}
	old, there := View{tx}.StoreByUUID(c.UUID)
	s := Store{
		ID: old.ID, UUID: c.UUID, Node: c.Node, Capacity: c.Capacity, Used: c.Used, State: c.State,
		Since: old.Since, Draining: old.Draining,
	}
	if old.State == StoreRemoved {
		return cluster.EPERM, nil
	}
	if !there || old.State != c.State {
		s.Since = tx.Time()
	}
	if !there {
		s.ID = h.nextStore
		h.nextStore++
		tx.Set(keyCluster, appendHead(nil, h))
		tx.Set(uuidKey(nil, &s.UUID), codec.AppendUint32(nil, uint32(s.ID)))
	}
	v := appendStore(nil, &s)
	tx.Set(storeKey(nil, s.ID), v)
	if s != old {
		tx.Emit(StoreChanged{s})
	}
	return cluster.OK, v
}

func (c *SetStoreState) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	if c.State > StoreRemoved {
		return cluster.EINVAL, nil
	}
	s, ok := View{tx}.Store(c.ID)
	if !ok {
		return cluster.ENOENT, nil
	}
	if s.State != c.State {
		if s.State == StoreRemoved {
			return cluster.EPERM, nil
		}
		s.State, s.Since = c.State, tx.Time()
		tx.Set(storeKey(nil, s.ID), appendStore(nil, &s))
		tx.Emit(StoreChanged{s})
	}
	return cluster.OK, nil
}

func (c *CreateVolume) run(tx *fsm.Tx, h *head) (cluster.Errno, []byte) {
	if e := checkName(c.Name, MaxVolumeName); e != cluster.OK {
		return e, nil
	}
	if c.Class.Consistency > cluster.Relaxed || c.Class.Copies < 1 || c.Class.Copies > 3 ||
		!c.Class.Code.IsZero() && !c.Class.Code.Valid() ||
		len(c.Voters) == 0 || len(c.Voters) > MaxVoters {
		return cluster.EINVAL, nil
	}
	for i, id := range c.Voters {
		if _, e := member(tx, id); e != cluster.OK || slices.Contains(c.Voters[:i], id) {
			return cluster.EINVAL, nil
		}
	}
	if v, ok := (View{tx}).VolumeByName(c.Name); ok {
		return cluster.EEXIST, appendVolume(nil, &v)
	}
	v := Volume{ID: h.nextVolume, Name: c.Name, Class: c.Class, Created: tx.Time(), Voters: c.Voters}
	v.FSID = FSID{Major: binary.BigEndian.Uint64(h.UUID[:]), Minor: uint64(v.ID)}
	h.nextVolume++
	tx.Set(keyCluster, appendHead(nil, h))
	value := appendVolume(nil, &v)
	tx.Set(volumeKey(nil, v.ID), value)
	tx.Set(nameKey(nil, v.Name), codec.AppendUint32(nil, uint32(v.ID)))
	tx.Emit(VolumeCreated{v})
	return cluster.OK, value
}
