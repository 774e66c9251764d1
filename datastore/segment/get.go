package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// readThrough is how many bytes of payload are read along with the header where
// only later ones are asked for, instead of reading twice.
const readThrough = 64 << 10

// Read reads the checksum blocks that hold n bytes from off on of a blob, and
// checks them. The caller releases the result.
//
// Errors: ENOBLOB, ECORRUPT (the copy is damaged), EIO, EINVAL (the range is
// empty or not within the blob), EDISK (the store is closed).
func (s *Store) Read(ctx context.Context, key cluster.BlobKey, off, n uint32) (Blocks, error) {
	if err := s.enter(); err != nil {
		return Blocks{}, err
	}
	defer s.leave()
	if err := ctx.Err(); err != nil {
		return Blocks{}, err
	}
	info, loc, err := s.idx.lookup(key)
	if err != nil {
		return Blocks{}, err
	}
	for {
		if n == 0 || uint64(off)+uint64(n) > uint64(info.Len) {
			return Blocks{}, fmt.Errorf("segment: bytes %d+%d of blob %v, which has %d: %w", off, n, key.Blob, info.Len, cluster.EINVAL)
		}
		b, err := s.readAt(key, info, loc, off, n)
		if err == nil {
			return b, nil
		}
		// The record's place may have been given to another one meanwhile.
		info2, loc2, err2 := s.idx.lookup(key)
		if err2 != nil {
			return Blocks{}, err2
		}
		if loc2 == loc {
			if s.opts.Damaged != nil && (errors.Is(err, cluster.ECORRUPT) || errors.Is(err, cluster.EIO)) {
				s.opts.Damaged(key, err)
			}
			return Blocks{}, err
		}
		info, loc = info2, loc2
	}
}

func (s *Store) readAt(key cluster.BlobKey, info Info, loc location, off, n uint32) (Blocks, error) {
	f := s.hold(loc.seg)
	if f == nil {
		return Blocks{}, fmt.Errorf("segment: blob %v: segment %d is missing: %w", key.Blob, loc.seg, cluster.ECORRUPT)
	}
	defer f.drop()
	head := headLen(int(info.Len))
	first := int(off) / checksum.Block
	last := (int(off) + int(n) - 1) / checksum.Block
	start, end := first*checksum.Block, min((last+1)*checksum.Block, int(info.Len))
	skip := 0 // bytes between the head and start that are read as well
	if start <= readThrough {
		skip = start
	}
	buf := bufpool.Get(int(head) + skip + end - start)
	var err error
	if skip == start {
		err = f.readFull(buf.B, loc.off)
	} else if err = f.readFull(buf.B[:head], loc.off); err == nil {
		err = f.readFull(buf.B[head:], loc.off+head+int64(start))
	}
	if err != nil {
		buf.Release()
		return Blocks{}, fmt.Errorf("segment: blob %v in segment %d at %d: %w: %w", key.Blob, loc.seg, loc.off, err, cluster.EIO)
	}
	var r record
	sums, ok := r.decode(buf.B[:head], &s.super.uuid, loc.seg, loc.off)
	if !ok || r.kind != kindBlob || r.info != info || r.seq != loc.seq {
		buf.Release()
		return Blocks{}, fmt.Errorf("segment: blob %v: no such record in segment %d at %d: %w", key.Blob, loc.seg, loc.off, cluster.ECORRUPT)
	}
	sums = sums[4*first : 4*(last+1)]
	data := buf.B[int(head)+skip:]
	if i := sums.Verify(data); i >= 0 {
		buf.Release()
		return Blocks{}, fmt.Errorf("segment: blob %v: block %d in segment %d at %d is damaged: %w", key.Blob, first+i, loc.seg, loc.off, cluster.ECORRUPT)
	}
	return NewBlocks(uint32(start), info.Len, data, sums, buf), nil
}

// Get appends n bytes from off on of a blob to dst; see Read.
func (s *Store) Get(ctx context.Context, key cluster.BlobKey, off, n uint32, dst []byte) ([]byte, error) {
	b, err := s.Read(ctx, key, off, n)
	if err != nil {
		return dst, err
	}
	defer b.Release()
	return append(dst, b.Data[off-b.Off:][:n]...), nil
}

// Stat describes a blob, or fails with ENOBLOB.
func (s *Store) Stat(key cluster.BlobKey) (Info, error) {
	if err := s.enter(); err != nil {
		return Info{}, err
	}
	defer s.leave()
	info, _, err := s.idx.lookup(key)
	return info, err
}

// List returns up to n blobs of a group with keys after the key after, in order.
func (s *Store) List(group cluster.GroupID, after cluster.BlobKey, n int) ([]Info, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	after.Group = group
	infos := make([]Info, 0, min(n, 1024))
	k := blobKey(after)
	err := s.ascend(append(k[:], 0), &group, func(i Info, _ location) bool {
		if len(infos) < n {
			infos = append(infos, i)
		}
		return len(infos) < n
	})
	return infos, err
}

// ascend calls fn for each blob, of one group or of all, whose key is from on,
// until it returns false.
func (s *Store) ascend(from []byte, group *cluster.GroupID, fn func(Info, location) bool) error {
	upper := []byte{keyBlob + 1}
	if group != nil && *group != ^cluster.GroupID(0) {
		end := blobKey(cluster.BlobKey{Group: *group + 1})
		upper = end[:5]
	}
	it, err := s.idx.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: upper})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		info, loc, ok := parseBlobValue(parseBlobKey(it.Key()), it.Value())
		if !ok {
			it.Close()
			return fmt.Errorf("segment: index: damaged entry: %w", cluster.ECORRUPT)
		}
		if !fn(info, loc) {
			break
		}
	}
	return it.Close()
}

// Verify reads every blob and calls fn with the result of each, until fn
// returns false or ctx ends. Blobs that come or go meanwhile may be left out.
func (s *Store) Verify(ctx context.Context, fn func(Info, error) bool) error {
	from := []byte{keyBlob}
	for {
		var infos []Info
		if err := s.enter(); err != nil {
			return err
		}
		err := s.ascend(from, nil, func(i Info, _ location) bool {
			infos = append(infos, i)
			return len(infos) < 1000
		})
		s.leave()
		if err != nil || len(infos) == 0 {
			return err
		}
		for _, i := range infos {
			b, err := s.Read(ctx, i.Key, 0, i.Len)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == cluster.ENOBLOB {
				continue
			}
			b.Release()
			if !fn(i, err) {
				return nil
			}
		}
		k := blobKey(infos[len(infos)-1].Key)
		from = append(k[:], 0)
	}
}
