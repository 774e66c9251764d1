package group

import (
	"sync"
	"sync/atomic"
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
//
// A member that has had a command committed or asks for a read index is about to
// wait for it. It is told the commit index at once (tell), instead of some
// milliseconds later, with the request that Raft would send next.
type pipeline struct {
	raft.AppendPipeline
	clamp  func(*raft.AppendEntriesRequest)
	commit func() uint64 // up to where entries are committed, and on this leader's disk
	closed func(*pipeline)
	quiet  time.Duration // after which a request is sent that has nothing new
	out    chan raft.AppendFuture
	news   chan struct{} // the follower waits for the commit index
	stop   chan struct{}
	once   sync.Once

	flying atomic.Int32 // requests without an answer
	owed   atomic.Bool  // the follower waits, but requests are under way

	mu      sync.Mutex // held while sending
	last    said       // what was sent last
	head    raft.AppendEntriesRequest
	lastAt  time.Time
	leftOut time.Time // when a request was left out
}

// said is what a follower knows after a request.
type said struct{ term, index, indexTerm, commit uint64 }

// open starts a pipeline that has all of its settings.
func (p *pipeline) open() *pipeline {
	p.out, p.news, p.stop = make(chan raft.AppendFuture), make(chan struct{}, 1), make(chan struct{})
	go p.pump()
	go p.newsLoop()
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
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := says(req)
	if len(req.Entries) == 0 && s == p.last && now.Sub(p.lastAt) < p.quiet && now.Sub(p.leftOut) >= minQuiet {
		p.leftOut = now
		return nil, nil
	}
	p.last, p.lastAt = s, now
	p.head = raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term}
	p.flying.Add(1)
	return p.AppendPipeline.AppendEntries(req, resp)
}

// says returns what a follower knows when it has taken a request.
func says(req *raft.AppendEntriesRequest) said {
	s := said{term: req.Term, index: req.PrevLogEntry, indexTerm: req.PrevLogTerm, commit: req.LeaderCommitIndex}
	if n := len(req.Entries); n > 0 {
		s.index, s.indexTerm = req.Entries[n-1].Index, req.Entries[n-1].Term
	}
	return s
}

// tell tells the follower the commit index, if that is news. It does not wait.
func (p *pipeline) tell() {
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// newsLoop tells commit indexes until the pipeline is closed.
func (p *pipeline) newsLoop() {
	for {
		select {
		case <-p.news:
			p.sendNews()
		case <-p.stop:
			return
		}
	}
}

// sendNews sends the request that Raft would send next, if it had no entries.
// Raft's sender sees an error by itself. While requests are under way it waits:
// few can be, the next may have entries, and that says it too.
func (p *pipeline) sendNews() {
	p.owed.Store(true)
	if p.flying.Load() > 0 {
		return
	}
	p.owed.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	commit := min(p.commit(), p.last.index)
	if commit <= p.last.commit {
		return
	}
	req := p.head
	req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex = p.last.index, p.last.indexTerm, commit
	p.last.commit, p.lastAt = commit, time.Now()
	p.flying.Add(1)
	_, _ = p.AppendPipeline.AppendEntries(&req, new(raft.AppendEntriesResponse))
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
			if p.flying.Add(-1) == 0 && p.owed.Load() {
				p.tell()
			}
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
	p.once.Do(func() {
		close(p.stop)
		p.closed(p)
	})
	return p.AppendPipeline.Close()
}
