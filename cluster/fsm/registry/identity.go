package registry

import (
	"net/netip"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// An Identity is what NFS clients take for a server: a floating address, or a
// node's own addresses. Client ids and sessions belong to it, and move with it
// from node to node as a whole.
type Identity struct {
	ID cluster.IdentityID
	// Addr is the floating address with the length of its subnet's prefix; the
	// zero Prefix for the identity that stays with a node.
	Addr  netip.Prefix
	Group string // of floating addresses that are spread over the nodes together; may be empty
	// Home is the node that a floating address belongs on, if the policy gives
	// addresses back; may be empty. For a node's own identity it is the node.
	Home cluster.NodeID
	// Node serves the identity; empty if nobody does.
	Node cluster.NodeID
	// Epoch grows with every assignment. What is done in the name of an older
	// one has no effect.
	Epoch uint32
	// Fence are nodes that served it before and were not heard to have stopped:
	// the node that is to serve it must first fence their writers in every
	// volume. It may have Node itself, for an earlier incarnation.
	Fence []cluster.NodeID
	// Serving says that Node has taken the identity over, in this epoch.
	Serving bool
	// Retired says that the address is being removed: nobody is to serve it,
	// and it goes once the state of its clients is released.
	Retired bool
	Since   cluster.Time // of the present epoch
}

// Floating reports whether the identity is a floating address.
func (i *Identity) Floating() bool { return i.Addr.IsValid() }

// Equal reports whether two are the same in everything.
func (i *Identity) Equal(o *Identity) bool {
	return i.ID == o.ID && i.Addr == o.Addr && i.Group == o.Group && i.Home == o.Home && i.Node == o.Node &&
		i.Epoch == o.Epoch && slices.Equal(i.Fence, o.Fence) && i.Serving == o.Serving && i.Retired == o.Retired && i.Since == o.Since
}

// A ClientRecord is what is kept of an NFS client of an identity.
type ClientRecord = cluster.ClientRecord

// Limits of identities and their clients.
const (
	MaxClients      = 65536     // client records of an identity
	MaxClientRecord = 64 << 10  // bytes in one
	MaxClientBytes  = 256 << 20 // bytes in all of an identity's: whoever takes over reads them at once
	maxFence        = 255       // nodes in Identity.Fence
)

// An IdentityChanged event says that an identity was added, changed, assigned
// or removed; a removed one is Retired and has no node.
type IdentityChanged struct{ Identity Identity }

func putIdentity(tx *fsm.Tx, i *Identity) []byte {
	v := appendIdentity(nil, i)
	tx.Set(identityKey(nil, i.ID), v)
	tx.Emit(IdentityChanged{*i})
	return v
}

// newIdentity makes an identity with the next number.
func newIdentity(tx *fsm.Tx, h *head) (Identity, cluster.Errno) {
	if h.nextIdentity > cluster.MaxIdentity {
		return Identity{}, cluster.ENOSPC
	}
	i := Identity{ID: h.nextIdentity, Since: tx.Time()}
	h.nextIdentity++
	tx.Set(keyCluster, appendHead(nil, h))
	return i, cluster.OK
}

func (c *PutIdentity) run(tx *fsm.Tx, h *head) (cluster.Errno, []byte) {
	if !usable(c.Addr) || checkGroup(c.Group) != cluster.OK {
		return cluster.EINVAL, nil
	}
	if c.Home != "" {
		if _, e := member(tx, c.Home); e != cluster.OK {
			return e, nil
		}
	}
	for _, old := range (View{tx}).Identities() {
		if old.Addr.Addr() != c.Addr.Addr() {
			continue
		}
		v := appendIdentity(nil, &old)
		if old.Addr == c.Addr && old.Group == c.Group && old.Home == c.Home && !old.Retired {
			return cluster.OK, v
		}
		return cluster.EEXIST, v
	}
	i, e := newIdentity(tx, h)
	if e != cluster.OK {
		return e, nil
	}
	i.Addr, i.Group, i.Home = c.Addr, c.Group, c.Home
	return cluster.OK, putIdentity(tx, &i)
}

// usable reports whether p can be a server's address in a subnet.
func usable(p netip.Prefix) bool {
	a := p.Addr()
	return p.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.Is4In6() && a.Zone() == "" &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func checkGroup(name string) cluster.Errno {
	if name == "" {
		return cluster.OK
	}
	return checkName(name, MaxNodeName)
}

func (c *RemoveIdentity) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	i, ok := View{tx}.Identity(c.ID)
	switch {
	case !ok:
		return cluster.ENOENT, nil
	case !i.Floating():
		return cluster.EINVAL, nil
	case !i.Retired:
		i.Retired = true
		return cluster.OK, putIdentity(tx, &i)
	}
	return cluster.OK, nil
}

func (c *PurgeIdentity) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	i, ok := View{tx}.Identity(c.ID)
	switch {
	case !ok:
		return cluster.OK, nil
	case !i.Retired || i.Node != "":
		return cluster.ECONFLICT, nil
	case i.Epoch != c.Epoch:
		return cluster.EFENCED, nil
	}
	tx.Delete(identityKey(nil, i.ID))
	if !i.Floating() {
		deleteOwn(tx, &i)
	}
	dropClients(tx, i.ID)
	tx.Emit(IdentityChanged{i})
	return cluster.OK, nil
}

