package oncrpc

import "sync"

// Calls are served by goroutines that are kept for the next call: what a
// handler needs of stack, and that is several times what a goroutine starts
// with, is grown once and not for each call. A call never waits for a worker:
// if none is idle another is started, so that only Config.MaxInFlight and the
// memory of requests bound how many there are.

const (
	// workerShards is among how many locks the idle workers are divided, by connection.
	workerShards = 16
	// maxIdleWorkers is how many a shard keeps: all together hold some tens of
	// megabytes of stack at most. Who finds it full ends.
	maxIdleWorkers = 64
	// trimEvery is after how many ticks those end that were not needed since
	// the last time: 5 s.
	trimEvery = 20
)

// A worker is a goroutine that serves calls, one after the other.
type worker struct {
	next chan *exchange // nil ends it; there is room for one
}

// workers are those of a Server.
type workers struct {
	wg     sync.WaitGroup // all, idle or not
	shards [workerShards]workerShard
}

// A workerShard has idle workers.
type workerShard struct {
	mu     sync.Mutex
	idle   []*worker // the last one to have become idle is the next to work: its stack is warm
	least  int       // the fewest there were since the last trim
	closed bool
	_      [64]byte // each its own cache line
}

// serve has x served by an idle worker, or by a new one.
func (p *workers) serve(x *exchange) {
	s := &p.shards[x.conn.id%workerShards]
	if w := s.take(); w != nil {
		w.next <- x
		return
	}
	p.wg.Add(1)
	go p.work(s, x)
}

// work serves x, and then what comes while the shard keeps this worker.
func (p *workers) work(s *workerShard, x *exchange) {
	defer p.wg.Done()
	w := &worker{next: make(chan *exchange, 1)}
	for x != nil {
		x.serve()
		if !s.keep(w) {
			return
		}
		x = <-w.next
	}
}

// take takes an idle worker out, if there is one.
func (s *workerShard) take() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle) - 1
	if n < 0 {
		return nil
	}
	w := s.idle[n]
	s.idle[n] = nil
	s.idle = s.idle[:n]
	s.least = min(s.least, n)
	return w
}

// keep puts w among the idle ones. It reports false if w is to end.
func (s *workerShard) keep(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.idle) >= maxIdleWorkers {
		return false
	}
	s.idle = append(s.idle, w)
	return true
}

// trim ends the workers that were idle all the time since the last trim.
func (p *workers) trim() {
	for i := range p.shards {
		p.shards[i].end(false)
	}
}

// close ends all workers, and waits for them. No call comes any more.
func (p *workers) close() {
	for i := range p.shards {
		p.shards[i].end(true)
	}
	p.wg.Wait()
}

// end ends the workers that were not needed, the longest idle first, or all of
// them for good.
func (s *workerShard) end(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.least
	if all {
		n, s.closed = len(s.idle), true
	}
	for _, w := range s.idle[:n] {
		w.next <- nil
	}
	rest := copy(s.idle, s.idle[n:])
	clear(s.idle[rest:])
	s.idle = s.idle[:rest]
	s.least = rest
}

// count returns how many workers are idle.
func (p *workers) count() (n int) {
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		n += len(s.idle)
		s.mu.Unlock()
	}
	return n
}
