package node

import (
	"reflect"
	"testing"

	pebblevfs "github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
)

// A setMachine is a volume's state machine with a cache of its sets.
type setMachine struct {
	*testing.T
	*fsm.Machine
	fs    pebblevfs.FS
	cache setCache
	reads int
	index uint64
}

func newSetMachine(t *testing.T) *setMachine {
	m := &setMachine{T: t, fs: pebblevfs.NewMem()}
	var err error
	if m.Machine, err = fsm.Open(fsm.Options{Dir: "vol", FS: m.fs, Core: volume.New()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Machine.Close(); err != nil {
			t.Error(err)
		}
	})
	m.cache.view = func() volume.View {
		m.reads++
		return volume.View{Reader: m.Reader()}
	}
	m.Subscribe(m.cache.event)
	return m
}

func (m *setMachine) do(b fsm.Body) []byte {
	m.Helper()
	m.index++
	r := m.Apply([]cluster.Entry{{Index: m.index, Term: 1, Command: fsm.AppendCommand(nil, fsm.Envelope{Time: 1}, b)}})
	body, err := fsm.SplitResult(r[0])
	if err != nil {
		m.Fatal(err)
	}
	return body
}

func (m *setMachine) set(s volume.ReplicaSet) volume.ReplicaSet {
	m.Helper()
	r, err := volume.DecodePutReplicaSetResult(m.do(volume.PutReplicaSet{Set: s}))
	if err != nil {
		m.Fatal(err)
	}
	return r.Set
}

// want checks the epochs of the sets, by id.
func (m *setMachine) want(copies uint8, epochs map[cluster.ReplicaSetID]uint32) {
	m.Helper()
	got := map[cluster.ReplicaSetID]uint32{}
	for _, s := range m.cache.writable(copies) {
		got[s.ID] = s.Epoch
	}
	if !reflect.DeepEqual(got, epochs) {
		m.Errorf("sets and epochs %v, want %v", got, epochs)
	}
}

// TestSetCache: the sets are those of the state, and are read only when they
// have changed.
func TestSetCache(t *testing.T) {
	type sets = map[cluster.ReplicaSetID]uint32
	m := newSetMachine(t)
	m.do(volume.Format{HashKey: [16]byte{1}, Class: cluster.Class{Copies: 2}, Mode: 0o755})
	m.want(2, sets{})
	one := m.set(volume.ReplicaSet{Members: []cluster.StoreID{1, 2}, Copies: 2})
	m.want(2, sets{one.ID: 1})
	two := m.set(volume.ReplicaSet{Members: []cluster.StoreID{3}, Copies: 1})
	m.want(2, sets{one.ID: 1})
	m.want(1, sets{two.ID: 1})

	// Other commands don't matter.
	reads := m.reads
	for range 10 {
		m.do(volume.Create{Dir: cluster.RootIno, Name: string(rune('a' + m.index)), Type: cluster.TypeRegular, Gen: 1})
		m.want(2, sets{one.ID: 1})
	}
	if m.reads != reads {
		t.Errorf("read %d times, though nothing changed", m.reads-reads)
	}

	one.State = volume.ReadOnly
	one = m.set(one)
	m.want(2, sets{})
	one.State = volume.Writable
	one = m.set(one)
	m.want(2, sets{one.ID: 3})
}

// TestSetCacheRestored: a state that replaces this one has other sets.
func TestSetCacheRestored(t *testing.T) {
	type sets = map[cluster.ReplicaSetID]uint32
	leader := newSetMachine(t)
	leader.do(volume.Format{HashKey: [16]byte{1}, Class: cluster.Class{Copies: 1}, Mode: 0o755})
	s := leader.set(volume.ReplicaSet{Members: []cluster.StoreID{1}, Copies: 1})
	if _, err := leader.Checkpoint("checkpoint"); err != nil {
		t.Fatal(err)
	}
	m := newSetMachine(t)
	m.want(1, sets{})
	if _, err := pebblevfs.Clone(leader.fs, m.fs, "checkpoint", "checkpoint"); err != nil {
		t.Fatal(err)
	}
	if err := m.Restore("checkpoint"); err != nil {
		t.Fatal(err)
	}
	m.want(1, sets{s.ID: 1})
}
