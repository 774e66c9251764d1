package state

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A client that opens a file for writing after a take-over may have it open
// for reading from before, which only it knows: it can go back to that. Any
// other client can't be given by a downgrade what it did not open (RFC 8881
// §18.18.3).
func TestDowngradeToWhatWasBefore(t *testing.T) {
	f := vfs.File{Ino: 5}
	m := newManager()
	a, _ := confirm(t, m, 0, "a")
	n := successor(m)
	if err := n.Load(0, records(t, m)); err != nil {
		t.Fatal(err)
	}
	b, _ := confirm(t, n, 0, "b")
	for _, c := range []struct {
		name         string
		client       *Client
		access, deny uint32
		want         proto.Status
		regain       bool
	}{
		{"read, of before", n.Client(a.ID), proto.ShareAccessRead, 0, proto.OK, true},
		{"read and write", n.Client(a.ID), proto.ShareAccessBoth, 0, proto.OK, true},
		{"what it has", n.Client(a.ID), proto.ShareAccessWrite, 0, proto.OK, false},
		{"a deny mode it has not", n.Client(a.ID), proto.ShareAccessRead, proto.ShareDenyRead, proto.ErrInval, false},
		{"a client that is new here", b, proto.ShareAccessRead, 0, proto.ErrInval, false},
	} {
		sid, st := open(n, c.client, c.name, f, proto.ShareAccessWrite, 0)
		if st != proto.OK {
			t.Fatal(st)
		}
		ch, st := n.PlanDowngrade(c.client, sid, f, c.access, c.deny)
		if st != c.want || ch.Regain != c.regain {
			t.Errorf("%s: %v, regain %v", c.name, st, ch.Regain)
			continue
		}
		if st != proto.OK {
			continue
		}
		sid, st = n.Downgrade(c.client, sid, f, c.access, c.deny, ch.Put != nil)
		if st != proto.OK {
			t.Fatalf("%s: %v", c.name, st)
		}
		if _, st := n.CheckIO(c.client, sid, f, c.access&-c.access, 0); st != proto.OK {
			t.Errorf("%s: %v", c.name, st)
		}
	}
}
