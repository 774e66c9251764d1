package cluster

import (
	"errors"
	"testing"
)

func TestParseCode(t *testing.T) {
	for s, want := range map[string]Code{
		"none": {}, "2+1": {2, 1}, "4+2": {4, 2}, "10+4": {10, 4}, "16+4": {16, 4},
	} {
		if c, err := ParseCode(s); c != want || err != nil || c.String() != s {
			t.Errorf("%s: %v, %v", s, c, err)
		}
	}
	for _, s := range []string{"", "4", "1+1", "17+1", "4+0", "4+5", "4+2+1", "-4+2", "260+2", "four+two", "+", "4 + 2"} {
		if c, err := ParseCode(s); !errors.Is(err, EINVAL) {
			t.Errorf("%q: %v, %v", s, c, err)
		}
	}
}

func TestShardLen(t *testing.T) {
	for _, c := range []struct {
		code Code
		n    uint32
		want uint32
	}{
		{Code{4, 2}, 1, 4096},
		{Code{4, 2}, 16384, 4096},
		{Code{4, 2}, 16385, 8192},
		{Code{4, 2}, MaxBlob, 1 << 20},
		{Code{6, 3}, MaxBlob, 171 * 4096},
		{Code{16, 4}, MinCoded, 4096},
	} {
		if got := c.code.ShardLen(c.n); got != c.want {
			t.Errorf("a shard of %d bytes in %v has %d bytes, not %d", c.n, c.code, got, c.want)
		}
	}
}
