package group

import (
	"errors"
	"slices"
	"sync"
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

// testPipeline opens a pipeline of a leader whose entries are committed and on
// disk up to 12.
func testPipeline(inner raft.AppendPipeline, quiet time.Duration) *pipeline {
	t := &transport{tail: &tailLog{}}
	t.tail.synced.Store(12)
	return (&pipeline{
		AppendPipeline: inner, quiet: quiet, clamp: t.clamp,
		commit: func() uint64 { return 12 }, closed: func(*pipeline) {},
	}).open()
}

func TestPipelineTakesRequestsWithoutAConsumer(t *testing.T) {
	p := testPipeline(&strictPipeline{make(chan raft.AppendFuture)}, 0)
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
	mu   sync.Mutex
	sent []raft.AppendEntriesRequest
}

func (w *wire) requests() []raft.AppendEntriesRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

func (w *wire) AppendEntries(req *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	w.mu.Lock()
	w.sent = append(w.sent, *req)
	w.mu.Unlock()
	return nil, nil
}

// TestPipelineLeavesOutWhatTheFollowerKnows: entries and commit indexes go out at
// once, nothing new every quiet time only.
func TestPipelineLeavesOutWhatTheFollowerKnows(t *testing.T) {
	const quiet = 80 * time.Millisecond
	w := &wire{strictPipeline: strictPipeline{make(chan raft.AppendFuture)}}
	p := testPipeline(w, quiet)
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
		{empty(4, 11, 3, 12), true},  // no commit index beyond the entry before
	} {
		time.Sleep(2 * minQuiet)
		before := len(w.requests())
		if _, err := p.AppendEntries(c.req, nil); err != nil {
			t.Fatal(err)
		}
		if sent := len(w.requests()) > before; sent != c.sent {
			t.Errorf("request %d: sent %v", i, sent)
		}
	}
	if r := w.requests(); r[len(r)-1].LeaderCommitIndex != 11 {
		t.Errorf("commit index %d with entry 11", r[len(r)-1].LeaderCommitIndex)
	}
	last, before := time.Now(), len(w.requests())
	for time.Since(last) < 3*quiet {
		time.Sleep(2 * minQuiet)
		_, _ = p.AppendEntries(empty(4, 12, 3, 12), nil)
	}
	if n := len(w.requests()) - before; n < 1 || n > 3 {
		t.Errorf("%d requests in three quiet times", n)
	}
	// One who asks in a loop is sent to, so that the full pipeline slows it down.
	before = len(w.requests())
	for range 10 {
		_, _ = p.AppendEntries(empty(4, 12, 3, 12), nil)
	}
	if n := len(w.requests()) - before; n < 5 {
		t.Errorf("%d of 10 requests in a row", n)
	}
}

// TestPipelineTellsTheCommitIndex: a follower that waits for it is sent what
// Raft would send some time later, once.
func TestPipelineTellsTheCommitIndex(t *testing.T) {
	w := &wire{strictPipeline: strictPipeline{make(chan raft.AppendFuture)}}
	p := testPipeline(w, time.Hour)
	defer p.Close()
	p.tell() // nothing was sent, so it is not known what the follower has
	time.Sleep(5 * time.Millisecond)
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ID: []byte("n1")}, Term: 3, PrevLogEntry: 10, PrevLogTerm: 2, LeaderCommitIndex: 10,
		Entries: []*raft.Log{{Index: 11, Term: 3}},
	}
	if _, err := p.AppendEntries(req, nil); err != nil {
		t.Fatal(err)
	}
	p.tell()
	time.Sleep(5 * time.Millisecond)
	if n := len(w.requests()); n != 1 {
		t.Fatalf("%d requests while one is under way", n)
	}
	w.done <- nil
	soon(t, "not told", func() bool { return len(w.requests()) > 1 })
	p.tell()
	time.Sleep(5 * time.Millisecond)
	got := w.requests()
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	r := got[1]
	if string(r.ID) != "n1" || r.Term != 3 || r.PrevLogEntry != 11 || r.PrevLogTerm != 3 || r.LeaderCommitIndex != 11 || len(r.Entries) > 0 {
		t.Fatalf("%+v", r)
	}
}

// TestFollowerHearsAtOnceWhatItWaitsFor: it does not wait for the time after
// which an idle leader tells what is committed.
func TestFollowerHearsAtOnceWhatItWaitsFor(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.CommitTimeout = time.Minute; cfg.HeartbeatTimeout = time.Second })
	f := c.followers()[0]
	c.propose(f, "first=1")
	begin := time.Now()
	index := c.propose(f, "a=1")
	if err := f.group.WaitApplied(c.ctx(), index); err != nil {
		t.Fatal(err)
	}
	c.propose(c.leader(), "b=1")
	read, err := f.group.ReadIndex(c.ctx())
	if err = errors.Join(err, f.group.WaitApplied(c.ctx(), read)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > 5*time.Second || f.machine.value("b") == "" {
		t.Fatalf("it took %v", d)
	}
}
