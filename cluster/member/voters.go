package member

import (
	"slices"
	"sort"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/group"
)

// A candidate is a node that may be a member of a group.
type candidate struct {
	id   cluster.NodeID
	rack string
	meta bool // may vote
	up   bool // may become a voter now
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

// caughtUp is how many entries a node may be behind when it becomes a voter.
const caughtUp = 1000

// The changes of a group's membership.
const (
	addMember     = "add"
	promoteMember = "promote"
	removeMember  = "remove"
)

// A memberStep is one change of a group's membership; none if what is empty.
type memberStep struct {
	what string
	node cluster.NodeID
}

// planMembers returns the next step towards the membership that a group should
// have. Every node gets a copy; a node becomes a voter only if it runs the
// group, has nearly all of its log, and is up: until then a majority that
// counted it would be harder to reach, not easier.
func planMembers(nodes []registry.Node, members []group.Member, t table, id cluster.GroupID, applied uint64) memberStep {
	var present []cluster.NodeID
	voter := map[cluster.NodeID]bool{}
	for _, m := range members {
		voter[m.ID] = m.Voter
		if m.Voter {
			present = append(present, m.ID)
		}
	}
	var candidates []candidate
	removed := map[cluster.NodeID]bool{}
	for _, node := range nodes {
		if node.State == registry.NodeRemoved {
			removed[node.ID] = true
			continue
		}
		has, runs := t.Applied[node.ID][id]
		candidates = append(candidates, candidate{
			id: node.ID, rack: node.Rack, meta: node.Roles.Has(registry.RoleMeta),
			up: t.Up[node.ID] && runs && has+caughtUp >= applied,
		})
	}
	want := planVoters(candidates, present)
	for _, c := range candidates {
		isVoter, member := voter[c.id]
		if !member {
			return memberStep{addMember, c.id}
		}
		if !isVoter && c.up && slices.Contains(want, c.id) {
			return memberStep{promoteMember, c.id}
		}
	}
	for _, m := range members {
		if removed[m.ID] {
			return memberStep{removeMember, m.ID}
		}
	}
	return memberStep{}
}
