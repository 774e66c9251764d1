package placement

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/segment"
)

// stores is what this node has seen of each store.
type stores struct {
	m sync.Map // cluster.StoreID -> *store
}

// A store is what is known of one store. All times are nanoseconds of the
// monotonic clock's reading since start.
type store struct {
	busy    atomic.Int64  // bytes under way to it
	failed  atomic.Int64  // when it failed last; 0: never
	latency atomic.Int64  // of small gets, exponentially averaged, ns
	free    atomic.Uint64 // per mille of its capacity, plus 1; 0: unknown
	full    atomic.Int64  // when it was last out of space; 0: never
}

func (s *stores) get(id cluster.StoreID) *store {
	if v, ok := s.m.Load(id); ok {
		return v.(*store)
	}
	v, _ := s.m.LoadOrStore(id, new(store))
	return v.(*store)
}

var start = time.Now()

func now() int64 { return int64(time.Since(start)) + 1 }

func (s *store) fail() { s.failed.Store(now()) }

func (s *store) suspect(d time.Duration) bool {
	t := s.failed.Load()
	return t != 0 && now()-t < int64(d)
}

func (s *store) isFull(d time.Duration) bool {
	t := s.full.Load()
	return t != 0 && now()-t < int64(d)
}

// A pace is how long something takes, exponentially averaged, ns.
type pace struct{ ns atomic.Int64 }

func (p *pace) observe(d time.Duration) {
	old := p.ns.Load()
	p.ns.Store(old + (int64(d)-old)/8)
}

// maxHedge bounds how long the time before a hedge gets.
const maxHedge = 5 * time.Second

// hedge returns how long to wait for one before another is started.
func (p *pace) hedge(least time.Duration) time.Duration {
	return max(least, min(4*time.Duration(p.ns.Load()), maxHedge))
}

func (s *store) observe(d time.Duration) {
	old := s.latency.Load()
	if old == 0 {
		s.latency.Store(int64(d))
		return
	}
	s.latency.Store(old + (int64(d)-old)/8)
}

func (s *store) setUsage(u segment.Usage) {
	if u.Capacity > 0 {
		s.free.Store(min(u.Free, u.Capacity)/(u.Capacity/1000+1) + 1)
	}
	s.full.Store(0)
}

// load is how much one would rather not use the store for a put: bytes under
// way, and what is free below a quarter, so that disks fill evenly in the end.
func (s *store) load() int64 {
	l := s.busy.Load()
	if f := s.free.Load(); f != 0 && f < 251 {
		l += int64(251-f) << 16
	}
	return l
}
