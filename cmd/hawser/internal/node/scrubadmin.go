package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/datastore/scrub"
)

// ScrubStatus implements admin.Backend.
func (b *backend) ScrubStatus(ctx context.Context) ([]admin.NodeScrubs, error) {
	if !b.n.member.Member() {
		return nil, member.ErrNotMember
	}
	r, err := b.n.member.Registry()
	if err != nil {
		return nil, err
	}
	var nodes []registry.Node
	for _, node := range r.Nodes() {
		if node.Roles.Has(registry.RoleData) && node.State != registry.NodeRemoved {
			nodes = append(nodes, node)
		}
	}
	out := make([]admin.NodeScrubs, len(nodes))
	var g errgroup.Group
	g.SetLimit(16)
	for i, node := range nodes {
		out[i] = admin.NodeScrubs{Node: node.ID, Stores: []scrub.Status{}}
		if node.ID == cluster.NodeID(b.n.conf.Node.Name) {
			out[i].Stores = b.n.scrubs.status()
			continue
		}
		g.Go(func() error {
			a, err := b.n.scrubs.call(ctx, node.PeerAddr, scrubRequest{Op: scrubStatus}, 5*time.Second)
			if err != nil {
				out[i].Error = err.Error()
			} else if a.Status != nil {
				out[i].Stores = a.Status
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return none
	return out, ctx.Err()
}

// A demand is a scrub that was asked for.
type demand struct {
	b      *backend
	report func(admin.ScrubEvent)

	mu  sync.Mutex // of report and sum
	sum admin.ScrubSummary
}

// Scrub implements admin.Backend.
func (b *backend) Scrub(ctx context.Context, req admin.ScrubRequest, report func(admin.ScrubEvent)) (admin.ScrubSummary, error) {
	if !b.n.member.Member() {
		return admin.ScrubSummary{}, member.ErrNotMember
	}
	d := &demand{b: b, report: report, sum: admin.ScrubSummary{Stores: []cluster.StoreID{}}}
	if req.Path != "" {
		if req.Node != "" || req.Store != 0 {
			return d.sum, fmt.Errorf("a path lies on many stores: name a path, a node or a store: %w", cluster.EINVAL)
		}
		return d.sum, d.path(ctx, req.Path)
	}
	r, err := b.n.member.RegistryAt(ctx)
	if err != nil {
		return d.sum, err
	}
	if _, ok := r.Node(req.Node); req.Node != "" && !ok {
		return d.sum, fmt.Errorf("there is no node %q: %w", req.Node, cluster.ENOENT)
	}
	var ids []cluster.StoreID
	for _, s := range r.Stores() {
		if (req.Store == 0 || s.ID == req.Store) && (req.Node == "" || s.Node == req.Node) {
			ids = append(ids, s.ID)
		}
	}
	if req.Store != 0 && len(ids) == 0 {
		return d.sum, fmt.Errorf("there is no such store: %w", cluster.ENOENT)
	}
	var g errgroup.Group
	for _, id := range ids {
		g.Go(func() error { return d.store(ctx, id) })
	}
	return d.sum, g.Wait()
}

func (d *demand) progress(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report(admin.ScrubEvent{Progress: fmt.Sprintf(format, args...)})
}

// take adds what came of a step.
func (d *demand) take(id cluster.StoreID, r *scrub.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sum.Add(r.Counts)
	if i, there := slices.BinarySearch(d.sum.Stores, id); !there {
		d.sum.Stores = slices.Insert(d.sum.Stores, i, id)
	}
	for _, p := range r.Problems {
		d.report(admin.ScrubEvent{Problem: fmt.Sprintf("store %d: volume %d, blob %v %s", id, p.Key.Group, p.Key.Blob, p.Text)})
	}
}

func (d *demand) skip(id cluster.StoreID, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report(admin.ScrubEvent{Progress: fmt.Sprintf("store %d is not scrubbed to its end: %v", id, why)})
	if i, there := slices.BinarySearch(d.sum.Skipped, id); !there {
		d.sum.Skipped = slices.Insert(d.sum.Skipped, i, id)
	}
}

const (
	// stepTimeout bounds a step: some MiB at the rate, with repairs.
	stepTimeout = 10 * time.Minute
	// progressEvery is how often a store's progress is told.
	progressEvery = 2 * time.Second
)

// store scrubs a store from its beginning to its end. The store's node does one
// step after the other; it forgets about it when nobody asks for the next.
func (d *demand) store(ctx context.Context, id cluster.StoreID) error {
	var after cluster.BlobKey
	var sum scrub.Counts
	told := time.Now()
	for {
		a, err := d.b.n.scrubs.ask(ctx, id, scrubRequest{Op: scrubStep, Store: id, After: after}, stepTimeout)
		if err == nil {
			d.take(id, &a.Result)
			sum.Add(a.Result.Counts)
			after = a.Result.After
			if a.Stopped != "" {
				err = errors.New(a.Stopped)
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			d.skip(id, err)
			return nil
		case a.Result.Done:
			d.progress("store %d: done, %d copies, %s", id, sum.Copies, humanize.IBytes(sum.Bytes))
			return nil
		case time.Since(told) >= progressEvery:
			told = time.Now()
			d.progress("store %d: %s of %s", id, humanize.IBytes(sum.Bytes), humanize.IBytes(max(a.Used, sum.Bytes)))
		}
	}
}

const (
	// checkKeys and checkBytes are how many copies of a store are looked at in one
	// request.
	checkKeys  = 256
	checkBytes = 64 << 20
)

// path scrubs the files at a path and below.
func (d *demand) path(ctx context.Context, path string) error {
	v, a, err := d.b.find(ctx, path)
	if err != nil {
		return err
	}
	w := &pathScrub{d: d, g: v.Info.ID, view: v.View(), batches: map[cluster.StoreID]*keyBatch{}}
	var checks errgroup.Group
	checks.SetLimit(8)
	w.send = func(id cluster.StoreID, keys []cluster.BlobKey) {
		checks.Go(func() error { return d.keys(ctx, id, keys) })
	}
	err = w.walk(ctx, a)
	w.flush()
	if err = errors.Join(err, checks.Wait()); err == nil {
		d.progress("%s: %d files, %d blobs", path, w.files, w.blobs)
	}
	return err
}

// keys looks at some copies of a store.
func (d *demand) keys(ctx context.Context, id cluster.StoreID, keys []cluster.BlobKey) error {
	a, err := d.b.n.scrubs.ask(ctx, id, scrubRequest{Op: scrubCheck, Store: id, Keys: keys}, stepTimeout)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		d.take(id, &a.Result)
		if a.Stopped != "" {
			err = errors.New(a.Stopped)
		}
	}
	if err != nil {
		d.skip(id, err)
	}
	return nil
}

// A pathScrub gathers the copies of the files below a directory.
type pathScrub struct {
	d            *demand
	g            cluster.GroupID
	view         volume.View
	batches      map[cluster.StoreID]*keyBatch
	send         func(cluster.StoreID, []cluster.BlobKey)
	files, blobs uint64
}

type keyBatch struct {
	keys  []cluster.BlobKey
	bytes uint64
}

// walk goes through a file, or a directory and all below it.
func (w *pathScrub) walk(ctx context.Context, a cluster.Attr) error {
	dirs := []cluster.Ino{}
	visit := func(a cluster.Attr) {
		switch a.Type {
		case cluster.TypeDirectory:
			dirs = append(dirs, a.Ino)
		case cluster.TypeRegular:
			w.file(a.Ino)
		}
	}
	visit(a)
	for len(dirs) > 0 && ctx.Err() == nil {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		w.view.ReadDir(dir, 0, func(e *volume.Dirent) bool {
			if a, ok := w.view.Inode(e.Ino); ok {
				visit(a)
			}
			return ctx.Err() == nil
		})
	}
	return ctx.Err()
}

func (w *pathScrub) file(ino cluster.Ino) {
	w.files++
	for _, b := range blobsOf(w.view, ino) {
		w.blobs++
		blob, ok := w.view.Blob(b)
		if !ok {
			continue // freed meanwhile
		}
		set, _ := w.view.ReplicaSet(blob.Set)
		for _, id := range set.Members {
			want, ok := wantOf(w.view, w.g, id, blob.Stored)
			if !ok {
				continue
			}
			batch := w.batches[id]
			if batch == nil {
				batch = &keyBatch{}
				w.batches[id] = batch
			}
			batch.keys = append(batch.keys, want.Key)
			batch.bytes += uint64(want.Len)
			if len(batch.keys) == checkKeys || batch.bytes >= checkBytes {
				w.send(id, batch.keys)
				*batch = keyBatch{}
			}
		}
	}
}

func (w *pathScrub) flush() {
	for id, batch := range w.batches {
		if len(batch.keys) > 0 {
			w.send(id, batch.keys)
		}
	}
}

// blobsOf returns the blobs that a file's extents are in, each once, in order.
func blobsOf(view volume.View, ino cluster.Ino) (ids []cluster.BlobID) {
	view.Extents(ino, 0, ^uint64(0), func(e *volume.Extent) bool {
		if e.Blob != 0 {
			ids = append(ids, e.Blob)
		}
		return true
	})
	slices.Sort(ids)
	return slices.Compact(ids)
}
