package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
)

// Addresses implements admin.Backend.
func (b *backend) Addresses(context.Context) ([]member.IdentityStatus, error) {
	if !b.n.member.Member() {
		return nil, member.ErrNotMember
	}
	list := []member.IdentityStatus{}
	for _, i := range b.n.member.Status().Identities {
		if i.Address != "" {
			list = append(list, i)
		}
	}
	return list, nil
}

// AddAddress implements admin.Backend.
func (b *backend) AddAddress(ctx context.Context, req admin.AddressRequest) error {
	_, err := b.n.member.AddAddress(ctx, req.Address, req.Group, cluster.NodeID(req.Home))
	return err
}

// MoveAddress implements admin.Backend.
func (b *backend) MoveAddress(ctx context.Context, req admin.AddressRequest) error {
	return b.n.member.MoveAddress(ctx, req.Address, cluster.NodeID(req.Node))
}

// RemoveAddress implements admin.Backend.
func (b *backend) RemoveAddress(ctx context.Context, req admin.AddressRequest) error {
	return b.n.member.RemoveAddress(ctx, req.Address)
}

// Drain implements admin.Backend.
func (b *backend) Drain(ctx context.Context, req admin.DrainRequest) error {
	return b.n.member.DrainFrontEnd(ctx, cluster.NodeID(req.Node), req.Drain)
}

// partConfigured names addresses.floating among a node's faults.
const partConfigured = "addresses.floating of this node's configuration"

// addConfigured adds the addresses of this node's configuration to the cluster,
// once. One that is there is left as it is: what is agreed on holds.
func (n *Node) addConfigured() {
	for _, text := range n.conf.Addresses.Floating {
		a, err := conf.ParseFloating(text)
		for err == nil {
			if err = n.addFloating(a); err == nil || errors.Is(err, cluster.EEXIST) {
				n.faults.set(partConfigured, "")
				break
			}
			var refused cluster.Errno
			if !n.member.Member() || errors.As(err, &refused) && refused == cluster.EAGAIN || !errors.As(err, &refused) {
				err = nil // it is tried again
			}
			if err == nil && !pause(n.ctx, time.Second) {
				return
			}
		}
		if err != nil && !errors.Is(err, cluster.EEXIST) {
			n.log.Error("a configured floating address can't be added", "addr", text, "err", err)
			n.faults.set(partConfigured, fmt.Sprintf("%s can't be added: %v", text, err))
		}
	}
}

func (n *Node) addFloating(a conf.FloatingAddress) error {
	ctx, cancel := context.WithTimeout(n.ctx, 10*time.Second)
	defer cancel()
	if err := n.member.Ready(ctx); err != nil {
		return err
	}
	_, err := n.member.AddAddress(ctx, a.Prefix.String(), a.Group, "")
	return err
}
