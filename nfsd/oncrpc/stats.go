package oncrpc

import "sync/atomic"

// counters are those of a Server's life.
type counters struct {
	calls, replies, rejected, refused, closed, panics atomic.Uint64
}

// Stats are a Server's numbers.
type Stats struct {
	Conns         int    // connections open
	Calls         uint64 // calls received
	Rejected      uint64 // calls refused for their RPC version, credential, program or version
	Refused       uint64 // connections refused because there were too many
	Closed        uint64 // connections closed for what the peer did or did not do
	Panics        uint64 // handlers that panicked
	IdleWorkers   int    // goroutines kept for the next call
	RequestMemory int64  // bytes of requests being served
	ReplyMemory   int64  // bytes of replies not yet written
}

// Stats returns the numbers of now.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	return Stats{
		Conns:         n,
		Calls:         s.stats.calls.Load(),
		Rejected:      s.stats.rejected.Load(),
		Refused:       s.stats.refused.Load(),
		Closed:        s.stats.closed.Load(),
		Panics:        s.stats.panics.Load(),
		IdleWorkers:   s.workers.count(),
		RequestMemory: s.requests.used.Load(),
		ReplyMemory:   s.unsent.Load(),
	}
}
