package volume

import (
	"errors"
	"reflect"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

func TestReplicaSets(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	put := func(s ReplicaSet) (ReplicaSet, error) {
		body, err := e.apply("a", PutReplicaSet{Set: s})
		if err != nil {
			return ReplicaSet{}, err
		}
		r, err := DecodePutReplicaSetResult(body)
		return r.Set, err
	}
	for _, c := range []struct {
		name string
		set  ReplicaSet
		want error
	}{
		{"no members", ReplicaSet{Copies: 1}, cluster.EINVAL},
		{"no copies", ReplicaSet{Members: []cluster.StoreID{1}}, cluster.EINVAL},
		{"too many copies", ReplicaSet{Members: []cluster.StoreID{1}, Copies: 4}, cluster.EINVAL},
		{"a store twice", ReplicaSet{Members: []cluster.StoreID{1, 2, 1}, Copies: 3}, cluster.EINVAL},
		{"store 0", ReplicaSet{Members: []cluster.StoreID{0}, Copies: 1}, cluster.EINVAL},
		{"too many members", ReplicaSet{Members: make([]cluster.StoreID, maxMembers+1), Copies: 1}, cluster.EINVAL},
		{"unknown state", ReplicaSet{Members: []cluster.StoreID{1}, Copies: 1, State: 9}, cluster.EINVAL},
		{"not there", ReplicaSet{ID: 5, Members: []cluster.StoreID{1}, Copies: 1}, cluster.ENOENT},
	} {
		if _, err := put(c.set); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	s, err := put(ReplicaSet{Members: []cluster.StoreID{1, 2}, Copies: 2})
	if err != nil || s.ID != 1 || s.Epoch != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	ino := e.create("f")
	e.must("a", commitOf(ino, e.blob("a", s, 10)))
	// The steps of a repair.
	s.State = ReadOnly
	if s, err = put(s); err != nil || s.Epoch != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	s.Members = []cluster.StoreID{1, 3}
	if s, err = put(s); err != nil || s.Epoch != 3 {
		t.Fatalf("%+v, %v", s, err)
	}
	s.State = Writable
	if s, err = put(s); err != nil || s.Epoch != 4 {
		t.Fatalf("%+v, %v", s, err)
	}
	e.must("a", commitOf(ino, e.blob("a", s, 10)))
	n := 0
	e.view.SetBlobs(s.ID, 0, func(cluster.BlobID) bool {
		n++
		return true
	})
	if n != 1 {
		t.Errorf("%d blobs on the set", n)
	}
	// An empty set changes freely, and may retire for good.
	s2, err := put(ReplicaSet{Members: []cluster.StoreID{4}, Copies: 2})
	if err != nil || s2.ID != 2 {
		t.Fatalf("%+v, %v", s2, err)
	}
	s2.Members = []cluster.StoreID{4, 5}
	if s2, err = put(s2); err != nil {
		t.Fatal(err)
	}
	s2.State = Retired
	if s2, err = put(s2); err != nil {
		t.Fatal(err)
	}
	back := s2
	back.State = Writable
	if _, err := put(back); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("a retired set came back: %v", err)
	}
	if got := e.view.ReplicaSets(); !reflect.DeepEqual(got, []ReplicaSet{s, s2}) {
		t.Errorf("sets %+v", got)
	}
	e.check()
}
