package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A Break switches a rule of the design off, to show that it is missed.
type Break uint32

// The rules that can be switched off outside of the state machine.
const (
	BreakCopies      Break = 1 << iota // a commit does not wait for all members
	BreakSync                          // a store answers before a copy is durable
	BreakNewID                         // a blob id is used again
	BreakSequence                      // a command whose outcome is unknown is sent under a new number
	BreakAck                           // a write is acknowledged before its commit
	BreakFence                         // a writer that is taken for fenced is not
	BreakVerifier                      // the verifier does not tell of lost data
	BreakCollect                       // orphans are deleted though their writer may still commit them
	BreakLogCut                        // the log is cut beyond what is flushed
	BreakReadIndex                     // strict reads take the local state as it is
	BreakWhole                         // a write is committed in parts
	BreakFinish                        // blobs are said to be final before the outcome is known
	BreakChoose                        // blobs are put to sets that are not writable
	BreakOrigin                        // a request that is repeated elsewhere is another one
	BreakScrub                         // copies that are damaged or missing are not made whole
	BreakScrubVerify                   // what a scrub fetches is not held against its checksums
	BreakScrubOrder                    // a scrub deletes a damaged copy before there is another
	BreakFill                          // a new member is said to have what it has not
	BreakMoved                         // copies are deleted though they were put anew since they were listed
	BreakLate                          // a late pull puts a copy anew that was put at a later epoch
	BreakTwice                         // a pull replaces what another one has put meanwhile
)

// Config says what is simulated.
type Config struct {
	Seed     uint64
	Steps    uint64 // until the world comes to rest; 0: some thousand, as the seed has it
	Segments bool   // the stores are real ones (datastore/segment)
	// TakeOver has clients besides that are taken over from front-end to front-end.
	TakeOver bool
	// Repair has the sets kept by datastore/repair: members that are away for long
	// are exchanged and come back, and stores are emptied.
	Repair bool
	// Damage has copies that are damaged or go away by themselves, and scrubs.
	Damage bool
	// Pack has bytes of files put together while they are written.
	Pack  bool
	Break Break
	// Outcomes leaves out the checks that a rule is kept, for those of what
	// comes of it: that shows what the rule is for.
	Outcomes bool
	Trace    func(line string) // nil: none
}

// Counts tell what happened in a run, so that a test sees that enough did.
type Counts struct {
	Steps                                                                uint64
	Time                                                                 time.Duration // simulated
	Entries                                                              uint64
	crashes, cuts, leaders, installs, retries, duplicates, fenced, again uint64
	commits, writes, flushes, reads, hedged, abandoned, moves            uint64
	collected, orphans, losses                                           uint64
	moved, repeats                                                       uint64 // with TakeOver
	relocated, leftOut                                                   uint64 // with Pack: moves, and those of what had changed
	pulled, given                                                        uint64 // with Repair: copies made, and given up
	hurts, healed                                                        uint64 // with Damage
}

// String returns the counts as a line of text.
func (c Counts) String() string {
	return fmt.Sprintf("%d steps, %v simulated, %d entries: %d crashes, %d cuts, %d leaders lost, %d snapshots installed, "+
		"%d proposals repeated (%d duplicates, %d fenced, %d to be put again), %d commits, %d writes, %d flushes, %d reads, "+
		"%d hedged, %d ids given up, %d members moved, %d garbage and %d orphans collected, %d stores lost, "+
		"%d requests repeated elsewhere, %d executed before, %d copies hurt, %d healed",
		c.Steps, c.Time.Round(time.Millisecond), c.Entries, c.crashes, c.cuts, c.leaders, c.installs,
		c.retries, c.duplicates, c.fenced, c.again, c.commits, c.writes, c.flushes, c.reads,
		c.hedged, c.abandoned, c.moves, c.collected, c.orphans, c.losses, c.moved, c.repeats, c.hurts, c.healed)
}

// A World is one run.
type World struct {
	clock
	cfg         Config
	rng         *rand.Rand
	cur         *task    // that runs
	body        fsm.Body // of the command that is proposed next
	nodes       []*node
	stores      []*store
	group       *group
	rules       *rules
	clients     []*client
	outside     *proc // of the clients and of the nemesis: it never dies
	calm        bool  // nothing goes wrong
	resting     bool  // clients end
	clientsDone int
	shared      []sharedFile
	removed     []cluster.Ino // of late
	ops         uint64
	count       Counts
}

