package volume

import (
	"strings"
	"unicode/utf8"

	"github.com/hawserfs/hawser/cluster"
)

// CheckName returns why name cannot be an entry of a directory, or OK: EINVAL
// for an empty one, ENAMETOOLONG for one of more than cluster.MaxName bytes,
// EBADNAME for one that is no UTF-8, has '/' or NUL, or is "." or "..".
func CheckName(name string) cluster.Errno {
	switch {
	case name == "":
		return cluster.EINVAL
	case len(name) > cluster.MaxName:
		return cluster.ENAMETOOLONG
	case name == "." || name == "..":
		return cluster.EBADNAME
	case strings.IndexByte(name, '/') >= 0 || strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name):
		return cluster.EBADNAME
	}
	return cluster.OK
}
