package blobcache

import "sync"

// buffers has the memory of frames that are gone, by their number of chunks.
var buffers [Frame/Chunk + 1]sync.Pool

func getBuffer(n int) []byte {
	c := (n + Chunk - 1) / Chunk
	if b, ok := buffers[c].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, c*Chunk)
}

func putBuffer(b []byte) {
	if c := cap(b) / Chunk; c > 0 && c < len(buffers) {
		b = b[:0]
		buffers[c].Put(&b)
	}
}
