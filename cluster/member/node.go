package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/group"
	"github.com/hawserfs/hawser/cluster/peer"
)

// Config says who a node is and what it may use.
type Config struct {
	Self     cluster.NodeID
	Dir      string // the node's state; the Raft groups are below it
	Peer     *peer.Endpoint
	PeerAddr string // where other nodes reach Peer
	NFSAddr  string // where clients mount; for status only
	Roles    registry.Roles
	Rack     string
	// Stores reports the node's stores, and is called with every heartbeat.
	Stores func() []StoreReport

	LogStore          group.LogStore
	HeartbeatTimeout  time.Duration // of the Raft groups
	SnapshotThreshold uint64
	TrailingLogs      uint64
	CacheBytes        int64 // for the state machine of each group
	// TakeoverAfter is the silence after which the floating addresses of a node
	// are given to others; default 1.5 s, and less than DownAfter.
	TakeoverAfter time.Duration
	DownAfter     time.Duration
	FenceAfter    time.Duration
	// Failback gives floating addresses back to their home once that is well.
	Failback bool
	Logger   *slog.Logger
}

// Timing of the node's own loops.
const (
	dutiesEvery    = 500 * time.Millisecond
	suspectAfter   = time.Second
	snapshotEvery  = 10 * time.Second // between looks at a log's length
	proposeTimeout = 10 * time.Second
)

// ErrNotMember says that the node belongs to no cluster yet.
var ErrNotMember = errors.New("this node is not a member of a cluster: run `hawser cluster init` on the first node, or `hawser cluster join ADDRESS`")

// A Node is this node's part in the cluster.
type Node struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // the duties have something to do

	admission sync.Mutex // one Init or Join at a time

	mu       sync.RWMutex
	id       identity
	zero     *groupMember
	volumes  map[cluster.VolumeID]*Volume
	onVolume []*volumeHook
	opened   chan struct{} // closed and replaced when a group was opened
	table    table         // the leader of group 0's latest answer

	watchMu sync.Mutex
	watcher *watcher
	lead    lead

	confirmed confirmations
	confirmer *confirmer
	valid     validity
	beatNow   chan struct{} // a heartbeat is wanted before its time
	hooks     hooks
	conns     connTable
	releasing releasing
}

// groupMember is a group that runs here.
type groupMember struct {
	group   *group.Group
	machine *fsm.Machine
}

// Start opens what is on disk. A node that is not a member is idle until Init
// or Join.
func Start(cfg Config) (*Node, error) {
	id, err := loadIdentity(cfg.Dir, cfg.Self)
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.TakeoverAfter <= 0 {
		cfg.TakeoverAfter = 1500 * time.Millisecond
	}
	n := &Node{
		cfg: cfg, log: cfg.Logger.With("node", cfg.Self), id: id,
		wake: make(chan struct{}, 1), opened: make(chan struct{}),
		volumes: map[cluster.VolumeID]*Volume{},
		watcher: newWatcher(suspectAfter, cfg.DownAfter),
		beatNow: make(chan struct{}, 1), confirmer: newConfirmer(),
	}
	n.conns.wake = make(chan struct{}, 1)
	n.valid.start = time.Now()
	n.confirmed.begin(n.valid.start)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	cfg.Peer.SetClusterID(id.Cluster)
	cfg.Peer.Handle(peer.ServiceMember, n.serve)
	if id.Cluster != "" {
		if err := n.openZero(); err != nil {
			n.cancel()
			return nil, err
		}
	}
	n.wg.Go(n.heartbeats)
	n.wg.Go(n.duties)
	n.wg.Go(n.identities)
	n.wg.Go(n.keeper)
	n.wg.Go(n.tellConns)
	return n, nil
}

// Close hands over what this node leads and closes its groups.
func (n *Node) Close() error {
	n.mu.Lock() // no request of another node begins any more
	n.cancel()
	n.mu.Unlock()
	n.cfg.Peer.Handle(peer.ServiceMember, nil)
	n.wg.Wait()
	n.mu.Lock()
	volumes, zero := n.volumes, n.zero
	n.volumes, n.zero = map[cluster.VolumeID]*Volume{}, nil
	n.mu.Unlock()
	// Handing over takes a moment each, so the groups do it side by side.
	var wg sync.WaitGroup
	faults := make([]error, len(volumes)+1)
	next := 1
	for _, v := range volumes {
		i := next
		next++
		wg.Go(func() { faults[i] = (&groupMember{group: v.Group, machine: v.Machine}).close() })
	}
	wg.Wait()
	if zero != nil {
		faults[0] = zero.close()
	}
	return errors.Join(faults...)
}

func (g *groupMember) close() error { return errors.Join(g.group.Close(), g.machine.Close()) }

// Self returns the node's name.
func (n *Node) Self() cluster.NodeID { return n.cfg.Self }

// Member reports whether the node belongs to a cluster.
func (n *Node) Member() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.id.Cluster != ""
}

