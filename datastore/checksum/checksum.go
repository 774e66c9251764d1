// Package checksum computes the checksums that go with a blob from the
// front-end to the disk and back: the crc32c of each ChecksumBlock bytes, and,
// derived from those without another pass over the data, of the whole.
package checksum

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/hawserfs/hawser/cluster"
)

// Block is how many bytes one checksum covers; the last block of a blob may be
// shorter.
const Block = cluster.ChecksumBlock

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the crc32c of p.
func Sum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// Update continues the crc32c crc with p.
func Update(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// Count returns how many blocks n bytes have.
func Count(n int) int { return (n + Block - 1) / Block }

// Size is how many bytes the checksums of n bytes take.
func Size(n int) int { return 4 * Count(n) }

// Sums are the checksums of a run of blocks, 4 bytes each, little-endian: as
// they are on the disk and on the wire.
type Sums []byte

// Len returns the number of checksums.
func (s Sums) Len() int { return len(s) / 4 }

// At returns checksum i.
func (s Sums) At(i int) uint32 { return binary.LittleEndian.Uint32(s[4*i:]) }

// Append appends the checksum of each block of the concatenated data to s.
func (s Sums) Append(data ...[]byte) Sums {
	var crc uint32
	have := 0 // bytes in crc
	for _, p := range data {
		for len(p) > 0 {
			n := min(Block-have, len(p))
			crc = crc32.Update(crc, castagnoli, p[:n])
			p = p[n:]
			if have += n; have == Block {
				s = binary.LittleEndian.AppendUint32(s, crc)
				crc, have = 0, 0
			}
		}
	}
	if have > 0 {
		s = binary.LittleEndian.AppendUint32(s, crc)
	}
	return s
}

// Verify returns the index of the first block of the concatenated data that
// does not match its checksum, or -1 if all do. Where there are too many or
// too few checksums, that is the first block that lacks one or the other.
func (s Sums) Verify(data ...[]byte) int {
	var crc uint32
	have, i, n := 0, 0, s.Len()
	for _, p := range data {
		for len(p) > 0 {
			if i >= n {
				return i
			}
			k := min(Block-have, len(p))
			crc = crc32.Update(crc, castagnoli, p[:k])
			p = p[k:]
			if have += k; have == Block {
				if crc != s.At(i) {
					return i
				}
				i++
				crc, have = 0, 0
			}
		}
	}
	if have > 0 {
		if crc != s.At(i) {
			return i
		}
		i++
	}
	if i != n {
		return i
	}
	return -1
}

// Whole returns the crc32c of the n bytes that s are the checksums of.
func (s Sums) Whole(n int) uint32 {
	var crc uint32
	for i := range s.Len() {
		if left := n - i*Block; left < Block {
			return shift(crc, left) ^ s.At(i)
		}
		crc = shiftBlock(crc) ^ s.At(i)
	}
	return crc
}
