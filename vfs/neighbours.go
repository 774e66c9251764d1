package vfs

import (
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs/blobcache"
)

// neighbours notices when parts of a blob are read that lie near each other, as
// when the files of a dataset, which were packed together, are read one by one:
// then what lies there is loaded as a whole. It forgets what was not read lately.
type neighbours struct {
	slots [256]atomic.Uint64 // of a frame: what tells it from others, and reads of it in the low byte
}

const (
	// nearReads is how many parts of a frame are read, lately, before the rest is
	// loaded with the next.
	nearReads = 3
	// nearPart is up to which length a part counts, in bytes.
	nearPart = 64 << 10
)

// read notes that a part of a blob is read, and reports whether others near it were.
func (t *neighbours) read(group cluster.GroupID, blob cluster.BlobID, off, n uint32) bool {
	if n > nearPart {
		return false
	}
	h := (uint64(blob) ^ uint64(group)<<40 ^ uint64(off/blobcache.Frame)<<56) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	slot := &t.slots[h%uint64(len(t.slots))]
	// Two at the same time may count as one.
	old := slot.Load()
	if old>>8 != h>>8 {
		slot.Store(h&^0xff | 1)
		return false
	}
	if old&0xff >= nearReads {
		return true
	}
	slot.Store(old + 1)
	return false
}
