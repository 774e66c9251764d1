package peer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// A frame is
//
//	header   32 bytes, see below
//	head     headLen bytes
//	sum      crc32c of head, and of body if flagBodySum; 4 bytes, absent if head and body are empty
//	body     bodyLen bytes
//
// and its header, big-endian,
//
//	 0 magic u16       2 type u8         3 flags u8
//	 4 service u8      5 zero u8         6 status u16 (an Errno; responses)
//	 8 group u32      12 id u32         16 headLen u32
//	20 bodyLen u32    24 timeout u32 (ms from now; 0 none; requests)
//	28 crc32c u32 of the bytes before it
const (
	headerSize = 32
	frameMagic = 0x4857
	sumSize    = 4
)

// A frameType says what a frame is for.
type frameType uint8

const (
	frameRequest  frameType = 1
	frameResponse frameType = 2
	frameCancel   frameType = 3 // the caller of request id gave up
	framePing     frameType = 4
	framePong     frameType = 5
)

const flagBodySum = 1 // the sum covers the body

// slotBits is how many bits of a call's id are its slot in the caller's table.
// The others tell successive calls in one slot apart.
const slotBits = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A header is a frame's header.
type header struct {
	typ     frameType
	flags   uint8
	service Service
	status  uint16
	group   uint32
	id      uint32
	headLen uint32
	bodyLen uint32
	timeout uint32
}

// payload returns the number of bytes after the header.
func (h *header) payload() int {
	if h.headLen == 0 && h.bodyLen == 0 {
		return 0
	}
	return int(h.headLen) + sumSize + int(h.bodyLen)
}

// append appends the header's encoding to dst.
func (h *header) append(dst []byte) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, frameMagic)
	dst = append(dst, byte(h.typ), h.flags, byte(h.service), 0)
	dst = binary.BigEndian.AppendUint16(dst, h.status)
	dst = binary.BigEndian.AppendUint32(dst, h.group)
	dst = binary.BigEndian.AppendUint32(dst, h.id)
	dst = binary.BigEndian.AppendUint32(dst, h.headLen)
	dst = binary.BigEndian.AppendUint32(dst, h.bodyLen)
	dst = binary.BigEndian.AppendUint32(dst, h.timeout)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// parse decodes a header and checks that its lengths are within the limits.
func (h *header) parse(b *[headerSize]byte) error {
	if binary.BigEndian.Uint16(b[0:]) != frameMagic {
		return fmt.Errorf("%w: bad magic of a frame", errProtocol)
	}
	if crc32.Checksum(b[:28], castagnoli) != binary.BigEndian.Uint32(b[28:]) {
		return fmt.Errorf("%w: bad checksum of a frame's header", errProtocol)
	}
	h.typ, h.flags, h.service = frameType(b[2]), b[3], Service(b[4])
	h.status = binary.BigEndian.Uint16(b[6:])
	h.group = binary.BigEndian.Uint32(b[8:])
	h.id = binary.BigEndian.Uint32(b[12:])
	h.headLen = binary.BigEndian.Uint32(b[16:])
	h.bodyLen = binary.BigEndian.Uint32(b[20:])
	h.timeout = binary.BigEndian.Uint32(b[24:])
	if h.headLen > MaxHead || h.bodyLen > MaxBody {
		return fmt.Errorf("%w: a frame of %d + %d bytes", errProtocol, h.headLen, h.bodyLen)
	}
	return nil
}

// verify checks the payload's sum and returns its head and body.
func (h *header) verify(payload []byte) (head, body []byte, err error) {
	if len(payload) == 0 {
		return nil, nil, nil
	}
	head = payload[:h.headLen:h.headLen]
	body = payload[h.headLen+sumSize:]
	sum := crc32.Checksum(head, castagnoli)
	if h.flags&flagBodySum != 0 {
		sum = crc32.Update(sum, castagnoli, body)
	}
	if sum != binary.BigEndian.Uint32(payload[h.headLen:]) {
		return nil, nil, fmt.Errorf("%w: bad checksum of a frame", errProtocol)
	}
	return head, body, nil
}

// timeoutMillis returns the header's timeout for a deadline: milliseconds,
// rounded up, at least 1.
func timeoutMillis(deadline time.Time) uint32 {
	left := time.Until(deadline).Milliseconds() + 1
	return uint32(min(max(left, 1), 1<<32-1))
}
