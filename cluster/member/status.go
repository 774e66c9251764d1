package member

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/group"
)

// A Status is the cluster as this node sees it.
type Status struct {
	Self    cluster.NodeID `json:"self"`
	Member  bool           `json:"member"`
	UUID    string         `json:"uuid,omitempty"`
	Name    string         `json:"name,omitempty"`
	Nodes   []NodeStatus   `json:"nodes,omitempty"`
	Stores  []StoreStatus  `json:"stores,omitempty"`
	Groups  []GroupStatus  `json:"groups,omitempty"`
	Volumes []VolumeStatus `json:"volumes,omitempty"`
	// Identities are the floating addresses and the nodes' own.
	Identities []IdentityStatus `json:"identities,omitempty"`
	// Problems says in a sentence each what is not as it should be.
	Problems []string `json:"problems"`
}

// A NodeStatus is a node.
type NodeStatus struct {
	ID       cluster.NodeID `json:"id"`
	PeerAddr string         `json:"peer_addr"`
	NFSAddr  string         `json:"nfs_addr"`
	Roles    string         `json:"roles"`
	Rack     string         `json:"rack,omitempty"`
	State    string         `json:"state"`
	Since    time.Time      `json:"since"`
	Draining bool           `json:"draining,omitempty"`  // it gets no floating address
	FrontEnd bool           `json:"front_end,omitempty"` // as far as the leader has heard
}

// An IdentityStatus is a floating address, or a node's own addresses.
type IdentityStatus struct {
	ID      cluster.IdentityID `json:"id"`
	Address string             `json:"address,omitempty"` // with the prefix's length; empty: those of node Home
	Group   string             `json:"group,omitempty"`
	Home    cluster.NodeID     `json:"home,omitempty"`
	Node    cluster.NodeID     `json:"node,omitempty"` // that serves it
	State   string             `json:"state"`          // serving, taking over, unserved or removing
	Since   time.Time          `json:"since"`          // of the epoch
	Epoch   uint32             `json:"epoch"`
	Clients int                `json:"clients"`
}

// A StoreStatus is a store: a disk of a node.
type StoreStatus struct {
	ID       cluster.StoreID `json:"id"`
	Node     cluster.NodeID  `json:"node"`
	UUID     string          `json:"uuid"`
	State    string          `json:"state"`
	Capacity uint64          `json:"capacity"` // bytes
	Used     uint64          `json:"used"`     // bytes
}

// A GroupStatus is a Raft group as its member on this node sees it.
type GroupStatus struct {
	ID      cluster.GroupID `json:"id"`
	Leader  cluster.NodeID  `json:"leader"`
	Role    string          `json:"role"` // of this node
	Term    uint64          `json:"term"`
	Applied uint64          `json:"applied"` // on this node
	Members []MemberStatus  `json:"members"`
}

// A MemberStatus is a node's part in a group.
type MemberStatus struct {
	Node    cluster.NodeID `json:"node"`
	Voter   bool           `json:"voter"`
	Applied uint64         `json:"applied"` // as it said last
}

// A VolumeStatus is a volume. Its class is its root's.
type VolumeStatus struct {
	ID          cluster.VolumeID `json:"id"`
	Name        string           `json:"name"`
	Consistency string           `json:"consistency"`
	Copies      uint8            `json:"copies"`
	Files       uint64           `json:"files"`
	Bytes       uint64           `json:"bytes"` // of data, one copy counted
	Sets        SetsStatus       `json:"replica_sets"`
}

// SetsStatus counts a volume's replica sets by health. Those that hold no data
// are healthy: their members don't matter to anyone.
type SetsStatus struct {
	Healthy  int `json:"healthy"`  // all members up
	Degraded int `json:"degraded"` // some member down
	Lost     int `json:"lost"`     // no member up
	Reduced  int `json:"reduced"`  // hold data with fewer members than copies are asked for
	Moving   int `json:"moving"`   // hold data and are read-only, while a member is exchanged
}

