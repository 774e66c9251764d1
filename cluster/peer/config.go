package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// Config says who an endpoint is and what it may use.
type Config struct {
	Self      cluster.NodeID
	ClusterID string // sent in the hello; "" (not yet a member) accepts and is accepted by any
	Listen    string // host:port; port 0 takes a free one
	Logger    *slog.Logger
	TLS       *tls.Config // nil: no TLS

	MaxCalls       int           // calls under way on a connection; default 256, at most 65536
	MaxBytes       int64         // bytes of request bodies under way on a connection; default 32 MiB
	BulkConns      int           // connections an address for ServiceBlob; default 2
	MaxConnections int           // accepted connections; default 4096
	DialTimeout    time.Duration // connect and hello; default 3 s
	PingInterval   time.Duration // a connection silent for three of them is dead; default 1 s
}

// Limits of a frame, in bytes.
const (
	MaxHead = 64 << 10
	MaxBody = cluster.MaxBlob + 64<<10
)

// Limits of the lengths of names in a hello, in bytes.
const (
	maxClusterID = 64
	maxNodeID    = 128
)

// withDefaults returns the configuration with its zero members filled in.
func (c Config) withDefaults() (Config, error) {
	if c.Self == "" {
		return c, errors.New("peer: the node has no name: set Config.Self")
	}
	if len(c.Self) > maxNodeID {
		return c, fmt.Errorf("peer: the node's name %q is longer than %d bytes", c.Self, maxNodeID)
	}
	if len(c.ClusterID) > maxClusterID {
		return c, fmt.Errorf("peer: the cluster id is longer than %d bytes", maxClusterID)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxCalls <= 0 {
		c.MaxCalls = 256
	}
	c.MaxCalls = min(c.MaxCalls, 1<<slotBits)
	if c.MaxBytes <= 0 {
		c.MaxBytes = 32 << 20
	}
	c.MaxBytes = max(c.MaxBytes, MaxBody)
	if c.BulkConns <= 0 {
		c.BulkConns = 2
	}
	if c.MaxConnections <= 0 {
		c.MaxConnections = 4096
	}
	if c.DialTimeout <= 0 {
		c.DialTimeout = 3 * time.Second
	}
	if c.PingInterval <= 0 {
		c.PingInterval = time.Second
	}
	return c, nil
}
