package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// Replace makes a blob's copy whole: data, whose checksums are sums, is stored
// under the key if what is there is damaged, or if nothing is there. It returns
// when that is durable; until then the damaged one stays. A copy that can be
// read is never replaced: if it has this content, nothing is done, and else the
// error is ECONFLICT. written says whether data was stored.
//
// The errors are those of Put.
func (s *Store) Replace(ctx context.Context, key cluster.BlobKey, meta Meta, sums checksum.Sums, data []byte) (written bool, err error) {
	n := len(data)
	if n == 0 || n > MaxPayload || len(sums) != checksum.Size(n) {
		return false, fmt.Errorf("segment: a blob of %d bytes with %d of checksums: %w", n, len(sums), cluster.EINVAL)
	}
	r := record{kind: kindBlob, head: headLen(n), info: Info{Key: key, Meta: meta, Len: uint32(n), CRC: sums.Whole(n)}}
	buf := bufpool.Get(int(r.span()))
	defer buf.Release()
	if i := gather(buf.B[r.head:], sums, [][]byte{data}); i >= 0 {
		return false, fmt.Errorf("segment: blob %v: block %d was damaged before it was stored: %w", key.Blob, i, cluster.ECORRUPT)
	}
	if err := s.enter(); err != nil {
		return false, err
	}
	defer s.leave()
	if err := s.Failed(); err != nil {
		return false, err
	}
	done := make(chan struct{})
	e := &entry{rec: r, wake: make(chan bool, 1), done: done, replaces: true}
	if err := s.claimKey(ctx, key, e); err != nil {
		return false, err
	}
	defer func() {
		s.inflightMu.Lock()
		delete(s.inflight, key)
		s.inflightMu.Unlock()
		close(done)
	}()
	// Nobody else puts this key now. It may be deleted: then this is a copy that
	// nothing refers to, and which is collected as one.
	have, loc, err := s.idx.lookup(key)
	switch {
	case err == nil:
		good, err := s.whole(key, have, loc)
		switch {
		case err != nil:
			return false, err
		case good && (have.Len != r.info.Len || have.CRC != r.info.CRC):
			return false, fmt.Errorf("segment: blob %v is stored with another content: %w", key.Blob, cluster.ECONFLICT)
		case good && on(ruleReplaceBad):
			return false, nil
		}
	case err != cluster.ENOBLOB:
		return false, err
	}
	if err := s.put(e, sums, buf.B); err != nil {
		return false, err
	}
	s.wakeUp()
	return true, nil
}

// whole reports whether the copy at a place can be read from end to end, and is
// what its header says.
func (s *Store) whole(key cluster.BlobKey, info Info, loc location) (bool, error) {
	b, err := s.readAt(key, info, loc, 0, info.Len)
	if err == nil {
		good := b.Sums.Whole(int(info.Len)) == info.CRC
		b.Release()
		return good, nil
	}
	if errors.Is(err, cluster.ECORRUPT) || errors.Is(err, cluster.EIO) {
		return false, nil
	}
	return false, err
}

// ListAll returns up to n blobs of all groups with keys after the key after, in
// order: group, blob, shard. The zero key is before all.
func (s *Store) ListAll(after cluster.BlobKey, n int) ([]Info, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	infos := make([]Info, 0, min(n, 1024))
	from := []byte{keyBlob}
	if after != (cluster.BlobKey{}) {
		k := blobKey(after)
		from = append(k[:], 0)
	}
	err := s.ascend(from, nil, func(i Info, _ location) bool {
		if len(infos) < n {
			infos = append(infos, i)
		}
		return len(infos) < n
	})
	return infos, err
}

// Retire takes the store out of service for a reason that its user has seen:
// it takes no more blobs, and those that it has can still be read.
func (s *Store) Retire(why string) {
	_ = s.fail("retired", errors.New(why))
}
