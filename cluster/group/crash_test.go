package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// An oracle knows what was applied anywhere and what was acknowledged.
type oracle struct {
	mu      sync.Mutex
	applied map[uint64]string // by index
	acked   map[string]string // results by command id
	err     error
}

// seen notes that a node has applied an entry.
func (o *oracle) seen(e cluster.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cmd := string(e.Command)
	if was, ok := o.applied[e.Index]; ok && was != cmd && o.err == nil {
		o.err = fmt.Errorf("the state machines diverge: index %d is %s and %s", e.Index, was, cmd)
	}
	o.applied[e.Index] = cmd
}

// A crashRun is three nodes on lossy disks that are made to fail, while writers
// propose.
type crashRun struct {
	c     *testCluster
	rng   *rand.Rand
	disks map[cluster.NodeID]*lossyDisk
	oracle

	wg     sync.WaitGroup
	stop   chan struct{}
	groups struct {
		sync.Mutex
		of map[cluster.NodeID]*Group
	}
}

func newCrashRun(t testing.TB, seed uint64) *crashRun {
	r := &crashRun{rng: rand.New(rand.NewPCG(seed, 1)), disks: make(map[cluster.NodeID]*lossyDisk), stop: make(chan struct{})}
	r.applied, r.acked = make(map[uint64]string), make(map[string]string)
	r.groups.of = make(map[cluster.NodeID]*Group)
	r.c = newCluster(t, 3, func(cfg *Config) {
		d := r.disks[cfg.Self]
		if d == nil {
			d = newLossyDisk()
			d.delay = time.Duration(r.rng.IntN(3000)) * time.Microsecond
			r.disks[cfg.Self] = d
		}
		cfg.openDisk = d.open
		cfg.HeartbeatTimeout = 100 * time.Millisecond
		cfg.TrailingLogs = 20
		cfg.Machine.(*testMachine).seen = r.seen
	})
	for _, n := range r.c.nodes {
		r.groups.of[n.id] = n.group
	}
	for i := range 4 {
		r.wg.Go(func() { r.writer(i) })
	}
	return r
}

// writer proposes from one node after the other.
func (r *crashRun) writer(w int) {
	for i := 0; ; i++ {
		select {
		case <-r.stop:
			return
		default:
		}
		r.groups.Lock()
		g := r.groups.of[r.c.nodes[(w+i)%3].id]
		r.groups.Unlock()
		if g == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		id := fmt.Sprintf("%d-%d", w, i)
		ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
		_, result, err := g.Propose(ctx, []byte(id+"=v"))
		cancel()
		if err == nil {
			r.mu.Lock()
			r.acked[id] = string(result)
			r.mu.Unlock()
		}
	}
}

// crash cuts the power of nodes.
func (r *crashRun) crash(nodes ...*testNode) {
	r.groups.Lock()
	for _, n := range nodes {
		delete(r.groups.of, n.id)
	}
	r.groups.Unlock()
	var wg sync.WaitGroup
	for _, n := range nodes {
		r.disks[n.id].powerOff()
		r.disks[n.id].set(false, false)
		wg.Go(func() { r.c.kill(n) })
	}
	wg.Wait()
}

// boot starts nodes that have crashed.
func (r *crashRun) boot(nodes ...*testNode) {
	for _, n := range nodes {
		if n.group != nil {
			continue
		}
		r.c.start(n)
		r.groups.Lock()
		r.groups.of[n.id] = n.group
		r.groups.Unlock()
	}
}

// pause lets time go by.
func (r *crashRun) pause(from, to int) {
	time.Sleep(time.Duration(from+r.rng.IntN(to-from)) * time.Millisecond)
}

