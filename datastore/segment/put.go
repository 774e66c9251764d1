package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
)

var entries = sync.Pool{New: func() any { return &entry{wake: make(chan bool, 1)} }}

// Put stores a blob and returns when it is durable. sums are the checksums of
// data and are checked. The same blob again succeeds. Neither data nor sums are
// kept. ctx is looked at before the blob has its place in the log, not after.
//
// Errors: ECONFLICT (another content is stored under the key), ECORRUPT (data
// does not match sums), ENOSPC, EDISK (the store is out of service), EINVAL,
// EFBIG.
func (s *Store) Put(ctx context.Context, key cluster.BlobKey, meta Meta, sums checksum.Sums, data ...[]byte) error {
	n := 0
	for _, p := range data {
		n += len(p)
	}
	if n == 0 || n > MaxPayload || len(sums) != checksum.Size(n) {
		return fmt.Errorf("segment: a blob of %d bytes with %d of checksums: %w", n, len(sums), cluster.EINVAL)
	}
	r := record{kind: kindBlob, head: headLen(n), info: Info{Key: key, Meta: meta, Len: uint32(n), CRC: sums.Whole(n)}}
	buf := bufpool.Get(int(r.span()))
	defer buf.Release()
	if i := gather(buf.B[r.head:], sums, data); i >= 0 {
		return fmt.Errorf("segment: blob %v: block %d was damaged before it was stored: %w", key.Blob, i, cluster.ECORRUPT)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.Failed(); err != nil {
		return err
	}
	info := r.info
	done := make(chan struct{})
	e := entries.Get().(*entry)
	*e = entry{rec: r, wake: e.wake, done: done}
	if found, err := s.claim(ctx, key, e); found || err != nil {
		if err == nil {
			err = s.same(info)
		}
		entries.Put(e)
		return err
	}
	err := s.put(e, sums, buf.B)
	s.inflightMu.Lock()
	delete(s.inflight, key)
	s.inflightMu.Unlock()
	close(done)
	entries.Put(e)
	return err
}

// claimKey makes e the put of the key, once no other is.
func (s *Store) claimKey(ctx context.Context, key cluster.BlobKey, e *entry) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.inflightMu.Lock()
		other := s.inflight[key]
		var done chan struct{}
		if other == nil {
			s.inflight[key] = e
		} else {
			done = other.done
		}
		s.inflightMu.Unlock()
		if other == nil {
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// claim makes e the put of the key, or reports that the blob is there.
func (s *Store) claim(ctx context.Context, key cluster.BlobKey, e *entry) (found bool, err error) {
	if err := s.claimKey(ctx, key, e); err != nil {
		return false, err
	}
	_, _, err = s.idx.lookup(key)
	if err == cluster.ENOBLOB {
		return false, nil
	}
	s.inflightMu.Lock()
	delete(s.inflight, key)
	s.inflightMu.Unlock()
	close(e.done)
	return err == nil, err
}

// same says whether the blob that is stored is the one to be stored.
func (s *Store) same(info Info) error {
	have, _, err := s.idx.lookup(info.Key)
	if err == cluster.ENOBLOB {
		return fmt.Errorf("segment: blob %v was deleted meanwhile: %w", info.Key.Blob, cluster.EAGAIN)
	}
	if err != nil {
		return err
	}
	if have.Len != info.Len || have.CRC != info.CRC {
		s.log.Error("a blob id was used twice", "group", info.Key.Group, "blob", info.Key.Blob, "len", info.Len, "have", have.Len)
		return fmt.Errorf("segment: blob %v is stored with another content: %w", info.Key.Blob, cluster.ECONFLICT)
	}
	return nil
}

// gather copies a payload to where it is written from, pads it with zeros, and
// returns the first block that does not match its checksum, or -1. The blocks
// are checked there, so that nothing that happens to data later goes unnoticed,
// and while the processor's cache has them.
func gather(dst []byte, sums checksum.Sums, data [][]byte) int {
	n := 0
	checked := 0 // whole blocks
	check := func(end int) int {
		i := sums[4*checked : checksum.Size(end)].Verify(dst[checked*checksum.Block : end])
		if i >= 0 {
			return checked + i
		}
		checked = end / checksum.Block
		return -1
	}
	for _, p := range data {
		for len(p) > 0 {
			k := copy(dst[n:min(len(dst), n+gatherStep)], p)
			n, p = n+k, p[k:]
			if whole := n &^ (checksum.Block - 1); whole/checksum.Block > checked {
				if i := check(whole); i >= 0 {
					return i
				}
			}
		}
	}
	clear(dst[n:])
	if n%checksum.Block != 0 {
		return check(n)
	}
	return -1
}

// gatherStep is how much gather copies before it checks it.
const gatherStep = 8 * checksum.Block

// put writes the entry's record and commits it. b has the length of the record,
// its payload, and room for its head.
func (s *Store) put(e *entry, sums checksum.Sums, b []byte) error {
	if err := s.reserve(e); err != nil {
		return err
	}
	r := &e.rec
	r.encode(b[:r.head], &s.super.uuid, sums)
	err := e.f.write(r.off, b)
	if err != nil {
		err = s.voidRecord(e, err)
	}
	if e2 := s.commit(e); err == nil {
		err = e2
	}
	return err
}

// voidRecord makes a record that could not be written a pad, so that the log
// goes on behind it.
func (s *Store) voidRecord(e *entry, cause error) error {
	err := s.ioError("writing", cause)
	n := e.rec.span()
	e.rec = record{kind: kindPad, head: n, seg: e.rec.seg, off: e.rec.off, seq: e.rec.seq}
	var h [Align]byte
	e.rec.encode(h[:], &s.super.uuid, nil)
	if e2 := e.f.write(e.rec.off, h[:]); e2 != nil && s.Failed() == nil {
		return s.fail("writing", errors.Join(cause, e2))
	}
	return err
}

// Delete deletes blobs, at most MaxDelete; those that are not there are skipped.
// The deletes are durable when it returns; the space is given back later.
func (s *Store) Delete(ctx context.Context, keys []cluster.BlobKey) error {
	if len(keys) > MaxDelete {
		return fmt.Errorf("segment: deleting %d blobs at once: at most %d: %w", len(keys), MaxDelete, cluster.EINVAL)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	there := make([]cluster.BlobKey, 0, len(keys))
	for _, k := range keys {
		_, _, err := s.idx.lookup(k)
		if err == cluster.ENOBLOB {
			continue
		}
		if err != nil {
			return err
		}
		there = append(there, k)
	}
	// As many at a time as fit in the part of a segment that is left for them.
	for most := int(s.spare-Align) / keySize; len(there) > 0; {
		n := min(most, len(there))
		if err := s.deleteSome(there[:n]); err != nil {
			return err
		}
		there = there[n:]
	}
	return nil
}

func (s *Store) deleteSome(keys []cluster.BlobKey) error {
	payload := appendTombstone(make([]byte, 0, len(keys)*keySize), keys)
	sums := checksum.Sums(nil).Append(payload)
	e := &entry{
		rec: record{
			kind: kindTombstone, head: headLen(len(payload)),
			info: Info{Len: uint32(len(payload)), CRC: sums.Whole(len(payload))},
		},
		keys: keys,
		wake: make(chan bool, 1),
	}
	buf := bufpool.Get(int(e.rec.span()))
	defer buf.Release()
	clear(buf.B[copy(buf.B[e.rec.head:], payload)+int(e.rec.head):])
	if err := s.put(e, sums, buf.B); err != nil {
		return err
	}
	s.wakeUp()
	return nil
}
