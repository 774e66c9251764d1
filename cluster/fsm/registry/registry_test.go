package registry

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	m      *fsm.Machine
	index  uint64
	events []string
}

func open(t testing.TB) *fixture {
	t.Helper()
	m, err := fsm.Open(fsm.Options{Dir: "g0", FS: vfs.NewMem(), Core: New()})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{m: m}
	m.Subscribe(func(_ uint64, events []any) {
		for _, e := range events {
			f.events = append(f.events, fmt.Sprintf("%T", e))
		}
	})
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) apply(cmd []byte) ([]byte, error) {
	f.index++
	return fsm.SplitResult(f.m.Apply([]cluster.Entry{{Index: f.index, Term: 1, Command: cmd}})[0])
}

func (f *fixture) do(b fsm.Body) ([]byte, error) {
	return f.apply(fsm.AppendCommand(nil, fsm.Envelope{Time: cluster.Time(f.index + 1)}, b))
}

func uuid(n uint64) (id UUID) {
	for i := range id {
		id[i] = byte(n)
	}
	return id
}

// TestRegistry runs the scripts of testdata: one command each, then the events
// and what View shows. "show" shows everything.
func TestRegistry(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		f := open(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return f.run(t, d) })
	})
}

func (f *fixture) run(t *testing.T, d *datadriven.TestData) string {
	num := func(name string) (n uint64) { d.MaybeScanArgs(t, name, &n); return n }
	word := func(name string) (s string) { d.MaybeScanArgs(t, name, &s); return s }
	node := func(name string) cluster.NodeID { return cluster.NodeID(word(name)) }
	client := func(name string) uint64 { // "2.7" is number 7 of identity 2
		var i cluster.IdentityID
		var n uint32
		if s := word(name); s != "" {
			if _, err := fmt.Sscanf(s, "%d.%d", &i, &n); err != nil {
				t.Fatal(err)
			}
		}
		return cluster.MakeClientID(i, 0, n)
	}
	long := func(name string) string { // "x*300" is 300 times x
		s, n, ok := strings.Cut(word(name), "*")
		if !ok {
			return s
		}
		count := 0
		if _, err := fmt.Sscan(n, &count); err != nil {
			t.Fatal(err)
		}
		return strings.Repeat(s, count)
	}
	show := func(body []byte, err error) string {
		s := "ok"
		if err != nil {
			s = err.Error()
		}
		if len(f.events) > 0 {
			s += " " + strings.Join(f.events, " ")
			f.events = nil
		}
		switch {
		case len(body) == 0:
		case d.Cmd == "put-node":
			n, err := DecodeNode(body)
			s += fmt.Sprintf("\n%+v %v", n, err)
		case d.Cmd == "put-store":
			st, err := DecodeStore(body)
			s += fmt.Sprintf("\n%+v %v", st, err)
		case d.Cmd == "put-identity" || d.Cmd == "assign" || d.Cmd == "serve":
			i, err := DecodeIdentity(body)
			if err != nil {
				t.Error(err)
			}
			s += "\n" + line(i)
		case d.Cmd == "create-volume":
			v, err := DecodeVolume(body)
			s += fmt.Sprintf("\n%+v %v", v, err)
		default:
			s += fmt.Sprintf("\n%x", body)
		}
		return s + "\n"
	}
	switch d.Cmd {
	case "init":
		return show(f.do(&InitCluster{UUID: uuid(num("uuid")), Name: word("name"), Key: [32]byte{1, 2, 3}}))
	case "put-node":
		return show(f.do(&PutNode{
			ID: cluster.NodeID(long("id")), PeerAddr: word("peer"), NFSAddr: word("nfs"), Roles: Roles(num("roles")),
			Rack: word("rack"), Rejoin: d.HasArg("rejoin"),
		}))
	case "remove-node":
		return show(f.do(&RemoveNode{ID: node("id")}))
	case "set-node":
		return show(f.do(&SetNodeState{ID: node("id"), State: NodeState(num("state"))}))
	case "put-store":
		return show(f.do(&PutStore{
			UUID: uuid(num("uuid")), Node: node("node"), Capacity: num("capacity"), Used: num("used"), State: StoreState(num("state")),
		}))
	case "set-store":
		return show(f.do(&SetStoreState{ID: cluster.StoreID(num("id")), State: StoreState(num("state"))}))
	case "drain-store":
		return show(f.do(&DrainStore{ID: cluster.StoreID(num("id")), Drain: !d.HasArg("off")}))
	case "rebalance":
		s := show(f.do(&Rebalance{Until: cluster.Time(num("until"))}))
		return s + fmt.Sprintf("until %d\n", View{f.m.Reader()}.RebalanceUntil())
	case "create-volume":
		c := &CreateVolume{Name: long("name"), Class: cluster.Class{Consistency: cluster.Consistency(num("consistency")), Copies: uint8(num("copies"))}}
		if v := word("voters"); v != "" {
			for id := range strings.SplitSeq(v, "+") {
				c.Voters = append(c.Voters, cluster.NodeID(id))
			}
		}
		return show(f.do(c))
	case "drain":
		return show(f.do(&DrainNode{ID: node("id"), Drain: !d.HasArg("off")}))
	case "put-identity":
		p, _ := netip.ParsePrefix(word("addr"))
		return show(f.do(&PutIdentity{Addr: p, Group: word("group"), Home: node("home")}))
	case "remove-identity":
		return show(f.do(&RemoveIdentity{ID: cluster.IdentityID(num("id"))}))
	case "purge":
		return show(f.do(&PurgeIdentity{ID: cluster.IdentityID(num("id")), Epoch: uint32(num("epoch"))}))
	case "take-lead":
		return show(f.do(&TakeLead{Nonce: num("nonce")}))
	case "assign":
		return show(f.do(&AssignIdentity{
			ID: cluster.IdentityID(num("id")), Node: node("node"), Epoch: uint32(num("epoch")), Clean: d.HasArg("clean"), Lead: num("lead"),
		}))
	case "serve":
		return show(f.do(&ServeIdentity{ID: cluster.IdentityID(num("id")), Epoch: uint32(num("epoch"))}))
	case "put-client":
		return show(f.do(&PutClient{
			Identity: cluster.IdentityID(num("identity")), Epoch: uint32(num("epoch")), ID: client("client"), Record: []byte(long("record")), Replaces: client("replaces"),
		}))
	case "delete-client":
		return show(f.do(&DeleteClient{Identity: cluster.IdentityID(num("identity")), Epoch: uint32(num("epoch")), ID: client("client")}))
	case "clients":
		var b strings.Builder
		for _, c := range (View{f.m.Reader()}).Clients(cluster.IdentityID(num("identity"))) {
			fmt.Fprintf(&b, "%d.%d %.20q %d\n", cluster.ClientIdentity(c.ID), uint32(c.ID), c.Record, len(c.Record))
		}
		return b.String()
	case "show":
		return describe(t, View{f.m.Reader()})
	}
	t.Fatalf("no command %s", d.Cmd)
	return ""
}

