package sim

import (
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// rest lets the world come to rest and holds all of it against the books.
func (w *World) rest() {
	w.notef("rest")
	w.calm, w.resting = true, true
	for _, n := range w.nodes {
		n.replica.slow = 0
		n.heal()
		n.restart()
	}
	w.until("the clients are done", func() bool { return w.clientsDone == len(w.clients) })
	w.until("all is applied", w.level)

	// All writers are fenced: then every blob's fate is known, and what nothing
	// refers to goes.
	fenced := false
	n := w.group.leader
	w.spawn(w.outside, func(t *task) {
		for _, x := range n.replica.m.Writers() {
			if !x.Fenced {
				w.fence(t, n, x.ID)
			}
		}
		fenced = true
	})
	w.until("the writers are fenced", func() bool { return fenced })
	w.until("what nothing refers to is collected", w.collectedAll)
	if w.cfg.Damage {
		w.until("all copies are whole", w.healedAll)
	}
	if w.cfg.Repair {
		for _, s := range w.stores {
			s.draining = false
		}
		w.until("every set is whole", w.whole)
	}
	w.until("all is applied", w.level)
	w.rules.everyCopy(0)
	w.verify()
}

// until lets the world go on until cond holds, which is looked at now and then.
func (w *World) until(what string, cond func() bool) {
	limit := w.now + 10*time.Minute
	for i := 0; ; i++ {
		if i%64 == 0 && cond() {
			return
		}
		if w.now > limit || !w.next() {
			w.failf("%v at rest, and it is not true yet that %s", w.now, what)
		}
	}
}

// level reports whether all replicas have applied everything.
func (w *World) level() bool {
	if w.group.leader == nil || len(w.group.tail) > 0 {
		return false
	}
	for _, n := range w.nodes {
		if n.replica.applied != w.group.last() {
			return false
		}
	}
	return true
}

// collectedAll reports whether no delete queue and no store has anything that
// nothing refers to.
func (w *World) collectedAll() bool {
	l := w.group.leader
	if l == nil || l.replica.applied != w.group.last() {
		return false
	}
	view := l.replica.view
	for _, set := range view.ReplicaSets() {
		clean := true
		view.Garbage(set.ID, 0, func(volume.Garbage) bool {
			clean = false
			return false
		})
		if !clean {
			return false
		}
	}
	for _, s := range w.stores {
		if s.lost {
			continue
		}
		for _, b := range s.disk.list(0, 1<<20) {
			if view.Deletable(b) {
				return false
			}
		}
	}
	return true
}

// checkStates: replicas that have applied the same are equal, and their state
// is sound.
func (w *World) checkStates() {
	hashes := map[uint64]*node{}
	for _, n := range w.nodes {
		if n.replica.m == nil {
			continue
		}
		if o := hashes[n.replica.applied]; o != nil {
			if fsm.StateHash(n.replica.m.Reader()) != fsm.StateHash(o.replica.m.Reader()) {
				w.failf("the states of nodes %s and %s at index %d differ", o.id, n.id, n.replica.applied)
			}
			continue
		}
		hashes[n.replica.applied] = n
		volume.Check(n.replica.view, func(p volume.Problem) { w.failf("check of node %s at index %d: %v", n.id, n.replica.applied, p) })
	}
}

// verify: the replicas are equal and right, and every byte of every file is
// readable from every member that survives.
func (w *World) verify() {
	w.checkStates()
	view := w.nodes[0].replica.view
	for _, ino := range w.rules.inos {
		f := w.rules.files[ino]
		if f.unlinked {
			continue
		}
		list, size, ok := mapOf(view, ino)
		if !ok {
			w.failf("inode %d is gone", ino)
		}
		want, _ := f.at(w.group.last())
		if size != len(want) {
			w.failf("inode %d has %d bytes, want %d", ino, size, len(want))
		}
		covered := make([]byte, size) // holes are zeros
		for _, x := range list {
			if x.blob == 0 {
				copy(covered[x.off:], x.bytes)
				continue
			}
			read := 0
			for _, m := range x.members {
				if w.store(m).lost {
					continue
				}
				w.fromMember(ino, x, m, want)
				read++
			}
			if read == 0 {
				w.failf("inode %d: blob %v has no member that survives", ino, x.blob)
			}
			copy(covered[x.off:], want[x.off:][:x.n])
		}
		if string(covered) != string(want) {
			w.failf("inode %d has another content than was acknowledged", ino)
		}
	}
}

// fromMember reads a piece from one member.
func (w *World) fromMember(ino cluster.Ino, x found, m cluster.StoreID, want []byte) {
	p, err := w.store(m).disk.get(x.blob)
	if err != nil {
		w.failf("inode %d: blob %v on store %d: %v", ino, x.blob, m, err)
	}
	if len(p) < int(x.blobOff)+x.n || string(p[x.blobOff:][:x.n]) != string(want[x.off:][:x.n]) {
		w.failf("inode %d: blob %v on store %d has another content", ino, x.blob, m)
	}
}
