package member

import (
	"slices"
	"sort"

	"github.com/hawserfs/hawser/cluster"
)

// A candidate is a node that may be a member of a group.
type candidate struct {
	id   cluster.NodeID
	rack string
	meta bool // may vote
	up   bool
}

// quorumSize is how many voters a group has with n nodes that may vote: an
// odd number, since an even one loses its majority with as few nodes and more easily.
func quorumSize(n int) int {
	switch {
	case n >= 5:
		return 5
	case n >= 3:
		return 3
	case n >= 1:
		return 1
	}
	return 0
}

// planVoters returns which nodes should vote, sorted. Present voters stay as
// long as they are candidates; new ones are up, and in racks that have the
// fewest voters.
func planVoters(nodes []candidate, present []cluster.NodeID) []cluster.NodeID {
	var metas []candidate
	for _, n := range nodes {
		if n.meta {
			metas = append(metas, n)
		}
	}
	sort.Slice(metas, func(i, j int) bool { return metas[i].id < metas[j].id })
	want := quorumSize(len(metas))
	var voters []cluster.NodeID
	inRack := map[string]int{}
	take := func(n candidate) {
		voters = append(voters, n.id)
		inRack[n.rack]++
	}
	for _, n := range metas {
		if slices.Contains(present, n.id) && len(voters) < want {
			take(n)
		}
	}
	for len(voters) < want {
		best := -1
		for i, n := range metas {
			if n.up && !slices.Contains(voters, n.id) && (best < 0 || inRack[n.rack] < inRack[metas[best].rack]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		take(metas[best])
	}
	// One more than an odd number is worse than the odd number itself.
	if len(voters)%2 == 0 && len(voters) > 0 {
		drop := len(voters) - 1
		if !slices.Contains(present, voters[drop]) {
			voters = voters[:drop]
		}
	}
	slices.Sort(voters)
	return voters
}