// openGroup opens group id's state machine and its member of the group.
func (n *Node) openGroup(id cluster.GroupID, core fsm.Core) (*groupMember, error) {
	dir := filepath.Join(n.cfg.Dir, "groups", fmt.Sprint(uint32(id)))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	log := n.log.With("group", uint32(id))
	machine, err := fsm.Open(fsm.Options{
		Dir: filepath.Join(dir, "state"), Core: core, CacheBytes: n.cfg.CacheBytes, Logger: log,
		// Up to four memtables may be full at a time, in each group.
		MemTableBytes: uint64(min(max(n.cfg.CacheBytes/4, 4<<20), 64<<20)),
	})
	if err != nil {
		return nil, err
	}
	machine.Subscribe(func(uint64, []any) { n.poke() })
	silence := n.cfg.HeartbeatTimeout
	if id == cluster.ClusterGroup && n.cfg.TakeoverAfter/2 < silence {
		// Its followers wait once or twice as long for another leader. That one
		// is to be there when the addresses of the last one are due.
		silence = n.cfg.TakeoverAfter / 2
	}
	g, err := group.Open(group.Config{
		ID: id, Self: n.cfg.Self, Dir: dir, Log: n.cfg.LogStore, Peer: n.cfg.Peer,
		Resolve: n.resolve, Machine: machine, Logger: log,
		HeartbeatTimeout: silence, SnapshotInterval: snapshotEvery, SnapshotThreshold: n.cfg.SnapshotThreshold, TrailingLogs: n.cfg.TrailingLogs,
	})
	if err != nil {
		return nil, errors.Join(err, machine.Close())
	}
	return &groupMember{group: g, machine: machine}, nil
}

// openZero opens group 0 here, unless it is open, and bootstraps it on the
// founder.
func (n *Node) openZero() error {
	if _, err := n.group0(); err == nil {
		return nil
	}
	m, err := n.openGroup(cluster.ClusterGroup, registry.New())
	if err != nil {
		return err
	}
	n.mu.RLock()
	founder := n.id.Founder
	n.mu.RUnlock()
	if founder {
		if err := m.group.Bootstrap([]group.Member{{ID: n.cfg.Self, Voter: true}}); err != nil {
			return errors.Join(err, m.close())
		}
	}
	n.mu.Lock()
	n.zero = m
	n.announceLocked()
	n.mu.Unlock()
	n.poke()
	return nil
}

// announceLocked wakes those who wait for a group to open.
func (n *Node) announceLocked() {
	close(n.opened)
	n.opened = make(chan struct{})
}

// poke makes the duties run soon.
func (n *Node) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// resolve returns where a node's peer endpoint is.
func (n *Node) resolve(id cluster.NodeID) (string, bool) {
	if id == n.cfg.Self {
		return n.cfg.PeerAddr, true
	}
	n.mu.RLock()
	zero, addr := n.zero, n.id.Peers[id]
	n.mu.RUnlock()
	if zero != nil {
		if node, ok := (registry.View{Reader: zero.machine.Reader()}).Node(id); ok {
			addr = node.PeerAddr
		}
	}
	return addr, addr != ""
}

// group0 returns group 0 here.
func (n *Node) group0() (*groupMember, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.zero == nil {
		return nil, ErrNotMember
	}
	return n.zero, nil
}

// Registry returns the cluster's records as this node has them.
func (n *Node) Registry() (registry.View, error) {
	zero, err := n.group0()
	if err != nil {
		return registry.View{}, err
	}
	return registry.View{Reader: zero.machine.Reader()}, nil
}

// RegistryAt returns the cluster's records as of now, agreed on with the others.
func (n *Node) RegistryAt(ctx context.Context) (registry.View, error) {
	zero, err := n.group0()
	if err != nil {
		return registry.View{}, err
	}
	index, err := zero.group.ReadIndex(ctx)
	if err != nil {
		return registry.View{}, err
	}
	if err := zero.group.WaitApplied(ctx, index); err != nil {
		return registry.View{}, err
	}
	return registry.View{Reader: zero.machine.Reader()}, nil
}

// propose commits a command that may be repeated, and returns its result's body.
func propose(ctx context.Context, g *group.Group, body fsm.Body) ([]byte, error) {
	return proposeAt(ctx, cluster.Time(time.Now().UnixNano()), g, body)
}

func proposeAt(ctx context.Context, now cluster.Time, g *group.Group, body fsm.Body) ([]byte, error) {
	cmd := fsm.AppendCommand(nil, fsm.Envelope{Kind: body.Kind(), Time: now}, body)
	index, result, err := g.Propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if err := g.WaitApplied(ctx, index); err != nil {
		return nil, err
	}
	return fsm.SplitResult(result)
}

// propose0 commits a command that may be repeated in group 0.
func (n *Node) propose0(ctx context.Context, body fsm.Body) ([]byte, error) {
	zero, err := n.group0()
	if err != nil {
		return nil, err
	}
	return propose(ctx, zero.group, body)
}

// Addr returns where the store's node is reached, and whether the store is
// thought to be up.
func (n *Node) Addr(id cluster.StoreID) (addr string, up bool) {
	r, err := n.Registry()
	if err != nil {
		return "", false
	}
	s, ok := r.Store(id)
	if !ok {
		return "", false
	}
	addr, ok = n.resolve(s.Node)
	n.mu.RLock()
	soft, known := n.table.Stores[id]
	n.mu.RUnlock()
	return addr, ok && (!known || soft.Up)
}
