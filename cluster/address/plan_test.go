package address

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func on(index int, name string, addrs ...string) link {
	l := link{index: index, name: name, up: true, ethernet: true, loopback: name == "lo"}
	for _, a := range addrs {
		text, short := strings.CutSuffix(a, " short")
		valid := forever
		if short {
			valid = 2 * time.Second
		}
		l.addrs = append(l.addrs, linkAddr{netip.MustParsePrefix(text), valid})
	}
	return l
}

func TestPlace(t *testing.T) {
	down := on(5, "eth3", "10.3.0.1/24")
	down.up = false
	links := []link{
		on(1, "lo", "127.0.0.1/8", "::1/128"),
		on(2, "eth0", "10.0.0.11/24", "10.0.0.60/32 short", "fd00::11/64"),
		on(3, "eth1", "10.0.0.0/8", "10.9.0.7/24 short"),
		on(4, "eth2"),
		down,
	}
	for _, x := range []struct{ name, addr, link, as, err string }{
		{"", "10.0.0.50/24", "eth0", "10.0.0.50/32", ""},
		{"", "10.0.0.50/16", "eth0", "10.0.0.50/32", ""},
		{"", "10.9.0.50/24", "eth1", "10.9.0.50/32", ""}, // the short one there says nothing
		{"", "fd00::50/64", "eth0", "fd00::50/128", ""},
		{"", "192.168.0.1/24", "", "", "no interface that is up has an address in the subnet of 192.168.0.1/24"},
		{"", "127.0.0.9/8", "", "", "no interface that is up"},
		{"", "10.0.0.60/24", "eth0", "10.0.0.60/32", ""},
		{"", "10.3.0.50/24", "eth1", "10.3.0.50/32", ""}, // eth3 is down
		{"eth1", "10.0.0.50/24", "eth1", "10.0.0.50/32", ""},
		{"eth2", "192.168.0.1/24", "eth2", "192.168.0.1/24", ""},
		{"lo", "127.0.0.9/8", "lo", "127.0.0.9/32", ""},
		{"eth3", "10.3.0.50/24", "", "", "interface eth3 is down"},
		{"eth9", "10.3.0.50/24", "", "", `no interface "eth9" here (lo, eth0, eth1, eth2, eth3)`},
	} {
		l, as, err := place(links, x.name, netip.MustParsePrefix(x.addr), 3*time.Second)
		switch {
		case x.err != "":
			if err == nil || !strings.Contains(err.Error(), x.err) {
				t.Errorf("%s on %q: got %v, want %q", x.addr, x.name, err, x.err)
			}
		case err != nil || l.name != x.link || as.String() != x.as:
			t.Errorf("%s on %q: got %s on %s, %v; want %s on %s", x.addr, x.name, as, l.name, err, x.as, x.link)
		}
	}
}