// line shows an identity.
func line(i Identity) string {
	s := fmt.Sprintf("identity %d", i.ID)
	if i.Floating() {
		s += " " + i.Addr.String()
	}
	return s + fmt.Sprintf(" group=%s home=%s node=%s epoch=%d fence=%v serving=%v retired=%v since=%d", i.Group, i.Home, i.Node, i.Epoch, i.Fence, i.Serving, i.Retired, i.Since)
}

// describe shows all of a view, and checks that its ways to a record agree.
func describe(t *testing.T, v View) string {
	var b strings.Builder
	c, ok := v.Cluster()
	fmt.Fprintf(&b, "cluster %s %s %v %x\n", c.ID(), c.Name, ok, c.Key[:3])
	for _, n := range v.Nodes() {
		if one, ok := v.Node(n.ID); !ok || one != n {
			t.Errorf("Node(%s) = %+v", n.ID, one)
		}
		fmt.Fprintf(&b, "node %s %s peer=%s nfs=%s rack=%s %s joined=%d%s\n", n.ID, n.State, n.PeerAddr, n.NFSAddr, n.Rack, n.Roles, n.Joined,
			map[bool]string{true: " draining"}[n.Draining])
	}
	for _, i := range v.Identities() {
		if one, ok := v.Identity(i.ID); !ok || !one.Equal(&i) {
			t.Errorf("Identity(%d) = %+v", i.ID, one)
		}
		if own, ok := v.OwnIdentity(i.Home); !i.Floating() && !i.Retired && (!ok || !own.Equal(&i)) {
			t.Errorf("OwnIdentity(%s) = %+v, want %+v", i.Home, own, i)
		}
		size := 0
		clients := v.Clients(i.ID)
		for _, c := range clients {
			size += len(c.Record) + 1
		}
		if n := loadCount(v.Reader, i.ID); int(n.records) != len(clients) || int(n.bytes) != size || v.ClientCount(i.ID) != len(clients) {
			t.Errorf("%d clients of %d bytes, counted as %+v", len(clients), size, n)
		}
		fmt.Fprintf(&b, "%s clients=%d\n", line(i), len(clients))
	}
	for _, s := range v.Stores() {
		one, ok := v.Store(s.ID)
		two, ok2 := v.StoreByUUID(s.UUID)
		if !ok || !ok2 || one != s || two != s {
			t.Errorf("store %+v, by id %+v, by UUID %+v", s, one, two)
		}
		fmt.Fprintf(&b, "store %d %s node=%s %d/%d uuid=%x since=%d draining=%v\n", s.ID, s.State, s.Node, s.Used, s.Capacity, s.UUID[:2], s.Since, s.Draining)
	}
	for _, vol := range v.Volumes() {
		one, ok := v.Volume(vol.ID)
		two, ok2 := v.VolumeByName(vol.Name)
		if !ok || !ok2 || fmt.Sprint(one) != fmt.Sprint(vol) || fmt.Sprint(two) != fmt.Sprint(vol) {
			t.Errorf("volume %+v, by id %+v, by name %+v", vol, one, two)
		}
		fmt.Fprintf(&b, "volume %d %s fsid=%x:%d %s copies=%d created=%d voters=%v\n", vol.ID, vol.Name, vol.FSID.Major, vol.FSID.Minor,
			vol.Class.Consistency, vol.Class.Copies, vol.Created, vol.Voters)
	}
	return b.String()
}

