package repair

import (
	"fmt"
	"slices"
	"sort"

	"github.com/hawserfs/hawser/cluster"
)

// maxCopies is the largest number of copies of a class.
const maxCopies = 3

// setsPerStore is how many full sets of one width each store is in. Where there
// are not that many combinations, several sets have the same members: so a part
// of the data can be moved at a time. More would spread the work of a repair
// further, and raise the chance that some set loses all its members.
const setsPerStore = 8

// reservePerStore is that of sets of two beside those of three.
const reservePerStore = 8

// A disk is a store that sets can be made of.
type disk = Store

// A chosen set is one that should be there.
type chosenSet struct {
	members []cluster.StoreID // sorted
	copies  uint8
}

func (c chosenSet) key() string { return fmt.Sprint(c.copies, c.members) }

// domain returns the highest level at which disks have at least n domains.
func domain(disks []disk, n int) func(*disk) string {
	levels := []func(*disk) string{
		func(d *disk) string { return "rack " + d.Rack },
		func(d *disk) string { return "node " + string(d.Node) },
	}
	for i, level := range levels {
		distinct := map[string]bool{}
		for j := range disks {
			if i == 0 && disks[j].Rack == "" {
				continue // a node without a rack is in no known rack
			}
			distinct[level(&disks[j])] = true
		}
		if len(distinct) >= n {
			return level
		}
	}
	return func(d *disk) string { return fmt.Sprint("disk ", d.ID) }
}

// shared is how much two members of a set have in common: the lower, the
// better. To share a node is worse than to share a rack.
func shared(a, b *disk) int {
	switch {
	case a.Node == b.Node:
		return 100
	case a.Rack == b.Rack && a.Rack != "":
		return 1
	}
	return 0
}

// sharing is how much a set's members have in common.
func sharing(members []*disk) (n int) {
	for i, a := range members {
		for _, b := range members[i+1:] {
			n += shared(a, b)
		}
	}
	return n
}

// choose makes sets of width members, beside those that there are, so that each
// store is in about perStore of them, preferring pairs of stores that share few
// sets yet. again allows sets with members that another one has.
func choose(disks []disk, width int, copies uint8, there []chosenSet, perStore int, again bool) []chosenSet {
	level := domain(disks, width)
	uses := map[cluster.StoreID]int{}
	pairs := map[[2]cluster.StoreID]int{}
	seen := map[string]int{}
	count := func(s chosenSet) {
		seen[s.key()]++
		for i, a := range s.members {
			uses[a]++
			for _, b := range s.members[i+1:] {
				pairs[pair(a, b)]++
			}
		}
	}
	for _, s := range there {
		count(s)
	}
	most := 1 // sets with the same members
	var sets []chosenSet
	full := map[cluster.StoreID]bool{}
	for {
		first := -1
		for i := range disks {
			if id := disks[i].ID; uses[id] < perStore && !full[id] && (first < 0 || uses[id] < uses[disks[first].ID]) {
				first = i
			}
		}
		if first < 0 {
			if again && most < perStore && len(full) > 0 {
				most++
				clear(full)
				continue
			}
			return sets
		}
		members := extend(disks, []*disk{&disks[first]}, width, level, func(chosen []*disk, d *disk) int {
			cost := uses[d.ID]
			for _, c := range chosen {
				cost += 4*pairs[pair(c.ID, d.ID)] + 1000*shared(c, d)
			}
			return cost
		}, func(members []*disk) bool { return seen[newSet(members, copies).key()] < most })
		if members == nil {
			full[disks[first].ID] = true // no new combination with this store
			continue
		}
		set := newSet(members, copies)
		sets = append(sets, set)
		count(set)
	}
}

// extend adds disks of other domains to chosen, cheapest first, until there
// are width of them that accept takes; nil if there is no such combination.
func extend(disks []disk, chosen []*disk, width int, level func(*disk) string, cost func([]*disk, *disk) int, accept func([]*disk) bool) []*disk {
	if len(chosen) == width {
		if accept(chosen) {
			return slices.Clone(chosen)
		}
		return nil
	}
	var open []*disk
	for i := range disks {
		d := &disks[i]
		if !slices.ContainsFunc(chosen, func(c *disk) bool { return level(c) == level(d) }) {
			open = append(open, d)
		}
	}
	costs := make(map[cluster.StoreID]int, len(open))
	for _, d := range open {
		costs[d.ID] = cost(chosen, d)
	}
	sort.SliceStable(open, func(i, j int) bool { return costs[open[i].ID] < costs[open[j].ID] })
	for _, d := range open {
		if found := extend(disks, append(chosen, d), width, level, cost, accept); found != nil {
			return found
		}
	}
	return nil
}

func newSet(members []*disk, copies uint8) chosenSet {
	s := chosenSet{copies: copies}
	for _, d := range members {
		s.members = append(s.members, d.ID)
	}
	slices.Sort(s.members)
	return s
}

func pair(a, b cluster.StoreID) [2]cluster.StoreID {
	if a > b {
		a, b = b, a
	}
	return [2]cluster.StoreID{a, b}
}

// distinct reports whether members are all in different domains at a level.
func distinct(members []*disk, level func(*disk) string) bool {
	for i, a := range members {
		for _, b := range members[i+1:] {
			if level(a) == level(b) {
				return false
			}
		}
	}
	return true
}
