package group

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
	"golang.org/x/sync/semaphore"
)

// ErrClosed is returned by operations on a closed group.
var ErrClosed = errors.New("raft group is closed")

// A Group is this node's member of a Raft group. Its methods may be called at
// any time from any goroutine.
type Group struct {
	cfg     Config
	lock    *os.File
	log     *logStore
	layer   *streamLayer
	trans   *transport
	raft    *raft.Raft
	applied applied

	lead    atomic.Pointer[leadership]
	serving atomic.Pointer[service]
	notify  chan bool             // from Raft: leadership gained or lost
	observe chan raft.Observation // from Raft: another leader is known
	local   coalescer             // read indexes as the leader
	remote  coalescer             // read indexes asked of the leader
	voters  voterCalls

	room      *semaphore.Weighted // bytes of commands under way
	proposals sync.WaitGroup      // futures of Raft's that are waited for

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	served uint64 // the last term that serve began
}

// Open starts the member from what is on disk. It does not bootstrap: a member
// without state waits to be added by the leader of an existing group.
func Open(cfg Config) (*Group, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("group %d: %w", cfg.ID, err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", cfg.ID, err)
	}
	if cfg.openDisk == nil {
		cfg.openDisk = func() (diskLog, error) {
			return openDiskLog(cfg.Log, filepath.Join(cfg.Dir, "log"), cfg.SegmentSize, cfg.Logger)
		}
	}
	disk, err := cfg.openDisk()
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("group %d: cannot open the Raft log: %w", cfg.ID, err)
	}
	log, err := newLogStore(disk)
	if err != nil {
		_, _ = disk.Close(), lock.Close()
		return nil, fmt.Errorf("group %d: cannot open the Raft log: %w", cfg.ID, err)
	}
	g := &Group{
		cfg: cfg, lock: lock, log: log,
		notify: make(chan bool, 16), observe: make(chan raft.Observation, 16),
		room: semaphore.NewWeighted(cfg.MaxProposalBytes),
	}
	if err := g.start(); err != nil {
		_ = log.Close()
		_ = lock.Close()
		return nil, fmt.Errorf("group %d: %w", cfg.ID, err)
	}
	return g, nil
}

// start checks the state on disk and starts Raft.
func (g *Group) start() error {
	cfg := &g.cfg
	at, _ := cfg.Machine.Applied()
	if err := g.log.checkStart(at); err != nil {
		return err
	}
	g.applied.init(at)
	snaps, err := newSnapshotStore(filepath.Join(cfg.Dir, "tmp"), cfg.Machine, g.log, &g.applied)
	if err != nil {
		return err
	}
	logger := newHCLog(cfg.Logger)
	g.layer = newStreamLayer(cfg)
	g.trans = newTransport(raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger: logger, Stream: g.layer, MaxPool: 3, Timeout: transportTimeout, MsgpackUseNewTimeFormat: true,
	}), g.log.tail, cfg.HeartbeatTimeout)
	fsm := &machine{sm: cfg.Machine, log: g.log, snaps: snaps, applied: &g.applied, last: at}
	g.raft, err = raft.NewRaft(&raft.Config{
		ProtocolVersion:          raft.ProtocolVersionMax,
		LocalID:                  raft.ServerID(cfg.Self),
		HeartbeatTimeout:         cfg.HeartbeatTimeout,
		ElectionTimeout:          cfg.ElectionTimeout,
		LeaderLeaseTimeout:       cfg.HeartbeatTimeout / 2,
		CommitTimeout:            cfg.CommitTimeout,
		MaxAppendEntries:         maxAppendEntries,
		TrailingLogs:             cfg.TrailingLogs,
		SnapshotInterval:         cfg.SnapshotInterval,
		SnapshotThreshold:        cfg.SnapshotThreshold,
		NotifyCh:                 g.notify,
		Logger:                   logger,
		NoSnapshotRestoreOnStart: true, // the state machine is at its index
		NoLegacyTelemetry:        true,
	}, fsm, g.log, g.log, snaps, g.trans)
	if err != nil {
		_ = g.trans.Close()
		return err
	}
	state := g.raft.State
	leads := func() bool { return state() == raft.Leader }
	g.log.tail.leads.Store(&leads)
	g.trans.state.Store(&state)
	commit := g.commitIndex
	g.trans.commit.Store(&commit)
	g.raft.RegisterObserver(raft.NewObserver(g.observe, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.local.run, g.remote.run = g.readAsLeader, g.askLeader
	g.lead.Store(&leadership{changed: make(chan struct{})})
	g.updateLeadership()
	g.wg.Add(2)
	go g.watchLeadership()
	go g.watchLog()
	for s, h := range g.handlers() {
		cfg.Peer.HandleGroup(s, cfg.ID, h)
	}
	return nil
}

// handlers are the remote services that members call.
func (g *Group) handlers() map[peer.Service]peer.Handler {
	return map[peer.Service]peer.Handler{
		peer.ServicePropose:   g.servePropose,
		peer.ServiceReadIndex: g.serveReadIndex,
		peer.ServiceTerm:      g.serveTerm,
	}
}

// ID returns the group's number.
func (g *Group) ID() cluster.GroupID { return g.cfg.ID }

// Bootstrap starts a new group with the given voters, this node among them.
// Every voter may do so, with the same voters. It does nothing if the group has
// state here already.
func (g *Group) Bootstrap(voters []Member) error {
	var c raft.Configuration
	for _, m := range voters {
		s := raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.ID)}
		if !m.Voter {
			s.Suffrage = raft.Nonvoter
		}
		c.Servers = append(c.Servers, s)
	}
	err := g.raft.BootstrapCluster(c).Error()
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("group %d: cannot bootstrap: %w", g.cfg.ID, err)
	}
	return nil
}

// WaitApplied waits until this node's state machine has applied index, which
// Propose or ReadIndex returned.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error {
	return g.applied.wait(ctx, index)
}

// Applied returns the index of the last entry that the state machine has.
func (g *Group) Applied() uint64 { return g.applied.index.Load() }

// Snapshot makes the state durable and cuts the log.
func (g *Group) Snapshot() error {
	err := g.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	return err
}

// closeTimeout bounds each of the steps of Close that depend on others.
const closeTimeout = 3 * time.Second

// Close hands leadership over if this node has it, and stops the member. The
// state machine is not used any more when it returns, and is the caller's to
// close.
func (g *Group) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.mu.Unlock()
	if g.IsLeader() {
		ctx, cancel := context.WithTimeout(g.ctx, closeTimeout)
		if err := g.TransferLeadership(ctx); err != nil {
			g.cfg.Logger.Debug("leadership was not handed over", "err", err)
		}
		cancel()
	}
	return g.stop()
}

// stop ends the member at once.
func (g *Group) stop() error {
	for s := range g.handlers() {
		g.cfg.Peer.HandleGroup(s, g.cfg.ID, nil)
	}
	g.cancel()
	g.applied.close()
	g.log.tail.end()
	// Raft forgets the futures of entries that are on their way to the state
	// machine when it is shut down, so that is let run dry first.
	drained := make(chan struct{})
	go func() {
		g.proposals.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(closeTimeout):
		g.cfg.Logger.Warn("raft group closed with commands under way")
	}
	stopped := g.raft.Shutdown()
	_ = g.trans.Close()
	err := stopped.Error()
	g.wg.Wait()
	g.local.wait()
	g.remote.wait()
	g.voters.wg.Wait()
	return errors.Join(err, g.log.Close(), g.lock.Close())
}
