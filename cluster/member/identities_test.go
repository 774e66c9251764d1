package member

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A fakeFront is the part of a front-end that deals with identities: it takes
// over what is assigned to its node, and hands over what it is asked for.
type fakeFront struct {
	node   *testNode
	ctx    context.Context
	undo   []func()
	wg     sync.WaitGroup
	refuse atomic.Bool // to hand anything over
	before atomic.Pointer[func(registry.Identity)]

	mu       sync.Mutex
	serving  map[cluster.IdentityID]uint32 // epoch
	released []cluster.IdentityID
	resumed  int
}

func attach(t *testing.T, n *testNode) *fakeFront {
	t.Helper()
	f := &fakeFront{node: n, serving: map[cluster.IdentityID]uint32{}}
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	own, err := n.ClaimOwnIdentity(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if own.Floating() || own.Home != n.Self() || own.Node != n.Self() {
		t.Fatalf("its own identity is %+v", own)
	}
	f.undo = append(f.undo, n.OnRelease(f.release), n.OnIdentity(f.told), cancel)
	t.Cleanup(f.detach)
	return f
}

func (f *fakeFront) told(i registry.Identity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch, ok := f.serving[i.ID]; ok && epoch != i.Epoch {
		delete(f.serving, i.ID)
	}
	if i.Node != f.node.Self() || i.Retired || f.serving[i.ID] == i.Epoch {
		return
	}
	f.serving[i.ID] = i.Epoch
	f.wg.Go(func() {
		if before := f.before.Load(); before != nil {
			(*before)(i)
		}
		_ = f.node.Takeover(f.ctx, i) // it may be assigned anew meanwhile
	})
}

func (f *fakeFront) release(_ context.Context, i registry.Identity) (func(), error) {
	if f.refuse.Load() {
		return nil, errors.New("busy")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, i.ID)
	return func() { f.mu.Lock(); f.resumed++; f.mu.Unlock() }, nil
}

func (f *fakeFront) detach() {
	for _, undo := range f.undo {
		undo()
	}
	f.undo = nil
	f.wg.Wait()
}

// cluster3 is a cluster of three nodes, all of which vote.
func cluster3(t *testing.T) []*testNode {
	t.Helper()
	var nodes []*testNode
	for i := 1; i <= 3; i++ {
		nodes = append(nodes, startNode(t, cluster.NodeID(fmt.Sprintf("n%d", i)), t.TempDir(), "127.0.0.1:0"))
	}
	ctx := within(t, 60*time.Second)
	if err := nodes[0].Init(ctx, "test", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		if err := nodes[i].Join(ctx, nodes[0].addr); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three voters in every group", func() bool {
		for _, n := range nodes {
			for _, g := range n.Status().Groups {
				voters := 0
				for _, m := range g.Members {
					if m.Voter {
						voters++
					}
				}
				if voters != 3 || g.Leader == "" {
					return false
				}
			}
		}
		return true
	})
	return nodes
}

// identity returns an identity as a node has it.
func (n *testNode) identity(t *testing.T, id cluster.IdentityID) registry.Identity {
	t.Helper()
	r, err := n.Registry()
	if err != nil {
		t.Fatal(err)
	}
	i, _ := r.Identity(id)
	return i
}

func byName(nodes []*testNode, id cluster.NodeID) *testNode {
	for _, n := range nodes {
		if n.Node != nil && n.Self() == id {
			return n
		}
	}
	return nil
}

// leader0 returns the node that leads group 0, which every other one knows.
func leader0(t *testing.T, nodes []*testNode) (leader *testNode) {
	t.Helper()
	eventually(t, "group 0 has a leader", func() bool {
		leader = nil
		for _, n := range nodes {
			if n.Node == nil {
				continue
			}
			zero, err := n.group0()
			if err != nil {
				return false
			}
			id, ok := zero.group.Leader()
			l := byName(nodes, id)
			if !ok || l == nil || leader != nil && l != leader {
				return false
			}
			leader = l
		}
		return leader != nil
	})
	return leader
}

