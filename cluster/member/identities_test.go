package member

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

func TestAddresses(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	other := &registry.PutNode{
		ID: "n9", Incarnation: registry.UUID{1}, PeerAddr: "10.0.0.9:1", NFSAddr: "10.0.1.9:2049,[2001:db8::9]:2049", Roles: registry.RoleData,
	}
	if _, err := n.propose0(ctx, other); err != nil {
		t.Fatal(err)
	}
	refused := func(what, addr, group string, home cluster.NodeID, text string, kind error) {
		t.Helper()
		_, err := n.AddAddress(ctx, addr, group, home)
		fails(t, what, err, text)
		if !errors.Is(err, kind) {
			t.Errorf("%s: %v is not %v", what, err, kind)
		}
	}
	refused("no prefix", "10.0.0.50", "", "", "no prefix length", cluster.EINVAL)
	refused("its peer address", "10.0.0.9/24", "", "", "an address of node n9", cluster.EINVAL)
	refused("its NFS address", "10.0.1.9/24", "", "", "an address of node n9", cluster.EINVAL)
	refused("its other one", "2001:db8::9/64", "", "", "an address of node n9", cluster.EINVAL)
	refused("a group", "10.0.0.50/24", "a b", "", "group", cluster.EBADNAME)
	refused("no home", "10.0.0.50/24", "", "n7", `no node "n7"`, cluster.ENOENT)
	refused("a home that can't", "10.0.0.50/24", "", "n9", "does not serve NFS", cluster.EINVAL)
	i, err := n.AddAddress(ctx, "10.0.0.50/24", "g", "n1")
	if err != nil || i.ID == 0 || i.Addr.String() != "10.0.0.50/24" || i.Group != "g" || i.Home != "n1" {
		t.Fatalf("got %+v, %v", i, err)
	}
	refused("again", "10.0.0.50/24", "g", "n1", "already", cluster.EEXIST)
	refused("in another subnet", "10.0.0.50/16", "", "", "already", cluster.EEXIST)
	if _, err := n.AddAddress(ctx, "2001:db8::50/64", "", ""); err != nil {
		t.Fatal(err)
	}
	fails(t, "moving none", n.MoveAddress(ctx, "10.0.0.51", ""), "no floating address 10.0.0.51")
	fails(t, "moving nonsense", n.MoveAddress(ctx, "x", ""), "no address")
	fails(t, "moving to nobody", n.MoveAddress(ctx, "10.0.0.50", ""), "no other node can serve")
	fails(t, "moving to a node that is none", n.MoveAddress(ctx, "10.0.0.50/24", "n7"), `no node "n7"`)
	fails(t, "moving to a node that can't", n.MoveAddress(ctx, "10.0.0.50", "n9"), "does not serve NFS")
	fails(t, "moving to a node that is not up", n.MoveAddress(ctx, "10.0.0.50", "n1"), "not up")
	fails(t, "draining none", n.DrainFrontEnd(ctx, "n7", true), `no node "n7"`)

	// Without a front-end nobody serves them.
	sleep(ctx, 400*time.Millisecond)
	s := n.Status()
	if !slices.ContainsFunc(s.Problems, func(p string) bool {
		return p == "address 10.0.0.50/24 is served by nobody: a node with the role nfs must be up and not be drained"
	}) {
		t.Errorf("it is no problem that nobody serves an address: %q", s.Problems)
	}
	attach(t, n)
	eventually(t, "both are served", func() bool {
		s := n.Status()
		return len(s.Identities) == 3 && !slices.ContainsFunc(s.Identities, func(i IdentityStatus) bool { return i.State != "serving" || i.Node != "n1" })
	})
	if err := n.RemoveAddress(ctx, "10.0.0.50"); err != nil {
		t.Fatal(err)
	}
	list, err := n.Addresses(ctx)
	if err != nil || len(list) != 1 || list[0].Addr.String() != "2001:db8::50/64" {
		t.Errorf("got %+v, %v", list, err)
	}
	again, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil || again.ID <= i.ID {
		t.Errorf("got %+v, %v: a number is not used again", again, err)
	}
}

