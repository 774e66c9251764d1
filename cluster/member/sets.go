package member

import (
	"fmt"
	"slices"
	"sort"

	"github.com/hawserfs/hawser/cluster"
)

// A disk is a store that replica sets can be made of.
type disk struct {
	store cluster.StoreID
	node  cluster.NodeID
	rack  string
}

// maxCopies is the largest number of copies of a class.
const maxCopies = 3

// setsPerStore is how many full replica sets of one width each store is in,
// where there are that many combinations. More would spread the work of a
// repair further, and raise the chance that some set loses all its members.
const setsPerStore = 8

// A plannedSet is a replica set that should exist.
type plannedSet struct {
	members []cluster.StoreID // sorted
	copies  uint8
}

// key names the set for comparing.
func (p plannedSet) key() string { return fmt.Sprint(p.copies, p.members) }

// planSets returns the replica sets that should exist over disks: for each
// number of copies, full sets whose members differ in rack, else in node, else
// in disk; and for three copies also sets of two, so that writing goes on at
// once when a node is down. Where there are fewer domains than copies, sets
// have as many members as there are domains.
func planSets(disks []disk) []plannedSet {
	disks = slices.Clone(disks)
	sort.Slice(disks, func(i, j int) bool { return disks[i].store < disks[j].store })
	var plan []plannedSet
	for copies := 1; copies <= maxCopies; copies++ {
		width := min(copies, len(disks))
		if width == 0 {
			continue
		}
		plan = append(plan, choose(disks, width, uint8(copies))...)
		if width == 3 {
			plan = append(plan, choose(disks, 2, uint8(copies))...)
		}
	}
	return plan
}

// domain returns the highest level at which disks have at least n domains.
func domain(disks []disk, n int) func(disk) string {
	levels := []func(disk) string{
		func(d disk) string { return "rack " + d.rack },
		func(d disk) string { return "node " + string(d.node) },
	}
	for i, level := range levels {
		distinct := map[string]bool{}
		for _, d := range disks {
			if i == 0 && d.rack == "" {
				continue // a node without a rack is in no known rack
			}
			distinct[level(d)] = true
		}
		if len(distinct) >= n {
			return level
		}
	}
	return func(d disk) string { return fmt.Sprint("disk ", d.store) }
}

// choose makes sets of width members so that each store is in about
// setsPerStore of them, preferring pairs of stores that share few sets yet.
func choose(disks []disk, width int, copies uint8) []plannedSet {
	level := domain(disks, width)
	uses := map[cluster.StoreID]int{}
	pairs := map[[2]cluster.StoreID]int{}
	seen := map[string]bool{}
	var sets []plannedSet
	for {
		first := -1
		for i, d := range disks {
			if uses[d.store] < setsPerStore && (first < 0 || uses[d.store] < uses[disks[first].store]) {
				first = i
			}
		}
		if first < 0 {
			return sets
		}
		members := extend(disks, []disk{disks[first]}, width, level, func(chosen []disk, d disk) int {
			cost := uses[d.store]
			for _, c := range chosen {
				cost += 4 * pairs[pair(c.store, d.store)]
			}
			return cost
		}, func(members []disk) bool { return !seen[newSet(members, copies).key()] })
		if members == nil {
			uses[disks[first].store] = setsPerStore // no new combination with this store
			continue
		}
		set := newSet(members, copies)
		seen[set.key()] = true
		sets = append(sets, set)
		for i, a := range set.members {
			uses[a]++
			for _, b := range set.members[i+1:] {
				pairs[pair(a, b)]++
			}
		}
	}
}

// extend adds disks of other domains to chosen, cheapest first, until there
// are width of them that accept takes; nil if there is no such combination.
func extend(disks, chosen []disk, width int, level func(disk) string, cost func([]disk, disk) int, accept func([]disk) bool) []disk {
	if len(chosen) == width {
		if accept(chosen) {
			return slices.Clone(chosen)
		}
		return nil
	}
	var open []disk
	for _, d := range disks {
		if !slices.ContainsFunc(chosen, func(c disk) bool { return level(c) == level(d) }) {
			open = append(open, d)
		}
	}
	sort.SliceStable(open, func(i, j int) bool { return cost(chosen, open[i]) < cost(chosen, open[j]) })
	for _, d := range open {
		if found := extend(disks, append(chosen, d), width, level, cost, accept); found != nil {
			return found
		}
	}
	return nil
}

func newSet(members []disk, copies uint8) plannedSet {
	p := plannedSet{copies: copies}
	for _, d := range members {
		p.members = append(p.members, d.store)
	}
	slices.Sort(p.members)
	return p
}

func pair(a, b cluster.StoreID) [2]cluster.StoreID {
	if a > b {
		a, b = b, a
	}
	return [2]cluster.StoreID{a, b}
}
