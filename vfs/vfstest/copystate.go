package vfstest

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// testCopyState: the record of a copy is in nobody's way, is found by its client, and
// goes with it.
func testCopyState(t *T) {
	f := t.file("f")
	copying := vfs.State{Other: vfs.StateID{0x40, 1}, Kind: vfs.StateCopy, Client: 77, Owner: []byte("what of")}
	open := vfs.State{Other: vfs.StateID{0x10, 2}, Client: 78, Access: 3, Deny: 3, Owner: []byte("o")}
	t.ok(t.FS.PutState(req(Root), f, copying))
	t.ok(t.FS.PutState(req(Root), f, open))
	copying.Owner = []byte("how it ended")
	t.ok(t.FS.PutState(req(Root), f, copying))
	find := func() (n int) {
		t.ok(t.FS.ClientStates(req(Root), 77, func(g vfs.File, s vfs.State) bool {
			if g != f || s.Kind != vfs.StateCopy || s.Other != copying.Other || string(s.Owner) != "how it ended" {
				t.Errorf("%+v of %v", s, g)
			}
			n++
			return true
		}))
		return n
	}
	if n := find(); n != 1 {
		t.Errorf("%d copies are recorded", n)
	}
	t.fails(t.FS.Denied(req(Root), f, vfs.StateID{}, vfs.AccessRead), cluster.ELOCKED) // by the open
	for c := range uint64(2) {
		t.ok(t.FS.ReleaseClient(context.Background(), 77+c))
	}
	if n := find(); n != 0 {
		t.Errorf("%d copies outlive their client", n)
	}
}