// TestIdentitiesMove is the life of floating addresses in a cluster.
func TestIdentitiesMove(t *testing.T) {
	nodes := cluster3(t)
	ctx := within(t, 120*time.Second)
	fronts := map[cluster.NodeID]*fakeFront{}
	for _, n := range nodes {
		fronts[n.Self()] = attach(t, n)
	}
	var ids []cluster.IdentityID
	for k := range 6 {
		i, err := nodes[k%3].AddAddress(ctx, fmt.Sprintf("10.0.0.%d/24", 50+k), "", "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, i.ID)
	}
	spread := func(n *testNode) map[cluster.NodeID]int {
		count := map[cluster.NodeID]int{}
		for _, id := range ids {
			if i := n.identity(t, id); i.Serving {
				count[i.Node]++
			}
		}
		return count
	}
	eventually(t, "each node serves two", func() bool {
		s := spread(nodes[0])
		return s["n1"] == 2 && s["n2"] == 2 && s["n3"] == 2
	})
	eventually(t, "all are valid", func() bool { return nodes[0].Valid() && nodes[1].Valid() && nodes[2].Valid() })

	t.Run("each node knows the client ends of all", func(t *testing.T) {
		i := nodes[0].identity(t, ids[0])
		conns := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.7:700"), netip.MustParseAddrPort("[2001:db8::7]:701")}
		byName(nodes, i.Node).SetConns(i.ID, conns)
		for _, n := range nodes {
			if n.Self() != i.Node {
				n.SetConns(i.ID, nil) // not its business
			}
			eventually(t, "it knows", func() bool { return slices.Equal(n.Conns(i.ID), conns) })
		}
	})

	t.Run("handed over in order", func(t *testing.T) {
		i := nodes[0].identity(t, ids[0])
		from := fronts[i.Node]
		to := nodes[0]
		if i.Node == "n1" {
			to = nodes[1]
		}
		from.refuse.Store(true)
		// Asked of a third node.
		asked := nodes[2]
		fails(t, "a front-end that is busy", asked.MoveAddress(ctx, i.Addr.String(), to.Self()), "busy")
		from.refuse.Store(false)
		if err := asked.MoveAddress(ctx, i.Addr.Addr().String(), to.Self()); err != nil {
			t.Fatal(err)
		}
		now := i
		eventually(t, "it is served there", func() bool { now = asked.identity(t, i.ID); return now.Node == to.Self() && now.Serving })
		if now.Epoch != i.Epoch+1 || len(now.Fence) > 0 {
			t.Errorf("got %+v after %+v: a move in order fences nobody", now, i)
		}
		if from.mu.Lock(); !slices.Contains(from.released, i.ID) {
			t.Error("the front-end that had it was not asked to stop")
		}
		from.mu.Unlock()
		own, _ := asked.Registry()
		mine, _ := own.OwnIdentity("n1")
		fails(t, "a node's own", asked.Handover(ctx, mine.ID, "n2"), "don't move")
		// Back, so that each has two again.
		if err := asked.Handover(ctx, i.ID, i.Node); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is back", func() bool { now = asked.identity(t, i.ID); return now.Node == i.Node && now.Serving })
	})

	t.Run("a client is asked for on another node", func(t *testing.T) {
		i := nodes[0].identity(t, ids[0])
		at := byName(nodes, i.Node)
		client := cluster.MakeClientID(i.ID, i.Epoch, 7)
		var asked atomic.Uint64
		cancel := at.OnExpire(func(_ context.Context, id uint64) bool { asked.Store(id); return true })
		for _, n := range nodes {
			if n == at {
				continue
			}
			asked.Store(0)
			if gone, err := n.ExpireClient(ctx, client); err != nil || !gone || asked.Load() != client {
				t.Errorf("got %v, %v, and client %x was asked for", gone, err, asked.Load())
			}
		}
		cancel()
		if gone, err := nodes[0].ExpireClient(ctx, client); gone || !errors.Is(err, cluster.EAGAIN) {
			t.Errorf("without anyone to ask: %v, %v", gone, err)
		}
	})

	t.Run("a node that is drained", func(t *testing.T) {
		if err := nodes[0].DrainFrontEnd(ctx, "n2", true); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has none", func() bool { s := spread(nodes[0]); return s["n1"] == 3 && s["n3"] == 3 })
		fails(t, "moving one there", nodes[0].MoveAddress(ctx, "10.0.0.50", "n2"), "drained")
		if err := nodes[0].DrainFrontEnd(ctx, "n2", false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it can have some again", func() bool { return nodes[0].MoveAddress(ctx, "10.0.0.50", "n2") == nil })
		eventually(t, "it has one", func() bool { return spread(nodes[0])["n2"] == 1 })
	})

	t.Run("the leader of group 0 dies", func(t *testing.T) {
		dead := leader0(t, nodes)
		rest := slices.DeleteFunc(slices.Clone(nodes), func(n *testNode) bool { return n == dead })
		store := dead.ClientStore(0, 0)
		var lost registry.Identity
		for _, id := range ids {
			if i := dead.identity(t, id); i.Node == dead.Self() {
				lost = i
				store = dead.ClientStore(i.ID, i.Epoch)
			}
		}
		client := cluster.MakeClientID(lost.ID, lost.Epoch, 1)
		if err := store.Put(ctx, client, []byte("session"), 0); err != nil {
			t.Fatal(err)
		}
		// A writer of it in every volume: fenced before the identity is served.
		v, err := rest[0].Volume(1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: dead.Self(), Nonce: 7}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		dead.cut(t)
		gone := time.Now()
		var now registry.Identity
		eventually(t, "its addresses are served by others", func() bool {
			for _, id := range ids {
				if i := rest[0].identity(t, id); i.Node == dead.Self() || !i.Serving {
					return false
				}
			}
			now = rest[0].identity(t, lost.ID)
			return true
		})
		t.Logf("assigned and served after %v", time.Since(begin))
		l := leader0(t, rest)
		l.watchMu.Lock()
		heard := l.watcher.nodes[dead.Self()].front
		l.watchMu.Unlock()
		t.Logf("it was confirmed last %v before it was cut off", begin.Sub(heard))
		l.confirmed.mu.Lock()
		next := l.confirmed.before.leader == dead.Self() // on a busy machine another may have led in between
		l.confirmed.mu.Unlock()
		const underWay = 50 * time.Millisecond // what was sent before may be heard after; an election takes longer
		if next && heard.After(gone.Add(underWay)) {
			t.Errorf("the new leader gives the last one time from %v after its death on", heard.Sub(gone))
		}
		for _, w := range v.Machine.Writers() {
			if w.Node == dead.Self() && !w.Fenced {
				t.Error("the identity is served, and a writer of the lost node is not fenced")
			}
		}
		records, err := byName(nodes, now.Node).ClientStore(now.ID, now.Epoch).Load(ctx)
		if err != nil || len(records) != 1 || records[0].ID != client || string(records[0].Record) != "session" {
			t.Errorf("the new server finds the clients %+v, %v", records, err)
		}
		// What the old one would commit, when it is back.
		old := &ClientStore{node: rest[0].Node, id: lost.ID, epoch: lost.Epoch}
		if err := old.Put(ctx, client, []byte("late"), 0); !errors.Is(err, cluster.EFENCED) {
			t.Errorf("the old server's PutClient: %v", err)
		}
		if err := old.Delete(ctx, client); !errors.Is(err, cluster.EFENCED) {
			t.Errorf("the old server's DeleteClient: %v", err)
		}
		if _, err := old.Load(ctx); !errors.Is(err, cluster.EFENCED) {
			t.Errorf("the old server's Load: %v", err)
		}
		if dead.Valid() {
			t.Error("the lost node is still valid")
		}
		if n := spread(rest[0]); n[dead.Self()] != 0 || n[rest[0].Self()]+n[rest[1].Self()] != len(ids) {
			t.Errorf("the addresses are spread as %v", n)
		}
	})
}
