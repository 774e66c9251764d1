package nfs4

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A memRegistry is what the cluster keeps of an identity, in memory.
type memRegistry struct {
	mu      sync.Mutex
	epoch   uint32
	records map[uint64][]byte
	puts    int
	fail    atomic.Bool
}

func newRegistry() *memRegistry { return &memRegistry{records: map[uint64][]byte{}} }

// A memStore is a vfs.ClientStore of one epoch.
type memStore struct {
	r     *memRegistry
	epoch uint32
}

// serve returns the store of the next epoch: earlier ones are fenced.
func (r *memRegistry) serve() memStore {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	return memStore{r, r.epoch}
}

func (m memStore) locked(fn func()) error {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	switch {
	case m.r.fail.Load():
		return errors.New("no leader")
	case m.epoch != m.r.epoch:
		return cluster.EFENCED
	}
	fn()
	return nil
}

func (m memStore) Load(context.Context) (all []vfs.ClientRecord, err error) {
	err = m.locked(func() {
		for _, id := range slices.Sorted(maps.Keys(m.r.records)) {
			all = append(all, vfs.ClientRecord{ID: id, Record: slices.Clone(m.r.records[id])})
		}
	})
	return all, err
}

func (m memStore) Put(_ context.Context, id uint64, record []byte, replaces uint64) error {
	return m.locked(func() {
		delete(m.r.records, replaces)
		m.r.records[id] = slices.Clone(record)
		m.r.puts++
	})
}

func (m memStore) Delete(_ context.Context, id uint64) error {
	return m.locked(func() { delete(m.r.records, id) })
}

func (r *memRegistry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records)
}

var testKey = [32]byte{1, 2, 3}

// with has a Program keep its clients in r.
func (r *memRegistry) with(c *Config) {
	s := r.serve()
	c.Clients, c.StateKey, c.Identity, c.Epoch = s, testKey, 1, s.epoch
}

// A client is recorded before it is told that it has a session, an older incarnation
// is replaced, and one that is gone is forgotten.
func TestClientRecords(t *testing.T) {
	reg := newRegistry()
	r := newRig(t, reg.with)
	reg.fail.Store(true)
	w := r.dial()
	x, _ := w.exchange("a", 1, 0)
	w.compound(createSession(x.id, x.seq, linuxFore)).is(proto.ErrDelay)
	reg.fail.Store(false)
	w.compound(createSession(x.id, x.seq, linuxFore)).is(proto.OK)
	if n := reg.count(); n != 1 {
		t.Fatal(n)
	}
	r.mount(w, "a", 2) // restarted
	if n := reg.count(); n != 1 {
		t.Fatal(n)
	}
	if _, old := reg.records[x.id]; old {
		t.Fatal("the old incarnation is still on record")
	}
	r.advance(time.Hour)
	r.p.Tick(t.Context(), r.p.cfg.Now())
	if n := reg.count(); n != 0 {
		t.Fatal(n)
	}
}
