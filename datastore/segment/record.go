package segment

import (
	"encoding/binary"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// The kinds of records.
const (
	kindBlob      = 1
	kindTombstone = 2 // the payload names blobs that are deleted
	kindPad       = 3 // nothing: the place of a write that failed, or of a blob that is gone
)

const (
	recordMagic   = 0x31525348 // "HSR1"
	segmentMagic  = 0x31475348 // "HSG1": a segment that is part of the log
	freeMagic     = 0x46475348 // "HSGF": a segment to be used again
	formatVersion = 1
	headerSize    = 64
	keySize       = 16 // of a key in a tombstone
)

// A record is the header of a record. Little-endian on disk:
//
//	0 magic u32 | 4 version u8 | 5 kind u8 | 6 shard u8 | 7 flags u8 (0) | 8 group u32
//	12 head u32: bytes before the payload, a multiple of Align
//	16 blob u64 | 24 length of the payload u32 | 28 bytes that a checksum covers u32
//	32 set u32 | 36 epoch u32 | 40 segment u32 | 44 place in it / Align u32
//	48 seq u64 | 56 crc32c of the payload u32
//	60 crc32c of the store's UUID, bytes 0 to 60, and the checksums u32
//	64 the checksums, u32 each
type record struct {
	kind byte
	head int64
	info Info // of a blob; Len and CRC are those of the payload of any kind
	seg  uint32
	off  int64
	seq  uint64
}

func align(n int64) int64 { return (n + Align - 1) &^ (Align - 1) }

// headLen is how many bytes come before a payload of n bytes.
func headLen(n int) int64 { return align(int64(headerSize + checksum.Size(n))) }

// spanLen is how many bytes a record with a payload of n bytes takes.
func spanLen(n int) int64 { return headLen(n) + align(int64(n)) }

func (r *record) span() int64 {
	if r.kind == kindPad {
		return r.head
	}
	return r.head + align(int64(r.info.Len))
}

func (r *record) end() int64 { return r.off + r.span() }

// encode writes the header and the checksums into b, which has the length of
// the whole head, and zeros after them.
func (r *record) encode(b []byte, uuid *[16]byte, sums checksum.Sums) {
	le := binary.LittleEndian
	le.PutUint32(b, recordMagic)
	b[4], b[5], b[6], b[7] = formatVersion, r.kind, r.info.Key.Shard, 0
	le.PutUint32(b[8:], uint32(r.info.Key.Group))
	le.PutUint32(b[12:], uint32(r.head))
	le.PutUint64(b[16:], uint64(r.info.Key.Blob))
	le.PutUint32(b[24:], r.info.Len)
	le.PutUint32(b[28:], checksum.Block)
	le.PutUint32(b[32:], uint32(r.info.Meta.Set))
	le.PutUint32(b[36:], r.info.Meta.Epoch)
	le.PutUint32(b[40:], r.seg)
	le.PutUint32(b[44:], uint32(r.off/Align))
	le.PutUint64(b[48:], r.seq)
	le.PutUint32(b[56:], r.info.CRC)
	n := copy(b[headerSize:], sums)
	clear(b[headerSize+n:])
	le.PutUint32(b[60:], headerSum(b, uuid, n))
}

func headerSum(b []byte, uuid *[16]byte, sums int) uint32 {
	c := checksum.Update(0, uuid[:])
	c = checksum.Update(c, b[:60])
	return checksum.Update(c, b[headerSize:headerSize+sums])
}

// sumsLen returns how many bytes of checksums the header at the start of b says
// that there are, and false if b does not start with a header.
func sumsLen(b []byte) (int, bool) {
	le := binary.LittleEndian
	if len(b) < headerSize || le.Uint32(b) != recordMagic || b[4] != formatVersion || b[7] != 0 || le.Uint32(b[28:]) != checksum.Block {
		return 0, false
	}
	if b[5] == kindPad {
		return 0, true
	}
	n := le.Uint32(b[24:])
	if n == 0 || n > MaxPayload || int64(le.Uint32(b[12:])) != headLen(int(n)) {
		return 0, false
	}
	return checksum.Size(int(n)), true
}

// decode reads a header with its checksums and checks that it is one of the
// store's, written for this place.
func (r *record) decode(b []byte, uuid *[16]byte, seg uint32, off int64) (checksum.Sums, bool) {
	n, ok := sumsLen(b)
	if !ok || len(b) < headerSize+n {
		return nil, false
	}
	le := binary.LittleEndian
	if le.Uint32(b[40:]) != seg || int64(le.Uint32(b[44:]))*Align != off || le.Uint32(b[60:]) != headerSum(b, uuid, n) {
		return nil, false
	}
	*r = record{
		kind: b[5],
		head: int64(le.Uint32(b[12:])),
		info: Info{
			Key: cluster.BlobKey{
				Group: cluster.GroupID(le.Uint32(b[8:])),
				Blob:  cluster.BlobID(le.Uint64(b[16:])),
				Shard: b[6],
			},
			Meta: Meta{Set: cluster.ReplicaSetID(le.Uint32(b[32:])), Epoch: le.Uint32(b[36:])},
			Len:  le.Uint32(b[24:]),
			CRC:  le.Uint32(b[56:]),
		},
		seg: seg,
		off: off,
		seq: le.Uint64(b[48:]),
	}
	if r.kind < kindBlob || r.kind > kindPad || r.kind == kindPad && (r.head < Align || r.head%Align != 0) {
		return nil, false
	}
	return checksum.Sums(b[headerSize:][:n:n]), true
}

// A tombstone's payload is the keys of the blobs that it deletes.

func appendTombstone(dst []byte, keys []cluster.BlobKey) []byte {
	for _, k := range keys {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(k.Group))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(k.Blob))
		dst = append(dst, k.Shard, 0, 0, 0)
	}
	return dst
}

func parseTombstone(b []byte) []cluster.BlobKey {
	keys := make([]cluster.BlobKey, 0, len(b)/keySize)
	for ; len(b) >= keySize; b = b[keySize:] {
		keys = append(keys, cluster.BlobKey{
			Group: cluster.GroupID(binary.LittleEndian.Uint32(b)),
			Blob:  cluster.BlobID(binary.LittleEndian.Uint64(b[4:])),
			Shard: b[12],
		})
	}
	return keys
}

// A segment's header: magic, version, number, UUID, crc32c of them.

func encodeSegmentHeader(b []byte, magic, no uint32, uuid *[16]byte) {
	clear(b[:Align])
	le := binary.LittleEndian
	le.PutUint32(b, magic)
	le.PutUint32(b[4:], formatVersion)
	le.PutUint32(b[8:], no)
	copy(b[12:], uuid[:])
	le.PutUint32(b[28:], checksum.Sum(b[:28]))
}

// checkSegmentVersion refuses a segment that a later program has written.
func checkSegmentVersion(b []byte, uuid *[16]byte) error {
	if magic, _ := decodeSegmentHeader(b, uuid); magic == 0 {
		return nil
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v > formatVersion {
		return fmt.Errorf("the segment has format %d, this program knows %d: %w", v, formatVersion, errNewerFormat)
	}
	return nil
}

// decodeSegmentHeader reports what a segment's header says: magic is 0 if it is
// damaged or another store's.
func decodeSegmentHeader(b []byte, uuid *[16]byte) (magic, no uint32) {
	le := binary.LittleEndian
	if len(b) < 32 || le.Uint32(b[28:]) != checksum.Sum(b[:28]) || [16]byte(b[12:28]) != *uuid {
		return 0, 0
	}
	return le.Uint32(b), le.Uint32(b[8:])
}
