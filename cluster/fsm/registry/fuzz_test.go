package registry

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// examples has a command of each kind.
var examples = []fsm.Body{
	&InitCluster{UUID: uuid(1), Name: "c"},
	&PutNode{ID: "n1", PeerAddr: "a:1", NFSAddr: "a:2", Roles: AllRoles, Rack: "r", Incarnation: uuid(2)},
	&RemoveNode{ID: "n1"},
	&SetNodeState{ID: "n1", State: NodeDown},
	&PutStore{UUID: uuid(3), Node: "n1", Capacity: 1 << 40, Used: 7, State: StoreUp},
	&SetStoreState{ID: 1, State: StoreFailed},
	&CreateVolume{Name: "v", Class: cluster.Class{Copies: 1}, Voters: []cluster.NodeID{"n1"}},
	&PutIdentity{Addr: netip.MustParsePrefix("10.0.0.50/24"), Group: "g", Home: "n1"},
	&TakeLead{Nonce: 9},
	&AssignIdentity{ID: 1, Node: "n1"},
	&ServeIdentity{ID: 1, Epoch: 1},
	&AssignIdentity{Node: "n1"},
	&PutClient{Identity: 1, Epoch: 1, ID: cluster.MakeClientID(1, 1, 1), Record: []byte("r"), Replaces: 4},
	&DrainNode{ID: "n1", Drain: true},
	&DeleteClient{Identity: 1, Epoch: 1, ID: cluster.MakeClientID(1, 1, 1)},
	&RemoveIdentity{ID: 1},
	&PurgeIdentity{ID: 1, Epoch: 1},
	&DrainStore{ID: 1, Drain: true},
	&Rebalance{Until: 5},
}

// FuzzApply gives the registry any body of any kind: it is refused, or leaves
// records that can all be read, but never fails by a bug.
func FuzzApply(f *testing.F) {
	for _, b := range examples {
		f.Add(uint8(b.Kind()), b.AppendTo(nil))
	}
	f.Add(uint8(255), []byte{})
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		if fsm.Kind(kind) < fsm.FirstCoreKind {
			return
		}
		x := open(t)
		for _, b := range examples {
			switch b.(type) {
			case *RemoveNode, *DeleteClient, *RemoveIdentity, *PurgeIdentity:
				continue
			}
			if _, err := x.do(b); err != nil {
				t.Fatalf("%T: %v", b, err)
			}
		}
		_, err := x.do(anyBody{fsm.Kind(kind), body})
		if errors.Is(err, cluster.EINTERNAL) {
			t.Fatalf("kind %d, %x: %v", kind, body, err)
		}
		v := View{x.m.Reader()}
		if _, ok := v.Cluster(); !ok {
			t.Fatal("the cluster's record is gone")
		}
		if len(v.Nodes()) == 0 || len(v.Stores()) == 0 || len(v.Volumes()) == 0 {
			t.Fatal("records are gone")
		}
		x.m.Reader().Ascend(nil, nil, func(k, val []byte) bool {
			ok := true
			switch k[0] {
			case 'N':
				_, ok = decodeNode(val)
			case 'S':
				_, ok = decodeStore(val)
			case 'V':
				_, ok = decodeVolume(val)
			case 'I':
				var i Identity
				i, ok = decodeIdentity(val)
				ok = ok && i.ID != 0 && i.ID <= cluster.MaxIdentity
			case 'O':
				_, ok = v.Identity(cluster.IdentityID(binary.BigEndian.Uint16(val)))
			case 'Q':
				id := cluster.IdentityID(binary.BigEndian.Uint16(k[1:]))
				n, decoded := decodeCount(val)
				ok = decoded && int(n.records) == len(v.Clients(id))
			case 'C':
				_, ok = decodeHead(val)
			}
			if !ok {
				t.Errorf("the record %q can't be read: %x", k, val)
			}
			return true
		})
	})
}

// FuzzRecords decodes any bytes as a record of each kind: what is accepted is
// the same record when it is written again.
func FuzzRecords(f *testing.F) {
	f.Add(appendNode(nil, &Node{ID: "n", PeerAddr: "a", Roles: AllRoles}))
	f.Add(appendStore(nil, &Store{ID: 1, Node: "n"}))
	f.Add(appendVolume(nil, &Volume{ID: 1, Name: "v", Voters: []cluster.NodeID{"n"}}))
	f.Add(appendHead(nil, &head{nextStore: 1, nextVolume: 1}))
	f.Add(appendIdentity(nil, &Identity{ID: 1, Addr: netip.MustParsePrefix("2001:db8::5/64"), Node: "n", Fence: []cluster.NodeID{"m"}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		if n, ok := decodeNode(in); ok {
			if again, ok := decodeNode(appendNode(nil, &n)); !ok || again != n {
				t.Errorf("node %+v, and again %+v", n, again)
			}
		}
		if s, ok := decodeStore(in); ok {
			if again, ok := decodeStore(appendStore(nil, &s)); !ok || again != s {
				t.Errorf("store %+v, and again %+v", s, again)
			}
		}
		if v, ok := decodeVolume(in); ok {
			if again, ok := decodeVolume(appendVolume(nil, &v)); !ok || again.Name != v.Name || len(again.Voters) != len(v.Voters) {
				t.Errorf("volume %+v, and again %+v", v, again)
			}
		}
		if i, ok := decodeIdentity(in); ok {
			if again, ok := decodeIdentity(appendIdentity(nil, &i)); !ok || !again.Equal(&i) {
				t.Errorf("identity %+v, and again %+v", i, again)
			}
		}
		if h, ok := decodeHead(in); ok {
			if again, ok := decodeHead(appendHead(nil, &h)); !ok || again != h {
				t.Errorf("head %+v, and again %+v", h, again)
			}
		}
	})
}

type anyBody struct {
	kind fsm.Kind
	body []byte
}

func (b anyBody) Kind() fsm.Kind             { return b.kind }
func (b anyBody) AppendTo(dst []byte) []byte { return append(dst, b.body...) }