// roles returns the leader and the others in random order.
func (r *crashRun) roles() (*testNode, []*testNode, error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for i, n := range r.c.nodes {
			if n.group != nil && n.group.IsLeader() {
				others := slices.Delete(slices.Clone(r.c.nodes), i, i+1)
				r.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
				return n, others, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("no leader")
}

// step makes one thing go wrong.
func (r *crashRun) step() error {
	r.pause(5, 40)
	l, others, err := r.roles()
	if err != nil {
		return err
	}
	switch r.rng.IntN(6) {
	case 0, 1:
		// Entries reach one disk only, the first follower's; the leader has them
		// in memory. Then all lose their power, and that follower stays away for
		// a while.
		r.disks[l.id].set(true, false)
		r.disks[others[1].id].set(true, false)
		r.pause(8, 30)
		r.crash(l, others[0], others[1])
		r.boot(l, others[1])
		if _, _, err := r.roles(); err != nil {
			return err
		}
		r.pause(20, 60)
		r.boot(others[0])
	case 2: // a leader with a tail hands leadership over, and perhaps crashes
		r.disks[l.id].set(true, false)
		r.pause(5, 15)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_ = l.group.TransferLeadership(ctx)
		cancel()
		r.pause(1, 20)
		if r.rng.IntN(2) == 0 {
			r.crash(l)
			r.boot(l)
		}
		r.disks[l.id].set(false, false)
	case 3: // a leader whose disk fails leads no more
		r.disks[l.id].set(false, true)
		defer r.disks[l.id].set(false, false)
		for end := time.Now().Add(2 * time.Second); l.group.IsLeader(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("%s goes on leading although its disk fails", l.id)
			}
		}
		r.pause(10, 100)
	case 4:
		n := r.c.nodes[r.rng.IntN(3)]
		r.crash(n)
		r.pause(1, 150)
		r.boot(n)
	case 5:
		_ = r.c.nodes[r.rng.IntN(3)].group.Snapshot()
	}
	return nil
}

// check ends the faults and compares what the nodes have with what was seen.
func (r *crashRun) check() error {
	close(r.stop)
	r.wg.Wait()
	r.boot(r.c.nodes...)
	r.mu.Lock()
	err := r.err
	r.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	last, _, err := r.c.nodes[0].group.Propose(ctx, []byte("last=v"))
	if err != nil {
		return fmt.Errorf("the group does not get over it: %w", err)
	}
	for _, n := range r.c.nodes {
		if err := n.group.WaitApplied(ctx, last); err != nil {
			return fmt.Errorf("%s does not reach %d: %w: %+v", n.id, last, err, n.group.Stats())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	want := r.c.nodes[0].machine.commands()
	for _, n := range r.c.nodes {
		if got := n.machine.commands(); !slices.Equal(got, want) {
			return fmt.Errorf("%s has %d commands, %s has %d, or others", n.id, len(got), r.c.nodes[0].id, len(want))
		}
		for id, result := range r.acked {
			if got := n.machine.value(id); got != result {
				return fmt.Errorf("%s was acknowledged with %q and is %q at %s", id, result, got, n.id)
			}
		}
	}
	for index, cmd := range r.applied {
		if !slices.Contains(want, cmd) {
			return fmt.Errorf("%s was applied at %d and is lost", cmd, index)
		}
	}
	return nil
}

// crashSeed runs one seed.
func crashSeed(t testing.TB, seed uint64, steps int) error {
	r := newCrashRun(t, seed)
	var err error
	for i := 0; i < steps && err == nil; i++ {
		err = r.step()
	}
	if e := r.check(); err == nil {
		err = e
	}
	r.c.close()
	t.Logf("seed %d: %d commands acknowledged, %d applied", seed, len(r.acked), len(r.applied))
	return err
}

// crashSeeds is how many seeds are run; HAWSER_SEEDS sets another number.
func crashSeeds(t *testing.T, n int) int {
	if v := os.Getenv("HAWSER_SEEDS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestNothingIsLostWithTheLeadersTail crashes leaders whose disks have not what
// their followers have. Nothing that any state machine has applied or any caller
// was told is lost, and state machines never differ.
func TestNothingIsLostWithTheLeadersTail(t *testing.T) {
	for seed := range crashSeeds(t, 6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if err := crashSeed(t, uint64(seed), 8); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCrashesShowWhatTheRulesAreFor: without either of the rules that keep the
// library's commit index from being seen, something is lost.
func TestCrashesShowWhatTheRulesAreFor(t *testing.T) {
	for name, r := range map[string]rule{"clamp": ruleClamp, "gate": ruleGate} {
		t.Run(name, func(t *testing.T) {
			rulesOff.Store(uint32(r))
			defer func() { rulesOff.Store(0) }()
			for seed := range uint64(20) {
				if err := crashSeed(t, 100+seed, 4); err != nil {
					t.Logf("seed %d: %v", 100+seed, err)
					return
				}
			}
			t.Fatal("nothing was lost: the test would not notice that the rule is broken")
		})
	}
}
