package address

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

var mac = [6]byte{2, 0, 0, 0, 0, 0xaa}

// TestFrames holds the packets to what the RFCs draw.
func TestFrames(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.50"), netip.MustParseAddr("fd00::50")
	for _, x := range []struct {
		what string
		got  []byte
		want string
	}{
		{
			"ARP request", gratuitousARP(arpRequest, v4, mac),
			"0001080006040001" + "0200000000aa0a000032" + "0000000000000a000032",
		},
		{
			"ARP reply", gratuitousARP(arpReply, v4, mac),
			"0001080006040002" + "0200000000aa0a000032" + "ffffffffffff0a000032",
		},
		{
			"neighbour advertisement", unsolicitedNA(v6, mac),
			"6000000000203aff" + "fd000000000000000000000000000050" + "ff020000000000000000000000000001" +
				"88005954" + "20000000" + "fd000000000000000000000000000050" + "02010200000000aa",
		},
		{
			"tickle", tickle(netip.MustParseAddrPort("10.0.0.50:2049"), netip.MustParseAddrPort("10.0.0.9:789"), 0x01020304),
			"450000280000400040060000" + "0a0000320a000009" +
				"08010315" + "01020304" + "00000000" + "50100400" + "887e" + "0000",
		},
	} {
		if got := hex.EncodeToString(x.got); got != x.want {
			t.Errorf("%s:\ngot  %s\nwant %s", x.what, got, x.want)
		}
	}
}

// TestChecksum: what carries its checksum sums up to nothing (RFC 1071 §1).
func TestChecksum(t *testing.T) {
	a, b := netip.MustParseAddrPort("[fd00::1]:2049"), netip.MustParseAddrPort("[fd00::2]:700")
	if p := tickle(a, b, 7); checksum(a.Addr(), b.Addr(), protoTCP, p[40:]) != 0 {
		t.Errorf("TCP over IPv6: %x", p)
	}
	if p := unsolicitedNA(a.Addr(), mac); checksum(a.Addr(), allNodes, protoICMPv6, p[40:]) != 0 {
		t.Errorf("neighbour advertisement: %x", p)
	}
	if got := checksum(a.Addr(), b.Addr(), protoTCP, []byte{1, 2, 3}); got != checksum(a.Addr(), b.Addr(), protoTCP, []byte{1, 2, 3, 0})+1 {
		t.Errorf("an odd byte is padded: got %x", got)
	}
}
