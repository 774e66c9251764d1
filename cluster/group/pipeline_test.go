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
	p := newPipeline(&strictPipeline{make(chan raft.AppendFuture)})
	sent := make(chan struct{})
	go func() {
		for range 10 {
			_, _ = p.AppendEntries(nil, nil)
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
