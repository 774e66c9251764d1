package member

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// A confirmation is a voter's word that it is still in a leader's term: no later
// leader had been elected with its vote when it was asked.
type confirmation struct {
	term   uint64
	leader cluster.NodeID
	at     time.Time
}

// confirmations are what this node has confirmed: under the latest term, and
// under any other before it.
type confirmations struct {
	mu           sync.Mutex
	last, before confirmation
}

// begin says that anything may have been confirmed up to now, by an earlier
// process of this node.
func (c *confirmations) begin(now time.Time) { c.last = confirmation{at: now} }

// confirm confirms the leader of a term, if the present term is that one, and
// returns the last leader of another term that was confirmed, and when.
func (c *confirmations) confirm(now time.Time, term uint64, leader cluster.NodeID, present func() uint64) (before confirmation, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term < c.last.term || present() != term {
		return confirmation{}, false
	}
	if term != c.last.term {
		c.before = c.last
	}
	c.last = confirmation{term: term, leader: leader, at: now}
	return c.before, true
}

// confirmRequest asks a voter whether it is in the term still.
type confirmRequest struct {
	Term   uint64         `json:"term"`
	Leader cluster.NodeID `json:"leader"`
}

// confirmReply is a voter's answer. Before is the leader that it confirmed last
// in another term, and Age how long ago that was (0 or more).
type confirmReply struct {
	Yes    bool           `json:"yes"`
	Before cluster.NodeID `json:"before,omitempty"`
	Age    time.Duration  `json:"age,omitempty"`
}

// serveConfirm answers a leader.
func (n *Node) serveConfirm(zero *groupMember, q confirmRequest) confirmReply {
	now := time.Now()
	before, ok := n.confirmed.confirm(now, q.Term, q.Leader, func() uint64 { return zero.group.Stats().Term })
	if !ok {
		return confirmReply{}
	}
	return confirmReply{Yes: true, Before: before.leader, Age: max(now.Sub(before.at), 0)}
}

// A confirmRound is a round of questions to a majority of the voters.
type confirmRound struct {
	term  uint64
	begun time.Time // the leader was the leader at some time after it
	// before is when an earlier leader was confirmed last by a majority, at the
	// latest; and who that may have been.
	before time.Time
	leader cluster.NodeID
}

// A confirmer runs rounds, one at a time. Those who ask meanwhile share the next.
type confirmer struct {
	turn chan struct{} // holds the right to run a round
	last confirmRound
}

func newConfirmer() *confirmer { return &confirmer{turn: make(chan struct{}, 1)} }

// confirm returns a round that began after the call and in which a majority of
// the voters said that this node leads group 0.
func (n *Node) confirm(ctx context.Context, zero *groupMember) (confirmRound, error) {
	asked := time.Now()
	c := n.confirmer
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return confirmRound{}, ctx.Err()
	}
	if c.last.begun.After(asked) && zero.group.IsLeader() && zero.group.Stats().Term == c.last.term {
		return c.last, nil
	}
	round, err := n.runConfirm(ctx, zero)
	if err == nil {
		c.last = round
	}
	return round, err
}

// confirmTimeout bounds a round.
const confirmTimeout = 500 * time.Millisecond

func (n *Node) runConfirm(ctx context.Context, zero *groupMember) (confirmRound, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	members, err := zero.group.Members()
	if err != nil {
		return confirmRound{}, err
	}
	round := confirmRound{term: zero.group.Stats().Term, begun: time.Now()}
	q := confirmRequest{Term: round.term, Leader: n.cfg.Self}
	voters, yes := 0, 0
	answers := make(chan confirmReply, len(members))
	take := func(a confirmReply) {
		if !a.Yes {
			return
		}
		yes++
		// It was as long ago when the voter answered, or longer.
		if at := time.Now().Add(-a.Age); at.After(round.before) {
			round.before, round.leader = at, a.Before
		}
	}
	asked := 0
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters++
		if m.ID == n.cfg.Self {
			take(n.serveConfirm(zero, q))
			continue
		}
		asked++
		n.wg.Go(func() {
			var a confirmReply
			if addr, ok := n.resolve(m.ID); ok {
				if r, err := n.ask(ctx, addr, request{Confirm: &q}); err == nil && r.Confirm != nil {
					a = *r.Confirm
				}
			}
			answers <- a
		})
	}
	for ; asked > 0 && yes <= voters/2; asked-- {
		take(<-answers)
	}
	if yes <= voters/2 || !zero.group.IsLeader() || zero.group.Stats().Term != round.term {
		return confirmRound{}, fmt.Errorf("no majority of group 0 confirms that node %s leads it: %w", n.cfg.Self, cluster.EAGAIN)
	}
	return round, nil
}
