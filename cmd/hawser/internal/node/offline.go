package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/group"
	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/datastore/segment"
)

// CheckOffline verifies the data folders of stopped nodes. Each volume is taken
// from the node with the longest log, whose state is brought up to that log's
// end in a copy; stores of nodes that were not named are not looked at.
func CheckOffline(ctx context.Context, configs []conf.Config, req admin.CheckRequest, report func(admin.CheckEvent)) (sum admin.CheckSummary, err error) {
	for _, c := range configs {
		lock, err := lockFolder(c.Node.Data)
		if err != nil {
			return sum, fmt.Errorf("node %s: %w", c.Node.Name, err)
		}
		defer lock.Close()
	}
	scratch := filepath.Join(configs[0].Node.Data, "check.tmp")
	// One of an earlier check that was killed may be there.
	if err := errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o700)); err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	o := &offline{log: slog.New(slog.DiscardHandler), scratch: scratch, stores: map[cluster.StoreID]*segment.Store{}}
	defer func() { err = errors.Join(err, o.close()) }()
	zero, err := o.latest(ctx, configs, cluster.ClusterGroup, registry.New)
	if err != nil {
		return sum, err
	}
	r := registry.View{Reader: zero.Reader()}
	for _, c := range configs {
		// To open an empty folder would make a store in it.
		c.Node.Disks = slices.DeleteFunc(slices.Clone(c.Node.Disks), func(dir string) bool {
			files, err := os.ReadDir(dir)
			if empty := err == nil && len(files) == 0 || errors.Is(err, fs.ErrNotExist); empty {
				report(admin.CheckEvent{Progress: fmt.Sprintf("node %s: there is no store in %s: is the disk mounted?", c.Node.Name, dir)})
				return true
			}
			return false
		})
		d, err := openDisks(c, o.log)
		if err != nil {
			return sum, err
		}
		o.disks = append(o.disks, d)
		for _, s := range d.stores {
			if record, ok := r.StoreByUUID(s.UUID()); ok {
				o.stores[record.ID] = s
			}
		}
	}
	c := &checker{req: req, report: report, stores: o}
	for _, info := range r.Volumes() {
		m, err := o.latest(ctx, configs, info.ID, volume.New)
		if err != nil {
			return c.sum, err
		}
		at := volume.View{Reader: m.Reader()}
		if err := c.volume(ctx, checked{info.ID, info.Name, at, func() (volume.View, error) { return at, nil }}); err != nil {
			return c.sum, err
		}
	}
	return c.sum, nil
}

// offline is what CheckOffline has open.
type offline struct {
	log      *slog.Logger
	scratch  string
	machines []*fsm.Machine
	disks    []*disks
	stores   map[cluster.StoreID]*segment.Store
}

// latest opens a copy of a group's state, as of the end of the longest log.
func (o *offline) latest(ctx context.Context, configs []conf.Config, id cluster.GroupID, core func() fsm.Core) (*fsm.Machine, error) {
	var dir string
	var kind group.LogStore
	var lastTerm, lastIndex uint64
	for _, c := range configs {
		d := filepath.Join(c.Node.Data, "groups", fmt.Sprint(uint32(id)))
		if _, err := os.Stat(d); err != nil {
			continue
		}
		index, term, err := group.LastLog(d, group.LogStore(c.Raft.Log))
		if err != nil {
			return nil, fmt.Errorf("the log of group %d in %s: %w", id, d, err)
		}
		if dir == "" || term > lastTerm || term == lastTerm && index > lastIndex {
			dir, kind, lastTerm, lastIndex = d, group.LogStore(c.Raft.Log), term, index
		}
	}
	if dir == "" {
		return nil, fmt.Errorf("group %d is in none of the data folders: name the configuration of a node that is a member", id)
	}
	// The node's own state stays as it is: entries that were never committed
	// must not get into it.
	m, err := o.copyState(filepath.Join(dir, "state"), filepath.Join(o.scratch, fmt.Sprint(uint32(id))), core)
	if err != nil {
		return nil, err
	}
	o.machines = append(o.machines, m)
	applied, _ := m.Applied()
	return m, group.ReadLog(dir, kind, applied+1, func(entries []cluster.Entry) error {
		m.Apply(entries)
		return ctx.Err()
	})
}

// copyState opens a copy, made in folder to, of the state in folder from.
func (o *offline) copyState(from, to string, core func() fsm.Core) (*fsm.Machine, error) {
	original, err := fsm.Open(fsm.Options{Dir: from, Core: core(), Logger: o.log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	_, err = original.Checkpoint(to + ".checkpoint")
	if err = errors.Join(err, original.Close()); err != nil {
		return nil, err
	}
	m, err := fsm.Open(fsm.Options{Dir: to, Core: core(), Logger: o.log})
	if err != nil {
		return nil, err
	}
	if err := m.Restore(to + ".checkpoint"); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (o *offline) all() []cluster.StoreID { return slices.Collect(maps.Keys(o.stores)) }

func (o *offline) reachable(id cluster.StoreID) bool { return o.stores[id] != nil }

func (o *offline) lost(error) bool { return false }

func (o *offline) list(_ context.Context, id cluster.StoreID, g cluster.GroupID, after cluster.BlobKey, n int) ([]segment.Info, error) {
	return o.stores[id].List(g, after, n)
}

func (o *offline) read(ctx context.Context, id cluster.StoreID, key cluster.BlobKey, n uint32) error {
	b, err := o.stores[id].Read(ctx, key, 0, n)
	b.Release()
	return err
}

func (o *offline) close() error {
	var faults []error
	for _, m := range o.machines {
		faults = append(faults, m.Close())
	}
	for _, d := range o.disks {
		faults = append(faults, d.close())
	}
	return errors.Join(faults...)
}
