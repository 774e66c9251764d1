package vfs

import (
	"crypto/subtle"
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/hawserfs/hawser/cluster"
)

// handleVersion is the first byte of a file handle. Handles live for ever in
// clients, so a format, once used, is understood by all later programs.
const handleVersion = 1

// A handle of version 1, big-endian: version (1 byte), volume (4), inode (8),
// generation (4), snapshot (4, 0 for the live tree), MAC of all that (16).
const (
	handleBody = 1 + 4 + 8 + 4 + 4
	handleSize = handleBody + 16
)

// A HandleKey authenticates file handles: a client can present only handles
// that the cluster gave out. It is the same on all nodes, for ever.
type HandleKey [32]byte

// Append appends f's file handle to dst.
func (k *HandleKey) Append(dst []byte, f File) []byte {
	start := len(dst)
	dst = append(dst, handleVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(f.Volume))
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.Ino))
	dst = binary.BigEndian.AppendUint32(dst, f.Gen)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	hi, lo := k.mac(dst[start:])
	dst = binary.BigEndian.AppendUint64(dst, hi)
	return binary.BigEndian.AppendUint64(dst, lo)
}

// Parse decodes a handle made by Append with the same key: EBADHANDLE for
// anything else.
func (k *HandleKey) Parse(handle []byte) (File, error) {
	if len(handle) != handleSize || handle[0] != handleVersion {
		return File{}, cluster.EBADHANDLE
	}
	var want [16]byte
	hi, lo := k.mac(handle[:handleBody])
	binary.BigEndian.PutUint64(want[:], hi)
	binary.BigEndian.PutUint64(want[8:], lo)
	if subtle.ConstantTimeCompare(want[:], handle[handleBody:]) != 1 {
		return File{}, cluster.EBADHANDLE
	}
	if binary.BigEndian.Uint32(handle[17:]) != 0 {
		return File{}, cluster.ESTALE // a snapshot that is not there
	}
	return File{
		Volume: VolumeID(binary.BigEndian.Uint32(handle[1:])),
		Ino:    Ino(binary.BigEndian.Uint64(handle[5:])),
		Gen:    binary.BigEndian.Uint32(handle[13:]),
	}, nil
}

func (k *HandleKey) mac(p []byte) (hi, lo uint64) {
	return siphash.Hash128(binary.LittleEndian.Uint64(k[:]), binary.LittleEndian.Uint64(k[8:]), p)
}

// CoveredBy returns the number of the directory in Root that the root of
// volume v covers, for mounted_on_fileid (RFC 8881 §5.8.2.19).
func CoveredBy(v VolumeID) Ino { return Ino(v) + cluster.RootIno }
