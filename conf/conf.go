// Package conf is a node's configuration: its types, defaults and rules, read
// from one YAML file and overridden by HAWSER_… environment variables.
//
// Every setting is a field of Config with a description beside it; the
// reference in docs/configuration.md and `hawser config defaults` are made
// from these, so they can't disagree.
package conf

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Config is all that a node is told. The cluster's own settings (volumes,
// classes) are not here: they are agreed on through Raft.
type Config struct {
	Node   Node   `conf:"node" desc:"this node"`
	Listen Listen `conf:"listen" desc:"where this node listens"`
	Raft   Raft   `conf:"raft" desc:"how the node takes part in agreement"`
	Store  Store  `conf:"store" desc:"the segment stores, one on each disk"`
	Repair Repair `conf:"repair" desc:"making copies anew, and moving them"`
	Pack   Pack   `conf:"pack" desc:"putting the bytes of small files together"`
	Scrub  Scrub  `conf:"scrub" desc:"verifying what is on the disks"`
	Cache  Cache  `conf:"cache" desc:"memory that the node spends on caches"`
	NFS    NFS    `conf:"nfs" desc:"the NFS front-end"`
	// Addresses comes before Health, whose takeover_after says when they move.
	Addresses Addresses `conf:"addresses" desc:"floating addresses, which clients mount and which move between the nodes"`
	Health    Health    `conf:"health" desc:"how the nodes watch each other"`
	Log       Log       `conf:"log" desc:"what the node writes to standard error"`
}

// Node says what this node is.
type Node struct {
	Name  string   `conf:"name" desc:"the node's name, unique in the cluster, kept for ever; empty: the host's name"`
	Rack  string   `conf:"rack" desc:"failure domain above the node: copies are spread over racks first"`
	Roles []string `conf:"roles" desc:"meta (may vote in Raft groups), data (stores blobs), nfs (serves clients)" oneof:"meta,data,nfs"`
	Data  string   `conf:"data" desc:"folder for the node's state: Raft logs, state machines, the admin socket"`
	Disks []string `conf:"disks" desc:"folders for file data, one on each disk; empty: DATA/disk"`
}

// Listen says where the node listens. Who reaches the peer address can join
// the cluster, who reaches an NFS address has access to every file.
type Listen struct {
	Peer      string   `conf:"peer" desc:"HOST:PORT for the other nodes; HOST is what they connect to, unless advertise says otherwise"`
	Advertise string   `conf:"advertise" desc:"HOST:PORT that the other nodes connect to; empty: listen.peer"`
	NFS       []string `conf:"nfs" desc:"HOST:PORT of each address that NFS clients mount"`
	Admin     string   `conf:"admin" desc:"Unix socket of the admin API; empty: DATA/admin.sock"`
}

// Raft says how the node takes part in agreement.
type Raft struct {
	Log               string        `conf:"log" desc:"the log store: wal (one sync for each append) or boltdb (two)" oneof:"wal,boltdb"`
	HeartbeatTimeout  time.Duration `conf:"heartbeat_timeout" desc:"how long a leader may be silent before an election" min:"100ms" max:"1m"`
	SnapshotThreshold uint64        `conf:"snapshot_threshold" desc:"log entries after which the state is flushed and the log cut" min:"64" max:"100000000"`
	TrailingLogs      uint64        `conf:"trailing_logs" desc:"log entries kept behind a snapshot, so that a node that was away need not be sent a whole state" min:"16" max:"100000000"`
}

// Store says how blobs are kept on the node's disks.
type Store struct {
	SegmentSize Size          `conf:"segment_size" desc:"size of a segment file" min:"16MiB" max:"4GiB"`
	Reserve     Size          `conf:"reserve" desc:"space on each disk that writes leave free, so that deleting always works" min:"16MiB" max:"1TiB"`
	FreeDelay   time.Duration `conf:"free_delay" desc:"how long blobs that no file uses any more are kept for readers under way" min:"0s" max:"24h"`
}

// Cache says how much memory the caches take.
type Cache struct {
	Data     Size `conf:"data" desc:"file data read from the stores" min:"16MiB" max:"4TiB"`
	Metadata Size `conf:"metadata" desc:"state machines: shared by all volumes on this node" min:"16MiB" max:"1TiB"`
	Dirty    Size `conf:"dirty" desc:"data written in relaxed directories and not yet committed" min:"16MiB" max:"64GiB"`
}

// NFS says how the front-end serves its clients.
type NFS struct {
	Lease          time.Duration `conf:"lease" desc:"how long a client may be silent before its state can be taken away" min:"10s" max:"10m"`
	MaxConnections int           `conf:"max_connections" desc:"TCP connections at a time" min:"1" max:"1000000"`
	MaxRequests    int           `conf:"max_requests" desc:"requests under way on one connection" min:"1" max:"4096"`
	MaxRequestMem  Size          `conf:"max_request_memory" desc:"memory for all requests under way" min:"16MiB" max:"1TiB"`
	MaxClients     int           `conf:"max_clients" desc:"clients that hold state at a time" min:"1" max:"1000000"`
	MaxSlots       int           `conf:"max_slots" desc:"slots of a session: requests that a client may have under way" min:"8" max:"1024"`
	GroupLookup    bool          `conf:"group_lookup" desc:"ask this node's user database for a user's groups, for users with more than the 16 that AUTH_SYS carries"`
	Delegations    string        `conf:"delegations" desc:"read: clients of NFSv4.1 and 4.2 that open a file of a relaxed directory to read it may cache it without asking again, until it is changed (docs/nfs.md); off: they ask at each open" oneof:"off,read"`
	DelegationVols []string      `conf:"delegation_volumes" desc:"names of the volumes that delegations are for; empty: all"`
	Domain         string        `conf:"domain" desc:"the domain of owners that clients give by name (NAME@DOMAIN), which this node's user database has; all nodes must know the same. Empty: numbers only, as Linux sends them"`
}

