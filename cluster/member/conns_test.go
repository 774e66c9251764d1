package member

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// The records of an identity are kept for a front-end.
var _ vfs.ClientStore = (*ClientStore)(nil)

// TestConnsBounded: more client ends than MaxConns are neither told nor taken.
func TestConnsBounded(t *testing.T) {
	var many []netip.AddrPort
	for k := range MaxConns + 1 {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)}), 700))
	}
	got, err := unpackConns(packConns(many))
	if err != nil || !slices.Equal(got, many[:MaxConns]) {
		t.Errorf("got %d, %v", len(got), err)
	}
	one := packConns(many[:1])
	if _, err := unpackConns(slices.Repeat(one, MaxConns+1)); err == nil {
		t.Error("one more is taken")
	}
	mapped := netip.MustParseAddrPort("[::ffff:10.0.0.1]:700")
	if got, err := unpackConns(packConns([]netip.AddrPort{mapped})); err != nil || len(got) != 1 || got[0].String() != "10.0.0.1:700" {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestConnsNewest: what a node knows of an identity's connections is what is
// newest: by epoch, and then by version; and what it has set itself.
func TestConnsNewest(t *testing.T) {
	list := func(port uint16) []byte {
		return packConns([]netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port)})
	}
	var c connTable
	for k, x := range []struct {
		epoch   uint32
		version uint64
		port    uint16
		own     bool
		want    uint16
	}{
		{epoch: 2, version: 3, port: 1, want: 1},
		{epoch: 2, version: 2, port: 2, want: 1},
		{epoch: 1, version: 9, port: 3, want: 1},
		{epoch: 2, version: 4, port: 4, want: 4},
		{epoch: 3, version: 1, port: 5, own: true, want: 5},
		{epoch: 3, version: 9, port: 6, want: 5},
		{epoch: 4, version: 1, port: 7, want: 7},
	} {
		if x.own {
			c.set(1, connList{epoch: x.epoch, version: x.version, packed: list(x.port), own: true})
		} else {
			c.hear(connsRequest{ID: 1, Epoch: x.epoch, Version: x.version, Packed: list(x.port)})
		}
		if got, err := unpackConns(c.lists[1].packed); err != nil || len(got) != 1 || got[0].Port() != x.want {
			t.Errorf("step %d: got %v, %v, want port %d", k, got, err, x.want)
		}
	}
	c.hear(connsRequest{ID: 1, Epoch: 9, Packed: []byte{9}})
	if c.lists[1].epoch != 4 {
		t.Error("nonsense is taken")
	}
}

// TestConnsDue: a node is told once of each change, and now and then again, for
// it may have restarted.
func TestConnsDue(t *testing.T) {
	start := time.Unix(1000, 0)
	var c connTable
	c.set(1, connList{epoch: 1, version: 1, own: true})
	c.set(2, connList{epoch: 1, version: 1}) // another node's
	due := func(at time.Duration) (ids []cluster.IdentityID) {
		for _, q := range c.due(start.Add(at), "n2") {
			ids = append(ids, q.ID)
		}
		return ids
	}
	is := func(what string, got []cluster.IdentityID, want ...cluster.IdentityID) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: due are %v, want %v", what, got, want)
		}
	}
	is("new", due(0), 1)
	is("not told", due(time.Second), 1)
	c.tell(start.Add(time.Second), "n2", connsRequest{ID: 1, Epoch: 1, Version: 1})
	is("told", due(time.Second))
	c.set(1, connList{epoch: 1, version: 2, own: true})
	is("changed", due(time.Second), 1)
	c.tell(start.Add(2*time.Second), "n2", connsRequest{ID: 1, Epoch: 1, Version: 2})
	is("told again", due(11*time.Second))
	is("after a while", due(12*time.Second), 1)
}
