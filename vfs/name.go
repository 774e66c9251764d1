package vfs

import (
	"strings"
	"unicode/utf8"

	"github.com/hawserfs/hawser/cluster"
)

// CheckName returns why name can't be a file name, or OK: EINVAL if it is empty,
// ENAMETOOLONG, EBADNAME if it is not UTF-8, has a slash or NUL, or is a dot name.
func CheckName(name string) Errno {
	switch {
	case name == "":
		return cluster.EINVAL
	case len(name) > cluster.MaxName:
		return cluster.ENAMETOOLONG
	case name == "." || name == "..", strings.ContainsAny(name, "/\x00"), !utf8.ValidString(name):
		return cluster.EBADNAME
	}
	return cluster.OK
}
