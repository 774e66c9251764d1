package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// The first bytes of the keys. Integers in keys are big-endian, so that keys
// sort by number. The keys of prefixInode, prefixDirent, prefixXattr and
// prefixExtent end with the snapshot generation, inverted, so that the newest
// comes first.
const (
	prefixVolume   = 'V' // the volume record
	prefixInode    = 'I' // ino gen
	prefixDirent   = 'D' // parent cookie gen
	prefixXattr    = 'X' // ino name gen
	prefixExtent   = 'E' // ino endOffset gen
	prefixBlob     = 'B' // blob
	prefixSetBlob  = 'R' // set blob
	prefixGarbage  = 'G' // set blob
	prefixSet      = 'P' // set
	prefixLock     = 'L' // ino start …
	prefixState    = 'O' // ino other
	prefixUnlinked = 'U' // ino
	prefixUsage    = 'Q' // kind id
	prefixMark     = 'K' // ino: files to look at, for the packer
	prefixOwner    = 'M' // blob ino: who refers to a blob that several files share
	prefixThin     = 'T' // blob: less than half of it is referred to
	prefixToCode   = 'C' // blob: to be coded when it is cold
)

// genSuffix is generation 0, inverted: there are no snapshots so far.
const genSuffix uint32 = ^uint32(0)

// genLen is the length of a key's generation.
const genLen = 4

// appendGen appends the generation that ends a versioned key.
func appendGen(dst []byte) []byte { return codec.AppendUint32(dst, genSuffix) }

func appendInodeKey(dst []byte, ino cluster.Ino) []byte {
	return appendGen(codec.AppendUint64(append(dst, prefixInode), uint64(ino)))
}

// parseInodeKey returns the inode number of an inode's key.
func parseInodeKey(key []byte) (cluster.Ino, bool) {
	d := codec.NewDec(key)
	if d.Uint8() != prefixInode {
		return 0, false
	}
	ino := cluster.Ino(d.Uint64())
	d.Uint32()
	return ino, d.Done() == nil
}

func appendDirentKey(dst []byte, dir cluster.Ino, cookie uint64) []byte {
	dst = codec.AppendUint64(append(dst, prefixDirent), uint64(dir))
	return appendGen(codec.AppendUint64(dst, cookie))
}

// appendDirentBound appends the smallest key of an entry of dir at or above
// cookie: a bound for Ascend.
func appendDirentBound(dst []byte, dir cluster.Ino, cookie uint64) []byte {
	dst = codec.AppendUint64(append(dst, prefixDirent), uint64(dir))
	return codec.AppendUint64(dst, cookie)
}

// parseDirentKey returns the directory and cookie of an entry's key.
func parseDirentKey(key []byte) (dir cluster.Ino, cookie uint64, ok bool) {
	d := codec.NewDec(key)
	if d.Uint8() != prefixDirent {
		return 0, 0, false
	}
	dir, cookie = cluster.Ino(d.Uint64()), d.Uint64()
	d.Uint32()
	return dir, cookie, d.Done() == nil
}

// appendXattrBound appends what the keys of all attributes of ino begin with.
func appendXattrBound(dst []byte, ino cluster.Ino) []byte {
	return codec.AppendUint64(append(dst, prefixXattr), uint64(ino))
}

// appendXattrKey appends the key of an extended attribute. Names are UTF-8,
// which has no byte 0xff, so that the generation cannot be taken for a name.
func appendXattrKey(dst []byte, ino cluster.Ino, name string) []byte {
	return appendGen(append(appendXattrBound(dst, ino), name...))
}

// parseXattrKey returns the inode and name of an extended attribute's key.
func parseXattrKey(key []byte) (ino cluster.Ino, name []byte, ok bool) {
	const head = 1 + 8
	if len(key) < head+genLen || key[0] != prefixXattr {
		return 0, nil, false
	}
	d := codec.NewDec(key[1:head])
	return cluster.Ino(d.Uint64()), key[head : len(key)-genLen], true
}

// The kinds of usage records.
const usageVolume uint8 = 0 // of the whole volume, id 0

func appendUsageKey(dst []byte, kind uint8, id uint64) []byte {
	return codec.AppendUint64(append(dst, prefixUsage, kind), id)
}