// deleteOwn forgets which identity is the node's, if it is this one.
func deleteOwn(tx *fsm.Tx, i *Identity) {
	if own, ok := (View{tx}).OwnIdentity(i.Home); ok && own.ID != i.ID {
		return
	}
	tx.Delete(ownKey(nil, i.Home))
}

// retireOwn takes a removed node's own identity out of service. A node of that
// name that joins later gets another one.
func retireOwn(tx *fsm.Tx, node cluster.NodeID) {
	i, ok := View{tx}.OwnIdentity(node)
	if !ok {
		return
	}
	tx.Delete(ownKey(nil, node))
	i.assign(tx, "", false)
	i.Retired = true
	putIdentity(tx, &i)
}

// assign gives the identity to a node in a new epoch.
func (i *Identity) assign(tx *fsm.Tx, node cluster.NodeID, clean bool) {
	if !clean && i.Node != "" && !slices.Contains(i.Fence, i.Node) {
		i.Fence = append(slices.Clone(i.Fence), i.Node)
	}
	i.Node = node
	i.Epoch++
	i.Serving = false
	i.Since = tx.Time()
}

func (c *AssignIdentity) run(tx *fsm.Tx, h *head) (cluster.Errno, []byte) {
	if c.Node != "" {
		n, e := member(tx, c.Node)
		if e != cluster.OK {
			return e, nil
		}
		if !n.Roles.Has(RoleNFS) {
			return cluster.EINVAL, nil
		}
	}
	i, e := c.identity(tx, h)
	if e != cluster.OK {
		return e, nil
	}
	switch {
	case i.Epoch != c.Epoch:
		return cluster.EFENCED, appendIdentity(nil, &i)
	case i.Retired && c.Node != "":
		return cluster.ECONFLICT, appendIdentity(nil, &i)
	case !i.Floating() && c.Node != "" && c.Node != i.Home:
		return cluster.EINVAL, nil
	case len(i.Fence) >= maxFence && i.Node != "" && !c.Clean:
		return cluster.ENOSPC, nil
	}
	// To take an identity from another node is for who leads now: one that led
	// before may have decided without having heard what this one hears.
	if !c.Clean && i.Node != "" && i.Node != c.Node && (c.Lead == 0 || c.Lead != h.lead) {
		return cluster.ECONFLICT, appendIdentity(nil, &i)
	}
	i.assign(tx, c.Node, c.Clean)
	return cluster.OK, putIdentity(tx, &i)
}

// identity returns the identity that the command is about.
func (c *AssignIdentity) identity(tx *fsm.Tx, h *head) (Identity, cluster.Errno) {
	if c.ID != 0 {
		i, ok := View{tx}.Identity(c.ID)
		if !ok {
			return i, cluster.ENOENT
		}
		return i, cluster.OK
	}
	if c.Node == "" {
		return Identity{}, cluster.EINVAL
	}
	if i, ok := (View{tx}).OwnIdentity(c.Node); ok {
		return i, cluster.OK
	}
	if c.Epoch != 0 {
		return Identity{}, cluster.EFENCED
	}
	i, e := newIdentity(tx, h)
	if e != cluster.OK {
		return i, e
	}
	i.Home = c.Node
	tx.Set(ownKey(nil, c.Node), identityKey(nil, i.ID)[1:])
	return i, cluster.OK
}

func (c *ServeIdentity) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	i, ok := View{tx}.Identity(c.ID)
	switch {
	case !ok:
		return cluster.ENOENT, nil
	case i.Epoch != c.Epoch:
		return cluster.EFENCED, nil
	case i.Node == "":
		return cluster.EINVAL, nil
	case i.Serving:
		return cluster.OK, appendIdentity(nil, &i)
	}
	i.Fence, i.Serving = nil, true
	return cluster.OK, putIdentity(tx, &i)
}

func (c *TakeLead) run(tx *fsm.Tx, h *head) (cluster.Errno, []byte) {
	if c.Nonce == 0 {
		return cluster.EINVAL, nil
	}
	if h.lead != c.Nonce {
		h.lead = c.Nonce
		tx.Set(keyCluster, appendHead(nil, h))
	}
	return cluster.OK, nil
}

func (c *DrainNode) run(tx *fsm.Tx, _ *head) (cluster.Errno, []byte) {
	n, e := member(tx, c.ID)
	if e != cluster.OK || n.Draining == c.Drain {
		return e, nil
	}
	n.Draining = c.Drain
	putNode(tx, &n)
	tx.Emit(NodeChanged{n})
	return cluster.OK, nil
}