// TestMalformed cuts and extends every command: EINVAL, and nothing changes.
func TestMalformed(t *testing.T) {
	f := open(t)
	for _, b := range []fsm.Body{
		&InitCluster{UUID: uuid(1), Name: "c"},
		&PutNode{ID: "n1", PeerAddr: "a:1", Roles: AllRoles},
		&PutStore{UUID: uuid(2), Node: "n1", Capacity: 9},
		&CreateVolume{Name: "v", Class: cluster.Class{Copies: 1}, Voters: []cluster.NodeID{"n1"}},
		&PutIdentity{Addr: netip.MustParsePrefix("10.0.0.50/24"), Group: "g", Home: "n1"},
		&PutIdentity{Addr: netip.MustParsePrefix("2001:db8::50/64")},
		&AssignIdentity{ID: 1, Node: "n1", Lead: 9},
		&ServeIdentity{ID: 1, Epoch: 1},
		&PutClient{Identity: 1, Epoch: 1, ID: cluster.MakeClientID(1, 1, 1), Record: []byte("r")},
		&SetNodeState{ID: "n1", State: NodeDown},
		&SetStoreState{ID: 1, State: StoreFailed},
		&DrainNode{ID: "n1", Drain: true},
		&DrainStore{ID: 1, Drain: true},
		&Rebalance{Until: 7},
		&TakeLead{Nonce: 3},
		&DeleteClient{Identity: 1, Epoch: 1, ID: cluster.MakeClientID(1, 1, 1)},
		&AssignIdentity{ID: 1, Epoch: 1, Clean: true},
		&RemoveIdentity{ID: 1},
		&PurgeIdentity{ID: 1, Epoch: 2},
		&RemoveNode{ID: "n1"},
	} {
		head := len(fsm.AppendCommand(nil, fsm.Envelope{}, nothing(b.Kind())))
		cmd := fsm.AppendCommand(nil, fsm.Envelope{}, b)
		for cut := head; cut < len(cmd); cut++ {
			if _, err := f.apply(cmd[:cut]); err != cluster.EINVAL { //nolint:errorlint // returned bare
				t.Errorf("%T cut at %d of %d: %v", b, cut, len(cmd), err)
			}
		}
		if _, err := f.apply(append(cmd[:len(cmd):len(cmd)], 0)); err != cluster.EINVAL { //nolint:errorlint // returned bare
			t.Errorf("%T with a byte more: %v", b, err)
		}
		if _, err := f.apply(cmd); err != nil {
			t.Errorf("%T: %v", b, err)
		}
	}
	if _, err := f.do(nothing(200)); err != cluster.EINVAL { //nolint:errorlint // returned bare
		t.Errorf("unknown kind: %v", err)
	}
}

type nothing fsm.Kind

func (n nothing) Kind() fsm.Kind             { return fsm.Kind(n) }
func (n nothing) AppendTo(dst []byte) []byte { return dst }

