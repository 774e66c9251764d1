package member

import (
	"sort"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// A StoreReport is what a node says of one of its stores.
type StoreReport struct {
	UUID     string `json:"uuid"`
	Capacity uint64 `json:"capacity"` // bytes
	Used     uint64 `json:"used"`     // bytes
	Failed   bool   `json:"failed,omitempty"`
	Full     bool   `json:"full,omitempty"` // it has no room for another blob
}

// A heartbeat is what a node tells the leader of group 0 several times a second.
type heartbeat struct {
	Node        cluster.NodeID             `json:"node"`
	Incarnation string                     `json:"incarnation"`
	PeerAddr    string                     `json:"peer"`
	NFSAddr     string                     `json:"nfs"`
	Roles       registry.Roles             `json:"roles"`
	Rack        string                     `json:"rack"`
	Stores      []StoreReport              `json:"stores"`
	Applied     map[cluster.GroupID]uint64 `json:"applied"`
	// FrontEnd says that an NFS front-end runs there, which can be given identities.
	FrontEnd bool `json:"front_end"`
}

// A table is what the leader of group 0 answers: who is up, as it sees it now.
type table struct {
	Up map[cluster.NodeID]bool `json:"up"`
	// FrontEnds are the nodes whose front-end is up.
	FrontEnds map[cluster.NodeID]bool     `json:"front_ends"`
	Stores    map[cluster.StoreID]storeUp `json:"stores"`
	// Applied is how far each node has each group, as it said last.
	Applied map[cluster.NodeID]map[cluster.GroupID]uint64 `json:"applied"`
}

// storeUp is the soft state of a store.
type storeUp struct {
	Up       bool   `json:"up"`
	Capacity uint64 `json:"capacity"`
	Used     uint64 `json:"used"`
	Full     bool   `json:"full,omitempty"`
}

// watcher is the leader's view of the nodes' health. It has no clock: now is
// passed in.
type watcher struct {
	suspectAfter, downAfter time.Duration
	nodes                   map[cluster.NodeID]*watched
}

type watched struct {
	last time.Time
	beat heartbeat
	seen bool // a heartbeat came since this node leads

	// front is when it was heard to have a front-end, last; ready since when it
	// always was, the zero Time if it does not now.
	front, ready time.Time
}

func newWatcher(suspectAfter, downAfter time.Duration) *watcher {
	return &watcher{suspectAfter: suspectAfter, downAfter: downAfter, nodes: map[cluster.NodeID]*watched{}}
}

// reset forgets all, when this node becomes the leader: each node gets the
// whole time to be heard.
func (w *watcher) reset() { clear(w.nodes) }

// heard takes a heartbeat.
func (w *watcher) heard(now time.Time, b heartbeat) {
	n := w.node(now, b.Node)
	if !b.FrontEnd {
		n.ready = time.Time{}
	} else {
		if n.ready.IsZero() || now.Sub(n.front) > w.suspectAfter {
			n.ready = now
		}
		n.front = now
	}
	n.last, n.beat, n.seen = now, b, true
}

// missed notes, of a node that no longer leads, that it can't have been
// acknowledged by anyone since at: it is as if it had been heard then.
func (w *watcher) missed(now time.Time, id cluster.NodeID, at time.Time) {
	if n := w.node(now, id); !n.seen && at.Before(n.front) {
		n.last, n.front = at, at
	}
}

// slept notes that the watcher did not run for as long as gap: what was sent to
// it meanwhile it has yet to hear.
func (w *watcher) slept(now time.Time, gap time.Duration) {
	later := func(t time.Time) time.Time {
		if t = t.Add(gap); t.After(now) {
			return now
		}
		return t
	}
	for _, n := range w.nodes {
		n.last, n.front = later(n.last), later(n.front)
	}
}

// place returns what to think of a node that may serve floating addresses, if
// those of a node are taken that was not heard for takeoverAfter.
func (w *watcher) place(now time.Time, id cluster.NodeID, takeoverAfter, steadyAfter time.Duration) place {
	n := w.node(now, id)
	silent := now.Sub(n.front)
	ready := n.seen && !n.ready.IsZero() && silent <= takeoverAfter/2
	return place{id: id, ready: ready, lost: silent > takeoverAfter, steady: ready && now.Sub(n.ready) >= steadyAfter}
}

func (w *watcher) node(now time.Time, id cluster.NodeID) *watched {
	n := w.nodes[id]
	if n == nil {
		n = &watched{last: now, front: now}
		w.nodes[id] = n
	}
	return n
}

// A verdict is a change of a node's state that the leader should agree on.
type verdict struct {
	node cluster.NodeID
	up   bool
}

// judge compares what was heard with what is agreed on, and returns the changes.
func (w *watcher) judge(now time.Time, agreedUp map[cluster.NodeID]bool) []verdict {
	var out []verdict
	for id, up := range agreedUp {
		n := w.node(now, id)
		switch silent := now.Sub(n.last); {
		case up && silent > w.downAfter:
			out = append(out, verdict{node: id})
		case !up && n.seen && silent < w.suspectAfter:
			out = append(out, verdict{node: id, up: true})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].node < out[j].node })
	return out
}

// up says whether a node was heard lately: what placement goes by.
func (w *watcher) up(now time.Time, id cluster.NodeID) bool {
	n := w.nodes[id]
	return n == nil || now.Sub(n.last) <= w.suspectAfter
}
