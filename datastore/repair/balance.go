package repair

import (
	"cmp"
	"slices"

	"github.com/hawserfs/hawser/cluster"
)

// even is by how much of their capacity stores may differ in the end.
const even = 0.04

// balance returns the exchanges that bring the fullest stores and the emptiest
// ones nearer to each other, by what this volume's sets have on them. Sets that
// need something else are left alone.
func (p *planner) balance(needs []need) (moves []need) {
	level := map[cluster.StoreID]float64{} // of this volume's bytes, by capacity
	var sets []*Set
	for i := range p.in.Sets {
		s := &p.in.Sets[i]
		if !s.Used || s.Foreign || s.State == Retired {
			continue
		}
		members := s.Members
		for _, m := range p.in.Busy {
			if m.Set.ID == s.ID {
				members = m.Members()
			}
		}
		for _, m := range members {
			if st := p.stores[m]; st != nil && st.Capacity > 0 {
				level[m] += float64(s.Bytes) / float64(st.Capacity)
			}
		}
		if !p.busy[s.ID] && s.State == Writable && !slices.ContainsFunc(needs, func(n need) bool { return n.set == s }) {
			sets = append(sets, s)
		}
	}
	var stores []*disk
	for i := range p.disks {
		if d := &p.disks[i]; d.Up && d.Capacity > 0 {
			stores = append(stores, d)
		}
	}
	for range len(sets) {
		slices.SortStableFunc(stores, func(a, b *disk) int { return cmp.Compare(level[a.ID], level[b.ID]) })
		n, ok := p.evenOut(stores, sets, level)
		if !ok {
			break
		}
		from, to := p.stores[n.from], p.stores[n.to]
		level[n.from] -= float64(n.set.Bytes) / float64(from.Capacity)
		level[n.to] += float64(n.set.Bytes) / float64(to.Capacity)
		sets = slices.DeleteFunc(sets, func(s *Set) bool { return s == n.set })
		moves = append(moves, n)
	}
	return moves
}

// evenOut returns the exchange between the fullest store and the emptiest that
// has one, which brings them nearest without changing places.
func (p *planner) evenOut(stores []*disk, sets []*Set, level map[cluster.StoreID]float64) (best need, ok bool) {
	for hi := len(stores) - 1; hi > 0; hi-- {
		for lo := range hi {
			from, to := stores[hi], stores[lo]
			gap := level[from.ID] - level[to.ID]
			if gap <= even {
				break
			}
			if to.Full {
				continue
			}
			var most float64
			for _, s := range sets {
				if s.Bytes == 0 || !s.has(from.ID) || s.has(to.ID) {
					continue
				}
				after := float64(s.Bytes)/float64(from.Capacity) + float64(s.Bytes)/float64(to.Capacity)
				if after >= gap*1.5 || after <= most {
					continue // it would only be the other way round then
				}
				keep := slices.DeleteFunc(p.members(s), func(d *disk) bool { return d == p.stores[from.ID] })
				if sharing(append(keep, to)) > sharing(p.members(s)) {
					continue
				}
				most, ok = after, true
				best = need{set: s, reason: Balance, from: from.ID, to: to.ID, up: len(s.Members)}
			}
			if ok {
				return best, true
			}
		}
	}
	return need{}, false
}
