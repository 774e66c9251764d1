package address

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// A link is a network interface, as the kernel describes it.
type link struct {
	index    int
	name     string
	mac      [6]byte
	ethernet bool // has neighbours that can be told of an address
	loopback bool
	up       bool
	addrs    []linkAddr
}

// A linkAddr is an address of a link.
type linkAddr struct {
	prefix netip.Prefix  // not masked
	valid  time.Duration // until the kernel drops it; forever: never
}

// forever is the lifetime of an address that stays.
const forever time.Duration = 1<<63 - 1

// place says on which link an address belongs and with which prefix. That is
// the link named, or else the one in whose subnet it is, the narrowest if
// there are several.
//
// Beside another address of the subnet, a floating one needs no route of its
// own: it is a host's (/32 or /128), and neither chosen as the source of this
// machine's own connections nor dropped along with the address that was there
// first. Without one, its own prefix makes the subnet reachable.
func place(links []link, name string, p netip.Prefix, lifetime time.Duration) (l link, as netip.Prefix, err error) {
	host := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
	bits := -1
	for _, x := range links {
		if name != "" && x.name != name || name == "" && (x.loopback || !x.up) {
			continue
		}
		if name != "" {
			l, as, bits = x, p, 0
		}
		for _, a := range x.addrs {
			// A host's, and one that may go at any time, such as another
			// floating one, says nothing.
			if a.valid > lifetime && !a.prefix.IsSingleIP() && a.prefix.Contains(p.Addr()) && (a.prefix.Bits() > bits || name != "" && as == p) {
				l, as, bits = x, host, a.prefix.Bits()
			}
		}
	}
	switch {
	case bits < 0 && name != "":
		return l, as, fmt.Errorf("address: there is no interface %q here (%s): set addresses.interface to the one that clients reach", name, names(links))
	case bits < 0:
		return l, as, fmt.Errorf("address: no interface that is up has an address in the subnet of %s (%s): give this node an address of its own there, or set addresses.interface", p, names(links))
	case !l.up:
		return l, as, fmt.Errorf("address: interface %s is down: clients can't reach %s through it", l.name, p.Addr())
	}
	return l, as, nil
}

// names lists links for an error.
func names(links []link) string {
	var all []string
	for _, l := range links {
		all = append(all, l.name)
	}
	return strings.Join(all, ", ")
}

// A found is an address on a link.
type found struct {
	link link
	addr linkAddr
}

// find returns where an address is on the links. Its prefix does not matter.
func find(links []link, addr netip.Addr) (all []found) {
	for _, l := range links {
		for _, a := range l.addrs {
			if a.prefix.Addr() == addr {
				all = append(all, found{l, a})
			}
		}
	}
	return all
}

// ours tells an address that an earlier process of this program left from one
// that somebody gave the machine: nobody else's lives for so short a time.
func (f found) ours(lifetime time.Duration) bool { return f.addr.valid <= lifetime }
