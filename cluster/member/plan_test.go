package member

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// nodes reads "n1 n2/r1 n3! n4-": a rack after the slash, ! for one that is
// down, - for one that may not vote.
func nodes(text string) []candidate {
	var out []candidate
	for _, w := range strings.Fields(text) {
		c := candidate{meta: !strings.Contains(w, "-"), up: !strings.Contains(w, "!")}
		name, rack, _ := strings.Cut(strings.Trim(w, "-!"), "/")
		c.id, c.rack = cluster.NodeID(name), rack
		out = append(out, c)
	}
	return out
}

func TestPlanVoters(t *testing.T) {
	for _, x := range []struct{ name, nodes, present, want string }{
		{"alone", "n1", "n1", "n1"},
		{"two stay with one voter", "n1 n2", "n1", "n1"},
		{"three vote", "n1 n2 n3", "n1", "n1 n2 n3"},
		{"four have three voters", "n1 n2 n3 n4", "n1 n2 n3", "n1 n2 n3"},
		{"five vote", "n1 n2 n3 n4 n5", "n1 n2 n3", "n1 n2 n3 n4 n5"},
		{"a down node is not made a voter", "n1 n2 n3!", "n1", "n1"},
		{"a down voter stays", "n1 n2 n3! n4", "n1 n2 n3", "n1 n2 n3"},
		{"a removed voter is replaced", "n1 n2 n4", "n1 n2 n3", "n1 n2 n4"},
		{"racks are spread over", "n1/a n2/a n3/b n4/c", "n1", "n1 n3 n4"},
		{"data nodes don't vote", "n1 n2- n3- n4-", "n1", "n1"},
	} {
		t.Run(x.name, func(t *testing.T) {
			var present []cluster.NodeID
			for _, w := range strings.Fields(x.present) {
				present = append(present, cluster.NodeID(w))
			}
			got := fmt.Sprint(planVoters(nodes(x.nodes), present))
			if want := "[" + x.want + "]"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
