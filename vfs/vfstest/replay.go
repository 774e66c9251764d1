package vfstest

import (
	"bytes"
	"context"
	"reflect"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

var replayTests = map[string]func(*T){
	"replay":       testReplay,
	"replay-order": testReplayOrder,
}

// from returns request seq of a slot.
func from(slot, seq uint32, replay bool) *vfs.Request {
	r := req(Root)
	r.SetOrigin(vfs.Origin{Session: [16]byte{1, 2, 3}, Slot: slot, Seq: seq, Ordered: true}, replay)
	return r
}

// testReplay: each call that changes something is made once, and its result
// told again, though in between something has come that would make it fail,
// or succeed where it had failed.
func testReplay(t *T) {
	const owner = 7
	lock := vfs.Lock{Owner: vfs.LockOwner{owner}, Client: owner, Start: 0, End: 9, Exclusive: true}
	other := vfs.Lock{Owner: vfs.LockOwner{owner + 1}, Client: owner + 1, Start: 5, End: 5, Exclusive: true}
	state := vfs.State{Other: vfs.StateID{owner}, Client: owner, Access: vfs.ShareWrite}
	f, g := t.file("f"), t.file("g")
	data := pattern(1, 20000)
	t.write(g, 0, data, vfs.FileSync)
	slot := uint32(0)
	for _, c := range []struct {
		name    string
		do      func(r *vfs.Request) (any, error)
		between func()
		want    vfs.Errno
	}{
		{"create", func(r *vfs.Request) (any, error) {
			c, err := t.FS.Create(r, t.Dir, "new", vfs.CreateArgs{Type: cluster.TypeRegular, How: vfs.Guarded, Attr: mode(0o600), Open: &state})
			c.Attr.Atime = 0
			return c, err
		}, func() { _, err := t.FS.Remove(req(Root), t.Dir, "new"); t.ok(err) }, cluster.OK},
		{"create of what is there", func(r *vfs.Request) (any, error) {
			_, err := t.FS.Create(r, t.Dir, "f", vfs.CreateArgs{Type: cluster.TypeRegular, How: vfs.Guarded})
			return nil, err
		}, func() { _, _, err := t.FS.Rename(req(Root), t.Dir, "f", t.Dir, "f0"); t.ok(err) }, cluster.EEXIST},
		{"rename", func(r *vfs.Request) (any, error) {
			a, b, err := t.FS.Rename(r, t.Dir, "f0", t.Dir, "f")
			return []vfs.ChangeInfo{a, b}, err
		}, nil, cluster.OK},
		{"link", func(r *vfs.Request) (any, error) {
			a, c, err := t.FS.Link(r, f, t.Dir, "l")
			return []any{a.Ino, a.Nlink, c}, err
		}, nil, cluster.OK},
		{"remove", func(r *vfs.Request) (any, error) { return t.FS.Remove(r, t.Dir, "l") }, nil, cluster.OK},
		{"remove, and another makes it again", func(r *vfs.Request) (any, error) { return t.FS.Remove(r, t.Dir, "again") }, func() { t.file("again") }, cluster.ENOENT},
		{"setattr", func(r *vfs.Request) (any, error) {
			a, err := t.FS.Setattr(r, f, vfs.SetAttr{Mask: cluster.SetSize, Size: 50000}, true)
			return a.Size, err
		}, func() { t.setSize(f, 10) }, cluster.OK},
		{"allocate", func(r *vfs.Request) (any, error) { return nil, t.FS.Allocate(r, f, 0, 60000) }, func() { t.setSize(f, 30000) }, cluster.OK},
		{"clone", func(r *vfs.Request) (any, error) { return nil, t.FS.Clone(r, g, 0, f, 0, 20000) }, func() { t.setSize(f, 20001) }, cluster.OK},
		{"deallocate", func(r *vfs.Request) (any, error) { return nil, t.FS.Deallocate(r, f, 0, 20000) }, func() { t.write(f, 100, []byte("y"), vfs.FileSync) }, cluster.OK},
		{"setxattr", func(r *vfs.Request) (any, error) { return t.FS.Setxattr(r, f, "a", []byte("1"), vfs.Guarded) }, nil, cluster.OK},
		{"removexattr", func(r *vfs.Request) (any, error) { return t.FS.Removexattr(r, f, "a") }, nil, cluster.OK},
		{"lock", func(r *vfs.Request) (any, error) { return t.FS.Lock(r, f, lock) }, func() { t.ok(t.FS.Unlock(req(Root), f, lock)) }, cluster.OK},
		{"lock that is taken", func(r *vfs.Request) (any, error) {
			c, err := t.FS.Lock(r, f, lock)
			return c != nil && c.Owner == other.Owner, err
		}, func() { t.ok(t.FS.Unlock(req(Root), f, other)) }, cluster.ELOCKED},
		{"unlock", func(r *vfs.Request) (any, error) { return nil, t.FS.Unlock(r, f, other) }, func() {
			_, err := t.FS.Lock(req(Root), f, other)
			t.ok(err)
		}, cluster.OK},
		{"put state", func(r *vfs.Request) (any, error) { return nil, t.FS.PutState(r, f, state) }, func() { t.ok(t.FS.DropState(req(Root), f, state.Other, true)) }, cluster.OK},
		{"drop state", func(r *vfs.Request) (any, error) { return nil, t.FS.DropState(r, f, state.Other, true) }, func() { t.ok(t.FS.PutState(req(Root), f, state)) }, cluster.OK},
	} {
		if c.name == "lock that is taken" {
			_, err := t.FS.Lock(req(Root), f, other)
			t.ok(err)
		}
		slot++
		first, err := c.do(from(slot, 1, false))
		t.result(c.name, err, c.want)
		if c.between != nil {
			c.between()
		}
		before := t.world(f)
		again, err := c.do(from(slot, 1, true))
		t.result(c.name+", again", err, c.want)
		if !reflect.DeepEqual(first, again) {
			t.Errorf("%s: first %+v, again %+v", c.name, first, again)
		}
		if after := t.world(f); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: made again: %+v, was %+v", c.name, after, before)
		}
	}
	for _, n := range []int{10, 200000} { // inline, and in blobs
		slot++
		how, _, err := t.FS.Write(from(slot, 1, false), f, 0, bytes.Repeat([]byte("w"), n), vfs.FileSync)
		t.ok(err)
		if t.attr(f).Class.Consistency != cluster.Strict {
			continue // relaxed data is not exactly-once
		}
		t.write(f, 5, []byte("other"), vfs.FileSync)
		again, _, err := t.FS.Write(from(slot, 1, true), f, 0, bytes.Repeat([]byte("w"), n), vfs.FileSync)
		t.ok(err)
		if got := t.read(f, 0, 10); how != again || !bytes.Equal(got, []byte("wwwwwother")) {
			t.Errorf("write of %d bytes: %d and %d, content %q", n, how, again, got)
		}
	}
	for _, client := range []uint64{owner, owner + 1} {
		t.ok(t.FS.ReleaseClient(context.Background(), client))
	}
	t.ok(t.FS.DropSessions(context.Background(), [][16]byte{{1, 2, 3}, {9}}))
}

