package volume

import (
	"slices"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// holders returns who may have ino open, and whether it is unlinked.
func (e *dataEnv) holders(ino cluster.Ino) (h []cluster.WriterID, ok bool) {
	e.view.Unlinked(func(u Unlinked) bool {
		if u.Ino == ino {
			h, ok = u.Holders, true
		}
		return true
	})
	return h, ok
}

func (e *dataEnv) takeEvents() []any {
	ev := e.events
	e.events = nil
	return ev
}

func (e *dataEnv) reap(limit uint32) ReapResult {
	e.t.Helper()
	r, err := DecodeReapResult(e.must("", Reap{Max: limit}))
	if err != nil {
		e.t.Fatalf("reap: %v", err)
	}
	e.check()
	return r
}

func (e *dataEnv) remove(by, name string) {
	e.t.Helper()
	e.must(by, Remove{Dir: cluster.RootIno, Name: name})
}

func TestUnlinkedOpen(t *testing.T) {
	e := newData(t)
	defer e.close()
	a, b := e.open("a", "n1"), e.open("b", "n2")
	ino := e.create("f")
	set := e.set(1, 2)
	blob := e.blob("a", set, 100)
	e.must("a", commitOf(ino, blob))
	e.must("a", Lock{Ino: ino, End: 9})
	e.takeEvents()
	e.remove("a", "f")
	if ev := e.takeEvents(); !slices.Equal(ev, []any{EventChanged{ino}, EventUnlinked{Ino: ino}}) {
		t.Errorf("events %v", ev)
	}
	if h, ok := e.holders(ino); !ok || !slices.Equal(h, []cluster.WriterID{a.id, b.id}) {
		t.Errorf("holders %v %v", h, ok)
	}
	// It still can be written and locked.
	e.must("b", CommitExtents{Ino: ino, Extents: []NewExtent{inline(100, []byte("more"))}})
	e.must("b", ReleaseUnlinked{Inos: []cluster.Ino{ino, 1, 99}})
	e.must("b", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
	if e.view.Reapable(e.now) || e.reap(10).Freed != 0 {
		t.Error("reaped while a has it open")
	}
	e.must("a", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
	if !e.view.Reapable(e.now) {
		t.Error("not reapable")
	}
	// Two extents and the inode, one at a time.
	for i := range 3 {
		if r := e.reap(1); r.Freed != 1 || r.More != (i < 2) {
			t.Errorf("reap %d: %+v", i, r)
		}
	}
	if _, ok := e.view.Inode(ino); ok || !e.inGarbage(set.ID, blob.ID) || e.view.Reapable(e.now) {
		t.Error("not gone")
	}
	e.must("a", Unlock{Ino: ino, End: 9})
	if e.reap(10) != (ReapResult{}) {
		t.Error("reaped nothing, but says so")
	}
}

// TestUnlinkedRename: a file that rename replaces is kept like a removed one.
func TestUnlinkedRename(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	e.create("f")
	old := e.create("g")
	e.takeEvents()
	e.must("a", Rename{FromDir: 1, FromName: "f", ToDir: 1, ToName: "g"})
	if ev := e.takeEvents(); !slices.Contains(ev, any(EventUnlinked{Ino: old})) {
		t.Errorf("events %v", ev)
	}
	e.check()
}

// TestUnlinkedRestart: what a front-end may have had open when it was fenced is
// kept for an hour, for whoever serves its clients then; its next incarnation
// does not answer for it.
func TestUnlinkedRestart(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.now = 1000
	a := e.open("a", "n1")
	e.open("b", "n2")
	ino := e.create("f")
	e.remove("", "f")
	e.must("b", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
	e.open("a2", "n1")
	fenced := e.now
	e.must("a2", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
	if h, _ := e.holders(ino); !slices.Equal(h, []cluster.WriterID{a.id}) {
		t.Fatalf("holders %v", h)
	}
	e.now = fenced + HoldTime - 100
	if e.view.Reapable(e.now) || e.reap(10).Freed != 0 {
		t.Fatal("reaped while clients may come back")
	}
	// A client has come back to its open, through the other front-end.
	e.must("b", PutState{Ino: ino, State: State{Other: StateID{1}, Client: 1, Access: ShareRead}})
	e.now = fenced + HoldTime + 100
	if !e.view.Reapable(e.now) {
		t.Error("Reapable does not see it")
	}
	if r := e.reap(10); r.Freed != 0 {
		t.Errorf("reaped while it is open: %+v", r)
	}
	if h, ok := e.holders(ino); len(h) != 0 || !ok {
		t.Errorf("holders %v", h)
	}
	e.must("b", DropStates{Refs: []StateRef{{ino, StateID{1}}}})
	if r := e.reap(10); r.Freed != 1 || r.More {
		t.Errorf("%+v", r)
	}
}

// TestUnlinkedDeadNode: what a fenced front-end holds is given up after an hour. Held inodes are looked at a bounded number at a time.
func TestUnlinkedDeadNode(t *testing.T) {
	e := newData(t)
	defer e.close()
	a := e.open("a", "n1")
	b := e.open("b", "n2")
	const files = maxLook + 100
	var inos []cluster.Ino
	for i := range files {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		inos = append(inos, e.create(name))
		e.remove("", name)
	}
	e.must("b", ReleaseUnlinked{Inos: inos[:10]})
	if e.reap(maxReap).Freed != 0 {
		t.Error("reaped what is held")
	}
	e.reap(1)
	e.must("", fenceWriter(a.id))
	e.now += HoldTime + 100000
	if !e.view.Reapable(e.now) {
		t.Error("not reapable")
	}
	if r := e.reap(maxReap); r.Freed != 10 {
		t.Errorf("%+v", r)
	}
	e.reap(0)
	held := map[cluster.Ino][]cluster.WriterID{}
	e.view.Unlinked(func(u Unlinked) bool {
		held[u.Ino] = slices.Clone(u.Holders)
		return true
	})
	for _, ino := range inos[10:] {
		if h := held[ino]; !slices.Equal(h, []cluster.WriterID{b.id}) {
			t.Fatalf("inode %d: holders %v", ino, h)
		}
	}
	e.must("b", ReleaseUnlinked{Inos: inos[10:]})
	if r := e.reap(maxReap); r.Freed != files-10 || r.More {
		t.Errorf("%+v", r)
	}
	// Without any front-end nothing is held.
	e.must("", fenceWriter(b.id))
	ino := e.create("last")
	e.remove("", "last")
	if e.reap(1).Freed != 1 {
		t.Error("not reaped")
	}
	if _, ok := e.view.Inode(ino); ok {
		t.Error("not gone")
	}
}
