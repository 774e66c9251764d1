package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
	"github.com/hawserfs/hawser/datastore/scrub"
)

// What another node's scrub can be asked for.
const (
	scrubDoubt  = "doubt"  // look at some copies soon
	scrubCheck  = "check"  // look at some copies now
	scrubStep   = "step"   // look at the next copies of a store
	scrubStatus = "status" // how the scrubs of the node's stores stand
)

// maxScrubKeys bounds the copies of one request.
const maxScrubKeys = 4096

// A scrubRequest is a call of peer.ServiceScrub, in JSON.
type scrubRequest struct {
	Op    string            `json:"op"`
	Store cluster.StoreID   `json:"store,omitempty"`
	After cluster.BlobKey   `json:"after,omitzero"`
	Keys  []cluster.BlobKey `json:"keys,omitempty"`
}

// A scrubReply is its answer.
type scrubReply struct {
	Result scrub.Result   `json:"result,omitzero"`
	Used   uint64         `json:"used,omitempty"` // bytes that the store has
	Status []scrub.Status `json:"status,omitempty"`
	// Stopped says why the step or the check ended before its end.
	Stopped string `json:"stopped,omitempty"`
}

// handle serves peer.ServiceScrub.
func (s *scrubs) handle(ctx context.Context, req *peer.Request) (peer.Reply, error) {
	var q scrubRequest
	if err := json.Unmarshal(req.Body, &q); err != nil || len(q.Keys) > maxScrubKeys {
		return peer.Reply{}, cluster.EINVAL
	}
	a, err := s.do(ctx, q)
	if err != nil {
		return peer.Reply{}, err
	}
	body, err := json.Marshal(a)
	if err != nil {
		return peer.Reply{}, cluster.EINTERNAL
	}
	return peer.Reply{Body: [][]byte{body}}, nil
}

// do does here what is asked for.
func (s *scrubs) do(ctx context.Context, q scrubRequest) (a scrubReply, err error) {
	if q.Op == scrubStatus {
		return scrubReply{Status: s.status()}, nil
	}
	r := s.runner(q.Store)
	if r == nil {
		return a, cluster.EDISK
	}
	switch q.Op {
	case scrubDoubt:
		r.Doubt(q.Keys...)
		return a, nil
	case scrubCheck:
		a.Result, err = r.Check(ctx, q.Keys)
	case scrubStep:
		a.Result, err = r.Step(ctx, q.After)
	default:
		return a, cluster.ENOTSUP
	}
	a.Used = r.Used()
	if err != nil {
		// What was found before counts.
		a.Stopped = err.Error()
	}
	return a, nil
}

// ask asks the node that has a store.
func (s *scrubs) ask(ctx context.Context, id cluster.StoreID, q scrubRequest, timeout time.Duration) (scrubReply, error) {
	if s.runner(id) != nil {
		return s.do(ctx, q)
	}
	addr, up := s.n.member.Addr(id)
	if !up {
		return scrubReply{}, fmt.Errorf("store %d is down: %w", id, cluster.EAGAIN)
	}
	return s.call(ctx, addr, q, timeout)
}

// call asks the node at an address.
func (s *scrubs) call(ctx context.Context, addr string, q scrubRequest, timeout time.Duration) (a scrubReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	r, err := s.n.peer.Call(ctx, addr, peer.ServiceScrub, cluster.ClusterGroup, nil, body)
	if errors.Is(err, cluster.EDISK) {
		err = fmt.Errorf("its node does not serve it: %w", err)
	}
	if err != nil {
		return a, err
	}
	defer r.Release()
	return a, json.Unmarshal(r.Body, &a)
}
