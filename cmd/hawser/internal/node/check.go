package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/datastore/segment"
)

// A checker verifies volumes: first each volume's state by itself, then what
// the stores hold against it.
type checker struct {
	req    admin.CheckRequest
	report func(admin.CheckEvent)
	stores copies

	mu  sync.Mutex // of report and sum
	sum admin.CheckSummary
}

// copies is how a checker reaches the stores.
type copies interface {
	// reachable says whether the store can be looked at.
	reachable(cluster.StoreID) bool
	list(ctx context.Context, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) ([]segment.Info, error)
	// read reads a whole copy and verifies its checksums.
	read(ctx context.Context, id cluster.StoreID, key cluster.BlobKey, n uint32) error
}

// listPage is how many blobs of a store are listed at a time.
const listPage = 1000

// checkReaders is how many copies of a store are read at a time.
const checkReaders = 4

func (c *checker) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.Problems++
	c.report(admin.CheckEvent{Problem: fmt.Sprintf(format, args...)})
}

func (c *checker) progress(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report(admin.CheckEvent{Progress: fmt.Sprintf(format, args...)})
}

// volume verifies one volume. at is a state at rest; fresh returns the latest
// one, by which what looks wrong is judged again: the volume may be in use.
func (c *checker) volume(ctx context.Context, id cluster.VolumeID, name string, at volume.View, fresh func() (volume.View, error)) error {
	c.progress("volume %s: verifying the state machine", name)
	result := volume.Check(at, func(p volume.Problem) { c.problem("volume %s: %s", name, p) })
	c.mu.Lock()
	c.sum.Volumes++
	c.sum.Inodes += result.Inodes
	c.sum.Blobs += result.Blobs
	c.mu.Unlock()
	// The stores side by side, each set by set.
	sets := map[cluster.StoreID][]volume.ReplicaSet{}
	for _, s := range at.ReplicaSets() {
		for _, m := range s.Members {
			sets[m] = append(sets[m], s)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for store, sets := range sets {
		if !c.stores.reachable(store) {
			c.progress("volume %s: store %d is not reachable, so its copies are not looked at", name, store)
			continue
		}
		g.Go(func() error {
			for _, s := range sets {
				if err := c.copiesOf(ctx, id, name, store, s, at, fresh); err != nil {
					return fmt.Errorf("volume %s, store %d: %w", name, store, err)
				}
			}
			c.progress("volume %s: store %d is verified", name, store)
			return nil
		})
	}
	return g.Wait()
}

// copiesOf walks a set's blobs and what a member holds of the volume side by
// side, both in the order of their ids.
func (c *checker) copiesOf(ctx context.Context, g cluster.GroupID, name string, store cluster.StoreID, set volume.ReplicaSet, at volume.View, fresh func() (volume.View, error)) error {
	var held []segment.Info
	after, more := cluster.BlobKey{Group: g}, true
	// find returns what the store has of a blob; ids asked for rise.
	find := func(id cluster.BlobID) (segment.Info, bool, error) {
		for {
			for len(held) > 0 && held[0].Key.Blob < id {
				held = held[1:]
			}
			if len(held) > 0 || !more {
				break
			}
			page, err := c.stores.list(ctx, store, g, after, listPage)
			if err != nil {
				return segment.Info{}, false, err
			}
			held, more = page, len(page) == listPage
			if len(page) > 0 {
				after = page[len(page)-1].Key
			}
		}
		if len(held) == 0 || held[0].Key.Blob != id {
			return segment.Info{}, false, nil
		}
		return held[0], true, nil
	}
	readers, readCtx := errgroup.WithContext(ctx)
	readers.SetLimit(checkReaders)
	var failed error
	var looked atomic.Uint64
	at.SetBlobs(set.ID, 0, func(id cluster.BlobID) bool {
		b, ok := at.Blob(id)
		if !ok {
			return true // volume.Check has reported it
		}
		info, there, err := find(id)
		if err != nil {
			failed = err
			return false
		}
		looked.Add(1)
		complain := func(format string, args ...any) {
			if v, err := fresh(); err == nil {
				if now, still := v.Blob(id); !still || now.Set != b.Set {
					return // freed or moved meanwhile
				}
			}
			c.problem("volume %s: blob %v in replica set %d: store %d %s", name, id, set.ID, store, fmt.Sprintf(format, args...))
		}
		switch {
		case !there:
			complain("has no copy")
		case info.Len != b.Len || info.CRC != b.CRC:
			complain("has a copy of %d bytes with checksum %08x, and the volume says %d bytes with %08x", info.Len, info.CRC, b.Len, b.CRC)
		case c.req.Data:
			readers.Go(func() error {
				err := c.stores.read(readCtx, store, cluster.BlobKey{Group: g, Blob: id}, b.Len)
				if err != nil && readCtx.Err() == nil {
					complain("has a copy that can't be read: %v", err)
				}
				return readCtx.Err()
			})
		}
		return ctx.Err() == nil
	})
	err := errors.Join(failed, readers.Wait(), ctx.Err())
	c.mu.Lock()
	c.sum.Copies += looked.Load()
	c.mu.Unlock()
	return err
}

// Check implements admin.Backend.
func (b *backend) Check(ctx context.Context, req admin.CheckRequest, report func(admin.CheckEvent)) (admin.CheckSummary, error) {
	if !b.n.member.Member() {
		return admin.CheckSummary{}, member.ErrNotMember
	}
	c := &checker{req: req, report: report, stores: liveStores{b.n}}
	for _, v := range b.n.member.Volumes() {
		if err := v.Sync(ctx); err != nil {
			return c.sum, err
		}
		snapshot := v.Machine.Snapshot()
		err := c.volume(ctx, v.Info.ID, v.Info.Name, volume.View{Reader: snapshot}, func() (volume.View, error) {
			return v.View(), v.Sync(ctx)
		})
		if err = errors.Join(err, snapshot.Close()); err != nil {
			return c.sum, err
		}
	}
	return c.sum, nil
}

// liveStores are the stores of all nodes, asked over the network.
type liveStores struct{ n *Node }

func (s liveStores) reachable(id cluster.StoreID) bool {
	_, up := s.n.member.Addr(id)
	return up
}

func (s liveStores) list(ctx context.Context, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) ([]segment.Info, error) {
	addr, _ := s.n.member.Addr(id)
	return s.n.data.client.List(ctx, addr, id, g, after, n)
}

func (s liveStores) read(ctx context.Context, id cluster.StoreID, key cluster.BlobKey, n uint32) error {
	addr, _ := s.n.member.Addr(id)
	buf, err := s.n.data.client.Get(ctx, addr, id, key, 0, n)
	buf.Release()
	return err
}
