package conf

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
)

// A Size is a number of bytes, written with a unit: 512MiB, 1.5GiB, 10GB.
type Size uint64

// ParseSize reads a size. A bare number is bytes.
func ParseSize(s string) (Size, error) {
	n, err := humanize.ParseBytes(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write it like 512MiB or 10GB", s)
	}
	return Size(n), nil
}

// String returns the size in the largest binary unit that divides it.
func (s Size) String() string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	n, u := uint64(s), 0
	for u < len(units)-1 && n >= 1024 && n%1024 == 0 {
		n, u = n/1024, u+1
	}
	return fmt.Sprintf("%d%s", n, units[u])
}
