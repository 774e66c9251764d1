package blob

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
)

// A Request is what the client sends.
type Request struct {
	Group cluster.GroupID
	Head  []byte
	Body  []byte // valid until Serve returns
}

// A Reply is what the server answers.
type Reply struct {
	Head []byte
	Body [][]byte
	Done func() // to be called once, when Body was sent or is given up; nil: nothing to do
}

// A Response is a reply as it arrives. Free gives Body's memory back.
type Response struct {
	Head []byte
	Body []byte
	Free func()
}

// A Transport carries requests to the server of the node at addr. The error is
// the one that Serve returned, or says why there is no answer. body is not
// referred to any more after Call has returned, whether ctx was cancelled or
// not, and a cancelled Call returns soon.
type Transport interface {
	Call(ctx context.Context, addr string, g cluster.GroupID, head []byte, body ...[]byte) (Response, error)
}
