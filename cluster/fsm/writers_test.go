package fsm

import (
	"math"
	"slices"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// steps counts the keys that a Reader goes over.
type steps struct {
	model
	n int
}

func (s *steps) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	s.model.Ascend(lower, upper, func(k, v []byte) bool {
		s.n++
		return fn(k, v)
	})
}

// LoadWriters finds all writers and does not go over their lanes.
func TestLoadWriters(t *testing.T) {
	r := &steps{model: model{}}
	ids := []cluster.WriterID{0, 1, 7, 0x57000000, math.MaxUint32}
	for _, id := range ids {
		w := Writer{ID: id, Node: "n"}
		r.Set(appendWriterKey(nil, id), appendWriter(nil, &w))
		for lane := range uint16(50) {
			r.Set(appendLaneKey(nil, id, lane), []byte("result"))
		}
	}
	r.Set(appendLaneKey(nil, 5, 1), []byte("a lane without its writer"))
	var got []cluster.WriterID
	LoadWriters(r, func(w Writer) bool {
		got = append(got, w.ID)
		return true
	})
	if !slices.Equal(got, ids) {
		t.Errorf("writers %v, want %v", got, ids)
	}
	if r.n > len(ids)+1 {
		t.Errorf("%d keys were gone over for %d writers", r.n, len(ids))
	}
	n := 0
	LoadWriters(r, func(Writer) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("fn was called %d times though it returned false the second time", n)
	}
	LoadWriters(model{}, func(Writer) bool { t.Error("a writer of nothing"); return true })
}
