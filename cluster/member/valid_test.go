package member

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

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
