package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// A Code is an erasure code: K data shards and M parity shards, any K of which
// make up a blob. The zero value is none: copies.
type Code struct {
	K, M uint8
}

// What a code may have, and from how many bytes on a blob is coded: a smaller
// one would be mostly padding, and is kept as copies.
const (
	MinData   = 2
	MaxData   = 16
	MaxParity = 4
	MinCoded  = 64 << 10
)

// IsZero reports whether c is no code.
func (c Code) IsZero() bool { return c == Code{} }

// Valid reports whether c is a code that can be used: not the zero value.
func (c Code) Valid() bool {
	return c.K >= MinData && c.K <= MaxData && c.M >= 1 && c.M <= MaxParity
}

// Shards returns how many shards a coded blob has.
func (c Code) Shards() int { return int(c.K) + int(c.M) }

// ShardLen returns how many bytes each shard of a blob of n bytes has: data
// shard i holds those from i*ShardLen on, filled up with zeros. It is a
// multiple of ChecksumBlock.
func (c Code) ShardLen(n uint32) uint32 {
	k := uint32(c.K)
	s := (n + k - 1) / k
	return (s + ChecksumBlock - 1) / ChecksumBlock * ChecksumBlock
}

// String returns the code as K+M, or "none".
func (c Code) String() string {
	if c.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%d+%d", c.K, c.M)
}

// ParseCode reads what String returns. EINVAL says what a code may be.
func ParseCode(s string) (Code, error) {
	if s == "none" {
		return Code{}, nil
	}
	bad := func() (Code, error) {
		return Code{}, fmt.Errorf("ec is %q: it must be none, or K+M with %d to %d data and 1 to %d parity shards, like 4+2: %w",
			s, MinData, MaxData, MaxParity, EINVAL)
	}
	data, parity, ok := strings.Cut(s, "+")
	if !ok {
		return bad()
	}
	k, err := strconv.ParseUint(data, 10, 8)
	if err != nil {
		return bad()
	}
	m, err := strconv.ParseUint(parity, 10, 8)
	if err != nil {
		return bad()
	}
	if c := (Code{uint8(k), uint8(m)}); c.Valid() {
		return c, nil
	}
	return bad()
}
