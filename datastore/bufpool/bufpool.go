// Package bufpool keeps payload buffers for reuse, in size classes from 4 KiB
// to a little over the largest blob.
package bufpool

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/hawserfs/hawser/cluster"
)

const (
	minShift = 12
	classes  = 11
	// A blob with its checksums, header and alignment.
	largest = cluster.MaxBlob + 64<<10
)

// Align is what the memory of buffers is aligned to, so that it can be written
// to disks past the page cache.
const Align = 4 << 10

// A Buffer is a buffer of the pool. B may be resliced and replaced by a part
// of itself; Release gives back what Get made.
type Buffer struct {
	B     []byte
	full  []byte
	class int8
}

var pools [classes + 1]sync.Pool

// Get returns a buffer with len(B) = n. Its bytes are arbitrary.
func Get(n int) *Buffer {
	c := classOf(n)
	if c < 0 {
		return &Buffer{B: aligned(n), class: -1}
	}
	b, _ := pools[c].Get().(*Buffer)
	if b == nil {
		size := 1 << (minShift + c)
		if c == classes {
			size = largest
		}
		b = &Buffer{full: aligned(size), class: int8(c)}
	}
	b.B = b.full[:n]
	return b
}

// Release gives the buffer back. Nothing may refer to its bytes any more.
func (b *Buffer) Release() {
	if b == nil || b.class < 0 {
		return
	}
	b.B = nil
	pools[b.class].Put(b)
}

func classOf(n int) int {
	switch {
	case n > largest:
		return -1
	case n > 1<<(minShift+classes-1):
		return classes
	case n <= 1<<minShift:
		return 0
	}
	return bits.Len(uint(n-1)) - minShift
}

// aligned returns n bytes whose first has an aligned address. The runtime puts
// allocations of such sizes there by itself, but does not promise it.
func aligned(n int) []byte {
	b := make([]byte, n)
	if off := misaligned(b); off > 0 {
		b = make([]byte, n+Align)
		b = b[(Align-misaligned(b))%Align:][:n:n]
	}
	return b
}

// Aligned reports whether the memory of b is aligned.
func Aligned(b []byte) bool { return misaligned(b) == 0 }

func misaligned(b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % Align)
}
