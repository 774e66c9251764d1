package scrub

import (
	"context"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// OnStore returns a segment store as the one that is scrubbed.
func OnStore(s *segment.Store) Store { return onStore{s} }

type onStore struct{ *segment.Store }

// Verify implements Store.
func (s onStore) Verify(ctx context.Context, key cluster.BlobKey) (segment.Info, error) {
	info, err := s.Stat(key)
	if err != nil {
		return info, err
	}
	b, err := s.Read(ctx, key, 0, info.Len)
	if err != nil {
		return info, err
	}
	defer b.Release()
	if crc := b.Sums.Whole(int(info.Len)); crc != info.CRC {
		return info, fmt.Errorf("scrub: blob %v: its checksums amount to %08x, and its header says %08x: %w", key.Blob, crc, info.CRC, cluster.ECORRUPT)
	}
	return info, nil
}

// Replace implements Store.
func (s onStore) Replace(ctx context.Context, key cluster.BlobKey, meta segment.Meta, sums checksum.Sums, data []byte) (bool, error) {
	return s.Store.Replace(ctx, key, meta, sums, data)
}
