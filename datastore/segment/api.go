package segment

import (
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// Sizes of the format.
const (
	// Align is what records and segment headers are aligned to.
	Align = 4 << 10
	// DefaultSegmentSize is the size of a segment, in bytes.
	DefaultSegmentSize = 256 << 20
	// MaxPayload is the most bytes that a record holds.
	MaxPayload = cluster.MaxBlob
	// MaxDelete is the most blobs that one Delete takes.
	MaxDelete = 4096
)

// Options say how a store is opened. The zero value is right for a disk.
type Options struct {
	// FS is the file system; nil is the machine's. On one whose files have no
	// descriptor, holes are written as zeros.
	FS vfs.FS
	// ClusterID is checked against the store's, and becomes it if the store
	// has none. "" accepts any.
	ClusterID string
	// UUID is given to a new store. It must be random and never used before.
	// Zero: made from the system's random source.
	UUID [16]byte
	// SegmentSize is that of a new store, in bytes, a multiple of Align.
	SegmentSize int64
	// Capacity bounds the bytes that the store takes, 0: what the file system
	// has. It is for stores that share a disk.
	Capacity uint64
	// Reserve is how many bytes of the file system are left alone, for the
	// index and for whatever else lives there. 0: 1 %, at least 64 MiB and at
	// most 4 GiB.
	Reserve uint64
	// IndexCache is the size of the index's block cache in bytes. 0: 32 MiB.
	IndexCache int64
	// Buffered writes through the page cache, also where the file system can do
	// without.
	Buffered bool
	// Manual leaves upkeep to calls of Maintain: no goroutine is started.
	Manual bool
	// Damaged is called, if not nil, by each Read that finds its copy damaged
	// (ECORRUPT) or unreadable (EIO). It must be quick.
	Damaged func(key cluster.BlobKey, err error)
	Logger  *slog.Logger
}

// Meta is what is known of a blob beside its key and content.
type Meta struct {
	Set   cluster.ReplicaSetID // the replica set that it was put to
	Epoch uint32               // of the set, at that time
}

// Info describes a blob in the store.
type Info struct {
	Key  cluster.BlobKey
	Meta Meta
	Len  uint32 // bytes
	CRC  uint32 // crc32c of the whole
}

// Blocks is a part of a blob: whole checksum blocks, of which the blob's last
// may be shorter. Release gives its memory back.
type Blocks struct {
	Off  uint32 // of Data in the blob; a multiple of checksum.Block
	Len  uint32 // of the blob
	Data []byte
	Sums checksum.Sums // one for each block of Data
	buf  *bufpool.Buffer
}

// NewBlocks returns Blocks whose Release releases buf.
func NewBlocks(off, length uint32, data []byte, sums checksum.Sums, buf *bufpool.Buffer) Blocks {
	return Blocks{Off: off, Len: length, Data: data, Sums: sums, buf: buf}
}

// Release gives the memory of Data and Sums back.
func (b *Blocks) Release() {
	b.buf.Release()
	*b = Blocks{}
}

// Usage is how full a store is, in bytes.
type Usage struct {
	Capacity uint64 // what the store may take
	Used     uint64 // by blobs that are there
	Free     uint64 // that can still be put
	Blobs    uint64
}