// cut takes a node off the others, as if its cable was: what it is told and what it
// asks is lost. It goes on running.
func (n *testNode) cut(t *testing.T) {
	t.Helper()
	if err := n.endpoint.Close(); err != nil {
		t.Fatal(err)
	}
}

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
		if next && heard.After(gone) {
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

// TestValidBeforeAssigned: whichever node is cut off, the leader of group 0 too:
// it is invalid before its identity is another's; and the leaders before it can't
// assign anything more.
func TestValidBeforeAssigned(t *testing.T) {
	for _, which := range []string{"leader", "follower"} {
		t.Run(which, func(t *testing.T) {
			nodes := cluster3(t)
			ctx := within(t, 60*time.Second)
			cut := leader0(t, nodes)
			if which == "follower" {
				cut = nodes[(slices.Index(nodes, cut)+1)%3]
			}
			var rest []*testNode
			for _, n := range nodes {
				attach(t, n)
				if n != cut {
					rest = append(rest, n)
				}
			}
			i, err := nodes[0].AddAddress(ctx, "10.0.0.50/24", "", cut.Self())
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is served at home", func() bool {
				now := rest[0].identity(t, i.ID)
				return now.Node == cut.Self() && now.Serving && cut.Valid()
			})
			invalid := make(chan time.Time, 1)
			cutNode := cut.Node
			go func() {
				for cutNode.Valid() {
					time.Sleep(time.Millisecond)
				}
				invalid <- time.Now()
			}()
			begin := time.Now()
			cut.cut(t)
			if zero, err := cut.group0(); err != nil {
				t.Fatal(err)
			} else if _, err := cut.confirm(ctx, zero); err == nil {
				t.Error("a node that is cut off is confirmed as the leader")
			}
			eventually(t, "it is assigned to another", func() bool { return rest[0].identity(t, i.ID).Node != cut.Self() })
			assigned := time.Now()
			select {
			case at := <-invalid:
				t.Logf("invalid after %v, assigned after %v", at.Sub(begin), assigned.Sub(begin))
			default:
				t.Fatalf("after %v the identity is another's, and the node is still valid", assigned.Sub(begin))
			}
			select {
			case <-cut.Revalidated():
				t.Error("it is told to be valid again")
			default:
			}
		})
	}
}

// TestOldLeaderDecidesNothing: an assignment by force that a leader has begun
// does not happen under the next one.
func TestOldLeaderDecidesNothing(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	attach(t, n)
	i, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool { return n.identity(t, i.ID).Serving })
	if _, err := n.propose0(ctx, &registry.PutNode{ID: "n9", Incarnation: registry.UUID{1}, PeerAddr: "127.0.0.1:1", Roles: registry.RoleNFS}); err != nil {
		t.Fatal(err)
	}
	n.watchMu.Lock()
	old := n.lead
	n.watchMu.Unlock()
	n.watchMu.Lock()
	n.lead = lead{} // as if another had led meanwhile
	n.watchMu.Unlock()
	eventually(t, "it leads anew", func() bool { n.watchMu.Lock(); defer n.watchMu.Unlock(); return n.lead.term != 0 })
	_, err = n.propose0(ctx, &registry.AssignIdentity{ID: i.ID, Node: "n9", Epoch: n.identity(t, i.ID).Epoch, Lead: old.nonce})
	if !errors.Is(err, cluster.ECONFLICT) {
		t.Errorf("got %v", err)
	}
}

// TestWithheld: while an identity is being taken from a node its heartbeats are
// not acknowledged, nor before the leader's term has begun.
func TestWithheld(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is valid", n.Valid)
	zero, err := n.group0()
	if err != nil {
		t.Fatal(err)
	}
	b := n.beat()
	for _, x := range []struct {
		name   string
		change func(l *lead)
		acked  bool
	}{
		{"as it is", func(*lead) {}, true},
		{"withheld", func(l *lead) { l.withheld[n.Self()]++ }, false},
		{"another term's", func(l *lead) { l.term++ }, false},
	} {
		n.watchMu.Lock()
		old := n.lead
		n.lead.withheld = map[cluster.NodeID]int{}
		x.change(&n.lead)
		n.watchMu.Unlock()
		a := n.acknowledge(ctx, zero, &b)
		n.watchMu.Lock()
		n.lead = old
		n.watchMu.Unlock()
		if (a != nil) != x.acked {
			t.Errorf("%s: got %+v", x.name, a)
		}
	}
}

// TestAcknowledged: an acknowledgement counts once this node knows what the
// leader knew, and from when the heartbeat was sent.
func TestAcknowledged(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is valid", n.Valid)
	zero, err := n.group0()
	if err != nil {
		t.Fatal(err)
	}
	n.watchMu.Lock()
	n.lead.withheld[n.Self()]++ // no more of its own
	n.watchMu.Unlock()
	eventually(t, "it is not valid", func() bool { return !n.Valid() })
	again := n.Revalidated()
	now := zero.group.Applied()
	n.acknowledged(zero, time.Now(), &ack{Applied: now + 1000})
	if n.Valid() {
		t.Error("it is valid, and does not know what the leader knew")
	}
	n.acknowledged(zero, time.Now().Add(-n.cfg.TakeoverAfter), &ack{Applied: now})
	if n.Valid() {
		t.Error("it is valid by an answer that took long")
	}
	select {
	case <-again:
		t.Error("it is told to be valid")
	default:
	}
	told := registry.Identity{}
	defer n.OnIdentity(func(i registry.Identity) { told = i })()
	n.hooks.tell.Lock() // what is told is told before
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.acknowledged(zero, time.Now(), &ack{Applied: now})
	}()
	sleep(ctx, 50*time.Millisecond)
	if n.Valid() {
		t.Error("it is valid before it was told of what was assigned")
	}
	n.hooks.tell.Unlock()
	<-done
	if !n.Valid() {
		t.Errorf("it is not valid; told %+v", told)
	}
	<-again
	<-n.Revalidated()
}

