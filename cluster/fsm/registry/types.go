package registry

import (
	"encoding/hex"
	"strings"

	"github.com/hawserfs/hawser/cluster"
)

// A UUID names a cluster or a store: 16 random bytes.
type UUID = [16]byte

// A Cluster is the cluster's identity. It never changes.
type Cluster struct {
	UUID    UUID
	Name    string
	Key     [32]byte // of the MAC in file handles
	Created cluster.Time
}

// ID returns the UUID in hexadecimal: what nodes tell each other when they
// connect.
func (c *Cluster) ID() string { return hex.EncodeToString(c.UUID[:]) }

// Roles are what a node does.
type Roles uint8

// The roles.
const (
	RoleMeta Roles = 1 << iota // may be a Raft voter
	RoleData                   // stores blobs
	RoleNFS                    // is a front-end

	AllRoles = RoleMeta | RoleData | RoleNFS
)

// Has reports whether all of r are among the roles.
func (s Roles) Has(r Roles) bool { return s&r == r }

// String returns the roles as "meta,data,nfs".
func (s Roles) String() string {
	var names []string
	for i, name := range []string{"meta", "data", "nfs"} {
		if s.Has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// A NodeState says what is thought of a node.
type NodeState uint8

// The states of a node.
const (
	NodeUp NodeState = iota
	NodeDown
	NodeRemoved
)

// String returns "up", "down" or "removed".
func (s NodeState) String() string {
	if s > NodeRemoved {
		return "unknown"
	}
	return [...]string{"up", "down", "removed"}[s]
}

// A Node is a member of the cluster, or was one.
type Node struct {
	ID       cluster.NodeID
	PeerAddr string // host:port for other nodes
	NFSAddr  string // host:port for clients; empty if it is no front-end
	Roles    Roles
	Rack     string // failure domain above the node; may be empty
	State    NodeState
	Since    cluster.Time // of the state
	Joined   cluster.Time
	// Incarnation tells the node's data folder from every other that ever had
	// its name: a node that lost its Raft log must not vote in its stead.
	Incarnation UUID
	Draining    bool // it is to be given no floating address
}

// A StoreState says what is thought of a store.
type StoreState uint8

// The states of a store.
const (
	StoreUp      StoreState = iota
	StoreDown               // its node is up without it
	StoreFailed             // its disk has failed: nothing more is written to it
	StoreRemoved            // it was taken out, for good
)

// String returns "up", "down", "failed" or "removed".
func (s StoreState) String() string {
	if s > StoreRemoved {
		return "unknown"
	}
	return [...]string{"up", "down", "failed", "removed"}[s]
}

// A Store is a disk of a node.
type Store struct {
	ID       cluster.StoreID
	UUID     UUID
	Node     cluster.NodeID
	Capacity uint64 // bytes
	Used     uint64 // bytes, as last reported
	State    StoreState
	Since    cluster.Time // of the state; 0: from before that was noted
	Draining bool         // it is to be emptied
}

// An FSID tells volumes apart for NFS clients (RFC 8881 §5.8.1.9). Major is
// the cluster's, and never 0; Minor is the volume's number.
type FSID struct {
	Major, Minor uint64
}

// A Volume is a file system.
type Volume struct {
	ID      cluster.VolumeID
	Name    string
	FSID    FSID
	Class   cluster.Class // of its root directory when it was made
	Created cluster.Time
	Voters  []cluster.NodeID // the members that its group begins with
}

// Limits.
const (
	MaxNodeName   = 64  // bytes in a node's name
	MaxVolumeName = 64  // bytes in a volume's name
	MaxAddr       = 255 // bytes in an address, a rack's or the cluster's name
	MaxVoters     = 5   // of a group
)

// CheckName returns an error unless name can be that of a volume or a node:
// letters, digits, '.', '_' and '-', of which the first is a letter or digit.
// It is ENAMETOOLONG for more than limit bytes and EBADNAME for anything else.
func CheckName(name string, limit int) error { return checkName(name, limit).Err() }

func checkName(name string, limit int) cluster.Errno {
	if len(name) > limit {
		return cluster.ENAMETOOLONG
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return cluster.EBADNAME
		}
	}
	if name == "" {
		return cluster.EBADNAME
	}
	return cluster.OK
}

// A NodeChanged event says that a node was added or changed.
type NodeChanged struct{ Node Node }

// A StoreChanged event says that a store was added or changed.
type StoreChanged struct{ Store Store }

// A VolumeCreated event says that a volume is new.
type VolumeCreated struct{ Volume Volume }
