package group

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"sync/atomic"
)

// applied is the index that the state machine has reached, and those who wait
// for one.
type applied struct {
	index atomic.Uint64
	next  atomic.Uint64 // least index that is waited for

	mu      sync.Mutex
	waiters waiterHeap
	closed  bool
}

// A waiter waits for an index.
type waiter struct {
	index uint64
	at    int // in the heap; -1 if not in it
	woken chan struct{}
}

func (a *applied) init(index uint64) {
	a.index.Store(index)
	a.next.Store(math.MaxUint64)
}

// set raises the index and wakes those who wait for it. It costs two atomic
// operations when nobody does.
func (a *applied) set(index uint64) {
	if index <= a.index.Load() {
		return
	}
	a.index.Store(index)
	if a.next.Load() > index {
		return
	}
	a.mu.Lock()
	for len(a.waiters) > 0 && a.waiters[0].index <= index {
		w := heap.Pop(&a.waiters).(*waiter)
		w.woken <- struct{}{}
	}
	a.updateNext()
	a.mu.Unlock()
}

func (a *applied) updateNext() {
	if len(a.waiters) == 0 {
		a.next.Store(math.MaxUint64)
	} else {
		a.next.Store(a.waiters[0].index)
	}
}

var waiterPool = sync.Pool{New: func() any { return &waiter{woken: make(chan struct{}, 1)} }}

// wait waits until the index is reached.
func (a *applied) wait(ctx context.Context, index uint64) error {
	if a.index.Load() >= index {
		return nil
	}
	w := waiterPool.Get().(*waiter)
	w.index = index
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return ErrClosed
	}
	heap.Push(&a.waiters, w)
	a.updateNext()
	// set stores the index before it looks at next, so one of the two sees the
	// other's.
	if a.index.Load() >= index {
		heap.Remove(&a.waiters, w.at)
		a.updateNext()
		a.mu.Unlock()
		waiterPool.Put(w)
		return nil
	}
	a.mu.Unlock()
	select {
	case <-w.woken:
	case <-ctx.Done():
		a.mu.Lock()
		if w.at >= 0 {
			heap.Remove(&a.waiters, w.at)
			a.updateNext()
		} else {
			<-w.woken
		}
		a.mu.Unlock()
		waiterPool.Put(w)
		return ctx.Err()
	}
	waiterPool.Put(w)
	if a.index.Load() < index {
		return ErrClosed
	}
	return nil
}

// close wakes everyone.
func (a *applied) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for len(a.waiters) > 0 {
		heap.Pop(&a.waiters).(*waiter).woken <- struct{}{}
	}
	a.updateNext()
}

// A waiterHeap has the least index first.
type waiterHeap []*waiter

func (h waiterHeap) Len() int           { return len(h) }
func (h waiterHeap) Less(i, j int) bool { return h[i].index < h[j].index }
func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *waiterHeap) Push(x any) {
	w := x.(*waiter)
	w.at = len(*h)
	*h = append(*h, w)
}

func (h *waiterHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.at = -1
	return w
}
