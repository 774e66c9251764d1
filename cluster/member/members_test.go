package member

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/group"
)

// TestPlanMembers: each node is "n1:900", how far it says it has the group
// whose leader is at 5000; "-" if it does not run it, "!" if it is down, "x" if
// it is removed.
func TestPlanMembers(t *testing.T) {
	for _, x := range []struct{ name, nodes, members, want string }{
		{"alone", "n1:5000", "n1*", ""},
		{"a new node gets a copy", "n1:5000 n2:-", "n1*", "add n2"},
		{"also one that is down", "n1:5000 n2:!", "n1*", "add n2"},
		{"two have one voter", "n1:5000 n2:5000", "n1* n2", ""},
		{"three vote", "n1:5000 n2:5000 n3:5000", "n1* n2 n3", "promote n2"},
		{"the third follows", "n1:5000 n2:5000 n3:5000", "n1* n2* n3", "promote n3"},
		{"a little behind is near enough", "n1:5000 n2:4000 n3:4000", "n1* n2 n3", "promote n2"},
		{"one that is behind does not vote", "n1:5000 n2:5000 n3:3999", "n1* n2* n3", ""},
		{"nor one that never said how far it is", "n1:5000 n2:5000 n3:-", "n1* n2* n3", ""},
		{"nor one that is down", "n1:5000 n2:5000 n3:!", "n1* n2* n3", ""},
		{"until two can there is one voter", "n1:5000 n2:5000 n3:-", "n1* n2 n3", ""},
		{"a down voter stays", "n1:5000 n2:! n3:5000 n4:5000", "n1* n2* n3* n4", ""},
		{"a removed node goes", "n1:5000 n2:x n3:5000", "n1* n2* n3*", "remove n2"},
		{"after its place is taken", "n1:5000 n2:x n3:5000 n4:5000", "n1* n2* n3* n4", "promote n4"},
		{"a removed node is not added", "n1:5000 n2:x", "n1*", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			var nodes []registry.Node
			tab := table{Up: map[cluster.NodeID]bool{}, Applied: map[cluster.NodeID]map[cluster.GroupID]uint64{}}
			for _, w := range strings.Fields(x.nodes) {
				name, state, _ := strings.Cut(w, ":")
				n := registry.Node{ID: cluster.NodeID(name), Roles: registry.AllRoles}
				tab.Up[n.ID] = true
				applied := map[cluster.GroupID]uint64{7: 5000}
				switch state {
				case "-":
					applied = map[cluster.GroupID]uint64{0: 5000}
				case "!":
					tab.Up[n.ID] = false
				case "x":
					n.State = registry.NodeRemoved
				default:
					var at uint64
					fmt.Sscan(state, &at)
					applied[7] = at
				}
				tab.Applied[n.ID] = applied
				nodes = append(nodes, n)
			}
			var members []group.Member
			for _, w := range strings.Fields(x.members) {
				members = append(members, group.Member{ID: cluster.NodeID(strings.Trim(w, "*")), Voter: strings.HasSuffix(w, "*")})
			}
			got := planMembers(nodes, members, tab, 7, 5000)
			if s := strings.TrimSpace(got.what + " " + string(got.node)); s != x.want {
				t.Errorf("got %q, want %q", s, x.want)
			}
		})
	}
	// A small group: nobody is far behind, and still one must have been heard.
	nodes := []registry.Node{{ID: "n1", Roles: registry.AllRoles}, {ID: "n2", Roles: registry.AllRoles}, {ID: "n3", Roles: registry.AllRoles}}
	tab := table{Up: map[cluster.NodeID]bool{"n1": true, "n2": true, "n3": true}}
	if got := planMembers(nodes, []group.Member{{ID: "n1", Voter: true}, {ID: "n2"}, {ID: "n3"}}, tab, 7, 10); got.what != "" {
		t.Errorf("a node that was never heard is made a voter: %+v", got)
	}
}
