package segment

import (
	"context"
	"errors"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// A Store is one disk's store of blobs. Its methods may be called concurrently.
type Store struct{}

var errNotBuilt = errors.New("segment: store is not built yet")

// Open opens the store in folder dir, making one if there is none.
func Open(dir string, opts Options) (*Store, error) { return nil, errNotBuilt }

// UUID returns the store's UUID.
func (s *Store) UUID() [16]byte { return [16]byte{} }

// Put stores a blob durably.
func (s *Store) Put(ctx context.Context, key cluster.BlobKey, meta Meta, sums checksum.Sums, data ...[]byte) error {
	return errNotBuilt
}

// Read reads whole checksum blocks.
func (s *Store) Read(ctx context.Context, key cluster.BlobKey, off, n uint32) (Blocks, error) {
	return Blocks{}, errNotBuilt
}

// Get appends n bytes of a blob from off on to dst.
func (s *Store) Get(ctx context.Context, key cluster.BlobKey, off, n uint32, dst []byte) ([]byte, error) {
	return nil, errNotBuilt
}

// Delete deletes blobs.
func (s *Store) Delete(ctx context.Context, keys []cluster.BlobKey) error { return errNotBuilt }

// List lists a group's blobs after a key.
func (s *Store) List(group cluster.GroupID, after cluster.BlobKey, n int) ([]Info, error) {
	return nil, errNotBuilt
}

// Stat describes a blob.
func (s *Store) Stat(key cluster.BlobKey) (Info, error) { return Info{}, errNotBuilt }

// Usage returns how full the store is.
func (s *Store) Usage() Usage { return Usage{} }

// Failed returns why the store is out of service, or nil.
func (s *Store) Failed() error { return nil }

// Close closes the store.
func (s *Store) Close() error { return nil }
