package placement

import (
	"slices"

	"github.com/hawserfs/hawser/cluster"
)

// A rank says how much a set is wanted: the lower the better.
type rank int

// choose returns the best set that is not in tried and shares no member with
// avoid, or with avoid ignored if there is none. Sets with a member that is
// down or full are left out; sets with a suspect member are the last resort.
// Otherwise full sets are better than smaller ones, sets with a store of this
// node are better than others, and of two random equals the less loaded wins.
func (p *Placement) choose(sets []SetInfo, tried []cluster.ReplicaSetID, avoid []cluster.StoreID) (SetInfo, bool) {
	const worst = rank(1 << 30)
	best, n := worst, 0
	ranks := make([]rank, len(sets))
	for i := range sets {
		ranks[i] = worst
		if slices.Contains(tried, sets[i].ID) {
			continue
		}
		if r, ok := p.rank(&sets[i], avoid); ok {
			ranks[i] = r
			switch {
			case r < best:
				best, n = r, 1
			case r == best:
				n++
			}
		}
	}
	if n == 0 {
		return SetInfo{}, false
	}
	nth := func(k int) *SetInfo {
		for i := range sets {
			if ranks[i] == best {
				if k == 0 {
					return &sets[i]
				}
				k--
			}
		}
		return nil
	}
	a := nth(p.cfg.Rand(n))
	if n > 1 {
		if b := nth(p.cfg.Rand(n)); p.loadOf(b) < p.loadOf(a) {
			a = b
		}
	}
	return *a, true
}

func (p *Placement) rank(s *SetInfo, avoid []cluster.StoreID) (rank, bool) {
	if len(s.Members) == 0 {
		return 0, false
	}
	r := rank(2 * max(0, int(s.Copies)-len(s.Members)))
	local := false
	for _, id := range s.Members {
		isLocal := p.cfg.Client.Local(id)
		if _, up := p.cfg.Map.Addr(id); !up && !isLocal {
			return 0, false
		}
		st := p.stores.get(id)
		if st.isFull(p.cfg.Suspect) {
			return 0, false
		}
		if st.suspect(p.cfg.Suspect) || slices.Contains(avoid, id) {
			r += 1 << 8
		}
		local = local || isLocal
	}
	if !local {
		r++
	}
	return r, true
}

// why returns why none of sets can be chosen: ENOSPC if there is none, or one
// whose members are up is full. Otherwise stores are down, which passes: to say
// that there is no space would have the client's data lost for nothing.
func (p *Placement) why(sets []SetInfo) cluster.Errno {
	if len(sets) == 0 {
		return cluster.ENOSPC
	}
	for i := range sets {
		up, full := true, false
		for _, id := range sets[i].Members {
			_, thought := p.cfg.Map.Addr(id)
			up = up && (thought || p.cfg.Client.Local(id))
			full = full || p.stores.get(id).isFull(p.cfg.Suspect)
		}
		if up && full {
			return cluster.ENOSPC
		}
	}
	return cluster.EAGAIN
}

// loadOf is that of the set's most loaded member: the slowest one decides when
// a put is done.
func (p *Placement) loadOf(s *SetInfo) (l int64) {
	for _, id := range s.Members {
		l = max(l, p.stores.get(id).load())
	}
	return l
}
