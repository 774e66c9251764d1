package node

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
)

// fileReaders is how many copies are asked for at a time.
const fileReaders = 8

// maxFileExtents bounds what File shows of a file.
const maxFileExtents = 100_000

// File implements admin.Backend.
func (b *backend) File(ctx context.Context, path string, verify bool) (admin.File, error) {
	v, a, err := b.find(ctx, path)
	if err != nil {
		return admin.File{}, err
	}
	view := v.View()
	f := admin.File{
		Path: path, Volume: v.Info.Name, Ino: uint64(a.Ino), Type: typeName(a.Type), Size: a.Size, Used: a.Used,
		Class: fmt.Sprintf("%v, copies=%d", a.Class.Consistency, a.Class.Copies),
	}
	if a.Type != cluster.TypeRegular {
		return f, nil
	}
	view.Extents(a.Ino, 0, ^uint64(0), func(e *volume.Extent) bool {
		x := admin.FileExtent{Off: e.Off, Len: uint64(e.Len), Inline: e.Blob == 0}
		if e.Blob != 0 {
			x.Blob, x.At = e.Blob.String(), e.BlobOff
		}
		f.Extents = append(f.Extents, x)
		return len(f.Extents) < maxFileExtents
	})
	if len(f.Extents) == maxFileExtents {
		return f, fmt.Errorf("%s has more than %d extents: %w", path, maxFileExtents, cluster.EFBIG)
	}
	r, err := b.n.member.Registry()
	if err != nil {
		return f, err
	}
	var asks errgroup.Group
	asks.SetLimit(fileReaders)
	for _, id := range blobsOf(view, a.Ino) {
		blob, ok := view.Blob(id)
		if !ok {
			continue // freed meanwhile
		}
		set, _ := view.ReplicaSet(blob.Set)
		fb := admin.FileBlob{
			Blob: id.String(), Len: blob.Len, CRC: blob.CRC, Refs: blob.Refs, Set: blob.Set, State: setState(set.State),
			Copies: make([]admin.FileCopy, len(set.Members)), Need: 1,
		}
		if blob.Kind == volume.Coded {
			fb.Code, fb.Need = set.Code.String(), int(set.Code.K)
		}
		f.Blobs = append(f.Blobs, fb)
		for i, m := range set.Members {
			c := &fb.Copies[i]
			c.Store = m
			if s, ok := r.Store(m); ok {
				c.Node = s.Node
			}
			want, ok := wantOf(view, v.Info.ID, m, blob.Stored)
			if !ok {
				c.Health = "other"
				continue
			}
			c.Shard = want.Key.Shard
			asks.Go(func() error {
				b.lookAt(ctx, c, want.Key, want.Len, want.CRC, want.Coded, verify)
				return nil
			})
		}
	}
	_ = asks.Wait() // its functions return none
	for i := range f.Blobs {
		need, there := f.Blobs[i].Need, 0
		for _, c := range f.Blobs[i].Copies {
			if c.There {
				there++
			}
		}
		switch {
		case there == len(f.Blobs[i].Copies):
			f.Health.Whole++
		case there >= need:
			f.Health.Degraded++
		default:
			f.Health.Lost++
		}
	}
	return f, ctx.Err()
}

// lookAt says how a copy is.
func (b *backend) lookAt(ctx context.Context, c *admin.FileCopy, key cluster.BlobKey, n, crc uint32, coded, verify bool) {
	addr, up := b.n.member.Addr(c.Store)
	if !up {
		c.Health = "down"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	info, err := b.n.data.client.Stat(ctx, addr, c.Store, key)
	if err == nil && !coded && (info.Len != n || info.CRC != crc) {
		c.Health, c.Why = "other", fmt.Sprintf("%d bytes with checksum %08x", info.Len, info.CRC)
		return
	}
	c.Health = "ok"
	if err == nil && verify {
		buf, e := b.n.data.client.Get(ctx, addr, c.Store, key, 0, info.Len)
		err = e
		buf.Release()
		c.Health = "verified"
	}
	if c.There = err == nil; c.There {
		return
	}
	c.Why = err.Error()
	switch {
	case errors.Is(err, cluster.ENOBLOB):
		c.Health = "missing"
	case errors.Is(err, cluster.ECORRUPT), errors.Is(err, cluster.EIO):
		c.Health = "damaged"
	default:
		c.Health = "not reached"
	}
}

func setState(s volume.SetState) string {
	switch s {
	case volume.Writable:
		return "writable"
	case volume.ReadOnly:
		return "read-only"
	}
	return "retired"
}

func typeName(t cluster.FileType) string {
	names := map[cluster.FileType]string{
		cluster.TypeRegular: "file", cluster.TypeDirectory: "directory", cluster.TypeSymlink: "symbolic link", cluster.TypeBlock: "block device",
		cluster.TypeChar: "character device", cluster.TypeFIFO: "FIFO", cluster.TypeSocket: "socket",
	}
	return names[t]
}
