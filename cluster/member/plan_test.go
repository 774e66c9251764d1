package member

import (
	"fmt"
	"slices"
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

// disks reads "n1/r1:2": two stores on node n1 in rack r1; stores are numbered from 1.
func disks(text string) []disk {
	var out []disk
	for _, w := range strings.Fields(text) {
		where, count, many := strings.Cut(w, ":")
		n := 1
		if many {
			fmt.Sscan(count, &n)
		}
		node, rack, _ := strings.Cut(where, "/")
		for range n {
			out = append(out, disk{store: cluster.StoreID(len(out) + 1), node: cluster.NodeID(node), rack: rack})
		}
	}
	return out
}

func TestPlanSets(t *testing.T) {
	for _, x := range []struct{ name, disks, want string }{
		{"one disk", "n1", "1:[1] 2:[1] 3:[1]"},
		{"one node, three disks", "n1:3", "1:[1] 1:[2] 1:[3] 2:[1 2] 2:[1 3] 2:[2 3] 3:[1 2 3] 3:[1 2] 3:[1 3] 3:[2 3]"},
		{"three nodes", "n1 n2 n3", "1:[1] 1:[2] 1:[3] 2:[1 2] 2:[1 3] 2:[2 3] 3:[1 2 3] 3:[1 2] 3:[1 3] 3:[2 3]"},
		{"two nodes", "n1 n2", "1:[1] 1:[2] 2:[1 2] 3:[1 2]"},
		{"racks keep apart", "n1/a n2/a n3/b", "1:[1] 1:[2] 1:[3] 2:[1 3] 2:[2 3] 3:[1 2 3] 3:[1 3] 3:[2 3]"},
		{"none", "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			var got []string
			for _, p := range planSets(disks(x.disks)) {
				got = append(got, fmt.Sprintf("%d:%v", p.copies, p.members))
			}
			want := strings.Split(strings.ReplaceAll(x.want, "] ", "]|"), "|")
			slices.Sort(got)
			slices.Sort(want)
			if s := strings.Join(got, "|"); s != strings.Join(want, "|") {
				t.Errorf("got  %s\nwant %s", s, strings.Join(want, "|"))
			}
		})
	}
}

// TestPlanSetsSpreads holds a larger plan to what matters: no two members in
// one domain, every store used about equally, no set twice.
func TestPlanSetsSpreads(t *testing.T) {
	d := disks("n1/a:2 n2/a:2 n3/b:2 n4/b:2 n5/c:2 n6/c:2")
	rack := map[cluster.StoreID]string{}
	for _, x := range d {
		rack[x.store] = x.rack
	}
	uses, seen, full := map[cluster.StoreID]int{}, map[string]bool{}, 0
	for _, p := range planSets(d) {
		if seen[p.key()] {
			t.Errorf("set %s is there twice", p.key())
		}
		seen[p.key()] = true
		racks := map[string]bool{}
		for _, m := range p.members {
			racks[rack[m]] = true
		}
		if len(p.members) > 1 && len(racks) != len(p.members) {
			t.Errorf("set %v has two members in one rack", p.members)
		}
		if p.copies == 3 && len(p.members) == 3 {
			full++
			for _, m := range p.members {
				uses[m]++
			}
		}
	}
	for s, n := range uses {
		if n < setsPerStore-2 || n > setsPerStore+4 {
			t.Errorf("store %d is in %d full sets, want about %d", s, n, setsPerStore)
		}
	}
	if full == 0 {
		t.Error("no full sets")
	}
}
