package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// ReleaseNode is no command any more: locks are their clients'.
type ReleaseNode struct{ Node cluster.NodeID }

// Kind returns the number that it had.
func (ReleaseNode) Kind() fsm.Kind { return KindReleaseClient + 1 }

// AppendTo appends the command's encoding to dst.
func (c ReleaseNode) AppendTo(dst []byte) []byte { return codec.AppendString(dst, string(c.Node)) }

// NodeLocks reports false.
func (v View) NodeLocks(cluster.NodeID) bool { return false }
