package blob

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
)

// OverPeer returns the transport over a node's peer endpoint.
func OverPeer(ep *peer.Endpoint) Transport { return overPeer{ep} }

type overPeer struct{ ep *peer.Endpoint }

func (t overPeer) Call(ctx context.Context, addr string, g cluster.GroupID, head []byte, body ...[]byte) (Response, error) {
	r, err := t.ep.Call(ctx, addr, peer.ServiceBlob, g, head, body...)
	if err != nil {
		return Response{}, err
	}
	return Response{Head: r.Head, Body: r.Body, Free: r.Release}, nil
}

// Handle is the server's peer.Handler for peer.ServiceBlob.
func (s *Server) Handle(ctx context.Context, req *peer.Request) (peer.Reply, error) {
	r, err := s.Serve(ctx, &Request{Group: req.Group, Head: req.Head, Body: req.Body})
	if err != nil {
		return peer.Reply{}, err
	}
	return peer.Reply{Head: r.Head, Body: r.Body, Done: r.Done}, nil
}
