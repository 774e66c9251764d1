// Package node puts a node together from its parts: the peer endpoint, the
// stores, the node's part in the cluster, the file system and the NFS
// front-end, and the administration of them all.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/group"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cluster/peer"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/datastore/blob"
)

// A Node is a running hawser server.
type Node struct {
	conf    conf.Config
	version string
	log     *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	lock    *os.File // of the data folder
	faults  faults
	peer    *peer.Endpoint
	disks   *disks
	member  *member.Node
	data    *dataPath
	scrubs  *scrubs
	packers *packers
	repairs *repairs
	admin   *admin.Server

	mu      sync.Mutex
	front   *frontEnd // nil while this node does not serve
	closing bool
}

// Start starts a node. A node that is not a member of a cluster waits for
// `hawser cluster init` or join.
func Start(c conf.Config, version string, log *slog.Logger) (_ *Node, err error) {
	n := &Node{conf: c, version: version, log: log}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.lock, err = lockFolder(c.Node.Data); err != nil {
		return nil, err
	}
	if n.disks, err = openDisks(c, log); err != nil {
		return nil, err
	}
	n.peer, err = peer.Listen(peer.Config{Self: cluster.NodeID(c.Node.Name), Listen: c.Listen.Peer, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("listen.peer %s: %w: it must be an address of this machine that no other program listens on", c.Listen.Peer, err)
	}
	n.peer.Handle(peer.ServiceBlob, n.disks.server.Handle)
	nfsAddr := ""
	if n.role("nfs") {
		nfsAddr = strings.Join(c.Listen.NFS, ",")
	}
	n.member, err = member.Start(member.Config{
		Self: cluster.NodeID(c.Node.Name), Dir: c.Node.Data, Peer: n.peer, PeerAddr: c.Listen.Advertise, NFSAddr: nfsAddr,
		Roles: roles(c.Node.Roles), Rack: c.Node.Rack, Stores: n.disks.reports,
		LogStore: group.LogStore(c.Raft.Log), HeartbeatTimeout: c.Raft.HeartbeatTimeout,
		SnapshotThreshold: c.Raft.SnapshotThreshold, TrailingLogs: c.Raft.TrailingLogs,
		CacheBytes: int64(c.Cache.Metadata), TakeoverAfter: c.Health.TakeoverAfter, DownAfter: c.Health.DownAfter,
		FenceAfter: c.Health.FenceAfter, Failback: c.Addresses.Failback == "auto", Logger: log,
	})
	if err != nil {
		return nil, err
	}
	n.repairs = newRepairs(n)
	n.peer.Handle(peer.ServiceRepair, n.repairs.handle)
	n.scrubs = newScrubs(n)
	n.data = newDataPath(n.member, n.disks, n.peer, n.scrubs.report, log)
	n.disks.server.Pulls(n.data.client, blob.PullLimits{Concurrent: 8, Rate: int64(c.Repair.Rate)})
	n.peer.Handle(peer.ServiceScrub, n.scrubs.handle)
	n.wg.Go(func() { n.scrubs.tell(n.ctx) })
	n.packers = &packers{n: n, of: map[cluster.VolumeID]*packer{}}
	n.member.OnVolume(func(v *member.Volume) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.closing {
			n.wg.Go(func() { n.data.collect(n.ctx, v, c.Store.FreeDelay) })
			n.repairs.start(v)
			n.wg.Go(func() { n.packers.run(v) })
		}
	})
	n.wg.Go(n.run)
	if n.admin, err = admin.Listen(c.Listen.Admin, &backend{n}, log); err != nil {
		return nil, err
	}
	log.Info("hawser started", "version", version, "node", c.Node.Name, "peer", c.Listen.Peer, "member", n.member.Member())
	return n, nil
}

// handoverTimeout bounds how long a node that stops waits for others to take
// its floating addresses.
const handoverTimeout = 5 * time.Second

// Close stops the node in order: its floating addresses go to other nodes, then
// clients are served no more, then the groups that it leads and its stores end.
func (n *Node) Close() error {
	n.mu.Lock()
	n.closing = true
	front := n.front
	n.mu.Unlock()
	if front != nil {
		ctx, cancel := context.WithTimeout(n.ctx, handoverTimeout)
		// Without it the others take them by force, a second later.
		if err := front.handOver(ctx); err != nil {
			n.log.Warn("not all floating addresses were handed over", "err", err)
		}
		cancel()
	}
	n.cancel()
	var faults []error
	if n.admin != nil {
		faults = append(faults, n.admin.Close())
	}
	n.wg.Wait()
	if n.member != nil {
		faults = append(faults, n.member.Close())
	}
	if n.peer != nil {
		faults = append(faults, n.peer.Close())
	}
	if n.disks != nil {
		faults = append(faults, n.disks.close())
	}
	if n.lock != nil {
		faults = append(faults, n.lock.Close())
	}
	return errors.Join(faults...)
}

func (n *Node) role(name string) bool {
	for _, r := range n.conf.Node.Roles {
		if r == name {
			return true
		}
	}
	return false
}

func roles(names []string) (r registry.Roles) {
	for _, name := range names {
		switch name {
		case "meta":
			r |= registry.RoleMeta
		case "data":
			r |= registry.RoleData
		case "nfs":
			r |= registry.RoleNFS
		}
	}
	return r
}

// run serves clients whenever this node is ready to, and keeps the stores'
// ids. A front-end that was fenced is replaced by a new one, which takes over
// what the old one's clients had.
func (n *Node) run() {
	n.wg.Go(func() { n.disks.follow(n.ctx, cluster.NodeID(n.conf.Node.Name), n.member, &n.faults, n.scrubs.begin) })
	n.wg.Go(n.addConfigured)
	if !n.role("nfs") {
		return
	}
	for n.ctx.Err() == nil {
		if err := n.member.Ready(n.ctx); err != nil {
			if !errors.Is(err, member.ErrNotMember) && n.ctx.Err() == nil {
				n.log.Warn("this node is not ready to serve", "err", err)
			}
			pause(n.ctx, 100*time.Millisecond)
			continue
		}
		if n.placeable(n.ctx) != nil {
			continue
		}
		f, err := n.startFrontEnd()
		if err != nil {
			if n.ctx.Err() == nil && n.faults.set(partNFS, err.Error()) {
				n.log.Error("the NFS front-end can't start; it will be tried again", "err", err)
			}
			pause(n.ctx, time.Second)
			continue
		}
		n.faults.set(partNFS, "")
		n.mu.Lock()
		n.front = f
		n.mu.Unlock()
		select {
		case <-n.ctx.Done():
		case <-f.over:
			n.log.Warn("this front-end starts anew", "why", f.why)
		}
		n.mu.Lock()
		n.front = nil
		n.mu.Unlock()
		if err := f.close(); err != nil {
			n.log.Error("the front-end did not stop in order", "err", err)
		}
	}
}

// frontEnd returns the front-end that serves now, nil if none does.
func (n *Node) frontEnd() *frontEnd {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.front
}

// partNFS names the front-end among a node's faults.
const partNFS = "this node does not serve NFS"

// pause waits for d, and reports false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
