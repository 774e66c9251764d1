package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cluster/peer"
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
	// all returns the stores of the cluster, as far as they can be looked at.
	all() []cluster.StoreID
	// reachable says whether the store can be looked at.
	reachable(cluster.StoreID) bool
	// lost says whether an error means that the store can't be looked at any more.
	lost(error) bool
	list(ctx context.Context, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) ([]segment.Info, error)
	// read reads a whole copy and verifies its checksums.
	read(ctx context.Context, id cluster.StoreID, key cluster.BlobKey, n uint32) error
}

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

// skip says that a store is not looked at, or not to its end.
func (c *checker) skip(volume string, id cluster.StoreID, why string) {
	c.progress("volume %s: store %d %s", volume, id, why)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.sum.Skipped, id) {
		c.sum.Skipped = append(c.sum.Skipped, id)
		slices.Sort(c.sum.Skipped)
	}
}

// A checked is a volume that is verified. at is a state at rest; fresh returns
// the latest one, by which what looks wrong is judged again: the volume may be
// in use.
type checked struct {
	id    cluster.VolumeID
	name  string
	at    volume.View
	fresh func() (volume.View, error)
}

// volume verifies one volume.
func (c *checker) volume(ctx context.Context, v checked) error {
	c.progress("volume %s: verifying the state machine", v.name)
	result := volume.Check(volume.View{Reader: untilDone{v.at.Reader, ctx}}, func(p volume.Problem) {
		if ctx.Err() == nil { // else it is what is missing because the check ends
			c.problem("volume %s: %s", v.name, p)
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	c.sum.Volumes++
	c.sum.Inodes += result.Inodes
	c.sum.Blobs += result.Blobs
	c.mu.Unlock()
	sets := map[cluster.StoreID][]volume.ReplicaSet{}
	for _, id := range c.stores.all() {
		sets[id] = nil // one that should have nothing may have something
	}
	for _, s := range v.at.ReplicaSets() {
		for _, m := range s.Members {
			sets[m] = append(sets[m], s)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for id, sets := range sets {
		if !c.stores.reachable(id) {
			c.skip(v.name, id, "is not reachable, so its copies are not looked at")
			continue
		}
		g.Go(func() error {
			err := c.store(ctx, v, id, sets)
			switch {
			case err == nil:
				c.progress("volume %s: store %d is verified", v.name, id)
			case ctx.Err() == nil && c.stores.lost(err):
				c.skip(v.name, id, fmt.Sprintf("stopped answering (%v), so the rest of its copies is not looked at", err))
			case ctx.Err() == nil:
				c.problem("volume %s: store %d can't be read to its end: %v", v.name, id, err)
			default:
				return ctx.Err()
			}
			return nil
		})
	}
	return g.Wait()
}

// untilDone is a Reader whose walks end when ctx does.
type untilDone struct {
	fsm.Reader
	ctx context.Context
}

// Ascend implements fsm.Reader.
func (r untilDone) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	if r.ctx.Err() != nil {
		return
	}
	n := 0
	r.Reader.Ascend(lower, upper, func(key, value []byte) bool {
		n++
		return (n%256 != 0 || r.ctx.Err() == nil) && fn(key, value)
	})
}

// store walks what a store should have of a volume and what it has side by
// side, both in the order of the blobs' ids.
func (c *checker) store(ctx context.Context, v checked, id cluster.StoreID, sets []volume.ReplicaSet) (err error) {
	readers, readCtx := errgroup.WithContext(ctx)
	readers.SetLimit(checkReaders)
	defer func() { err = errors.Join(err, readers.Wait()) }()
	expect := newExpected(v.at, sets)
	held := &heldBlobs{list: func(after cluster.BlobKey, n int) ([]segment.Info, error) {
		return c.stores.list(ctx, id, v.id, after, n)
	}, after: cluster.BlobKey{Group: v.id}}
	// What is not expected is judged some at a time.
	var unexpected []cluster.BlobID
	var failed error
	judge := func() {
		failed = errors.Join(failed, c.judge(v, id, unexpected))
		unexpected = unexpected[:0]
	}
	pass := func(b cluster.BlobID) {
		if unexpected = append(unexpected, b); len(unexpected) == walkPage {
			judge()
		}
	}
	for failed == nil && readCtx.Err() == nil {
		blob, set, more := expect.next()
		if !more {
			break
		}
		info, there, err := held.find(blob, pass)
		if err != nil {
			return err
		}
		want, ok := wantOf(v.at, v.id, id, blob)
		if !ok {
			continue // volume.Check has reported it
		}
		c.mu.Lock()
		c.sum.Copies++
		c.mu.Unlock()
		complain := func(format string, args ...any) {
			if now, err := v.fresh(); err == nil {
				if now, still := wantOf(now, v.id, id, blob); !still || now.Set != want.Set {
					return // freed or moved meanwhile
				}
			}
			c.problem("volume %s: blob %v in replica set %d: store %d %s", v.name, blob, set, id, fmt.Sprintf(format, args...))
		}
		switch {
		case !there:
			complain("has no copy")
		case info.Key.Shard != want.Key.Shard:
			complain("has shard %d, and the volume says shard %d", info.Key.Shard, want.Key.Shard)
		case info.Len != want.Len || !want.Coded && info.CRC != want.CRC:
			complain("has a copy of %d bytes with checksum %08x, and the volume says %d bytes with %08x", info.Len, info.CRC, want.Len, want.CRC)
		case c.req.Data:
			readers.Go(func() error {
				err := c.stores.read(readCtx, id, info.Key, want.Len)
				switch {
				case err == nil:
				case readCtx.Err() != nil || c.stores.lost(err):
					return err
				default:
					complain("has a copy that can't be read: %v", err)
				}
				return nil
			})
		}
	}
	_, _, err = held.find(^cluster.BlobID(0), pass)
	judge()
	return errors.Join(err, failed)
}

// judge counts the copies that a store has and the volume's state at rest does
// not ask for, unless they were made since: those that no file uses, and those of
// blobs that are elsewhere now.
func (c *checker) judge(v checked, id cluster.StoreID, blobs []cluster.BlobID) error {
	if len(blobs) == 0 {
		return nil
	}
	now, err := v.fresh()
	if err != nil {
		return err
	}
	var unused, misplaced uint64
	for _, b := range blobs {
		if now.Deletable(b) {
			unused++
		} else if _, used := now.StoredBlob(b); used {
			if _, wanted := wantOf(now, v.id, id, b); !wanted {
				misplaced++
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.Unused += unused
	c.sum.Misplaced += misplaced
	return nil
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
		if snapshot == nil {
			return c.sum, fmt.Errorf("the server is stopping: %w", cluster.EAGAIN)
		}
		err := c.volume(ctx, checked{v.Info.ID, v.Info.Name, volume.View{Reader: snapshot}, func() (volume.View, error) {
			return v.View(), v.Sync(ctx)
		}})
		if err = errors.Join(err, snapshot.Close()); err != nil {
			return c.sum, err
		}
	}
	return c.sum, nil
}

// liveStores are the stores of all nodes, asked over the network.
type liveStores struct{ n *Node }

func (s liveStores) all() []cluster.StoreID {
	return slices.DeleteFunc(s.n.data.All(), func(id cluster.StoreID) bool { return !s.reachable(id) })
}

func (s liveStores) reachable(id cluster.StoreID) bool {
	_, up := s.n.member.Addr(id)
	return up
}

func (s liveStores) lost(err error) bool {
	return errors.Is(err, peer.ErrUnreachable) || errors.Is(err, peer.ErrConnection)
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