func (w *World) broken(b Break) bool { return w.cfg.Break&b != 0 }

func (w *World) store(id cluster.StoreID) *store { return w.stores[id-1] }

// A Failure is a rule that did not hold.
type Failure struct {
	Config Config
	Step   uint64
	Time   time.Duration
	Text   string
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("seed %d (break %#x, segments %v, take-over %v, damage %v), step %d, %v: %s", f.Config.Seed, f.Config.Break, f.Config.Segments, f.Config.TakeOver, f.Config.Damage, f.Step, f.Time, f.Text)
}

// Run simulates one world to its end, where everything is at rest. The error is
// a *Failure. The same Config gives the same run.
func Run(cfg Config) (c Counts, err error) {
	w := &World{cfg: cfg, rng: newRand(cfg.Seed, 0), outside: &proc{alive: true}}
	if drawn := uint64(2000 + w.rng.IntN(12_000)); cfg.Steps == 0 {
		cfg.Steps = drawn
	}
	defer func() {
		if r := recover(); r != nil {
			f := &Failure{Config: cfg, Step: w.steps, Time: w.now}
			if v, ok := r.(violation); ok {
				f.Text = v.text
			} else {
				f.Text = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
			}
			err = f
		}
		w.end()
		w.count.Steps, w.count.Time, w.count.Entries = w.steps, w.now, w.group.last()
		c = w.count
	}()
	w.build()
	for w.steps < cfg.Steps {
		before := w.steps
		if !w.next() {
			w.failf("nothing happens any more")
		}
		if w.steps/1024 != before/1024 {
			w.rules.everyCopy(0)
		}
		if w.steps/4096 != before/4096 {
			w.checkStates()
		}
	}
	w.rest()
	return
}

const (
	nodes   = 3
	stores  = 5
	clients = 6
)

func (w *World) build() {
	w.group = &group{w: w}
	w.rules = newRules(w)
	w.calm = true
	for i := range nodes {
		n := &node{w: w, n: i, id: cluster.NodeID(fmt.Sprintf("n%d", i+1))}
		n.replica = w.newReplica(n)
		w.nodes = append(w.nodes, n)
	}
	for i := range stores {
		s := &store{w: w, n: w.nodes[i%nodes], id: cluster.StoreID(i + 1)}
		if w.cfg.Segments {
			s.disk = newSegmentDisk(w, byte(i))
		} else {
			s.disk = newModelDisk(w)
		}
		if w.cfg.Damage {
			s.disk = newHurtDisk(s.disk)
		}
		s.n.stores = append(s.n.stores, s)
		w.stores = append(w.stores, s)
	}
	for _, n := range w.nodes {
		n.up, n.proc = true, &proc{alive: true}
	}
	for _, n := range w.nodes {
		n.replica.start()
		n.boot()
	}
	w.group.check()
	ready := false
	w.spawn(w.nodes[0].proc, func(t *task) {
		fe := w.nodes[0].fe
		format := volume.Format{HashKey: [16]byte{1}, Mode: 0o777, Class: cluster.Class{Copies: 3}}
		w.body = format
		if _, _, err := (proposer{w.nodes[0]}).Propose(context.Background(), fsm.AppendCommand(nil, fsm.Envelope{Time: w.time()}, format)); err != nil {
			w.failf("format: %v", err)
		}
		for _, members := range [][]cluster.StoreID{{1, 2, 3}, {4, 5, 3}, {1, 5, 3}, {1, 2}, {2, 3}, {4, 3}, {5, 1}} {
			if _, ok := fe.putSet(t, volume.ReplicaSet{Members: members, Copies: 3}); !ok {
				w.failf("no replica set")
			}
		}
		ready = true
	})
	for !ready {
		w.next()
	}
	w.calm = false
	for i := range clients {
		c := &client{w: w, n: i, at: w.nodes[i%nodes]}
		w.clients = append(w.clients, c)
		w.spawn(w.outside, c.run)
	}
	if w.cfg.TakeOver {
		for i := range wanderers {
			c := &client{w: w, n: clients + i}
			w.clients = append(w.clients, c)
			w.spawn(w.outside, c.wander)
		}
	}
	w.spawn(w.outside, w.nemesis)
	if w.cfg.Repair {
		w.spawn(w.outside, w.drainer)
	}
	if w.cfg.Damage {
		w.spawn(w.outside, w.hurts)
	}
}

