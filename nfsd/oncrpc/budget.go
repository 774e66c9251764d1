package oncrpc

import (
	"sync"
	"sync/atomic"
)

// callCost is what a call is charged beyond its bytes: the goroutine and the
// reply's first buffer.
const callCost = 4 << 10

// A budget is a number of bytes that the requests of all connections share.
// Taking from it is one atomic operation while there is enough; those who must
// wait are served in turn.
type budget struct {
	max  int64
	used atomic.Int64
	wait atomic.Int32 // how many wait

	mu    sync.Mutex
	queue []*claim
}

// A claim is someone waiting for n bytes.
type claim struct {
	n     int64
	ready chan struct{}
}

// acquire takes n bytes (as many as there are in all, if n is more), waiting
// for them. It returns how many were taken, and false if stop was closed first.
func (b *budget) acquire(n int, stop <-chan struct{}) (int, bool) {
	need := min(int64(n), b.max)
	if b.wait.Load() == 0 && b.take(need) {
		return int(need), true
	}
	c := &claim{n: need, ready: make(chan struct{})}
	b.mu.Lock()
	b.wait.Add(1)
	b.queue = append(b.queue, c)
	b.grant()
	b.mu.Unlock()
	select {
	case <-c.ready:
		return int(need), true
	case <-stop:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == c {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.wait.Add(-1)
			b.grant()
			return 0, false
		}
	}
	// It was granted meanwhile.
	b.used.Add(-need)
	b.grant()
	return 0, false
}

// take takes n bytes if there are as many.
func (b *budget) take(n int64) bool {
	for {
		u := b.used.Load()
		if u+n > b.max {
			return false
		}
		if b.used.CompareAndSwap(u, u+n) {
			return true
		}
	}
}

// release gives back n bytes.
func (b *budget) release(n int) {
	b.used.Add(-int64(n))
	if b.wait.Load() == 0 {
		return
	}
	b.mu.Lock()
	b.grant()
	b.mu.Unlock()
}

// grant serves those who wait, first come first. b.mu is held.
func (b *budget) grant() {
	for len(b.queue) > 0 && b.take(b.queue[0].n) {
		close(b.queue[0].ready)
		b.queue[0] = nil
		b.queue = b.queue[1:]
		b.wait.Add(-1)
	}
	if len(b.queue) == 0 {
		b.queue = nil
	}
}
