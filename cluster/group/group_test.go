package group

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
)

func forEachLog(t *testing.T, f func(t *testing.T, change func(*Config))) {
	for _, kind := range []LogStore{LogWAL, LogBoltDB} {
		t.Run(string(kind), func(t *testing.T) {
			f(t, func(c *Config) { c.Log = kind })
		})
	}
}

func TestSingleNode(t *testing.T) {
	forEachLog(t, func(t *testing.T, change func(*Config)) {
		c := newCluster(t, 1, change)
		n := c.leader()
		i := c.propose(n, "a=1")
		if got := n.machine.value("a"); got != fmt.Sprintf("1@%d", i) {
			t.Fatal(got)
		}
		r, err := n.group.ReadIndex(c.ctx())
		if err != nil || r < i {
			t.Fatalf("read index %d, %v, after index %d", r, err, i)
		}
		if err := n.group.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.group.Propose(c.ctx(), []byte("b=1")); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if _, err := n.group.ReadIndex(c.ctx()); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if err := n.group.WaitApplied(c.ctx(), 1<<40); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		select {
		case <-n.group.Watch():
		case <-time.After(time.Second):
			t.Fatal("Watch does not end with the group")
		}
	})
}

// TestEveryNodeProposesAndReads also checks the applied-index trap: right after
// an election the leader's commit index is that of an entry that no state
// machine sees.
func TestEveryNodeProposesAndReads(t *testing.T) {
	forEachLog(t, func(t *testing.T, change func(*Config)) {
		c := newCluster(t, 3, change)
		c.leader()
		for _, n := range c.nodes { // nothing was proposed yet
			i, err := n.group.ReadIndex(c.ctx())
			if err != nil {
				t.Fatal(err)
			}
			if err := n.group.WaitApplied(c.ctx(), i); err != nil {
				t.Fatalf("read index %d of %s is never applied: %+v", i, n.id, n.group.Stats())
			}
		}
		for i, n := range c.nodes {
			at := c.propose(n, fmt.Sprintf("k%d=v", i))
			for _, m := range c.nodes {
				r, err := m.group.ReadIndex(c.ctx())
				if err != nil || r < at {
					t.Fatalf("read index %d at %s, %v, after index %d", r, m.id, err, at)
				}
				if err := m.group.WaitApplied(c.ctx(), r); err != nil {
					t.Fatal(err)
				}
				if m.machine.value(fmt.Sprintf("k%d", i)) == "" {
					t.Fatalf("%s does not see what %s wrote", m.id, n.id)
				}
			}
		}
		c.settle()
	})
}

func TestConcurrentProposersShareAppends(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	var wg sync.WaitGroup
	const callers, each = 48, 40
	for i := range callers {
		n := c.nodes[i%3]
		wg.Go(func() {
			for j := range each {
				id := fmt.Sprintf("%d-%d", i, j)
				index, result, err := n.group.Propose(c.ctx(), []byte(id+"="+id))
				// Proposed again after a leader was lost, it has the first result.
				var first uint64
				if _, scan := fmt.Sscanf(string(result), id+"@%d", &first); err != nil || scan != nil || first > index {
					t.Errorf("%s: %q at %d, %v", id, result, index, err)
					return
				}
			}
		})
	}
	wg.Wait()
	c.settle()
	if n := len(c.nodes[0].machine.commands()); n != callers*each {
		t.Fatalf("%d commands of %d", n, callers*each)
	}
}