// TestDecideWithholds: from the moment that it is decided to take an identity
// from a node that one's heartbeats are not acknowledged, once for each.
func TestDecideWithholds(t *testing.T) {
	m, err := fsm.Open(fsm.Options{Dir: "g0", FS: pebblevfs.NewMem(), Core: registry.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	for k, b := range []fsm.Body{
		&registry.InitCluster{UUID: registry.UUID{1}, Name: "c"},
		&registry.PutNode{ID: "n1", PeerAddr: "a:1", Roles: registry.AllRoles},
		&registry.PutNode{ID: "n9", PeerAddr: "b:1", Roles: registry.AllRoles},
		&registry.PutIdentity{Addr: netip.MustParsePrefix("10.0.0.50/24")},
		&registry.PutIdentity{Addr: netip.MustParsePrefix("10.0.0.51/24")},
		&registry.PutIdentity{Addr: netip.MustParsePrefix("10.0.0.52/24")},
		&registry.AssignIdentity{ID: 1, Node: "n9"},
		&registry.AssignIdentity{ID: 2, Node: "n9"},
	} {
		result := m.Apply([]cluster.Entry{{Index: uint64(k + 1), Term: 1, Command: fsm.AppendCommand(nil, fsm.Envelope{Kind: b.Kind()}, b)}})[0]
		if _, err := fsm.SplitResult(result); err != nil {
			t.Fatal(err)
		}
	}
	n := &Node{cfg: Config{TakeoverAfter: time.Second}, watcher: newWatcher(time.Second, 3*time.Second)}
	n.lead.withheld = map[cluster.NodeID]int{}
	n.watcher.heard(time.Now(), heartbeat{Node: "n1", FrontEnd: true})
	n.watcher.missed(time.Now(), "n9", time.Now().Add(-time.Minute))
	r := registry.View{Reader: m.Reader()}
	if !n.pending(r) {
		t.Error("nothing is to be taken from anyone")
	}
	if len(n.lead.withheld) != 0 {
		t.Errorf("before it is decided there are withheld %v", n.lead.withheld)
	}
	if moves := n.decide(r); showMoves(moves) != "1>n1! 2>n1! 3>n1!" {
		t.Errorf("got %s", showMoves(moves))
	}
	if len(n.lead.withheld) != 1 || n.lead.withheld["n9"] != 2 {
		t.Errorf("withheld are %v", n.lead.withheld)
	}
}

// TestUnknownOutcome: if it is not known whether an identity was taken from a
// node, that one is acknowledged again only when it can't be any more.
func TestUnknownOutcome(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", func() bool { n.watchMu.Lock(); defer n.watchMu.Unlock(); return n.lead.term != 0 })
	state := func() (uint64, int) {
		n.watchMu.Lock()
		defer n.watchMu.Unlock()
		return n.lead.nonce, n.lead.withheld["n9"]
	}
	for _, x := range []struct {
		err   error
		voids bool
	}{{nil, false}, {cluster.EFENCED, false}, {context.DeadlineExceeded, true}} {
		n.watchMu.Lock()
		n.lead.withheld["n9"]++
		n.watchMu.Unlock()
		before, _ := state()
		n.decided("n9", before, x.err)
		after, withheld := state()
		if (after != before) != x.voids || withheld != 0 {
			t.Errorf("%v: nonce %x and then %x, withheld %d", x.err, before, after, withheld)
		}
		_, err := n.propose0(ctx, &registry.AssignIdentity{Node: "n1", Lead: before})
		if err != nil && !errors.Is(err, cluster.EFENCED) {
			t.Fatal(err)
		}
	}
}

// TestClaim: a front-end that starts anew has its identities in new epochs, and
// its last one's writers are fenced before it opens one.
func TestClaim(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	f := attach(t, n)
	i, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool { return n.identity(t, i.ID).Serving })
	i = n.identity(t, i.ID)
	v, err := n.Volume(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: "n1", Nonce: 7}); err != nil {
		t.Fatal(err)
	}
	f.detach()
	own, err := n.ClaimOwnIdentity(ctx)
	if err != nil || own.Epoch != 2 {
		t.Fatalf("got %+v, %v", own, err)
	}
	if w := v.Machine.Writers(); len(w) != 1 || !w[0].Fenced {
		t.Errorf("got %+v", w)
	}
	if now := n.identity(t, i.ID); now.Epoch != i.Epoch+1 || now.Serving || !slices.Equal(now.Fence, []cluster.NodeID{"n1"}) {
		t.Errorf("after %+v it is %+v", i, now)
	}
	// A writer of the new front-end is not what Takeover fences.
	if _, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: "n1", Nonce: 8}); err != nil {
		t.Fatal(err)
	}
	if err := n.Takeover(ctx, n.identity(t, i.ID)); err != nil {
		t.Fatal(err)
	}
	if w, _ := v.Machine.Writer(2); w.Fenced {
		t.Error("a node's Takeover has fenced its own writer")
	}
	if now := n.identity(t, i.ID); !now.Serving || len(now.Fence) > 0 {
		t.Errorf("after Takeover it is %+v", now)
	}
	if err := n.Takeover(ctx, i); !errors.Is(err, cluster.EFENCED) {
		t.Errorf("taking over an old epoch: %v", err)
	}
}

