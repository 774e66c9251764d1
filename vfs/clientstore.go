package vfs

import (
	"context"

	"github.com/hawserfs/hawser/cluster"
)

// A ClientRecord is what is kept of a client: an opaque record of its
// front-end, by clientid4.
type ClientRecord = cluster.ClientRecord

// A ClientStore keeps the client records of one identity, replicated, so that
// whichever front-end serves the identity next goes on where this one was. It
// is of one epoch: every method fails with EFENCED once the identity is served
// elsewhere, and then nothing was changed.
type ClientStore interface {
	// Load returns all records, by id, as of now.
	Load(ctx context.Context) ([]ClientRecord, error)
	// Put records a client durably, and in the same step forgets the one that
	// it replaces, 0 for none. EINVAL for a record of more than 64 KiB, ENOSPC
	// if there are too many clients.
	Put(ctx context.Context, id uint64, record []byte, replaces uint64) error
	// Delete forgets a client, if it is there.
	Delete(ctx context.Context, id uint64) error
}
