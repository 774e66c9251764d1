package oncrpc

import "sync"

// A buffer is pooled memory for one record.
type buffer struct {
	b     []byte // the whole of it
	class int8   // its pool; -1: none
}

// The sizes of pooled buffers: a call without data, one with a small write, a
// large one, a WRITE of 1 MiB with its compound around it, one of 4 MiB.
var classes = [...]int{1 << 10, 16 << 10, 128 << 10, 1<<20 + 16<<10, 4<<20 + 16<<10}

var pools [len(classes)]sync.Pool

// getBuffer returns a buffer of at least n bytes.
func getBuffer(n int) *buffer {
	for i, size := range classes {
		if n > size {
			continue
		}
		if b, _ := pools[i].Get().(*buffer); b != nil {
			return b
		}
		return &buffer{b: make([]byte, size), class: int8(i)}
	}
	return &buffer{b: make([]byte, n), class: -1}
}

// free returns b to its pool. A nil buffer is free already.
func (b *buffer) free() {
	if b != nil && b.class >= 0 {
		pools[b.class].Put(b)
	}
}

// readSize is the size of the buffers that connections read ahead into.
const readSize = 16 << 10

// getReadBuffer returns a buffer of readSize.
func getReadBuffer() *buffer { return getBuffer(readSize) }