// TestLeaderKilledUnderLoad kills the leader twice while every node proposes.
// Every command is applied once, and acknowledged ones are there.
func TestLeaderKilledUnderLoad(t *testing.T) {
	forEachLog(t, func(t *testing.T, change func(*Config)) {
		c := newCluster(t, 3, change)
		c.leader()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var stop atomic.Bool
		var acked sync.Map
		groups := []*Group{c.nodes[0].group, c.nodes[1].group, c.nodes[2].group}
		for i := range 12 {
			wg.Go(func() {
				g := groups[i%3]
				for j := 0; !stop.Load(); j++ {
					id := fmt.Sprintf("%d-%d", i, j)
					_, result, err := g.Propose(ctx, []byte(id+"=x"))
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("%s: %v", id, err)
						return
					}
					acked.Store(id, string(result))
				}
			})
		}
		for range 2 {
			time.Sleep(150 * time.Millisecond)
			n := c.leader()
			c.kill(n)
			c.leader()
			time.Sleep(100 * time.Millisecond)
			c.start(n)
		}
		time.Sleep(100 * time.Millisecond)
		stop.Store(true)
		wg.Wait()
		c.settle()
		log := c.leader().machine.commands()
		slices.Sort(log)
		if len(slices.Compact(slices.Clone(log))) != len(log) {
			t.Fatal("a command was applied twice")
		}
		n := 0
		acked.Range(func(id, result any) bool {
			n++
			if got := c.leader().machine.value(id.(string)); got != result {
				t.Errorf("%v: acknowledged %v, but %q", id, result, got)
			}
			return true
		})
		t.Logf("%d commands acknowledged", n)
	})
}

// TestLostReplyIsProposedAgain loses the leader's answers to a follower: the
// same bytes come again, and get the result of the first time.
func TestLostReplyIsProposedAgain(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.HeartbeatTimeout = time.Second }) // one leader, on a busy machine too
	l, f := c.leader(), c.followers()[0]
	var calls atomic.Int32
	l.peer.HandleGroup(peer.ServicePropose, 7, func(ctx context.Context, req *peer.Request) (peer.Reply, error) {
		r, err := l.group.servePropose(ctx, req)
		if calls.Add(1) <= 3 {
			return peer.Reply{}, cluster.EAGAIN
		}
		return r, err
	})
	_, result, err := f.group.Propose(c.ctx(), []byte("lost=1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := l.machine.value("lost"); got != string(result) || calls.Load() != 4 {
		t.Fatalf("result %q, state %q, %d calls", result, got, calls.Load())
	}
	c.settle()
}

func TestProposeEndsWithItsContext(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	for _, f := range c.followers() {
		c.kill(f)
	}
	for _, f := range []func(context.Context) error{
		func(ctx context.Context) error { _, _, err := l.group.Propose(ctx, []byte("a=1")); return err },
		func(ctx context.Context) error { _, err := l.group.ReadIndex(ctx); return err },
		func(ctx context.Context) error { return l.group.WaitApplied(ctx, 1<<40) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		cancel()
	}
	if _, _, err := l.group.Propose(t.Context(), make([]byte, cluster.MaxCommand+1)); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("too large a command: %v", err)
	}
}

// TestDeposedLeaderServesNoReads: a leader whose voters have gone to a higher
// term refuses the read, although it does not know yet.
func TestDeposedLeaderServesNoReads(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	if _, err := l.group.ReadIndex(c.ctx()); err != nil {
		t.Fatal(err)
	}
	term := l.group.serving.Load().term
	for _, f := range c.followers() {
		f.peer.HandleGroup(peer.ServiceTerm, 7, func(context.Context, *peer.Request) (peer.Reply, error) {
			return peer.Reply{Head: []byte{0, 0, 0, 0, 0, 0, 0, byte(term + 1)}}, nil
		})
	}
	if _, err := l.group.readAsLeader(); !errors.Is(err, cluster.EAGAIN) {
		t.Fatalf("a deposed leader serves reads: %v", err)
	}
	f := c.followers()
	f[0].peer.HandleGroup(peer.ServiceTerm, 7, f[0].group.serveTerm)
	if _, err := l.group.readAsLeader(); err != nil {
		t.Fatalf("one voter of two agrees, which is a majority: %v", err)
	}
}

