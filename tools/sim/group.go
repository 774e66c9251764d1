package sim

import (
	"context"
	"errors"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// A group is a model of the volume's Raft group: a log that only grows, a
// leader that changes, proposals of which nobody knows what became of them, and
// replicas that are behind.
type group struct {
	w       *World
	log     []logEntry // what is committed; index i is log[i-1]
	leader  *node      // nil: none
	term    uint64
	tail    []proposal // the leader has them, a majority has not
	commits bool       // a commit is planned
	elects  bool       // an election is
}

type logEntry struct {
	cluster.Entry
	env    fsm.Envelope
	body   fsm.Body
	result []byte // of the first replica that applied it
	known  bool   // result is
}

type proposal struct {
	cmd   []byte
	body  fsm.Body
	reply func(outcome)
}

// An outcome is what the leader says of a proposal.
type outcome struct {
	ok     bool // false: not the leader any more
	index  uint64
	result []byte
}

func (g *group) last() uint64 { return uint64(len(g.log)) }

// majority reports whether n can commit.
func (g *group) majority(n *node) bool {
	c := 0
	for _, o := range g.w.nodes {
		if linked(n, o) {
			c++
		}
	}
	return 2*c > len(g.w.nodes)
}

// receive is the arrival of a proposal at n.
func (g *group) receive(n *node, p proposal) {
	if g.leader != n {
		p.reply(outcome{})
		return
	}
	g.tail = append(g.tail, p)
	g.planCommit()
}

func (g *group) planCommit() {
	if g.commits || g.leader == nil || len(g.tail) == 0 {
		return
	}
	g.commits = true
	leader := g.leader
	g.w.after(g.w.between(100*time.Microsecond, 2*time.Millisecond), func() {
		g.commits = false
		if g.leader == leader && g.majority(leader) {
			g.commit(len(g.tail), true)
		}
		g.planCommit()
	})
}

// commit commits the first n of the tail. told: by the leader that has to
// answer for them.
func (g *group) commit(n int, told bool) {
	for _, p := range g.tail[:n] {
		env, _, err := fsm.ParseCommand(p.cmd)
		if err != nil {
			g.w.failf("a command that cannot be parsed: %v", err)
		}
		index := g.last() + 1
		g.log = append(g.log, logEntry{Entry: cluster.Entry{Index: index, Term: g.term, Command: p.cmd}, env: env, body: p.body})
		if told {
			g.leader.replica.answers[index] = p.reply
		}
	}
	g.tail = append(g.tail[:0], g.tail[n:]...)
	for _, o := range g.w.nodes {
		o.replica.plan()
	}
}

// depose ends the leader's term. Of what it had not committed, a beginning may
// have reached its successor: nobody is told.
func (g *group) depose() {
	if g.leader == nil {
		return
	}
	g.w.notef("leader %s deposed with %d proposals", g.leader.id, len(g.tail))
	survive := 0
	if len(g.tail) > 0 && g.w.oneIn(2) {
		survive = 1 + g.w.rng.IntN(len(g.tail))
	}
	g.tail = g.tail[:survive]
	for i := range g.tail {
		g.tail[i].reply = func(outcome) {}
	}
	g.leader = nil
	g.planElection()
}

func (g *group) planElection() {
	if g.elects {
		return
	}
	g.elects = true
	g.w.after(g.w.between(50*time.Millisecond, 800*time.Millisecond), func() {
		g.elects = false
		if g.leader != nil {
			return
		}
		var able []*node
		for _, n := range g.w.nodes {
			if g.majority(n) {
				able = append(able, n)
			}
		}
		if len(able) == 0 {
			g.planElection()
			return
		}
		g.leader = able[g.w.rng.IntN(len(able))]
		g.term++
		g.w.notef("node %s leads in term %d", g.leader.id, g.term)
		g.commit(len(g.tail), false)
	})
}

// check finds out whether the leader still leads; it is called after each
// change of who reaches whom.
func (g *group) check() {
	if g.leader != nil && !g.majority(g.leader) {
		g.depose()
	} else if g.leader == nil {
		g.planElection()
	}
	for _, n := range g.w.nodes {
		n.replica.plan()
	}
}

// proposer is the group as the tasks of a node propose to it: as cluster/group
// does, the same bytes are sent until their outcome is known.
type proposer struct{ n *node }

// Propose implements writer.Group.
func (p proposer) Propose(_ context.Context, cmd []byte) (uint64, []byte, error) {
	w, t := p.n.w, p.n.w.cur
	g, body := w.group, w.body
	for {
		to := g.leader
		if to == nil {
			t.sleep(w.between(10*time.Millisecond, 100*time.Millisecond))
			continue
		}
		o, ok := call(t, p.n, to, 700*time.Millisecond, func(reply func(outcome)) {
			g.receive(to, proposal{cmd: cmd, body: body, reply: reply})
		})
		if ok && o.ok {
			return o.index, o.result, nil
		}
		w.count.retries++
		if w.broken(BreakSequence) {
			if cmd = renumber(cmd, body); cmd == nil {
				return 0, nil, errors.New("cannot be")
			}
		}
		t.sleep(w.between(time.Millisecond, 50*time.Millisecond))
	}
}

// renumber is what a front-end must not do: the command gets a sequence number
// of its own, so that it is another one.
func renumber(cmd []byte, body fsm.Body) []byte {
	env, _, err := fsm.ParseCommand(cmd)
	if err != nil {
		return nil
	}
	if env.Writer != 0 {
		env.Lane, env.Seq = (env.Lane+512)%fsm.MaxLanes, env.Seq+1<<32
	}
	return fsm.AppendCommand(nil, env, body)
}

// readIndex returns an index that a strict read has to wait for.
func (w *World) readIndex(t *task, n *node) uint64 {
	if w.broken(BreakReadIndex) {
		return n.replica.applied
	}
	for {
		to := w.group.leader
		if to == nil {
			t.sleep(w.between(10*time.Millisecond, 100*time.Millisecond))
			continue
		}
		i, ok := call(t, n, to, 500*time.Millisecond, func(reply func(uint64)) {
			if w.group.leader == to {
				reply(w.group.last() + 1)
			} else {
				reply(0)
			}
		})
		if ok && i > 0 {
			return i - 1
		}
		t.sleep(w.between(time.Millisecond, 50*time.Millisecond))
	}
}
