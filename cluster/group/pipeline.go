package group

import (
	"sync"

	"github.com/hashicorp/raft"
)

// A transport is Raft's network transport with pipelines that cannot get stuck.
//
// The library's pipeline hands each answer to a consumer before it takes the
// next request. Raft's consumer stops at the first answer that is not a success;
// its sender may be in the pipeline at that moment, and would wait there for
// ever: the follower gets nothing any more, and the member cannot be shut down.
type transport struct{ *raft.NetworkTransport }

// AppendEntriesPipeline opens a pipeline to a member.
func (t transport) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, addr)
	if err != nil {
		return nil, err
	}
	return newPipeline(inner), nil
}

// A pipeline takes answers from the library's pipeline whether they are wanted
// or not. How many requests are under way is bounded there.
type pipeline struct {
	raft.AppendPipeline
	out  chan raft.AppendFuture
	stop chan struct{}
	once sync.Once
}

func newPipeline(inner raft.AppendPipeline) *pipeline {
	p := &pipeline{AppendPipeline: inner, out: make(chan raft.AppendFuture), stop: make(chan struct{})}
	go p.pump()
	return p
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
