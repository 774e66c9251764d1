// Package nfs4 serves NFSv4.1 and NFSv4.2 (RFC 8881, RFC 7862, RFC 8276) over a
// vfs.FS: it decodes COMPOUND requests, executes their operations and encodes the
// results. What it remembers about clients is in package state; the truth
// about files is in the file system.
//
// Each file here is about one family of operations; ops.go has the table of all.
// Delegations, layouts and callbacks are not offered.
package nfs4
