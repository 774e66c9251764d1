// Package codec encodes the keys, values, commands and results of the state
// machines: append functions that write, and a Dec that reads.
//
// Fixed-width integers are big-endian, so that keys made of them sort by
// number. Nothing here allocates but Dec.String and the append functions when
// dst has no room.
package codec

import "encoding/binary"

// AppendUint8 appends v as one byte.
func AppendUint8(dst []byte, v uint8) []byte { return append(dst, v) }

// AppendUint16 appends v as two bytes.
func AppendUint16(dst []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(dst, v) }

// AppendUint32 appends v as four bytes.
func AppendUint32(dst []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(dst, v) }

// AppendUint64 appends v as eight bytes.
func AppendUint64(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }

// AppendBool appends v as the byte 0 or 1.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendUvarint appends v in 1 to 10 bytes, small values in few.
func AppendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

// AppendVarint appends v in 1 to 10 bytes, values near 0 in few.
func AppendVarint(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }

// AppendBytes appends the length of p as a uvarint, and p.
func AppendBytes(dst, p []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(p)))
	return append(dst, p...)
}

// AppendString appends the length of s as a uvarint, and s.
func AppendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// AppendUpper appends the smallest key that is greater than every key that
// begins with prefix: the upper bound for an Ascend over them. The prefix must
// have a byte below 0xff.
func AppendUpper(dst, prefix []byte) []byte {
	n := len(prefix)
	for n > 0 && prefix[n-1] == 0xff {
		n--
	}
	if n == 0 {
		panic("codec: a prefix of 0xff bytes has no upper bound")
	}
	dst = append(dst, prefix[:n]...)
	dst[len(dst)-1]++
	return dst
}
