package group

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A transport is Raft's network transport with what this package adds: commit
// indexes that are on the leader's disk, a settled log before entries are
// acknowledged, and pipelines that cannot get stuck.
type transport struct {
	*raft.NetworkTransport
	tail      *tailLog
	heartbeat time.Duration // after which a follower misses the leader
	state     atomic.Pointer[func() raft.RaftState]
	commit    atomic.Pointer[func() uint64]

	rpcs    chan raft.RPC // to Raft's main goroutine
	stop    chan struct{}
	stopped chan struct{}
	once    sync.Once

	mu        sync.Mutex
	pipelines map[raft.ServerID]*pipeline // open ones, by follower
}

func newTransport(n *raft.NetworkTransport, tail *tailLog, heartbeat time.Duration) *transport {
	t := &transport{
		NetworkTransport: n, tail: tail, heartbeat: heartbeat,
		rpcs: make(chan raft.RPC), stop: make(chan struct{}), stopped: make(chan struct{}),
		pipelines: make(map[raft.ServerID]*pipeline),
	}
	go t.forward()
	return t
}

// Consumer returns the channel of other members' requests.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// forward hands other members' requests to Raft. Before one that has entries the
// tail of the log is made durable: Raft acknowledges entries that it has.
func (t *transport) forward() {
	defer close(t.stopped)
	for {
		var rpc raft.RPC
		select {
		case rpc = <-t.NetworkTransport.Consumer():
		case <-t.stop:
			return
		}
		if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && len(a.Entries) > 0 && t.tail.pending() && on(ruleSettle) {
			if err := t.tail.settle(nil); err != nil {
				rpc.Respond(nil, fmt.Errorf("the end of the log cannot be written: %w", err))
				continue
			}
		}
		select {
		case t.rpcs <- rpc:
		case <-t.stop:
			return
		}
	}
}

// SetHeartbeatHandler sets what answers heartbeats aside of Raft's main
// goroutine. It raises the term and makes a leader a follower. If that came
// while the main goroutine gives new entries their term, they would be entries
// of another leader's term, so a member that does not follow answers in the
// main goroutine, unless that is stuck.
func (t *transport) SetHeartbeatHandler(answer func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if state := t.state.Load(); state != nil && (*state)() != raft.Follower {
			patience := time.NewTimer(t.heartbeat / 2)
			defer patience.Stop()
			select {
			case t.rpcs <- rpc:
				return
			case <-t.stop:
				return
			case <-patience.C:
			}
		}
		answer(rpc)
	})
}

// AppendEntries sends a request to a member and waits for the answer.
func (t *transport) AppendEntries(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	t.clamp(req)
	return t.NetworkTransport.AppendEntries(id, addr, req, resp)
}

// clamp takes back the commit index of a request to what is on this leader's
// disk, and to what the follower has with this request: what its log has behind
// that may be of a dead term. Requests have one goroutine each that may change
// them.
func (t *transport) clamp(req *raft.AppendEntriesRequest) {
	if synced := t.tail.synced.Load(); req.LeaderCommitIndex > synced && on(ruleClamp) {
		req.LeaderCommitIndex = synced
	}
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, says(req).index)
}

// AppendEntriesPipeline opens a pipeline to a member.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, addr)
	if err != nil {
		return nil, err
	}
	p := (&pipeline{
		AppendPipeline: inner, clamp: t.clamp, commit: t.committed, quiet: min(maxQuiet, t.heartbeat/40),
		closed: func(p *pipeline) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.pipelines[id] == p {
				delete(t.pipelines, id)
			}
		},
	}).open()
	t.mu.Lock()
	t.pipelines[id] = p
	t.mu.Unlock()
	return p, nil
}

// committed returns the index up to which entries are committed as far as this
// member knows.
func (t *transport) committed() uint64 {
	if commit := t.commit.Load(); commit != nil {
		return (*commit)()
	}
	return 0
}

// tell tells a member the commit index soon, if it is a follower of this leader.
func (t *transport) tell(id raft.ServerID) {
	t.mu.Lock()
	p := t.pipelines[id]
	t.mu.Unlock()
	if p != nil {
		p.tell()
	}
}

// Close ends the transport and its connections.
func (t *transport) Close() error {
	err := t.NetworkTransport.Close()
	t.once.Do(func() { close(t.stop) })
	<-t.stopped
	return err
}
