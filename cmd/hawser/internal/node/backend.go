package node

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

// A backend does what the admin API asks.
type backend struct{ n *Node }

// Status implements admin.Backend.
func (b *backend) Status() admin.Status {
	s := admin.Status{Version: b.n.version, Serving: []string{}, Cluster: b.n.member.Status()}
	s.Cluster.Problems = append(s.Cluster.Problems, b.n.faults.list()...)
	s.Cluster.Problems = append(s.Cluster.Problems, b.n.scrubs.problems()...)
	s.Packing = b.n.packers.status()
	b.n.mu.Lock()
	defer b.n.mu.Unlock()
	if b.n.front != nil {
		s.Serving = b.n.front.addrs()
	}
	return s
}

// Init implements admin.Backend.
func (b *backend) Init(ctx context.Context, req admin.InitRequest) error {
	class, err := parseClass(req.Class, cluster.Class{Copies: 3})
	if err != nil {
		return err
	}
	if err := b.n.member.Init(ctx, req.Name, class); err != nil {
		return err
	}
	return b.n.placeable(ctx)
}

// Join implements admin.Backend.
func (b *backend) Join(ctx context.Context, req admin.JoinRequest) error {
	return b.n.member.Join(ctx, req.Address)
}

// Volumes implements admin.Backend.
func (b *backend) Volumes(context.Context) ([]admin.Volume, error) {
	if !b.n.member.Member() {
		return nil, member.ErrNotMember
	}
	list := []admin.Volume{}
	for _, v := range b.n.member.Volumes() {
		list = append(list, describe(v))
	}
	return list, nil
}

// CreateVolume implements admin.Backend.
func (b *backend) CreateVolume(ctx context.Context, name string, class admin.Class) (admin.Volume, error) {
	c, err := parseClass(class, cluster.Class{Copies: 3})
	if err != nil {
		return admin.Volume{}, err
	}
	info, err := b.n.member.CreateVolume(ctx, name, c)
	if err != nil {
		return admin.Volume{}, err
	}
	v, err := b.n.member.Volume(info.ID)
	if err == nil {
		err = b.n.placeable(ctx)
	}
	if err != nil {
		return admin.Volume{}, err
	}
	return describe(v), nil
}

func describe(v *member.Volume) admin.Volume {
	u, class := v.View().Usage(), v.Class()
	return admin.Volume{
		Name: v.Info.Name, ID: uint32(v.Info.ID), Consistency: class.Consistency.String(), Copies: class.Copies,
		Files: u.Inodes, Bytes: u.Bytes,
	}
}

// Class implements admin.Backend.
func (b *backend) Class(ctx context.Context, name string) (admin.Class, error) {
	_, a, err := b.find(ctx, name)
	return admin.Class{Path: name, Consistency: a.Class.Consistency.String(), Copies: a.Class.Copies}, err
}

// SetClass implements admin.Backend.
func (b *backend) SetClass(ctx context.Context, class admin.Class) (admin.Class, error) {
	v, a, err := b.find(ctx, class.Path)
	if err != nil {
		return class, err
	}
	if a.Type != cluster.TypeDirectory {
		return class, fmt.Errorf("%s is not a directory; a file keeps the class that it was made with: %w", class.Path, cluster.ENOTDIR)
	}
	c, err := parseClass(class, a.Class)
	if err != nil {
		return class, err
	}
	if err := v.SetClass(ctx, a.Ino, c); err != nil {
		return class, err
	}
	return b.Class(ctx, class.Path)
}

// find looks a path up: the volume's name first, as clients see it.
func (b *backend) find(ctx context.Context, name string) (*member.Volume, cluster.Attr, error) {
	parts := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	r, err := b.n.member.RegistryAt(ctx)
	if err != nil {
		return nil, cluster.Attr{}, err
	}
	info, ok := r.VolumeByName(parts[0])
	if !ok {
		return nil, cluster.Attr{}, fmt.Errorf("%s: there is no volume %q: a path begins with a volume's name, like /main/data: %w", name, parts[0], cluster.ENOENT)
	}
	v, err := b.n.member.Volume(info.ID)
	if err != nil {
		return nil, cluster.Attr{}, err
	}
	if err := v.Sync(ctx); err != nil {
		return nil, cluster.Attr{}, err
	}
	ino := cluster.RootIno
	for i, part := range parts[1:] {
		e, ok := v.View().Lookup(ino, part)
		if !ok {
			return nil, cluster.Attr{}, fmt.Errorf("%s: there is no /%s: %w", name, strings.Join(parts[:i+2], "/"), cluster.ENOENT)
		}
		ino = e.Ino
	}
	a, ok := v.View().Inode(ino)
	if !ok {
		return nil, a, fmt.Errorf("%s was removed meanwhile: %w", name, cluster.ENOENT)
	}
	return v, a, nil
}

// parseClass reads a class; what it leaves out is as in def.
func parseClass(c admin.Class, def cluster.Class) (cluster.Class, error) {
	out := def
	switch c.Consistency {
	case "":
	case "strict":
		out.Consistency = cluster.Strict
	case "relaxed":
		out.Consistency = cluster.Relaxed
	default:
		return out, fmt.Errorf("consistency %q is not known: use strict or relaxed: %w", c.Consistency, cluster.EINVAL)
	}
	if c.Copies > 3 {
		return out, fmt.Errorf("copies is %d: it must be 1, 2 or 3: %w", c.Copies, cluster.EINVAL)
	}
	if c.Copies > 0 {
		out.Copies = c.Copies
	}
	return out, nil
}