// Addresses says which floating addresses the cluster is to have, and how this
// node puts them on.
type Addresses struct {
	Floating  []string `conf:"floating" desc:"addresses that this node adds to the cluster if they are not there: each ADDRESS/PREFIX, or ADDRESS/PREFIX@GROUP to spread it with others of a group; hawser address remove removes one"`
	Interface string   `conf:"interface" desc:"network interface that floating addresses are put on; empty: the one whose subnet contains the address"`
	Failback  string   `conf:"failback" desc:"whether an address returns by itself to its home node (hawser address add --home) when that is healthy: auto, or manual" oneof:"auto,manual"`
}

// A FloatingAddress is an item of addresses.floating.
type FloatingAddress struct {
	Prefix netip.Prefix
	Group  string // may be empty
}

// ParseFloating reads ADDRESS/PREFIX or ADDRESS/PREFIX@GROUP.
func ParseFloating(s string) (a FloatingAddress, err error) {
	text, group, named := strings.Cut(s, "@")
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		if ip, e := netip.ParseAddr(text); e == nil {
			return a, fmt.Errorf("%q lacks the length of its subnet's prefix: write it like %s/%d", s, ip, ip.BitLen()*3/4)
		}
		return a, fmt.Errorf("%q is no address: write it like 10.0.0.50/24 or fd00::50/64", s)
	case named && !nodeName.MatchString(group):
		return a, fmt.Errorf("%q: a group's name is 1 to 63 letters, digits, dots, dashes and underscores", s)
	case p.Addr().IsUnspecified(), p.Addr().IsMulticast(), p.Addr().IsLoopback(), p.Addr().Is4In6():
		return a, fmt.Errorf("%q can't move between machines: use an address of the subnet that the clients reach", s)
	case p.Addr().IsLinkLocalUnicast():
		return a, fmt.Errorf("%q is link-local, which clients can't mount without naming an interface: use another one", s)
	}
	if p.Addr().Is4() && p.Bits() < 31 {
		if p.Masked().Addr() == p.Addr() || broadcast(p) == p.Addr() {
			return a, fmt.Errorf("%q is the address of a whole subnet: use one of a host's", s)
		}
	}
	return FloatingAddress{p, group}, nil
}

// broadcast is the last address of an IPv4 subnet.
func broadcast(p netip.Prefix) netip.Addr {
	ip := p.Addr().As4()
	host := uint32(1)<<(32-p.Bits()) - 1
	for i := range ip {
		ip[i] |= byte(host >> (24 - 8*i))
	}
	return netip.AddrFrom4(ip)
}

// Health says how the nodes watch each other. It decides where new data is
// placed and when addresses and locks of a lost node are taken over, never what
// is true.
type Health struct {
	TakeoverAfter time.Duration `conf:"takeover_after" desc:"silence after which a node's floating addresses are taken over by others; a node that can't reach the cluster's leader for most of that time answers no client" min:"500ms" max:"1m"`

	DownAfter  time.Duration `conf:"down_after" desc:"silence after which a node counts as down" min:"500ms" max:"10m"`
	FenceAfter time.Duration `conf:"fence_after" desc:"time that a node is down after which its front-end is fenced and the locks of clients of its own addresses are released" min:"5s" max:"24h"`
}

// Log says what the node writes to standard error.
type Log struct {
	Level  string `conf:"level" desc:"least level that is written" oneof:"debug,info,warn,error"`
	Format string `conf:"format" desc:"text or json" oneof:"text,json"`
}

// Default returns the configuration of a node that is told nothing.
func Default() Config {
	return Config{
		Node:   Node{Roles: []string{"meta", "data", "nfs"}, Data: "/var/lib/hawser"},
		Listen: Listen{Peer: "127.0.0.1:7420", NFS: []string{"127.0.0.1:2049"}},
		Raft: Raft{
			Log: "wal", HeartbeatTimeout: time.Second,
			SnapshotThreshold: 65536, TrailingLogs: 51200,
		},
		Store:  Store{SegmentSize: 256 << 20, Reserve: 1 << 30, FreeDelay: time.Minute},
		Repair: defaultRepair(),
		Pack:   defaultPack(),
		Scrub:  defaultScrub(),
		Cache:  Cache{Data: 512 << 20, Metadata: 256 << 20, Dirty: 256 << 20},
		NFS: NFS{
			Lease:          time.Minute,
			MaxConnections: 16384, MaxRequests: 128, MaxRequestMem: 1 << 30,
			MaxClients: 65536, MaxSlots: 128, Delegations: "off",
		},
		Addresses: Addresses{Failback: "manual"},
		Health:    Health{TakeoverAfter: 1500 * time.Millisecond, DownAfter: 3 * time.Second, FenceAfter: time.Minute},
		Log:       Log{Level: "info", Format: "text"},
	}
}
