package erasure

import (
	"fmt"
	"sync"

	"github.com/klauspost/reedsolomon"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/bufpool"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// A Shard is one shard of a blob: its bytes, in pieces, and their checksums.
type Shard struct {
	Data [][]byte
	Sums checksum.Sums
}

// A Coded is a blob's shards: the data shards first. They refer to the blob's
// bytes. Release gives the memory of the others back.
type Coded struct {
	Code   cluster.Code
	Shards []Shard
	bufs   []*bufpool.Buffer
}

// Release ends the use of the shards.
func (c *Coded) Release() {
	for _, b := range c.bufs {
		b.Release()
	}
	c.Shards, c.bufs = nil, nil
}

// encoders has a reedsolomon.Encoder for each code that was used.
var encoders sync.Map // cluster.Code -> reedsolomon.Encoder

func encoder(c cluster.Code) (reedsolomon.Encoder, error) {
	if e, ok := encoders.Load(c); ok {
		return e.(reedsolomon.Encoder), nil
	}
	if !c.Valid() {
		return nil, fmt.Errorf("erasure: there is no code %v: %w", c, cluster.EINVAL)
	}
	// One goroutine: many blobs are under way at a time, and a core encodes
	// faster than disks write.
	e, err := reedsolomon.New(int(c.K), int(c.M), reedsolomon.WithMaxGoroutines(1))
	if err != nil {
		return nil, fmt.Errorf("erasure: code %v: %w", c, err)
	}
	encoders.Store(c, e)
	return e, nil
}

var zeros [64 << 10]byte

// Encode makes the shards of a blob, whose bytes are the pieces of data and
// whose checksums are sums. EINVAL if there are none, or too many.
func Encode(code cluster.Code, data [][]byte, sums checksum.Sums) (*Coded, error) {
	enc, err := encoder(code)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, p := range data {
		n += len(p)
	}
	if n == 0 || n > cluster.MaxBlob || sums.Len() != checksum.Count(n) {
		return nil, fmt.Errorf("erasure: a blob of %d bytes with %d checksums: %w", n, sums.Len(), cluster.EINVAL)
	}
	size := int(code.ShardLen(uint32(n)))
	c := &Coded{Code: code, Shards: make([]Shard, code.Shards())}
	whole := make([][]byte, code.Shards()) // each shard in one piece
	for i := range int(code.K) {
		s := &c.Shards[i]
		s.Data = cut(data, i*size, size)
		have := 0
		for _, p := range s.Data {
			have += len(p)
		}
		if have == size {
			s.Sums = sums[checksum.Size(i*size):][:checksum.Size(size)]
		} else {
			for left := size - have; left > 0; {
				k := min(left, len(zeros))
				s.Data = append(s.Data, zeros[:k])
				left -= k
			}
			s.Sums = checksum.Sums(c.get(checksum.Size(size))[:0]).Append(s.Data...)
		}
		whole[i] = c.join(s.Data, size)
	}
	for i := int(code.K); i < len(whole); i++ {
		whole[i] = c.get(size)
	}
	if err := enc.Encode(whole); err != nil {
		c.Release()
		return nil, fmt.Errorf("erasure: encoding %v: %w", code, err)
	}
	for i := int(code.K); i < len(whole); i++ {
		c.Shards[i] = Shard{
			Data: [][]byte{whole[i]},
			Sums: checksum.Sums(c.get(checksum.Size(size))[:0]).Append(whole[i]),
		}
	}
	return c, nil
}

// get returns n bytes that are c's until Release.
func (c *Coded) get(n int) []byte {
	b := bufpool.Get(n)
	c.bufs = append(c.bufs, b)
	return b.B
}

// join returns the n bytes of pieces in one piece.
func (c *Coded) join(pieces [][]byte, n int) []byte {
	if len(pieces) == 1 {
		return pieces[0]
	}
	b := c.get(n)
	at := 0
	for _, p := range pieces {
		at += copy(b[at:], p)
	}
	return b
}

// cut returns what there is of bytes [off, off+n) of the concatenated data.
func cut(data [][]byte, off, n int) (out [][]byte) {
	for _, p := range data {
		if n == 0 {
			break
		}
		if off >= len(p) {
			off -= len(p)
			continue
		}
		p = p[off:]
		off = 0
		p = p[:min(n, len(p))]
		out = append(out, p)
		n -= len(p)
	}
	return out
}

// Reconstruct makes the shards, or the same range of all of them, that are
// asked for: shards has k+m entries, of which at least k have their bytes, all
// of one length, and the others none. A shard i that has none, and for which
// dst[i] is not nil, is made in dst[i], which has room for it.
// EINVAL if there are too few, or they do not fit together.
func Reconstruct(code cluster.Code, shards, dst [][]byte) error {
	enc, err := encoder(code)
	if err != nil {
		return err
	}
	if len(shards) != code.Shards() || len(dst) != len(shards) {
		return fmt.Errorf("erasure: %d shards of code %v: %w", len(shards), code, cluster.EINVAL)
	}
	all := make([][]byte, len(shards))
	want := make([]bool, len(shards))
	for i := range shards {
		switch {
		case len(shards[i]) > 0:
			all[i] = shards[i]
		case dst[i] != nil:
			all[i], want[i] = dst[i][:0], true
		}
	}
	if err := enc.ReconstructSome(all, want); err != nil {
		return fmt.Errorf("erasure: decoding %v: %v: %w", code, err, cluster.EINVAL)
	}
	for i := range dst {
		if want[i] && &all[i][0] != &dst[i][0] {
			return fmt.Errorf("erasure: there is no room for shard %d: %w", i, cluster.EINVAL)
		}
	}
	return nil
}

// Consistent reports whether all k+m shards, or the same range of each, fit
// together.
func Consistent(code cluster.Code, shards [][]byte) (bool, error) {
	enc, err := encoder(code)
	if err != nil {
		return false, err
	}
	ok, err := enc.Verify(shards)
	if err != nil {
		return false, fmt.Errorf("erasure: comparing the shards of %v: %v: %w", code, err, cluster.EINVAL)
	}
	return ok, nil
}
