package address

import (
	"encoding/binary"
	"net/netip"
)

// Numbers of Ethernet, ARP (RFC 826), IP and ICMPv6 (RFC 4861).
const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	arpRequest = 1
	arpReply   = 2

	protoTCP    = 6
	protoICMPv6 = 58

	neighbourAdvertisement = 136
)

// broadcast is the Ethernet address of all neighbours.
var broadcast = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// gratuitousARP returns an ARP packet that tells the neighbours which Ethernet
// address an IPv4 address has now (RFC 5227 §3). Some hosts heed requests, and
// some replies, so both are sent.
func gratuitousARP(op uint16, addr netip.Addr, mac [6]byte) []byte {
	ip := addr.As4()
	p := make([]byte, 0, 28)
	p = binary.BigEndian.AppendUint16(p, 1)      // Ethernet
	p = binary.BigEndian.AppendUint16(p, 0x0800) // IPv4
	p = append(p, 6, 4)                          // lengths of their addresses
	p = binary.BigEndian.AppendUint16(p, op)
	p = append(p, mac[:]...)
	p = append(p, ip[:]...)
	if op == arpRequest {
		p = append(p, make([]byte, 6)...)
	} else {
		p = append(p, broadcast[:]...)
	}
	return append(p, ip[:]...)
}

// allNodes is the multicast group of all IPv6 hosts of a link.
var allNodes = netip.MustParseAddr("ff02::1")

// allNodesMAC is its Ethernet address (RFC 2464 §7).
var allNodesMAC = [6]byte{0x33, 0x33, 0, 0, 0, 1}

// unsolicitedNA returns an IPv6 packet that tells the neighbours which Ethernet
// address an IPv6 address has now (RFC 4861 §7.2.6).
func unsolicitedNA(addr netip.Addr, mac [6]byte) []byte {
	target := addr.As16()
	body := make([]byte, 0, 32)
	body = append(body, neighbourAdvertisement, 0, 0, 0) // checksum below
	body = append(body, 0x20, 0, 0, 0)                   // override what is cached
	body = append(body, target[:]...)
	body = append(body, 2, 1) // option: target link-layer address, in units of 8 bytes
	body = append(body, mac[:]...)
	binary.BigEndian.PutUint16(body[2:], checksum(addr, allNodes, protoICMPv6, body))
	return append(ipv6Header(addr, allNodes, protoICMPv6, len(body)), body...)
}

// ipv6Header returns an IPv6 header. Neighbour discovery demands a hop limit of 255.
func ipv6Header(from, to netip.Addr, proto byte, n int) []byte {
	f, t := from.As16(), to.As16()
	p := make([]byte, 0, 40+n)
	p = append(p, 0x60, 0, 0, 0)
	p = binary.BigEndian.AppendUint16(p, uint16(n))
	p = append(p, proto, 255)
	p = append(p, f[:]...)
	return append(p, t[:]...)
}

// ipv4Header returns an IPv4 header. The kernel fills in its identification
// and checksum.
func ipv4Header(from, to netip.Addr, proto byte, n int) []byte {
	f, t := from.As4(), to.As4()
	p := make([]byte, 0, 20+n)
	p = append(p, 0x45, 0)
	p = binary.BigEndian.AppendUint16(p, uint16(20+n))
	p = append(p, 0, 0, 0x40, 0, 64, proto, 0, 0) // don't fragment; 64 hops
	p = append(p, f[:]...)
	return append(p, t[:]...)
}

// tickle returns an IP packet with a TCP acknowledgement of from to to (RFC
// 9293 §3.10.7.4: what is outside the window is answered with an
// acknowledgement, which says what was expected).
func tickle(from, to netip.AddrPort, seq uint32) []byte {
	s := make([]byte, 20)
	binary.BigEndian.PutUint16(s[0:], from.Port())
	binary.BigEndian.PutUint16(s[2:], to.Port())
	binary.BigEndian.PutUint32(s[4:], seq)
	s[12] = 5 << 4 // 20 bytes of header
	s[13] = 0x10   // ACK
	binary.BigEndian.PutUint16(s[14:], 1024)
	binary.BigEndian.PutUint16(s[16:], checksum(from.Addr(), to.Addr(), protoTCP, s))
	if from.Addr().Is4() {
		return append(ipv4Header(from.Addr(), to.Addr(), protoTCP, len(s)), s...)
	}
	return append(ipv6Header(from.Addr(), to.Addr(), protoTCP, len(s)), s...)
}

// checksum is the Internet checksum of a body and the pseudo-header of TCP and
// ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1).
func checksum(from, to netip.Addr, proto byte, body []byte) uint16 {
	sum := uint32(proto) + uint32(len(body))
	for _, p := range [][]byte{from.AsSlice(), to.AsSlice(), body} {
		for ; len(p) >= 2; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
		if len(p) == 1 {
			sum += uint32(p[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