// boot starts a node's processes, on what is on its disks.
func (n *node) boot() {
	n.fe = newFrontEnd(n)
	n.keep()
	if n.w.cfg.Damage {
		n.scrub()
	}
}

// crash is the end of a node, in the middle of everything.
func (n *node) crash() {
	w := n.w
	w.notef("node %s crashes", n.id)
	w.count.crashes++
	n.up, n.since, n.fenced = false, w.now, false
	n.proc.kill()
	n.replica.crash()
	for _, s := range n.stores {
		s.crash()
	}
	if w.group.leader == n {
		w.group.depose()
	}
	w.group.check()
	for _, t := range w.outside.tasks {
		t.wake() // clients lose their connections
	}
}

func (n *node) restart() {
	if n.up {
		return
	}
	n.w.notef("node %s restarts", n.id)
	n.up, n.cut, n.since, n.fenced = true, false, n.w.now, false
	n.proc = &proc{alive: true}
	n.replica.start()
	n.boot()
	n.w.group.check()
	n.w.rules.everyCopy(0)
}

// nemesis makes things go wrong.
func (w *World) nemesis(t *task) {
	for !w.resting {
		t.sleep(w.between(20*time.Millisecond, 2*time.Second))
		if w.resting {
			return
		}
		n := w.nodes[w.rng.IntN(nodes)]
		switch k := w.rng.IntN(10); {
		case k < 4 && n.up:
			down := 0
			for _, o := range w.nodes {
				if !o.up {
					down++
				}
			}
			if down > 0 && !w.oneIn(6) {
				continue
			}
			n.crash()
			if w.count.losses == 0 && w.oneIn(10) {
				s := n.stores[w.rng.IntN(len(n.stores))]
				s.lost = true
				w.count.losses++
				w.notef("store %d is lost", s.id)
			}
			wait := w.between(10*time.Millisecond, time.Second)
			if w.oneIn(4) {
				wait = w.between(time.Second, 6*time.Second)
			}
			w.after(wait, n.restart)
		case k < 7 && n.up && !n.cut:
			w.notef("node %s is cut off", n.id)
			w.count.cuts++
			n.cut, n.since = true, w.now
			w.group.check()
			w.after(w.between(10*time.Millisecond, 2500*time.Millisecond), n.heal)
		case k < 9:
			w.count.leaders++
			w.group.depose()
		default:
			n.replica.slow = w.now + w.between(100*time.Millisecond, 4*time.Second)
		}
	}
}

func (n *node) heal() {
	if n.cut {
		n.cut, n.since = false, n.w.now
		n.w.group.check()
	}
}

// end gives back what the world holds outside of the simulation.
func (w *World) end() {
	for _, n := range w.nodes {
		if n.proc != nil {
			n.proc.kill()
		}
		if n.replica.m != nil {
			_ = n.replica.m.Close()
		}
	}
	w.outside.kill()
	for _, s := range w.stores {
		s.disk.close()
	}
}

// faults returns the counts of what went wrong and of what came of it, by name.
func (c *Counts) faults() map[string]*uint64 {
	return map[string]*uint64{
		"crashes": &c.crashes, "cuts": &c.cuts, "leaders lost": &c.leaders, "snapshots installed": &c.installs,
		"proposals repeated": &c.retries, "duplicates": &c.duplicates, "commands of fenced writers": &c.fenced,
		"blobs put again": &c.again, "commits": &c.commits, "writes": &c.writes, "flushes": &c.flushes, "reads": &c.reads,
		"hedged puts": &c.hedged, "ids given up": &c.abandoned, "members moved": &c.moves,
		"garbage": &c.collected, "orphans": &c.orphans, "stores lost": &c.losses,
	}
}

// add sums counts up.
func (c *Counts) add(d *Counts) {
	c.Steps += d.Steps
	c.Time += d.Time
	c.Entries += d.Entries
	to := c.faults()
	for name, n := range d.faults() {
		*to[name] += *n
	}
	c.moved += d.moved
	c.repeats += d.repeats
	c.relocated += d.relocated
	c.leftOut += d.leftOut
	c.pulled += d.pulled
	c.given += d.given
	c.hurts += d.hurts
	c.healed += d.healed
}