// Status returns the cluster as this node sees it. It asks no other node, so
// that it answers also when there is no majority.
func (n *Node) Status() Status {
	s := Status{Self: n.cfg.Self, Member: n.Member(), Problems: []string{}}
	zero, err := n.group0()
	if err != nil {
		s.Problems = append(s.Problems, err.Error())
		return s
	}
	problem := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	r := registry.View{Reader: zero.machine.Reader()}
	c, _ := r.Cluster()
	s.UUID, s.Name = c.ID(), c.Name
	n.mu.RLock()
	t := n.table
	n.mu.RUnlock()
	for _, node := range r.Nodes() {
		s.Nodes = append(s.Nodes, NodeStatus{
			ID: node.ID, PeerAddr: node.PeerAddr, NFSAddr: node.NFSAddr, Roles: node.Roles.String(), Rack: node.Rack,
			State: node.State.String(), Since: time.Unix(0, int64(node.Since)).UTC(),
			Draining: node.Draining, FrontEnd: t.FrontEnds[node.ID],
		})
		if node.State == registry.NodeDown {
			problem("node %s is down since %s", node.ID, time.Unix(0, int64(node.Since)).UTC().Format(time.RFC3339))
		}
	}
	for _, store := range r.Stores() {
		if node, ok := r.Node(store.Node); store.State == registry.StoreRemoved || ok && node.State == registry.NodeRemoved {
			continue
		}
		soft := t.Stores[store.ID]
		state := store.State.String()
		if store.State != registry.StoreFailed && !soft.Up {
			state = "down"
		}
		if store.Draining {
			state += ", draining"
		}
		s.Stores = append(s.Stores, StoreStatus{
			ID: store.ID, Node: store.Node, UUID: hex.EncodeToString(store.UUID[:]), State: state,
			Capacity: max(soft.Capacity, store.Capacity), Used: soft.Used,
		})
		switch {
		case store.State == registry.StoreFailed:
			problem("store %d on node %s has failed: its disk must be replaced", store.ID, store.Node)
		case !soft.Up && t.Up[store.Node]:
			problem("store %d is down, and its node %s is up: its disk is missing there", store.ID, store.Node)
		case soft.Full:
			problem("store %d on node %s is full: delete files, or give the cluster more disks", store.ID, store.Node)
		}
	}
	for _, i := range r.Identities() {
		is := identityStatus(r, i)
		s.Identities = append(s.Identities, is)
		if !i.Floating() {
			continue
		}
		if owner, ok := ownedBy(r, i.Addr.Addr()); ok {
			problem("floating address %s is also node %s's own: remove it, or give the node another", i.Addr, owner)
		}
		switch is.State {
		case stateUnserved:
			problem("address %s is served by nobody: a node with the role nfs must be up and not be drained", i.Addr)
		case stateTaking:
			if taking := time.Since(is.Since); taking > slowTakeover {
				problem("node %s takes address %s over since %s: every volume's group must have a leader", i.Node, i.Addr, is.Since.Format(time.RFC3339))
			}
		}
	}
	s.Groups = append(s.Groups, groupStatus(zero.group, t))
	for _, v := range n.Volumes() {
		s.Groups = append(s.Groups, groupStatus(v.Group, t))
		s.Volumes = append(s.Volumes, n.volumeStatus(v))
	}
	for _, g := range s.Groups {
		if g.Leader == "" {
			what := "a majority of its voters must be up and reach each other"
			if g.ID == cluster.ClusterGroup {
				what += "; what is said here of nodes and stores is as it was before"
			}
			problem("group %d has no leader: %s", g.ID, what)
			continue
		}
		for _, m := range g.Members {
			switch has, runs := t.Applied[m.Node][g.ID]; {
			case !t.Up[m.Node]:
			case !runs:
				problem("node %s does not run group %d yet", m.Node, g.ID)
			case has+caughtUp < g.Applied:
				problem("node %s is %d entries behind in group %d, and catches up", m.Node, g.Applied-has, g.ID)
			}
		}
	}
	for _, v := range s.Volumes {
		if v.Sets.Lost > 0 {
			problem("volume %s: %d replica sets have no member up: their data can't be read now", v.Name, v.Sets.Lost)
		}
		if v.Sets.Degraded > 0 {
			problem("volume %s: %d replica sets have a member down", v.Name, v.Sets.Degraded)
		}
	}
	return s
}

// The states of an identity.
const (
	stateServing  = "serving"
	stateTaking   = "taking over"
	stateUnserved = "unserved"
	stateRemoving = "removing"
)

// slowTakeover is how long a node takes an identity over before it is a problem.
const slowTakeover = 10 * time.Second

func identityStatus(r registry.View, i registry.Identity) IdentityStatus {
	s := IdentityStatus{
		ID: i.ID, Group: i.Group, Home: i.Home, Node: i.Node, State: stateTaking, Since: time.Unix(0, int64(i.Since)).UTC(),
		Epoch: i.Epoch, Clients: r.ClientCount(i.ID),
	}
	if i.Floating() {
		s.Address = i.Addr.String()
	}
	switch {
	case i.Retired:
		s.State = stateRemoving
	case i.Node == "":
		s.State = stateUnserved
	case i.Serving:
		s.State = stateServing
	}
	return s
}

func groupStatus(g *group.Group, t table) GroupStatus {
	st := g.Stats()
	out := GroupStatus{ID: st.ID, Leader: st.Leader, Role: string(st.Role), Term: st.Term, Applied: st.Applied}
	for _, m := range st.Members {
		out.Members = append(out.Members, MemberStatus{Node: m.ID, Voter: m.Voter, Applied: t.Applied[m.ID][st.ID]})
	}
	return out
}

func (n *Node) volumeStatus(v *Volume) VolumeStatus {
	view := v.View()
	usage, class := view.Usage(), v.Class()
	out := VolumeStatus{
		ID: v.Info.ID, Name: v.Info.Name, Consistency: class.Consistency.String(), Copies: class.Copies,
		Files: usage.Inodes, Bytes: usage.Bytes,
	}
	for _, s := range view.ReplicaSets() {
		up, used := 0, view.HasBlobs(s.ID)
		for _, m := range s.Members {
			if _, ok := n.Addr(m); ok {
				up++
			}
		}
		switch {
		case up == len(s.Members) || !used:
			out.Sets.Healthy++
		case up == 0:
			out.Sets.Lost++
		default:
			out.Sets.Degraded++
		}
		if used && len(s.Members) < int(s.Copies) {
			out.Sets.Reduced++
		}
		if used && s.State == volume.ReadOnly {
			out.Sets.Moving++
		}
	}
	return out
}
