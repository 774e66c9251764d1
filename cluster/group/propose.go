package group

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
)

// Bounds of the pause before the next attempt, if the leader does not change.
const (
	minPause = 2 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// raftError maps Raft's errors: EAGAIN for those after which another node, or
// the same one later, may do better.
func raftError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrRaftShutdown):
		return ErrClosed
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost),
		errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return cluster.EAGAIN
	}
	return err
}

// pause waits before another attempt: until the leader changes, or a little
// longer each time.
func (g *Group) pause(ctx context.Context, l *leadership, attempt int) error {
	t := time.NewTimer(min(minPause<<min(attempt, 10), maxPause))
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.changed:
	case <-ctx.Done():
		return ctx.Err()
	case <-g.ctx.Done():
		return ErrClosed
	}
	return nil
}

// Propose commits a command, from any member, and returns its index and result
// when it is applied on the leader. While the outcome is not known, because a
// leader or a connection was lost, it proposes the same bytes again, until ctx
// ends: commands must be such that the state machine applies them once. When
// ctx ends first, the command may still be committed.
func (g *Group) Propose(ctx context.Context, cmd []byte) (index uint64, result []byte, err error) {
	if len(cmd) > cluster.MaxCommand {
		return 0, nil, fmt.Errorf("a command of %d bytes: %w", len(cmd), cluster.EINVAL)
	}
	for attempt := 0; ; attempt++ {
		l := g.lead.Load()
		switch {
		case g.IsLeader():
			index, result, err = g.proposeHere(ctx, cmd)
		case l.leader != "" && l.leader != g.cfg.Self:
			index, result, err = g.proposeThere(ctx, l, cmd)
		default:
			err = cluster.EAGAIN
		}
		if err == nil || errors.Is(err, ErrClosed) {
			return index, result, err
		}
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if attempt > 0 {
			g.cfg.Logger.Debug("proposing a command again", "attempt", attempt, "leader", l.leader, "err", err)
		}
		if err := g.pause(ctx, l, attempt); err != nil {
			return 0, nil, err
		}
	}
}

// proposeThere asks the leader to propose.
func (g *Group) proposeThere(ctx context.Context, l *leadership, cmd []byte) (uint64, []byte, error) {
	addr, ok := g.cfg.Resolve(l.leader)
	if !ok {
		return 0, nil, fmt.Errorf("the address of node %s is not known: %w", l.leader, cluster.EAGAIN)
	}
	r, err := g.cfg.Peer.CallUntil(ctx, l.changed, addr, peer.ServicePropose, g.cfg.ID, nil, cmd)
	if err != nil {
		if errors.Is(err, peer.ErrClosed) {
			return 0, nil, ErrClosed
		}
		return 0, nil, err
	}
	defer r.Release()
	if len(r.Head) != 8 {
		return 0, nil, fmt.Errorf("an answer with a head of %d bytes: %w", len(r.Head), cluster.EINTERNAL)
	}
	return binary.BigEndian.Uint64(r.Head), append([]byte(nil), r.Body...), nil
}

// servePropose proposes for another member.
func (g *Group) servePropose(ctx context.Context, req *peer.Request) (peer.Reply, error) {
	index, result, err := g.proposeHere(ctx, req.Body)
	if err != nil {
		if errors.Is(err, ErrClosed) {
			err = cluster.EAGAIN
		}
		return peer.Reply{}, err
	}
	g.trans.tell(raft.ServerID(req.From)) // which will wait until it has applied it
	return peer.Reply{Head: binary.BigEndian.AppendUint64(nil, index), Body: [][]byte{result}}, nil
}

// An outcome is the end of a proposal.
type outcome struct {
	index  uint64
	result []byte
	err    error
}

var outcomePool = sync.Pool{New: func() any { return make(chan outcome, 1) }}

// proposeHere proposes as the leader. The command is copied: Raft keeps it for
// followers, and a caller that gives up may use its memory again.
func (g *Group) proposeHere(ctx context.Context, cmd []byte) (uint64, []byte, error) {
	if !g.IsLeader() {
		return 0, nil, cluster.EAGAIN
	}
	weight := int64(len(cmd)) + 512
	if !g.room.TryAcquire(weight) {
		if err := g.room.Acquire(ctx, weight); err != nil {
			return 0, nil, err
		}
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		g.room.Release(weight)
		return 0, nil, ErrClosed
	}
	g.proposals.Add(1)
	g.mu.Unlock()
	data, sum := seal(cmd)
	done := outcomePool.Get().(chan outcome)
	// Raft's future does not know of contexts, so it is waited for aside. The
	// main loop gathers what many goroutines offer it into one append.
	go func() {
		f := g.raft.ApplyLog(raft.Log{Data: data, Extensions: sum}, 0)
		o := outcome{err: raftError(f.Error())}
		if o.err == nil {
			o.index = f.Index()
			switch r := f.Response().(type) {
			case []byte:
				o.result = r
			case error: // the member was stopped before it could apply
				o.err = ErrClosed
			}
		}
		g.proposals.Done()
		g.room.Release(weight)
		done <- o
	}()
	select {
	case o := <-done:
		outcomePool.Put(done)
		return o.index, o.result, o.err
	case <-g.log.tail.failing():
		// The command may be committed by others, and is applied here when it is
		// on this disk, which may be never.
		return 0, nil, fmt.Errorf("the leader cannot write its log: %w", cluster.EAGAIN)
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
}

// await runs a step of Raft's that knows nothing of contexts.
func await(ctx context.Context, wg *sync.WaitGroup, step func() error) error {
	done := make(chan error, 1)
	wg.Add(1)
	go func() {
		defer wg.Done()
		done <- step()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