// world returns what a call can change of the test's directory and a file.
func (t *T) world(f vfs.File) any {
	t.Helper()
	a, d := t.attr(f), t.attr(t.Dir)
	names, err := t.FS.Listxattr(req(Root), f)
	t.ok(err)
	states, err := t.FS.States(req(Root), f)
	t.ok(err)
	var locks []vfs.Lock
	for client := range uint64(10) {
		l, err := t.FS.Locks(req(Root), f, client)
		t.ok(err)
		locks = append(locks, l...)
	}
	return []any{a.Change, a.Size, a.Nlink, d.Change, len(names), states, locks}
}

// testReplayOrder: what a compound has done in part goes on where it stopped;
// a later request of the slot makes the earlier one too old; calls of one
// operation are told apart.
func testReplayOrder(t *T) {
	mkdir := func(r *vfs.Request, name string) error {
		_, err := t.FS.Create(r, t.Dir, name, vfs.CreateArgs{Type: cluster.TypeDirectory, How: vfs.Guarded})
		return err
	}
	r := from(90, 1, false)
	t.ok(mkdir(r, "a"))
	r.SetOp(1)
	t.ok(mkdir(r, "b"))
	_, err := t.FS.Remove(r, t.Dir, "a") // of the same operation
	t.ok(err)
	r = from(90, 1, true)
	t.ok(mkdir(r, "a"))
	r.SetOp(1)
	t.ok(mkdir(r, "b"))
	_, err = t.FS.Remove(r, t.Dir, "a")
	t.ok(err)
	r.SetOp(2) // was not executed
	t.ok(mkdir(r, "c"))
	if _, err := t.lookup(t.Dir, "a"); err == nil {
		t.Error("made twice")
	}
	t.ok(mkdir(from(90, 2, true), "d")) // may be a replay, but is none
	t.fails(mkdir(from(90, 1, true), "a"), cluster.EREPLAY)
	t.fails(mkdir(from(90, 1, false), "a"), cluster.EREPLAY)
	_, err = t.FS.Remove(from(90, 2, true), t.Dir, "d")
	t.fails(err, cluster.EREPLAY) // another call than the first time
	t.ok(t.FS.DropSessions(context.Background(), [][16]byte{{1, 2, 3}}))
	t.ok(mkdir(from(90, 1, true), "a"))
}
