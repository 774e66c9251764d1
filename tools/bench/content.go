package bench

import (
	"encoding/binary"
	"math/rand/v2"
)

// contentPeriod is after how many bytes the content of a file repeats: a prime,
// so that no two blocks of a usual size are equal before that many blocks.
const contentPeriod = 8<<20 + 9

// A content is the bytes of all files: random, so that nothing can be saved by
// compressing them, and given by the seed, the file and the offset alone.
type content struct {
	seed uint64
	pool []byte
}

// newContent makes the content for blocks of up to largest bytes.
func newContent(seed uint64, largest int) *content {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	c := &content{seed: seed, pool: make([]byte, contentPeriod+largest)}
	// It never fails.
	_, _ = rand.NewChaCha8(key).Read(c.pool[:contentPeriod])
	for n := contentPeriod; n < len(c.pool); n += contentPeriod {
		copy(c.pool[n:], c.pool[:contentPeriod])
	}
	return c
}

// at returns n bytes of a file. They are shared: nobody may change them.
func (c *content) at(file uint64, off int64, n int) []byte {
	at := (c.mix(file)%contentPeriod + uint64(off)) % contentPeriod
	return c.pool[at : at+uint64(n)]
}

// mix returns a number that looks random, given by the seed and v (the
// finalizer of SplitMix64).
func (c *content) mix(v uint64) uint64 {
	z := c.seed*0x9e3779b97f4a7c15 + v + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// pick returns the i-th number below n of a job's sequence.
func (c *content) pick(job, i, n int) int {
	return int(c.mix(uint64(job)<<40^uint64(i)) % uint64(n))
}
