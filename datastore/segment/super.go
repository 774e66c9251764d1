package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/datastore/checksum"
)

const (
	superMagic      = "HAWSER\x00S"
	maxClusterIDLen = 256
)

// errNewerFormat says that a store was written by a later program.
var errNewerFormat = errors.New("upgrade the program")

// super is what the store's file "super" holds: magic, version u32, UUID,
// segment size u64, length of the cluster's id u16, that id, crc32c u32.
type super struct {
	uuid        [16]byte
	segmentSize int64
	clusterID   string
}

func (s *super) encode() []byte {
	b := append([]byte(nil), superMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = append(b, s.uuid[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.segmentSize))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.clusterID)))
	b = append(b, s.clusterID...)
	return binary.LittleEndian.AppendUint32(b, checksum.Sum(b))
}

func (s *super) decode(b []byte) error {
	const fixed = 8 + 4 + 16 + 8 + 2
	le := binary.LittleEndian
	if len(b) < fixed+4 || !bytes.HasPrefix(b, []byte(superMagic)) {
		return errors.New("not a store's superblock")
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return fmt.Errorf("store has format %d, this program knows %d: %w", v, formatVersion, errNewerFormat)
	}
	n := int(le.Uint16(b[36:]))
	if len(b) != fixed+n+4 || le.Uint32(b[fixed+n:]) != checksum.Sum(b[:fixed+n]) {
		return errors.New("superblock is damaged")
	}
	copy(s.uuid[:], b[12:])
	s.segmentSize = int64(le.Uint64(b[28:]))
	if !validSegmentSize(s.segmentSize) {
		return fmt.Errorf("superblock names segments of %d bytes: it is damaged", s.segmentSize)
	}
	s.clusterID = string(b[fixed : fixed+n])
	return nil
}

// validSegmentSize says whether a store can have segments of n bytes.
func validSegmentSize(n int64) bool { return n%Align == 0 && n >= 8*Align && n <= 1<<40 }

// readSuper reads the superblock; ok is false if there is none.
func readSuper(fs vfs.FS, dir string) (s super, ok bool, err error) {
	name := fs.PathJoin(dir, "super")
	f, err := fs.Open(name)
	if oserror.IsNotExist(err) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err == nil {
		err = s.decode(b)
	}
	if err != nil {
		return s, false, fmt.Errorf("%s: %w", name, err)
	}
	return s, true, nil
}

// writeSuper replaces the superblock, durably.
func writeSuper(fs vfs.FS, dir string, s *super) error {
	tmp := fs.PathJoin(dir, "super.new")
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(s.encode())
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = fs.Rename(tmp, fs.PathJoin(dir, "super"))
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	return err
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}
