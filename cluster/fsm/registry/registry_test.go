package registry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
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
	case "create-volume":
		c := &CreateVolume{Name: long("name"), Class: cluster.Class{Consistency: cluster.Consistency(num("consistency")), Copies: uint8(num("copies"))}}
		if v := word("voters"); v != "" {
			for id := range strings.SplitSeq(v, "+") {
				c.Voters = append(c.Voters, cluster.NodeID(id))
			}
		}
		return show(f.do(c))
	case "put-client":
		return show(f.do(&PutClient{Node: node("node"), Owner: []byte(long("owner"))}))
	case "delete-client":
		return show(f.do(&DeleteClient{Node: node("node"), Owner: []byte(long("owner"))}))
	case "clients":
		return fmt.Sprintf("%q\n", View{f.m.Reader()}.Clients(node("node")))
	case "show":
		return describe(t, View{f.m.Reader()})
	}
	t.Fatalf("no command %s", d.Cmd)
	return ""
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
		fmt.Fprintf(&b, "node %s %s peer=%s nfs=%s rack=%s %s joined=%d clients=%d\n", n.ID, n.State, n.PeerAddr, n.NFSAddr, n.Rack, n.Roles, n.Joined, n.clients)
		if got := len(v.Clients(n.ID)); got != int(n.clients) {
			t.Errorf("%d clients, %d counted", got, n.clients)
		}
	}
	for _, s := range v.Stores() {
		one, ok := v.Store(s.ID)
		two, ok2 := v.StoreByUUID(s.UUID)
		if !ok || !ok2 || one != s || two != s {
			t.Errorf("store %+v, by id %+v, by UUID %+v", s, one, two)
		}
		fmt.Fprintf(&b, "store %d %s node=%s %d/%d uuid=%x\n", s.ID, s.State, s.Node, s.Used, s.Capacity, s.UUID[:2])
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
		&PutClient{Node: "n1", Owner: []byte("o")},
		&SetNodeState{ID: "n1", State: NodeDown},
		&SetStoreState{ID: 1, State: StoreFailed},
		&DeleteClient{Node: "n1", Owner: []byte("o")},
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

// TestClientLimit: a node has at most MaxClients records, and RemoveNode
// removes them all.
func TestClientLimit(t *testing.T) {
	f := open(t)
	for _, b := range []fsm.Body{
		&InitCluster{UUID: uuid(1), Name: "c"},
		&PutNode{ID: "n1", PeerAddr: "a:1", Roles: AllRoles},
		&PutNode{ID: "n10", PeerAddr: "a:1", Roles: AllRoles},
		&PutClient{Node: "n10", Owner: []byte("other")},
	} {
		if _, err := f.do(b); err != nil {
			t.Fatal(err)
		}
	}
	entries := make([]cluster.Entry, MaxClients)
	for i := range entries {
		f.index++
		entries[i] = cluster.Entry{Index: f.index, Command: fsm.AppendCommand(nil, fsm.Envelope{},
			&PutClient{Node: "n1", Owner: codec.AppendUint32(nil, uint32(i))})}
	}
	f.m.Apply(entries)
	if _, err := f.do(&PutClient{Node: "n1", Owner: []byte("more")}); err != cluster.ENOSPC { //nolint:errorlint // returned bare
		t.Errorf("one more: %v", err)
	}
	if _, err := f.do(&PutClient{Node: "n1", Owner: []byte{0, 0, 0, 7}}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if _, err := f.do(&RemoveNode{ID: "n1"}); err != nil {
		t.Fatal(err)
	}
	v := View{f.m.Reader()}
	if n, other := len(v.Clients("n1")), len(v.Clients("n10")); n != 0 || other != 1 {
		t.Errorf("%d and %d clients left", n, other)
	}
}
