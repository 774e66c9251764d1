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

// A linearizable read needs an index that covers every command that was
// acknowledged before the read began. The leader of term T, after its barrier,
// takes its commit index and then asks the voters for their current term. If a
// majority, itself included, is at T, no later leader had been elected when the
// first of them answered: its majority would have shared a voter with this one,
// and that voter's term would be higher. So nothing had been acknowledged but by
// this leader, up to the index taken. Answers count only if they were asked for
// after the index was taken; no clock is involved.

// ReadIndex returns an index such that a read of a state machine that has
// applied it is linearizable. Concurrent calls share rounds.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) {
	for attempt := 0; ; attempt++ {
		l := g.lead.Load()
		c := &g.remote
		if g.IsLeader() {
			c = &g.local
		}
		index, err := c.join(ctx)
		if err == nil {
			return index, nil
		}
		if errors.Is(err, ErrClosed) || ctx.Err() != nil {
			return 0, err
		}
		if err := g.pause(ctx, l, attempt); err != nil {
			return 0, err
		}
	}
}

// roundTimeout bounds one round.
func (g *Group) roundTimeout() time.Duration { return g.cfg.HeartbeatTimeout }

// readAsLeader runs one round on the leader.
func (g *Group) readAsLeader() (uint64, error) {
	if g.ctx.Err() != nil {
		return 0, ErrClosed
	}
	s := g.serving.Load()
	if s == nil || !g.leads(s.term) {
		return 0, cluster.EAGAIN
	}
	index := g.commitIndex()
	if err := g.confirm(s.term); err != nil {
		return 0, err
	}
	// Entries of earlier terms and the barrier itself may be ones that no state
	// machine sees and so no Applied reaches; what they cover is in the floor.
	if index <= s.barrier {
		index = s.floor
	}
	return index, nil
}

// askLeader runs one round on another member.
func (g *Group) askLeader() (uint64, error) {
	if g.ctx.Err() != nil {
		return 0, ErrClosed
	}
	l := g.lead.Load()
	if l.leader == "" || l.leader == g.cfg.Self {
		return 0, cluster.EAGAIN
	}
	addr, ok := g.cfg.Resolve(l.leader)
	if !ok {
		return 0, fmt.Errorf("the address of node %s is not known: %w", l.leader, cluster.EAGAIN)
	}
	ctx, cancel := context.WithTimeout(g.ctx, 2*g.roundTimeout())
	defer cancel()
	r, err := g.cfg.Peer.CallUntil(ctx, l.changed, addr, peer.ServiceReadIndex, g.cfg.ID, nil)
	if err != nil {
		return 0, err
	}
	defer r.Release()
	if len(r.Head) != 8 {
		return 0, fmt.Errorf("an answer with a head of %d bytes: %w", len(r.Head), cluster.EINTERNAL)
	}
	return binary.BigEndian.Uint64(r.Head), nil
}

// serveReadIndex answers another member's askLeader.
func (g *Group) serveReadIndex(ctx context.Context, req *peer.Request) (peer.Reply, error) {
	if !g.IsLeader() {
		return peer.Reply{}, cluster.EAGAIN
	}
	index, err := g.local.join(ctx)
	if err != nil {
		if errors.Is(err, ErrClosed) {
			err = cluster.EAGAIN
		}
		return peer.Reply{}, err
	}
	g.trans.tell(raft.ServerID(req.From)) // which will wait until it has applied it
	return peer.Reply{Head: binary.BigEndian.AppendUint64(nil, index)}, nil
}

// serveTerm tells the leader this member's current term. Raft raises it before
// it grants a vote.
func (g *Group) serveTerm(context.Context, *peer.Request) (peer.Reply, error) {
	return peer.Reply{Head: binary.BigEndian.AppendUint64(nil, g.raft.CurrentTerm())}, nil
}

// maxVoterCalls bounds the calls under way to one voter. A voter that does not
// answer is then left out of the rounds.
const maxVoterCalls = 4

// voterCalls counts the calls under way to each voter.
type voterCalls struct {
	wg sync.WaitGroup

	mu sync.Mutex
	n  map[cluster.NodeID]int
}

func (v *voterCalls) begin(id cluster.NodeID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.n == nil {
		v.n = make(map[cluster.NodeID]int)
	}
	if v.n[id] >= maxVoterCalls {
		return false
	}
	v.n[id]++
	v.wg.Add(1)
	return true
}

func (v *voterCalls) end(id cluster.NodeID) {
	v.mu.Lock()
	if v.n[id]--; v.n[id] == 0 {
		delete(v.n, id)
	}
	v.mu.Unlock()
	v.wg.Done()
}

// confirm returns nil if a majority of the voters is in the term now.
func (g *Group) confirm(term uint64) error {
	servers := g.raft.GetConfiguration().Configuration().Servers
	voters, self := 0, 0
	var others []cluster.NodeID
	for _, s := range servers {
		switch {
		case s.Suffrage != raft.Voter:
			continue
		case s.ID == raft.ServerID(g.cfg.Self):
			self = 1
		default:
			others = append(others, cluster.NodeID(s.ID))
		}
		voters++
	}
	need := voters/2 + 1 - self
	if need > 0 {
		answers := make(chan bool, len(others))
		asked := 0
		for _, id := range others {
			if g.askTerm(id, term, answers) {
				asked++
			}
		}
		for need > 0 {
			if asked < need {
				return fmt.Errorf("no majority confirms the term: %w", cluster.EAGAIN)
			}
			if <-answers {
				need--
			}
			asked--
		}
	}
	if !g.leads(term) { // this node's own term, asked for last
		return cluster.EAGAIN
	}
	return nil
}

// askTerm asks a voter, and sends whether it is in the term.
func (g *Group) askTerm(id cluster.NodeID, term uint64, answers chan<- bool) bool {
	addr, ok := g.cfg.Resolve(id)
	if !ok || !g.voters.begin(id) {
		return false
	}
	go func() {
		defer g.voters.end(id)
		ctx, cancel := context.WithTimeout(g.ctx, g.roundTimeout())
		defer cancel()
		r, err := g.cfg.Peer.Call(ctx, addr, peer.ServiceTerm, g.cfg.ID, nil)
		if err != nil {
			answers <- false
			return
		}
		answers <- r.From == id && len(r.Head) == 8 && binary.BigEndian.Uint64(r.Head) == term
		r.Release()
	}()
	return true
}

// A coalescer lets concurrent callers share a round. A caller takes part in a
// round that begins after it has come.
type coalescer struct {
	run func() (uint64, error)

	mu      sync.Mutex
	next    *round // the round that has not begun
	running bool
	wg      sync.WaitGroup
}

// A round is one run for all who wait for it.
type round struct {
	done  chan struct{}
	index uint64
	err   error
}

// join takes part in the next round.
func (c *coalescer) join(ctx context.Context) (uint64, error) {
	c.mu.Lock()
	if c.next == nil {
		c.next = &round{done: make(chan struct{})}
	}
	r := c.next
	if !c.running {
		c.running = true
		c.wg.Add(1)
		go c.loop()
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.index, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// loop runs rounds while there is someone to wait for them.
func (c *coalescer) loop() {
	defer c.wg.Done()
	for {
		c.mu.Lock()
		r := c.next
		c.next = nil
		if r == nil {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		r.index, r.err = c.run()
		close(r.done)
	}
}

// wait waits until no round runs. Rounds must fail at once by now.
func (c *coalescer) wait() {
	for {
		c.wg.Wait()
		c.mu.Lock()
		idle := !c.running
		c.mu.Unlock()
		if idle {
			return
		}
	}
}
