package repair

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hawserfs/hawser/cluster"
)

// planner is one call of NewPlan.
type planner struct {
	in     *Input
	stores map[cluster.StoreID]*Store
	disks  []disk // that may be members of new sets, by id
	used   map[cluster.StoreID]int
	plan   Plan
	busy   map[cluster.ReplicaSetID]bool
	filled map[cluster.StoreID]int // moves to each store
	begun  int
}

// A need is a member of a set that should be exchanged or added.
type need struct {
	set    *Set
	reason Reason
	from   cluster.StoreID
	to     cluster.StoreID // chosen already; 0: not
	up     int             // members that can be reached
}

// NewPlan returns the next steps. It depends on nothing but its argument.
func NewPlan(in *Input) Plan {
	p := newPlanner(in)
	needs := p.look()
	p.makeSets()
	p.move(needs)
	return p.plan
}

func newPlanner(in *Input) *planner {
	p := &planner{
		in: in, stores: map[cluster.StoreID]*Store{}, used: map[cluster.StoreID]int{},
		busy: map[cluster.ReplicaSetID]bool{}, filled: map[cluster.StoreID]int{},
	}
	for i := range in.Stores {
		s := &in.Stores[i]
		p.stores[s.ID] = s
		if s.takes() {
			p.disks = append(p.disks, *s)
		}
	}
	slices.SortFunc(p.disks, func(a, b disk) int { return cmp.Compare(a.ID, b.ID) })
	for i := range in.Sets {
		for _, m := range in.Sets[i].Members {
			p.used[m]++
		}
	}
	for _, m := range in.Busy {
		p.busy[m.Set.ID] = true
		p.filled[m.To]++
		p.begun++
	}
	return p
}

// width is how many members a set for so many copies should have now.
func (p *planner) width(copies uint8) int { return min(int(copies), len(p.disks)) }

// look finds what the sets with blobs need. One that needs nothing and is not
// being moved is writable.
func (p *planner) look() (needs []need) {
	for i := range p.in.Sets {
		s := &p.in.Sets[i]
		if !s.Used || s.State == Retired || s.Foreign || p.busy[s.ID] {
			continue
		}
		if n, ok := p.needOf(s); ok {
			needs = append(needs, n)
		} else if s.State == ReadOnly {
			put := *s
			put.State = Writable
			p.plan.Put = append(p.plan.Put, put)
		}
	}
	if p.in.Balance {
		needs = append(needs, p.balance(needs)...)
	}
	slices.SortStableFunc(needs, func(a, b need) int {
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(a.up, b.up), cmp.Compare(a.reason, b.reason),
			-cmp.Compare(a.set.Begun, b.set.Begun), cmp.Compare(a.set.ID, b.set.ID))
	})
	return needs
}

// urgency: data that has fewer copies than it should comes first.
func (n *need) urgency() Reason {
	if n.reason == Widen {
		return Lost
	}
	return n.reason
}

// needOf returns the most urgent need of a set.
func (p *planner) needOf(s *Set) (n need, ok bool) {
	n.set = s
	var lost, draining cluster.StoreID
	for _, m := range s.Members {
		st := p.stores[m]
		switch {
		case st == nil || st.Lost:
			if lost == 0 {
				lost = m
			}
			continue
		case st.Draining && draining == 0:
			draining = m
		}
		if st.Up {
			n.up++
		}
	}
	switch {
	case lost != 0:
		n.reason, n.from = Lost, lost
	case len(s.Members) < p.width(s.Copies):
		n.reason = Widen
	case draining != 0:
		n.reason, n.from = Drain, draining
	default:
		n.from, n.to = p.apart(s)
		n.reason = Domain
		return n, n.to != 0
	}
	return n, true
}

// apart returns the exchange of a member that makes a set's members share least,
// if any makes them share less.
func (p *planner) apart(s *Set) (from, to cluster.StoreID) {
	members := p.members(s)
	best := sharing(members)
	if best == 0 {
		return 0, 0
	}
	for i, m := range members {
		rest := slices.Delete(slices.Clone(members), i, i+1)
		if id, cost := p.target(s, rest); id != 0 && cost < best {
			best, from, to = cost, m.ID, id
		}
	}
	return from, to
}

// members returns a set's members that are not lost.
func (p *planner) members(s *Set) (members []*disk) {
	for _, m := range s.Members {
		if st := p.stores[m]; st != nil && !st.Lost {
			members = append(members, st)
		}
	}
	return members
}

// target returns the best new member for a set beside those that it keeps, and
// how much they share then; 0 if there is none.
func (p *planner) target(s *Set, keep []*disk) (best cluster.StoreID, sharedThen int) {
	type choice struct {
		id    cluster.StoreID
		avoid int
		share int
		begun int // 0: an earlier leader began there
		busy  int
		used  int
	}
	var least choice
	for i := range p.disks {
		d := &p.disks[i]
		if !d.Up || d.Full || s.has(d.ID) {
			continue
		}
		c := choice{d.ID, 0, sharing(append(slices.Clone(keep), d)), 1, p.filled[d.ID], p.used[d.ID]}
		if d.ID == s.Avoid {
			c.avoid = 1
		}
		if d.ID == s.Begun {
			c.begun = 0
		}
		if best == 0 || cmp.Or(cmp.Compare(c.avoid, least.avoid), cmp.Compare(c.share, least.share), cmp.Compare(c.begun, least.begun),
			cmp.Compare(c.busy, least.busy), cmp.Compare(c.used, least.used)) < 0 {
			best, least = d.ID, c
		}
	}
	return best, least.share
}