// TestReadsAreLinearizable has writers raise a counter, and readers on all nodes
// that must see at least what was acknowledged when they began, while
// leadership moves.
func TestReadsAreLinearizable(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.leader()
	var acked atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !stop.Load(); i++ {
			c.propose(c.nodes[i%3], fmt.Sprintf("c%d=x", i))
			acked.Store(int64(i))
		}
	})
	for i := range 6 {
		n := c.nodes[i%3]
		wg.Go(func() {
			for !stop.Load() {
				want := acked.Load()
				index, err := n.group.ReadIndex(c.ctx())
				if err == nil {
					err = n.group.WaitApplied(c.ctx(), index)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if want > 0 && n.machine.value(fmt.Sprintf("c%d", want)) == "" {
					t.Errorf("%s does not see c%d at read index %d", n.id, want, index)
					return
				}
			}
		})
	}
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		if err := c.leader().group.TransferLeadership(c.ctx()); err != nil {
			t.Log(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	if acked.Load() < 10 {
		t.Fatalf("%d writes only", acked.Load())
	}
}

// TestLaggingMemberGetsSnapshot stops a member, cuts the log behind it, and
// starts it again. Then a new node joins, as a non-voter and as a voter.
func TestLaggingMemberGetsSnapshot(t *testing.T) {
	forEachLog(t, func(t *testing.T, change func(*Config)) {
		c := newCluster(t, 3, func(cfg *Config) { change(cfg); cfg.TrailingLogs = 1 })
		lag := c.followers()[0]
		c.propose(c.leader(), "before=1")
		c.settle()
		if err := lag.group.Snapshot(); err != nil {
			t.Fatal(err)
		}
		c.kill(lag)
		for i := range 50 {
			c.propose(c.leader(), fmt.Sprintf("k%d=v", i))
		}
		for _, n := range c.nodes {
			if n != lag {
				n.machine.mu.Lock()
				n.machine.pad = strings.Repeat("pad ", 100<<10)
				n.machine.mu.Unlock()
			}
		}
		c.settle()
		for _, n := range c.nodes {
			if n.group == nil {
				continue
			}
			if err := n.group.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		s := c.leader().group.Stats()
		if s.FirstLog < 20 || s.FirstLog > s.Durable {
			t.Fatalf("the log begins at %d, the state is durable up to %d", s.FirstLog, s.Durable)
		}
		c.start(lag)
		c.settle()
		if lag.machine.restored != 1 {
			t.Fatalf("%d snapshots restored", lag.machine.restored)
		}
		c.propose(lag, "after=1")
		c.settle()

		joiner := c.addNode("n4")
		for _, voter := range []bool{false, true, false} {
			if err := c.leader().group.AddMember(c.ctx(), "n4", voter); err != nil {
				t.Fatal(err)
			}
			c.propose(joiner, fmt.Sprintf("joined-%v=1", voter))
			c.settle()
			members, _ := joiner.group.Members()
			if !slices.Contains(members, Member{ID: "n4", Voter: voter}) || len(members) != 4 {
				t.Fatalf("members %v", members)
			}
		}
		// Both restart, and continue from the snapshot.
		for _, n := range []*testNode{lag, joiner} {
			c.kill(n)
			c.propose(c.leader(), "restart-"+string(n.id)+"=1")
			c.start(n)
		}
		c.settle()
		if err := c.leader().group.RemoveMember(c.ctx(), "n4"); err != nil {
			t.Fatal(err)
		}
		c.kill(joiner)
		c.propose(lag, "removed=1")
		c.settle()
		for _, n := range c.nodes {
			if n.group == nil {
				continue
			}
			if left, _ := os.ReadDir(filepath.Join(n.dir, "raft", "tmp")); len(left) > 0 {
				t.Errorf("%s keeps %v", n.id, left)
			}
		}
	})
}

// TestRestartOfAll stops all nodes at once; what was not flushed comes from the
// log.
func TestRestartOfAll(t *testing.T) {
	forEachLog(t, func(t *testing.T, change func(*Config)) {
		c := newCluster(t, 3, func(cfg *Config) { change(cfg); cfg.TrailingLogs = 1 })
		for round := range 3 {
			for i := range 20 {
				c.propose(c.nodes[i%3], fmt.Sprintf("r%d-%d=v", round, i))
			}
			_ = c.nodes[round].group.Snapshot()
			for _, n := range c.nodes {
				c.kill(n)
			}
			for _, n := range c.nodes {
				c.start(n)
			}
			c.settle()
			if n := len(c.leader().machine.commands()); n != 20*(round+1) {
				t.Fatalf("%d commands after round %d", n, round)
			}
		}
		if err := c.leader().group.Bootstrap([]Member{{ID: "n1", Voter: true}}); err != nil {
			t.Fatalf("Bootstrap of a group with state: %v", err)
		}
	})
}

// TestOrderlyCloseHandsLeadershipOver closes the leader: another leads soon,
// without waiting for a time-out.
func TestOrderlyCloseHandsLeadershipOver(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.HeartbeatTimeout = 2 * time.Second })
	l := c.leader()
	c.propose(l, "a=1")
	c.settle()
	f := c.followers()[0]
	changed := f.group.Watch()
	begin := time.Now()
	if err := l.group.Close(); err != nil {
		t.Fatal(err)
	}
	<-changed
	c.kill(l)
	c.propose(f, "b=1")
	if d := time.Since(begin); d > 1500*time.Millisecond {
		t.Fatalf("it took %v", d)
	}
}

// TestRefusesToStart: with the state machine's state lost, or the log's, or the
// log's kind changed, a member does not start.
func TestRefusesToStart(t *testing.T) {
	kind := LogWAL
	c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1; cfg.Log = kind })
	n := c.leader()
	for i := range 20 {
		c.propose(n, fmt.Sprintf("k%d=v", i))
	}
	if err := n.group.Snapshot(); err != nil {
		t.Fatal(err)
	}
	c.kill(n)

	state := filepath.Join(n.dir, "state.json")
	if err := os.Rename(state, state+".away"); err != nil {
		t.Fatal(err)
	}
	if err := c.tryStart(n); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Fatalf("without the state machine's state: %v", err)
	}
	if err := os.Rename(state+".away", state); err != nil {
		t.Fatal(err)
	}

	kind = LogBoltDB
	if err := c.tryStart(n); err == nil || !strings.Contains(err.Error(), "another kind") {
		t.Fatalf("with another kind of log: %v", err)
	}
	kind = LogWAL

	log := filepath.Join(n.dir, "raft", "log")
	if err := os.Rename(log, log+".away"); err != nil {
		t.Fatal(err)
	}
	if err := c.tryStart(n); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Fatalf("without the log: %v", err)
	}
	_ = os.RemoveAll(log)
	if err := os.Rename(log+".away", log); err != nil {
		t.Fatal(err)
	}
	c.start(n)
	c.propose(c.leader(), "again=1")
}

// TestReadLogOfAStoppedMember reads what the state machine has not made durable.
func TestReadLogOfAStoppedMember(t *testing.T) {
	forEachLog(t, func(t *testing.T, change func(*Config)) {
		var kind LogStore
		c := newCluster(t, 1, func(cfg *Config) { change(cfg); kind = cfg.Log })
		n := c.leader()
		from := c.propose(n, "a=1")
		c.propose(n, "b=1")
		dir := filepath.Join(n.dir, "raft")
		if _, _, err := LastLog(dir, kind); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Fatalf("the log of a running member: %v", err)
		}
		term := n.group.Stats().Term
		last := n.group.raft.LastIndex()
		c.kill(n)
		if i, at, err := LastLog(dir, kind); err != nil || i != last || at != term {
			t.Fatalf("the log ends at %d in term %d, %v", i, at, err)
		}
		var got []string
		err := ReadLog(dir, kind, from, func(entries []cluster.Entry) error {
			for _, e := range entries {
				got = append(got, string(e.Command))
			}
			return nil
		})
		if err != nil || !slices.Equal(got, []string{"a=1", "b=1"}) {
			t.Fatalf("%q, %v", got, err)
		}
	})
}