// TestTakeoverFencesFirst: an identity is not served while a volume has a writer
// of the node that had it; a volume whose group can't say is waited for.
func TestTakeoverFencesFirst(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.CreateVolume(ctx, "more", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.propose0(ctx, &registry.PutNode{ID: "n9", Incarnation: registry.UUID{1}, PeerAddr: "127.0.0.1:1", Roles: registry.RoleNFS}); err != nil {
		t.Fatal(err)
	}
	attach(t, n)
	i, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool { return n.identity(t, i.ID).Serving })
	for _, v := range n.Volumes() {
		if _, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: "n9", Nonce: 7}); err != nil {
			t.Fatal(err)
		}
	}
	// The last volume is not open here: as if its group was not to be had.
	n.mu.Lock()
	hidden := n.volumes[2]
	delete(n.volumes, 2)
	n.mu.Unlock()
	if err := n.serveRelease(ctx, releaseRequest{ID: i.ID, To: "n9"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lost node's address is assigned", func() bool { return n.identity(t, i.ID).Node == "n1" })
	v, err := n.Volume(1)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its writer is fenced in the first volume", func() bool { w, _ := v.Machine.Writer(1); return w.Fenced })
	sleep(ctx, 300*time.Millisecond)
	if now := n.identity(t, i.ID); now.Serving || !slices.Contains(now.Fence, "n9") {
		t.Errorf("it is served before all writers are fenced: %+v", now)
	}
	n.mu.Lock()
	n.volumes[2] = hidden
	n.mu.Unlock()
	eventually(t, "it is served", func() bool { return n.identity(t, i.ID).Serving })
	if w, _ := hidden.Machine.Writer(1); !w.Fenced {
		t.Error("and in the other volume the writer is not fenced")
	}
}

// held is a lock of a client, taken through a writer.
func lockFor(t *testing.T, ctx context.Context, v *Volume, node cluster.NodeID, name string, client uint64) cluster.Ino {
	t.Helper()
	body, err := propose(ctx, v.Group, &fsm.OpenWriter{Node: node, Nonce: client})
	if err != nil {
		t.Fatal(err)
	}
	w, err := fsm.DecodeOpenWriter(body)
	if err != nil {
		t.Fatal(err)
	}
	body, err = propose(ctx, v.Group, &volume.Create{Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, Gen: 1})
	if err != nil {
		t.Fatal(err)
	}
	made, err := volume.DecodeCreateResult(body)
	if err != nil {
		t.Fatal(err)
	}
	env := fsm.Envelope{Kind: volume.KindLock, Writer: w, Lane: 1, Seq: 1, Time: cluster.Time(time.Now().UnixNano())}
	lock := &volume.Lock{Ino: made.Attr.Ino, Owner: volume.LockOwner{1}, End: 9, Exclusive: true, Client: client}
	_, result, err := v.Group.Propose(ctx, fsm.AppendCommand(nil, env, lock))
	if err == nil {
		_, err = fsm.SplitResult(result)
	}
	if err != nil {
		t.Fatal(err)
	}
	return made.Attr.Ino
}

func locked(v *Volume, ino cluster.Ino) (locked bool) {
	v.View().Locks(ino, func(*volume.LockInfo) bool { locked = true; return false })
	return locked
}

// TestLostNodesClients: when a node is lost for good, the clients of its own
// addresses lose what they have, and those of floating addresses keep it.
func TestLostNodesClients(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	v, err := n.Volume(1)
	if err != nil {
		t.Fatal(err)
	}
	// n9 says nothing, ever.
	if _, err := n.propose0(ctx, &registry.PutNode{ID: "n9", Incarnation: registry.UUID{1}, PeerAddr: "127.0.0.1:1", Roles: registry.RoleNFS}); err != nil {
		t.Fatal(err)
	}
	body, err := n.propose0(ctx, &registry.AssignIdentity{Node: "n9"})
	if err != nil {
		t.Fatal(err)
	}
	own, err := registry.DecodeIdentity(body)
	if err != nil {
		t.Fatal(err)
	}
	floating, err := n.AddAddress(ctx, "10.0.0.50/24", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.give(ctx, floating, "n9"); err != nil {
		t.Fatal(err)
	}
	ownClient, floatingClient := cluster.MakeClientID(own.ID, 1, 1), cluster.MakeClientID(floating.ID, 1, 1)
	for id, client := range map[cluster.IdentityID]uint64{own.ID: ownClient, floating.ID: floatingClient} {
		if err := n.ClientStore(id, 1).Put(ctx, client, []byte("r"), 0); err != nil {
			t.Fatal(err)
		}
	}
	first, second := lockFor(t, ctx, v, "n9", "a", ownClient), lockFor(t, ctx, v, "n9", "b", floatingClient)
	if !locked(v, first) || !locked(v, second) {
		t.Fatal("the locks are not there")
	}
	eventually(t, "the clients of the lost node's own addresses are released", func() bool {
		r, err := n.Registry()
		return err == nil && !locked(v, first) && !r.HasClients(own.ID)
	})
	if now := n.identity(t, own.ID); now.Node != "" || now.Epoch != 2 {
		t.Errorf("its own identity is %+v", now)
	}
	for _, w := range v.Machine.Writers() {
		if !w.Fenced {
			t.Errorf("writer %+v is not fenced", w)
		}
	}
	r, err := n.Registry()
	if err != nil || !locked(v, second) || r.ClientCount(floating.ID) != 1 {
		t.Errorf("the lock of the floating address's client is gone, or the client: %v", err)
	}
	if gone, err := n.ExpireClient(ctx, ownClient); gone || !errors.Is(err, cluster.EAGAIN) {
		t.Errorf("expiring a client of nobody's: %v, %v", gone, err)
	}
	// The address is removed: then it is released, too.
	attach(t, n)
	eventually(t, "the floating address is served", func() bool { return n.identity(t, floating.ID).Serving })
	expired := false
	defer n.OnExpire(func(_ context.Context, client uint64) bool { expired = client == floatingClient; return true })()
	eventually(t, "a client of a served identity can be asked for", func() bool {
		gone, err := n.ExpireClient(ctx, floatingClient)
		return err == nil && gone && expired
	})
	if err := n.RemoveAddress(ctx, "10.0.0.50"); err != nil {
		t.Fatal(err)
	}
	if locked(v, second) {
		t.Error("the address is gone, and the lock of its client is not")
	}
	if gone, err := n.ExpireClient(ctx, floatingClient); !gone || err != nil {
		t.Errorf("a client of an identity that is gone: %v, %v", gone, err)
	}
}

// TestVolumeKnowsIdentities: a node that opens a volume knows first of what was
// taken from it before the volume was made.
func TestVolumeKnowsIdentities(t *testing.T) {
	n := startNode(t, "n1", t.TempDir(), "127.0.0.1:0")
	ctx := within(t, 60*time.Second)
	if err := n.Init(ctx, "c", cluster.Class{Copies: 1}); err != nil {
		t.Fatal(err)
	}
	defer n.OnIdentity(func(registry.Identity) {})()
	n.hooks.tell.Lock() // telling takes long
	zero, err := n.group0()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []fsm.Body{
		&registry.AssignIdentity{Node: "n1"},
		&registry.CreateVolume{Name: "new", Class: cluster.Class{Copies: 1}, Voters: []cluster.NodeID{"n1"}},
	} {
		if _, err := propose(ctx, zero.group, b); err != nil {
			t.Fatal(err)
		}
	}
	sleep(ctx, 500*time.Millisecond)
	_, early := n.Volume(2)
	n.hooks.tell.Unlock()
	if early == nil {
		t.Error("the volume was opened before the node knew")
	}
	eventually(t, "it is opened", func() bool { _, err := n.Volume(2); return err == nil })
}
