package node

import (
	"fmt"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
)

// A picture is the cluster as it concerns what goes on without some of it.
type picture struct {
	status member.Status
	stores map[cluster.StoreID]member.StoreView
	sets   []usedSet
}

// A usedSet is a replica set with blobs.
type usedSet struct {
	volume  string
	id      cluster.ReplicaSetID
	members []cluster.StoreID
	need    int // members without which nothing can be read
}

// without says what would not go on if a node were gone.
func (p *picture) without(node cluster.NodeID) (reasons []string) {
	reasons = p.unreadable(func(id cluster.StoreID) bool { return p.stores[id].Node == node })
	up := map[cluster.NodeID]bool{}
	for _, x := range p.status.Nodes {
		up[x.ID] = x.State == "up" && x.ID != node
	}
	for _, g := range p.status.Groups {
		voters, left := 0, 0
		var others []cluster.NodeID
		for _, m := range g.Members {
			if !m.Voter {
				continue
			}
			voters++
			if up[m.Node] {
				left++
			} else if m.Node != node {
				others = append(others, m.Node)
			}
		}
		if left < voters/2+1 {
			why := fmt.Sprintf("group %d would lose its majority: %d of its %d voters would be left", g.ID, left, voters)
			if len(others) > 0 {
				why += fmt.Sprintf(" (%v are down already)", others)
			}
			reasons = append(reasons, why)
		}
	}
	for _, i := range p.status.Identities {
		if i.Address == "" || i.Node != node {
			continue
		}
		if !slices.ContainsFunc(p.status.Nodes, func(x member.NodeStatus) bool {
			return x.ID != node && x.State == "up" && x.FrontEnd && !x.Draining
		}) {
			reasons = append(reasons, fmt.Sprintf("address %s would be served by nobody: no other front-end is up and not drained", i.Address))
		}
	}
	return reasons
}

// unreadable says which data could not be read without some stores.
func (p *picture) unreadable(gone func(cluster.StoreID) bool) (reasons []string) {
	type loss struct {
		sets int
		one  cluster.ReplicaSetID
	}
	losses := map[string]loss{}
	var volumes []string
	for _, s := range p.sets {
		left, there := 0, 0
		for _, m := range s.members {
			if v := p.stores[m]; v.Up {
				there++
				if !gone(m) {
					left++
				}
			}
		}
		if left >= s.need || there < s.need && !slices.ContainsFunc(s.members, gone) {
			continue // it goes on; or it can't be read as it is, and that is not by this
		}
		l := losses[s.volume]
		if l.sets == 0 {
			volumes = append(volumes, s.volume)
		}
		losses[s.volume] = loss{l.sets + 1, s.id}
	}
	for _, v := range volumes {
		reasons = append(reasons, fmt.Sprintf("volume %s: %d replica sets, such as %d, would have no copy that can be read", v, losses[v].sets, losses[v].one))
	}
	return reasons
}

// copiesOn says which data has a copy on some stores.
func (p *picture) copiesOn(on func(cluster.StoreID) bool) (reasons []string) {
	sets := map[string]int{}
	var volumes []string
	for _, s := range p.sets {
		if slices.ContainsFunc(s.members, on) {
			if sets[s.volume]++; sets[s.volume] == 1 {
				volumes = append(volumes, s.volume)
			}
		}
	}
	for _, v := range volumes {
		reasons = append(reasons, fmt.Sprintf("volume %s: %d replica sets have a copy there, and would have one copy less until that is made anew", v, sets[v]))
	}
	return reasons
}
