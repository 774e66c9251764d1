package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A linux is the real kernel, in one network namespace.
type linux struct {
	netlink *netlink.Handle
	packet  int // AF_PACKET
	raw4    int
	raw6    int // -1 without IPv6
}

// openKernel opens all sockets at once, so that what the process may not do is
// found at start and not at the first take-over.
func openKernel() (_ *linux, err error) {
	k := &linux{packet: -1, raw4: -1, raw6: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("address: floating addresses need CAP_NET_ADMIN and CAP_NET_RAW, as conf/hawser.service gives them: %w", err), k.close())
		}
	}()
	if k.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	// Protocol 0: it only sends.
	if k.packet, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	// IPPROTO_RAW: whole IP packets, and nothing is received.
	if k.raw4, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW); err != nil {
		return nil, err
	}
	k.raw6, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		k.raw6, err = -1, nil
	}
	if err != nil {
		return nil, err
	}
	return k, netAdmin()
}

// netAdmin returns an error unless this process may change addresses.
func netAdmin() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return unix.EPERM
	}
	return nil
}

func (k *linux) links() ([]link, error) {
	devices, err := k.netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("address: listing interfaces: %w", err)
	}
	addrs, err := k.netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("address: listing addresses: %w", err)
	}
	var all []link
	for _, d := range devices {
		a := d.Attrs()
		l := link{
			index: a.Index, name: a.Name, ethernet: len(a.HardwareAddr) == 6 && a.Flags&net.FlagLoopback == 0,
			loopback: a.Flags&net.FlagLoopback != 0, up: a.Flags&net.FlagUp != 0,
		}
		copy(l.mac[:], a.HardwareAddr)
		for _, x := range addrs {
			ip, ok := netip.AddrFromSlice(x.IP)
			if !ok || x.LinkIndex != a.Index {
				continue
			}
			bits, _ := x.Mask.Size()
			valid := time.Duration(x.ValidLft) * time.Second
			if x.ValidLft >= 1<<32-1 {
				valid = forever
			}
			l.addrs = append(l.addrs, linkAddr{netip.PrefixFrom(ip.Unmap(), bits), valid})
		}
		all = append(all, l)
	}
	return all, nil
}

// netlinkAddr is an address as netlink has it.
func netlinkAddr(l link, p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{
		IPNet:     &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		LinkIndex: l.index,
	}
}

func (k *linux) put(l link, p netip.Prefix, lifetime time.Duration) error {
	a := netlinkAddr(l, p)
	// Not preferred: it is no source of connections that this machine makes.
	a.ValidLft = int(lifetime / time.Second)
	if p.Addr().Is6() {
		// At once, without asking a second long whether somebody has it: the
		// cluster has decided who does.
		a.Flags = unix.IFA_F_NODAD
	}
	return k.netlink.AddrReplace(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: l.index}}, a)
}

func (k *linux) remove(l link, p netip.Prefix) error {
	err := k.netlink.AddrDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: l.index}}, netlinkAddr(l, p))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil // the kernel has been faster
	}
	return err
}

func (k *linux) send(l link, etherType uint16, to [6]byte, packet []byte) error {
	var proto [2]byte // in the network's order, whatever this machine's is
	binary.BigEndian.PutUint16(proto[:], etherType)
	sa := &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(proto[:]), Ifindex: l.index, Halen: 6}
	copy(sa.Addr[:], to[:])
	return unix.Sendto(k.packet, packet, 0, sa)
}

func (k *linux) sendIP(to netip.Addr, packet []byte) error {
	if to.Is4() {
		return unix.Sendto(k.raw4, packet, 0, &unix.SockaddrInet4{Addr: to.As4()})
	}
	if k.raw6 < 0 {
		return unix.EAFNOSUPPORT
	}
	return unix.Sendto(k.raw6, packet, 0, &unix.SockaddrInet6{Addr: to.As16()})
}

func (k *linux) close() error {
	if k.netlink != nil {
		k.netlink.Close()
	}
	var faults []error
	for _, fd := range []int{k.packet, k.raw4, k.raw6} {
		if fd >= 0 {
			faults = append(faults, unix.Close(fd))
		}
	}
	return errors.Join(faults...)
}
