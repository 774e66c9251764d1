package peer

import (
	"sync"
	"sync/atomic"
)

// A Buffer is a pooled receive buffer.
type Buffer struct {
	b        []byte
	class    int8
	released atomic.Bool
}

// bufferSizes are the sizes of the pools' buffers, in bytes. Those of a mebibyte
// and more leave room for the head beside a body of a round size.
var bufferSizes = [...]int{
	1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10,
	1<<20 + 64<<10, 2<<20 + 64<<10, MaxHead + 4 + MaxBody,
}

var bufferPools [len(bufferSizes)]sync.Pool

// newBuffer returns a buffer with n bytes, n at most MaxHead + 4 + MaxBody.
func newBuffer(n int) *Buffer {
	class := 0
	for bufferSizes[class] < n {
		class++
	}
	b, _ := bufferPools[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{b: make([]byte, bufferSizes[class]), class: int8(class)}
	}
	b.released.Store(false)
	return b
}

// Release gives the buffer back. Its bytes must not be used any more. It does
// nothing on a nil buffer.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	if b.released.Swap(true) {
		panic("peer: buffer released twice")
	}
	bufferPools[b.class].Put(b)
}