// move begins what there is room for.
func (p *planner) move(needs []need) {
	room := p.in.Parallel
	if room <= 0 {
		room = 2
	}
	room -= p.begun
	for _, n := range needs {
		if why, paused := p.in.Pause[n.set.ID]; paused {
			p.wait(n, why)
			continue
		}
		if n.up == 0 {
			p.wait(n, "no member can be reached")
			continue
		}
		to := n.to
		if to == 0 {
			keep := slices.DeleteFunc(p.members(n.set), func(d *disk) bool { return d.ID == n.from })
			to, _ = p.target(n.set, keep)
		}
		switch {
		case to == 0:
			p.wait(n, p.whyNot(n.set))
		case room <= 0 || p.filled[to] > 0 && n.set.State == Writable:
			p.wait(n, "") // a store is filled by one move at a time
		default:
			room--
			p.filled[to]++
			p.used[to]++
			p.plan.Moves = append(p.plan.Moves, Move{Set: *n.set, Reason: n.reason, From: n.from, To: to})
		}
	}
}

// wait notes that a set can't be changed now. Meanwhile it is written to: it may be
// the only one whose members are all up.
func (p *planner) wait(n need, why string) {
	p.plan.Waits = append(p.plan.Waits, Wait{n.set.ID, n.reason, n.from, why})
	if why != "" && n.set.State == ReadOnly && n.reason != Lost && n.reason != Drain {
		put := *n.set
		put.State = Writable
		p.plan.Put = append(p.plan.Put, put)
	}
}

// whyNot says why there is no new member for a set.
func (p *planner) whyNot(s *Set) string {
	full, down := 0, 0
	for i := range p.disks {
		switch d := &p.disks[i]; {
		case s.has(d.ID):
		case !d.Up:
			down++
		case d.Full:
			full++
		}
	}
	return fmt.Sprintf("no other store can take its data: %d are full, %d are down; add a node or a disk", full, down)
}

// makeSets plans the sets that writers go to: what is missing is made of sets
// without blobs that are of no use any more, or anew.
func (p *planner) makeSets() {
	type kind struct {
		copies uint8
		width  int
	}
	there := map[kind][]chosenSet{}
	var spare []*Set
	for i := range p.in.Sets {
		s := &p.in.Sets[i]
		if s.State == Retired || s.Foreign {
			continue
		}
		k := kind{s.Copies, len(s.Members)}
		if !p.fits(s) {
			if !s.Used && !p.busy[s.ID] {
				spare = append(spare, s)
			}
			continue
		}
		// One of two that is being widened is none that can be written to while the
		// third is down: there has to be another one.
		if len(s.Members) == p.width(s.Copies) || s.State == Writable && !p.busy[s.ID] {
			there[k] = append(there[k], chosenSet{slices.Sorted(slices.Values(s.Members)), s.Copies})
		}
		if !s.Used && s.State == ReadOnly && !p.busy[s.ID] {
			put := *s
			put.State = Writable
			p.plan.Put = append(p.plan.Put, put)
		}
	}
	add := func(k kind, perStore int, again bool) {
		for _, c := range choose(p.disks, k.width, k.copies, there[k], perStore, again) {
			put := Set{Members: c.members, Copies: c.copies}
			if len(spare) > 0 {
				put.ID, put.Epoch = spare[0].ID, spare[0].Epoch
				spare = spare[1:]
			}
			p.plan.Put = append(p.plan.Put, put)
		}
	}
	for copies := uint8(1); copies <= maxCopies; copies++ {
		width := p.width(copies)
		if width == 0 {
			continue
		}
		full := width == int(copies) && width > 1
		if full {
			add(kind{copies, width}, setsPerStore, true)
		} else {
			add(kind{copies, width}, setsPerStore, false)
		}
		if width == 3 {
			// Sets of two, so that writing goes on at once while a node is down.
			add(kind{copies, 2}, reservePerStore, false)
		}
	}
	for _, s := range spare {
		if s.State == Writable {
			put := *s
			put.State = ReadOnly // until it is of use again
			p.plan.Put = append(p.plan.Put, put)
		}
	}
}

// fits reports whether a set is one that writers may go to: all its members may
// be, and they differ in what they can.
func (p *planner) fits(s *Set) bool {
	members := p.members(s)
	width := p.width(s.Copies)
	reserve := width == 3 && len(s.Members) == 2
	if len(members) != len(s.Members) || len(members) != width && !reserve {
		return false
	}
	for _, m := range members {
		if !m.takes() {
			return false
		}
	}
	return distinct(members, domain(p.disks, len(members)))
}

// Needed reports whether a move under way still has its reason, and a member to
// move to: what it goes by is the set with the members that it has now.
func Needed(in *Input, m *Move) bool {
	i := slices.IndexFunc(in.Sets, func(s Set) bool { return s.ID == m.Set.ID })
	if i < 0 || !slices.Equal(in.Sets[i].Members, m.Set.Members) {
		return true // it is at its end
	}
	p := newPlanner(&Input{Stores: in.Stores})
	to := p.stores[m.To]
	if to == nil || !to.takes() || !to.Up {
		return false
	}
	from := p.stores[m.From]
	switch m.Reason {
	case Lost:
		return from == nil || from.Lost
	case Drain:
		return from != nil && (from.Draining || from.Lost)
	}
	return true
}