// TestClientLimits: an identity has at most MaxClients records, of at most
// MaxClientBytes in all, and PurgeIdentity removes them all.
func TestClientLimits(t *testing.T) {
	f := open(t)
	must := func(bodies ...fsm.Body) {
		t.Helper()
		for _, b := range bodies {
			if _, err := f.do(b); err != nil {
				t.Fatalf("%+v: %v", b, err)
			}
		}
	}
	id := func(i cluster.IdentityID, n int) uint64 { return cluster.MakeClientID(i, 1, uint32(n)) }
	put := func(i cluster.IdentityID, n, size int) *PutClient {
		return &PutClient{Identity: i, Epoch: 1, ID: id(i, n), Record: make([]byte, size)}
	}
	must(&InitCluster{UUID: uuid(1), Name: "c"}, &PutNode{ID: "n1", PeerAddr: "a:1", Roles: AllRoles})
	for i, addr := range []string{"10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"} {
		must(&PutIdentity{Addr: netip.MustParsePrefix(addr)}, &AssignIdentity{ID: cluster.IdentityID(i + 1), Node: "n1"})
	}
	for _, x := range []struct {
		before, n clientCount
		ok        bool
	}{
		{clientCount{1, 1}, clientCount{2, MaxClientBytes}, true},
		{clientCount{1, 1}, clientCount{2, MaxClientBytes + 1}, false},
		{clientCount{1, MaxClientBytes + 2}, clientCount{1, MaxClientBytes + 1}, true},
		{clientCount{MaxClients - 1, 1}, clientCount{MaxClients, 1}, true},
		{clientCount{MaxClients, 1}, clientCount{MaxClients + 1, 1}, false},
		{clientCount{MaxClients + 1, 1}, clientCount{MaxClients + 1, 2}, true},
	} {
		if got := x.n.fits(x.before); got != x.ok {
			t.Errorf("from %v to %v: %v", x.before, x.n, got)
		}
	}
	must(put(2, 1, 10))
	fill := func(i cluster.IdentityID, count, size int) {
		for n := 1; n <= count; {
			var entries []cluster.Entry
			for ; n <= count && len(entries) < 1024; n++ {
				f.index++
				entries = append(entries, cluster.Entry{Index: f.index, Command: fsm.AppendCommand(nil, fsm.Envelope{}, put(i, n, size))})
			}
			f.m.Apply(entries)
		}
	}
	refused := func(what string, b fsm.Body) {
		t.Helper()
		if _, err := f.do(b); err != cluster.ENOSPC { //nolint:errorlint // returned bare
			t.Errorf("%s: %v", what, err)
		}
	}
	fill(1, MaxClients, 1)
	refused("one record more", put(1, MaxClients+1, 1))
	must(put(1, 7, 2))
	more := put(1, MaxClients+1, 1)
	more.Replaces = id(1, 8)
	must(more)

	must(&AssignIdentity{ID: 1, Epoch: 1, Clean: true}, &RemoveIdentity{ID: 1}, &PurgeIdentity{ID: 1, Epoch: 2})
	v := View{f.m.Reader()}
	if n, other := len(v.Clients(1)), len(v.Clients(2)); n != 0 || other != 1 || v.HasClients(1) || !v.HasClients(2) {
		t.Errorf("%d and %d clients left", n, other)
	}
}

// TestIdentitiesRunOut: numbers are not reused, and end.
func TestIdentitiesRunOut(t *testing.T) {
	f := open(t)
	if _, err := f.do(&InitCluster{UUID: uuid(1), Name: "c"}); err != nil {
		t.Fatal(err)
	}
	var entries []cluster.Entry
	add := func(b fsm.Body) {
		f.index++
		entries = append(entries, cluster.Entry{Index: f.index, Term: 1, Command: fsm.AppendCommand(nil, fsm.Envelope{}, b)})
	}
	for n := cluster.IdentityID(1); n <= cluster.MaxIdentity; n++ {
		add(&PutIdentity{Addr: netip.MustParsePrefix("10.0.0.50/24")})
		add(&RemoveIdentity{ID: n})
		add(&PurgeIdentity{ID: n})
	}
	for k, result := range f.m.Apply(entries) {
		body, err := fsm.SplitResult(result)
		i, malformed := DecodeIdentity(body)
		if err != nil || k%3 == 0 && (malformed != nil || int(i.ID) != k/3+1) {
			t.Fatalf("command %d: %+v, %v", k, i, err)
		}
	}
	if _, err := f.do(&PutIdentity{Addr: netip.MustParsePrefix("10.0.0.50/24")}); err != cluster.ENOSPC { //nolint:errorlint // returned bare
		t.Errorf("one more: %v", err)
	}
}

// TestOldRecords: what was written before there were identities is read.
func TestOldRecords(t *testing.T) {
	n := Node{ID: "n", PeerAddr: "a", Roles: AllRoles, Joined: 3}
	old := appendNode(nil, &n)
	old = append(old[:len(old)-2], 5) // a number of clients, and nothing more
	if got, ok := decodeNode(old); !ok || got != n {
		t.Errorf("node: %+v, %v", got, ok)
	}
	h := head{Cluster: Cluster{UUID: uuid(1), Name: "c"}, nextStore: 2, nextVolume: 3, nextIdentity: 1}
	v := appendHead(nil, &h)
	if got, ok := decodeHead(v[:len(v)-10]); !ok || got != h {
		t.Errorf("head: %+v, %v", got, ok)
	}
}
