// Package admin is a node's administration: HTTP and JSON on a Unix socket,
// open to those who may open the socket. The verbs of the hawser program are
// its clients.
package admin

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/datastore/pack"
)

// A Status is what a node says of itself and of the cluster.
type Status struct {
	Version string        `json:"version"`
	Serving []string      `json:"serving"` // addresses on which NFS clients are served
	Cluster member.Status `json:"cluster"`
	Packing []Packing     `json:"packing,omitempty"` // of volumes that this node packs, or has packed
}

// Packing is what a node has packed of a volume since it was started.
type Packing struct {
	Volume string `json:"volume"`
	pack.Counters
}

// AddressRequest adds, moves or removes a floating address.
type AddressRequest struct {
	Address string `json:"address"` // with its prefix to add it; without is enough otherwise
	Group   string `json:"group,omitempty"`
	Home    string `json:"home,omitempty"`
	Node    string `json:"node,omitempty"` // where to move it; empty: where there are the fewest
}

// DrainRequest keeps floating addresses away from a node, or no longer.
type DrainRequest struct {
	Node  string `json:"node"`
	Drain bool   `json:"drain"`
}

// A Volume is a file system.
type Volume struct {
	Name        string `json:"name"`
	ID          uint32 `json:"id"`
	Consistency string `json:"consistency"`
	Copies      uint8  `json:"copies"`
	Files       uint64 `json:"files"`
	Bytes       uint64 `json:"bytes"`
}

// A Class is a directory's policy. In a request, empty members stay as they are.
type Class struct {
	Path        string `json:"path"`
	Consistency string `json:"consistency,omitempty"` // strict or relaxed
	Copies      uint8  `json:"copies,omitempty"`      // 1 to 3
}

// InitRequest makes a cluster.
type InitRequest struct {
	Name  string `json:"name"`
	Class Class  `json:"class"` // of the volume main
}

// JoinRequest makes the node a member of the cluster that Address belongs to.
type JoinRequest struct {
	Address string `json:"address"`
}

// CheckRequest says how much a check looks at.
type CheckRequest struct {
	Data bool `json:"data"` // read every copy and verify its checksums
}

// A CheckEvent is a line of a check's answer. One of its members is set.
type CheckEvent struct {
	Problem  string        `json:"problem,omitempty"`
	Progress string        `json:"progress,omitempty"`
	Done     *CheckSummary `json:"done,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// A CheckSummary ends a check.
type CheckSummary struct {
	Volumes  int    `json:"volumes"`
	Inodes   uint64 `json:"inodes"`
	Blobs    uint64 `json:"blobs"`
	Copies   uint64 `json:"copies"`
	Problems uint64 `json:"problems"`
	// Unused counts copies of blobs that no file uses. They are no problem: the
	// leader of the volume's group deletes them in time.
	Unused uint64 `json:"unused"`
	// Misplaced counts copies on stores that the blob has moved away from. They
	// are no problem either, and go in time.
	Misplaced uint64 `json:"misplaced,omitempty"`
	// Skipped are the stores that could not be looked at.
	Skipped []cluster.StoreID `json:"skipped,omitempty"`
}

// A Backend is the node that is administered. Errors are sentences for the
// person who asked.
type Backend interface {
	Status() Status
	Init(ctx context.Context, req InitRequest) error
	Join(ctx context.Context, req JoinRequest) error
	Volumes(ctx context.Context) ([]Volume, error)
	CreateVolume(ctx context.Context, name string, class Class) (Volume, error)
	Class(ctx context.Context, path string) (Class, error)
	SetClass(ctx context.Context, class Class) (Class, error)
	// Addresses returns the floating addresses.
	Addresses(ctx context.Context) ([]member.IdentityStatus, error)
	AddAddress(ctx context.Context, req AddressRequest) error
	MoveAddress(ctx context.Context, req AddressRequest) error
	RemoveAddress(ctx context.Context, req AddressRequest) error
	Drain(ctx context.Context, req DrainRequest) error
	// Check calls report for each problem and now and then for progress.
	Check(ctx context.Context, req CheckRequest, report func(CheckEvent)) (CheckSummary, error)
	Scrubbing
	Repairing
}
