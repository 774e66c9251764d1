package cluster

import "fmt"

// A NodeID names a node for ever: the node's name in the configuration.
// It is also the node's Raft server id.
type NodeID string

// A GroupID numbers a Raft group. Group 0 holds the cluster; every other group
// is a volume, whose VolumeID is the same number.
type GroupID uint32

// ClusterGroup is the group that holds nodes, stores and volumes.
const ClusterGroup GroupID = 0

// A VolumeID numbers a volume; it equals the GroupID of the volume's group.
type VolumeID = GroupID

// An Ino numbers an inode within a volume. Inode numbers are never reused.
type Ino uint64

// RootIno is the root directory of every volume.
const RootIno Ino = 1

// A StoreID numbers a store: one disk of one node, with one segment store on
// it. Group 0 allocates it when the disk's UUID is first seen; a disk that was
// replaced or wiped has a new UUID and so a new StoreID. 0 is no store.
type StoreID uint32

// A ReplicaSetID numbers a replica set within a volume. 0 is no set.
type ReplicaSetID uint32

// A WriterID numbers one incarnation of a front-end in one group.
// Writer ids are never reused; 0 is no writer.
type WriterID uint32

// A BlobID names a blob within a group: the writer that made it in the upper
// 32 bits, that writer's counter in the lower 32. It is written with one
// content, once, and is never reused.
type BlobID uint64

// MakeBlobID returns the id of the writer's blob number counter.
func MakeBlobID(w WriterID, counter uint32) BlobID {
	return BlobID(uint64(w)<<32 | uint64(counter))
}

// Writer returns the writer that made the blob.
func (b BlobID) Writer() WriterID { return WriterID(b >> 32) }

// Counter returns the writer's counter for the blob.
func (b BlobID) Counter() uint32 { return uint32(b) }

// String returns the id as WRITER-COUNTER in hexadecimal.
func (b BlobID) String() string { return fmt.Sprintf("%x-%x", b.Writer(), b.Counter()) }

// A BlobKey is the name of a blob's copy (or shard) in a store.
type BlobKey struct {
	Group GroupID
	Blob  BlobID
	Shard uint8 // 0 for a full copy
}

// Limits that the wire formats and the state machine share.
const (
	MaxBlob       = 4 << 20  // bytes in a blob
	MaxInline     = 16 << 10 // bytes that a CommitExtents extent may carry itself
	MaxName       = 255      // bytes in a file name (UTF-8)
	MaxSymlink    = 4096     // bytes in a symbolic link's target
	MaxCommand    = 1 << 20  // bytes in a command
	MaxFileSize   = 1<<63 - 1
	ChecksumBlock = 4 << 10 // bytes that one crc32c covers
)
