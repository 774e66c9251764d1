package peer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/hawserfs/hawser/cluster"
)

// A connection begins with a hello from the dialer, which is answered by one
// from the listener. A hello is, big-endian,
//
//	 0 "HAWS"          4 version u8      5 use u8         6 status u16
//	 8 group u32      12 calls u32      16 bytes u64
//	24 length of the cluster id u8      25 length of the node id u8      26 zero u16
//	28 cluster id, node id
//	   crc32c u32 of all before it
//
// The answer's calls and bytes bound what the dialer may have under way.
const (
	helloMagic   = "HAWS"
	helloVersion = 1
	helloFixed   = 28
)

// A connUse says what a connection is for.
type connUse uint8

const (
	useCalls  connUse = 1
	useStream connUse = 2
	useAnswer connUse = 3
)

// A helloStatus says why a connection is refused.
type helloStatus uint16

const (
	helloOK helloStatus = iota
	helloVersionUnknown
	helloOtherCluster
	helloNoGroup
	helloTooMany
)

func (s helloStatus) String() string {
	switch s {
	case helloOK:
		return "accepted"
	case helloVersionUnknown:
		return "it does not know this version of the protocol: upgrade the older node"
	case helloOtherCluster:
		return "it belongs to another cluster"
	case helloNoGroup:
		return "it is no member of the group"
	case helloTooMany:
		return "it has too many connections"
	}
	return fmt.Sprintf("status %d", uint16(s))
}

// A hello opens a connection.
type hello struct {
	version uint8
	use     connUse
	status  helloStatus
	group   cluster.GroupID
	calls   uint32
	bytes   uint64
	cluster string
	node    cluster.NodeID
}

// append appends the hello's encoding to dst.
func (h *hello) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, helloMagic...)
	dst = append(dst, h.version, byte(h.use))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.status))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.group))
	dst = binary.BigEndian.AppendUint32(dst, h.calls)
	dst = binary.BigEndian.AppendUint64(dst, h.bytes)
	dst = append(dst, byte(len(h.cluster)), byte(len(h.node)), 0, 0)
	dst = append(dst, h.cluster...)
	dst = append(dst, h.node...)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// readHello reads a hello and not a byte more.
func readHello(r io.Reader) (h hello, err error) {
	var b [helloFixed + maxClusterID + maxNodeID + sumSize]byte
	if _, err := io.ReadFull(r, b[:helloFixed]); err != nil {
		return h, err
	}
	if string(b[:4]) != helloMagic {
		return h, fmt.Errorf("%w: not a Hawser peer", errProtocol)
	}
	nc, nn := int(b[24]), int(b[25])
	if nc > maxClusterID || nn > maxNodeID || nn == 0 {
		return h, fmt.Errorf("%w: a hello with names of %d and %d bytes", errProtocol, nc, nn)
	}
	end := helloFixed + nc + nn
	if _, err := io.ReadFull(r, b[helloFixed:end+sumSize]); err != nil {
		return h, err
	}
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return h, fmt.Errorf("%w: bad checksum of a hello", errProtocol)
	}
	return hello{
		version: b[4],
		use:     connUse(b[5]),
		status:  helloStatus(binary.BigEndian.Uint16(b[6:])),
		group:   cluster.GroupID(binary.BigEndian.Uint32(b[8:])),
		calls:   binary.BigEndian.Uint32(b[12:]),
		bytes:   binary.BigEndian.Uint64(b[16:]),
		cluster: string(b[helloFixed : helloFixed+nc]),
		node:    cluster.NodeID(b[helloFixed+nc : end]),
	}, nil
}

// greet sends the dialer's hello and reads the answer.
func (e *Endpoint) greet(conn net.Conn, use connUse, g cluster.GroupID) (hello, error) {
	_ = conn.SetDeadline(time.Now().Add(e.cfg.DialTimeout))
	h := hello{version: helloVersion, use: use, group: g, cluster: e.clusterID(), node: e.cfg.Self}
	if _, err := conn.Write(h.append(nil)); err != nil {
		return hello{}, err
	}
	a, err := readHello(conn)
	if err != nil {
		return hello{}, err
	}
	switch {
	case a.use != useAnswer:
		return hello{}, fmt.Errorf("%w: no answer to the hello", errProtocol)
	case a.status != helloOK:
		return hello{}, fmt.Errorf("node %s refuses: %v", a.node, a.status)
	case use == useCalls && (a.calls == 0 || a.bytes < MaxBody):
		return hello{}, fmt.Errorf("%w: limits of %d calls and %d bytes", errProtocol, a.calls, a.bytes)
	}
	_ = conn.SetDeadline(time.Time{})
	return a, nil
}

// answer returns the answer to a dialer's hello.
func (e *Endpoint) answer(h *hello, accept bool) hello {
	a := hello{
		version: helloVersion, use: useAnswer, group: h.group, cluster: e.clusterID(), node: e.cfg.Self,
		calls: uint32(e.cfg.MaxCalls), bytes: uint64(e.cfg.MaxBytes),
	}
	switch {
	case h.version != helloVersion || h.use != useCalls && h.use != useStream:
		a.status = helloVersionUnknown
	case h.cluster != "" && a.cluster != "" && h.cluster != a.cluster:
		a.status = helloOtherCluster
	case !accept:
		a.status = helloTooMany
	case h.use == useStream && !e.hasStreams(h.group):
		a.status = helloNoGroup
	}
	return a
}
