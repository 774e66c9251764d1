package group

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Bounds of the pause between requests that tell a follower nothing new: how
// long it may be, and how soon after one such request was left out another is
// sent all the same. A leader that hands leadership over asks in a loop whether
// all was sent, and only the pipeline, when it is full, slows that down.
const (
	maxQuiet = 25 * time.Millisecond
	minQuiet = time.Millisecond
)

// A pipeline is the library's pipeline of requests to one follower, but it
// cannot get stuck, and leaves out what the follower knows.
//
// The library's hands each answer to a consumer before it takes the next
// request. Raft's consumer stops at the first answer that is not a success; its
// sender may be in the pipeline at that moment, and would wait there for ever:
// the follower gets nothing any more, and the member cannot be shut down. So
// here answers are taken whether they are wanted or not. How many requests are
// under way is bounded in the library.
//
// An idle leader sends each follower a request without entries every
// CommitTimeout, a few milliseconds, for that is the library's one way to tell
// a new commit index. Nearly all of them say what the one before has said; those
// are left out. No answer to them is made up, so that the leader's lease counts
// only what the follower said, as it does to heartbeats, which have a connection
// of their own.
type pipeline struct {
	raft.AppendPipeline
	clamp func(*raft.AppendEntriesRequest)
	quiet time.Duration // after which a request is sent that has nothing new
	out   chan raft.AppendFuture
	stop  chan struct{}
	once  sync.Once

	last    said // what was sent last, by Raft's sender
	lastAt  time.Time
	leftOut time.Time // when a request was left out
}

// said is what a follower knows after a request.
type said struct{ term, index, indexTerm, commit uint64 }

func newPipeline(inner raft.AppendPipeline, clamp func(*raft.AppendEntriesRequest), quiet time.Duration) *pipeline {
	p := &pipeline{
		AppendPipeline: inner, clamp: clamp, quiet: quiet,
		out: make(chan raft.AppendFuture), stop: make(chan struct{}),
	}
	go p.pump()
	return p
}

// AppendEntries sends a request, if it has something new: entries or a commit
// index. The follower gets the requests of one pipeline in their order, and
// when one is lost or refused, the pipeline ends, and the next sends anew what
// there is; so what was sent last need not be sent again, answered or not. Raft
// does not look at the future that it returns, which is nil for one that is not
// sent.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.clamp(req)
	now := time.Now()
	s := said{term: req.Term, index: req.PrevLogEntry, indexTerm: req.PrevLogTerm, commit: req.LeaderCommitIndex}
	if n := len(req.Entries); n > 0 {
		s.index, s.indexTerm = req.Entries[n-1].Index, req.Entries[n-1].Term
	} else if s == p.last && now.Sub(p.lastAt) < p.quiet && now.Sub(p.leftOut) >= minQuiet {
		p.leftOut = now
		return nil, nil
	}
	p.last, p.lastAt = s, now
	return p.AppendPipeline.AppendEntries(req, resp)
}

// pump hands answers on in their order until the pipeline is closed.
func (p *pipeline) pump() {
	var queue []raft.AppendFuture
	for {
		var out chan raft.AppendFuture
		var first raft.AppendFuture
		if len(queue) > 0 {
			out, first = p.out, queue[0]
		}
		select {
		case f := <-p.AppendPipeline.Consumer():
			queue = append(queue, f)
		case out <- first:
			queue = queue[1:]
		case <-p.stop:
			return
		}
	}
}

// Consumer returns the channel of answers.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

// Close closes the pipeline and its connection.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.stop) })
	return p.AppendPipeline.Close()
}
