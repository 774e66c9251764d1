package group

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// A strictPipeline takes a request only when its last answer was consumed, as
// the library's does.
type strictPipeline struct{ done chan raft.AppendFuture }

func (s *strictPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	s.done <- nil
	return nil, nil
}
func (s *strictPipeline) Consumer() <-chan raft.AppendFuture { return s.done }
func (s *strictPipeline) Close() error                       { return nil }

func TestPipelineTakesRequestsWithoutAConsumer(t *testing.T) {
	p := newPipeline(&strictPipeline{make(chan raft.AppendFuture)}, func(*raft.AppendEntriesRequest) {}, 0)
	sent := make(chan struct{})
	go func() {
		for range 10 {
			_, _ = p.AppendEntries(&raft.AppendEntriesRequest{}, nil)
		}
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(5 * time.Second):
		t.Fatal("the sender is stuck")
	}
	for range 10 {
		<-p.Consumer()
	}
	_ = p.Close()
	_ = p.Close()
}

// A wire counts what is sent.
type wire struct {
	strictPipeline
	sent []raft.AppendEntriesRequest
}

func (w *wire) AppendEntries(req *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	w.sent = append(w.sent, *req)
	return nil, nil
}

// TestPipelineLeavesOutWhatTheFollowerKnows: entries and commit indexes go out at
// once, nothing new every quiet time only.
func TestPipelineLeavesOutWhatTheFollowerKnows(t *testing.T) {
	const quiet = 80 * time.Millisecond
	w := &wire{strictPipeline: strictPipeline{make(chan raft.AppendFuture)}}
	p := newPipeline(w, func(r *raft.AppendEntriesRequest) { r.LeaderCommitIndex = min(r.LeaderCommitIndex, 12) }, quiet)
	defer p.Close()
	empty := func(term, prev, prevTerm, commit uint64) *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm, LeaderCommitIndex: commit}
	}
	entries := empty(3, 10, 3, 10)
	entries.Entries = []*raft.Log{{Index: 11, Term: 3}, {Index: 12, Term: 3}}
	for i, c := range []struct {
		req  *raft.AppendEntriesRequest
		sent bool
	}{
		{empty(3, 10, 2, 9), true}, // the first
		{empty(3, 10, 2, 9), false},
		{empty(3, 10, 2, 10), true}, // a commit index
		{empty(3, 10, 2, 10), false},
		{empty(3, 10, 3, 10), true}, // another entry before
		{entries, true},
		{entries, true},              // entries always
		{empty(3, 12, 3, 10), false}, // they said it
		{empty(3, 12, 3, 12), true},  // their commit index
		{empty(3, 12, 3, 13), false}, // is not on the leader's disk
		{empty(4, 12, 3, 12), true},  // a term
	} {
		time.Sleep(2 * minQuiet)
		before := len(w.sent)
		if _, err := p.AppendEntries(c.req, nil); err != nil {
			t.Fatal(err)
		}
		if sent := len(w.sent) > before; sent != c.sent {
			t.Errorf("request %d: sent %v", i, sent)
		}
	}
	last, before := time.Now(), len(w.sent)
	for time.Since(last) < 3*quiet {
		time.Sleep(2 * minQuiet)
		_, _ = p.AppendEntries(empty(4, 12, 3, 12), nil)
	}
	if n := len(w.sent) - before; n < 1 || n > 3 {
		t.Errorf("%d requests in three quiet times", n)
	}
	// One who asks in a loop is sent to, so that the full pipeline slows it down.
	before = len(w.sent)
	for range 10 {
		_, _ = p.AppendEntries(empty(4, 12, 3, 12), nil)
	}
	if n := len(w.sent) - before; n < 5 {
		t.Errorf("%d of 10 requests in a row", n)
	}
}
