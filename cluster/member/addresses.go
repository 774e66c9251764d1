package member

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
)

// ParseAddress reads a floating address with the length of its subnet's prefix,
// like 10.0.0.50/24 or 2001:db8::50/64. EINVAL, with what is wrong, for
// anything that can't be a server's address.
func ParseAddress(s string) (netip.Prefix, error) {
	bad := func(why string) (netip.Prefix, error) {
		return netip.Prefix{}, fmt.Errorf("%q %s: %w", s, why, cluster.EINVAL)
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return bad("has no prefix length: write ADDRESS/PREFIX with the subnet's, like 10.0.0.50/24 or 2001:db8::50/64")
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return bad("is no address: write ADDRESS/PREFIX, like 10.0.0.50/24 or 2001:db8::50/64")
	}
	a := p.Addr()
	switch {
	case a.Is4In6():
		return bad("is an IPv4 address written as IPv6: write it as " + a.Unmap().String())
	case a.IsUnspecified(), a.IsMulticast(), a.IsLoopback():
		return bad("can't be the address of one server")
	case a.IsLinkLocalUnicast():
		return bad("is link-local: clients can't mount it without naming an interface")
	case p.Bits() == 0:
		return bad("has prefix length 0, which is no subnet")
	case a == p.Masked().Addr() && p.Bits() < a.BitLen()-1:
		return bad("is the subnet itself, and not an address in it")
	case a.Is4() && p.Bits() < 31 && isBroadcast(p):
		return bad("is the subnet's broadcast address")
	}
	return p, nil
}

func isBroadcast(p netip.Prefix) bool {
	b := p.Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		if b[bit/8]&(0x80>>(bit%8)) == 0 {
			return false
		}
	}
	return true
}

// AddAddress adds a floating address, which is served by a node of the
// cluster's choice soon after. group spreads it with others of that name; home
// is where it belongs, "" for anywhere. The error says what is wrong: EINVAL
// for no address, or one that is some node's own; EEXIST if it is there; ENOENT
// for a home that is none.
func (n *Node) AddAddress(ctx context.Context, address, group string, home cluster.NodeID) (registry.Identity, error) {
	p, err := ParseAddress(address)
	if err != nil {
		return registry.Identity{}, err
	}
	if group != "" {
		if err := registry.CheckName(group, registry.MaxNodeName); err != nil {
			return registry.Identity{}, fmt.Errorf("group %q: letters, digits, '.', '_' and '-' make a group's name: %w", group, err)
		}
	}
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return registry.Identity{}, err
	}
	if home != "" {
		node, ok := r.Node(home)
		switch {
		case !ok || node.State == registry.NodeRemoved:
			return registry.Identity{}, fmt.Errorf("there is no node %q to be home of %s: %w", home, p, cluster.ENOENT)
		case !node.Roles.Has(registry.RoleNFS):
			return registry.Identity{}, fmt.Errorf("node %s can't be home of %s: it does not serve NFS: %w", home, p, cluster.EINVAL)
		}
	}
	if node, ok := ownedBy(r, p.Addr()); ok {
		return registry.Identity{}, fmt.Errorf("%s is an address of node %s: a floating address must be one that no machine has: %w", p.Addr(), node, cluster.EINVAL)
	}
	if i, ok := findAddress(r, p.Addr()); ok {
		return i, exists(i)
	}
	body, err := n.propose0(ctx, &registry.PutIdentity{Addr: p, Group: group, Home: home})
	i, malformed := registry.DecodeIdentity(body)
	switch {
	case errors.Is(err, cluster.EEXIST) && malformed == nil:
		return i, exists(i)
	case errors.Is(err, cluster.ENOSPC):
		return i, fmt.Errorf("the cluster has had %d addresses, and can have no more: %w", cluster.MaxIdentity, err)
	case err != nil:
		return i, err
	}
	return i, malformed
}

// exists says that an address is there.
func exists(i registry.Identity) error {
	if i.Retired {
		return fmt.Errorf("address %s is still being removed: try again in a moment: %w", i.Addr, cluster.EEXIST)
	}
	return fmt.Errorf("there is a floating address %s already: %w", i.Addr, cluster.EEXIST)
}

// ownedBy returns the node that has an address as its own.
func ownedBy(r registry.View, a netip.Addr) (cluster.NodeID, bool) {
	for _, node := range r.Nodes() {
		if node.State == registry.NodeRemoved {
			continue
		}
		for hostport := range strings.SplitSeq(node.PeerAddr+","+node.NFSAddr, ",") {
			if own, err := netip.ParseAddrPort(hostport); err == nil && own.Addr().Unmap() == a {
				return node.ID, true
			}
		}
	}
	return "", false
}

// findAddress returns the identity of a floating address.
func findAddress(r registry.View, a netip.Addr) (registry.Identity, bool) {
	for _, i := range r.Identities() {
		if i.Floating() && i.Addr.Addr() == a {
			return i, true
		}
	}
	return registry.Identity{}, false
}

// address returns the identity of a floating address that is written with or
// without its prefix length, as of now.
func (n *Node) address(ctx context.Context, s string) (registry.Identity, error) {
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return registry.Identity{}, err
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return registry.Identity{}, fmt.Errorf("%q is no address: write it like 10.0.0.50: %w", s, cluster.EINVAL)
		}
		a = p.Addr()
	}
	i, ok := findAddress(r, a)
	if !ok {
		return i, fmt.Errorf("there is no floating address %s: `hawser address list` lists them: %w", a, cluster.ENOENT)
	}
	return i, nil
}

// RemoveAddress removes a floating address, written with or without its prefix
// length, and waits until it is gone: the node that serves it stops, the locks
// and opens of its clients are released, and its clients find no server. If ctx
// ends before that, it goes on by itself.
func (n *Node) RemoveAddress(ctx context.Context, s string) error {
	i, err := n.address(ctx, s)
	if err != nil {
		return err
	}
	if _, err := n.propose0(ctx, &registry.RemoveIdentity{ID: i.ID}); err != nil && !errors.Is(err, cluster.ENOENT) {
		return err
	}
	return n.until(ctx, fmt.Sprintf("address %s to be removed, which goes on by itself", i.Addr), func() bool {
		r, err := n.Registry()
		if err != nil {
			return false
		}
		_, there := r.Identity(i.ID)
		return !there
	})
}

// MoveAddress has a floating address, written with or without its prefix
// length, served by another node; "" is one of the cluster's choice. See Handover.
func (n *Node) MoveAddress(ctx context.Context, s string, to cluster.NodeID) error {
	i, err := n.address(ctx, s)
	if err != nil {
		return err
	}
	return n.Handover(ctx, i.ID, to)
}

// Addresses returns the floating addresses, by number.
func (n *Node) Addresses(ctx context.Context) ([]registry.Identity, error) {
	r, err := n.RegistryAt(ctx)
	if err != nil {
		return nil, err
	}
	var out []registry.Identity
	for _, i := range r.Identities() {
		if i.Floating() {
			out = append(out, i)
		}
	}
	return out, nil
}

// DrainFrontEnd says that a node is to be given no floating address any more,
// or that it may again. What it has is handed over in order, if there is
// another node that can serve it. ENOENT if there is no such node.
func (n *Node) DrainFrontEnd(ctx context.Context, node cluster.NodeID, drain bool) error {
	_, err := n.propose0(ctx, &registry.DrainNode{ID: node, Drain: drain})
	if errors.Is(err, cluster.ENOENT) || errors.Is(err, cluster.EPERM) {
		return fmt.Errorf("there is no node %q: `hawser status` lists them: %w", node, cluster.ENOENT)
	}
	return err
}
