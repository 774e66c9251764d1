package member

import (
	"cmp"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// A place is a node as one that may serve floating addresses.
type place struct {
	id cluster.NodeID
	// ready: it has a front-end and was heard lately, so that it may be given
	// an address.
	ready bool
	// lost: it, or its front-end, was not heard for so long that its addresses
	// may be taken away by force. Between the two nothing is done.
	lost bool
	// steady: it was ready for a while, so that an address may go home to it.
	steady bool
	// draining: its addresses go elsewhere.
	draining bool
}

// A move gives a floating address to another node.
type move struct {
	identity cluster.IdentityID
	to       cluster.NodeID
	// force: without asking the node that has it, which is lost.
	force bool
}

// planIdentities returns which floating addresses are to be served elsewhere
// than now. One that is served by a node that is not lost stays, unless that
// node drains, or failback says that the address goes back to its home. One
// that nobody serves, or a lost node, goes to its home or to the node that has
// the fewest of its group. Nothing moves only to be spread more evenly.
func planIdentities(identities []registry.Identity, places []place, failback bool) []move {
	places = slices.SortedFunc(slices.Values(places), func(a, b place) int { return cmp.Compare(a.id, b.id) })
	at := map[cluster.NodeID]place{}
	for _, p := range places {
		at[p.id] = p
	}
	load := newLoad(identities)
	var moves []move
	for _, i := range identities {
		if !i.Floating() || i.Retired {
			continue
		}
		holder, known := at[i.Node]
		lost := !known || holder.lost // nobody, or a node that is gone
		home, to := at[i.Home], cluster.NodeID("")
		homeFree := home.ready && !home.draining
		switch {
		case homeFree && (lost || holder.draining && i.Home != i.Node):
			to = i.Home
		case lost, holder.draining:
			to = load.best(i.Group, places, i.Node)
		case failback && homeFree && home.steady && i.Home != i.Node:
			to = i.Home
		}
		if to == "" {
			continue
		}
		moves = append(moves, move{identity: i.ID, to: to, force: lost})
		load.move(i.Group, i.Node, to)
	}
	return moves
}

// load counts the addresses of each node.
type load struct {
	inGroup map[groupOf]int
	all     map[cluster.NodeID]int
}

type groupOf struct {
	group string
	node  cluster.NodeID
}

func newLoad(identities []registry.Identity) load {
	l := load{inGroup: map[groupOf]int{}, all: map[cluster.NodeID]int{}}
	for _, i := range identities {
		if i.Floating() && !i.Retired && i.Node != "" {
			l.move(i.Group, "", i.Node)
		}
	}
	return l
}

func (l load) move(group string, from, to cluster.NodeID) {
	if from != "" {
		l.inGroup[groupOf{group, from}]--
		l.all[from]--
	}
	l.inGroup[groupOf{group, to}]++
	l.all[to]++
}

// best returns the node that may be given an address and has the fewest of the
// group, then the fewest of all; "" if there is none. places is sorted, so that
// every leader chooses the same.
func (l load) best(group string, places []place, not cluster.NodeID) cluster.NodeID {
	best := cluster.NodeID("")
	for _, p := range places {
		if !p.ready || p.draining || p.id == not {
			continue
		}
		in, than := l.inGroup[groupOf{group, p.id}], l.inGroup[groupOf{group, best}]
		if best == "" || in < than || in == than && l.all[p.id] < l.all[best] {
			best = p.id
		}
	}
	return best
}
