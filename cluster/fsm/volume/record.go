package volume

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// The first byte of the volume record.
const (
	volumeFormat      = 1
	volumeFormatCodes = 2 // there are codes at the end
)

// maxCodes is how many codes the classes of a volume may have had.
const maxCodes = 16

// A record is the volume record: what the volume is numbered and keyed by.
type record struct {
	HashKey [16]byte // of the cookie hash
	Created cluster.Time
	NextIno cluster.Ino          // never used so far
	NextSet cluster.ReplicaSetID // never used so far
	Codes   []cluster.Code       // that a class has, or had: there are to be replica sets for them
}

// addCode adds a code, if it is one. It reports whether there was room.
func (v *record) addCode(c cluster.Code) bool {
	if c.IsZero() || slices.Contains(v.Codes, c) {
		return true
	}
	if len(v.Codes) >= maxCodes {
		return false
	}
	v.Codes = append(v.Codes, c)
	return true
}

func appendRecord(dst []byte, v *record) []byte {
	format := byte(volumeFormat)
	if len(v.Codes) > 0 {
		format = volumeFormatCodes
	}
	dst = append(dst, format)
	dst = append(dst, v.HashKey[:]...)
	dst = codec.AppendUint64(dst, uint64(v.Created))
	dst = codec.AppendUvarint(dst, uint64(v.NextIno))
	dst = codec.AppendUvarint(dst, uint64(v.NextSet))
	if len(v.Codes) > 0 {
		dst = codec.AppendUvarint(dst, uint64(len(v.Codes)))
		for _, c := range v.Codes {
			dst = append(dst, c.K, c.M)
		}
	}
	return dst
}

func decodeRecord(val []byte) (record, error) {
	d := codec.NewDec(val)
	var v record
	f := d.Uint8()
	if f != volumeFormat && f != volumeFormatCodes && d.Err() == nil {
		return v, cluster.EVERSION
	}
	copy(v.HashKey[:], d.Fixed(len(v.HashKey)))
	v.Created = cluster.Time(d.Uint64())
	v.NextIno = cluster.Ino(d.Uvarint())
	v.NextSet = cluster.ReplicaSetID(d.Uvarint32())
	if f == volumeFormatCodes {
		v.Codes = make([]cluster.Code, d.Count(2))
		for i := range v.Codes {
			v.Codes[i] = decodeCode(&d)
		}
	}
	return v, d.Done()
}

// loadRecord returns the volume record, and whether the volume is formatted.
func loadRecord(r fsm.Reader) (record, bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], append(s.key[:0], prefixVolume))
	if !ok {
		return record{}, false
	}
	s.val = val[:0]
	v, err := decodeRecord(val)
	if err != nil {
		panic(fmt.Sprintf("volume: the volume record is damaged (%v): restore this replica from another", err))
	}
	return v, true
}

func storeRecord(tx *fsm.Tx, v *record) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendRecord(s.val[:0], v)
	tx.Set(append(s.key[:0], prefixVolume), s.val)
}

// hashKeys returns the key of the cookie hash in dir.
func (v *record) hashKeys(dir cluster.Ino) (k0, k1 uint64) {
	return binary.BigEndian.Uint64(v.HashKey[:8]), binary.BigEndian.Uint64(v.HashKey[8:]) ^ uint64(dir)
}

// A Usage is what a volume holds.
type Usage struct {
	Bytes  uint64 // of data behind files: one copy counted, holes not
	Inodes uint64
}

func loadUsage(r fsm.Reader, kind uint8, id uint64) Usage {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendUsageKey(s.key[:0], kind, id))
	if !ok {
		return Usage{}
	}
	s.val = val[:0]
	d := codec.NewDec(val)
	u := Usage{Bytes: d.Uvarint(), Inodes: d.Uvarint()}
	if d.Done() != nil {
		panic("volume: a usage record is damaged: restore this replica from another")
	}
	return u
}

// addUsage adds to the volume's usage. Whatever changes an inode's Used, or
// makes or deletes one, adds the same here.
func addUsage(tx *fsm.Tx, bytes, inodes int64) {
	if bytes == 0 && inodes == 0 {
		return
	}
	u := loadUsage(tx, usageVolume, 0)
	u.Bytes = addClamped(u.Bytes, bytes)
	u.Inodes = addClamped(u.Inodes, inodes)
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = codec.AppendUvarint(codec.AppendUvarint(s.val[:0], u.Bytes), u.Inodes)
	tx.Set(appendUsageKey(s.key[:0], usageVolume, 0), s.val)
}

// addClamped returns a+d, but not below 0: a miscount must not become an
// enormous one. Check reports it.
func addClamped(a uint64, d int64) uint64 {
	if d < 0 && uint64(-d) > a {
		return 0
	}
	return a + uint64(d)
}
