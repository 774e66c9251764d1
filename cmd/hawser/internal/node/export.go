package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/registry"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/cluster/group"
	"github.com/hawserfs/hawser/datastore/segment"
)

// An ExportRequest says what is exported, from where and to where.
type ExportRequest struct {
	// Volume is a volume's name, or its number where the registry is lost; empty:
	// all volumes, each in a folder of its own.
	Volume string
	// To is the folder that the files are written to. A run that was interrupted
	// goes on in it.
	To string
	// Data and Disks are the data folders and the stores of stopped nodes: what
	// is left of them.
	Data, Disks []string
	// Path is the part of the volume that is exported; empty: all.
	Path string
}

// An ExportSummary ends an export.
type ExportSummary struct {
	Files   uint64 // regular files that are whole, with those of an earlier run
	Others  uint64 // directories, links and the like
	Bytes   uint64 // written by this run
	Damaged uint64 // files of which a part is missing
	Failed  uint64 // of what could not be written as it was: problems of the target
}

// Export writes a volume's files to a local folder, from the state machine and
// the segments of stopped nodes. report is told of what could not be had,
// progress of how far it is. What is in the nodes' folders stays as it is, but
// that their state machines are opened.
func Export(ctx context.Context, req ExportRequest, report, progress func(string)) (sum ExportSummary, err error) {
	for _, dir := range req.Data {
		lock, err := lockFolder(dir)
		if err != nil {
			return sum, err
		}
		defer lock.Close()
	}
	if err := os.MkdirAll(req.To, 0o700); err != nil {
		return sum, err
	}
	scratch := filepath.Join(req.To, exportScratch)
	if err := errors.Join(os.RemoveAll(scratch), os.Mkdir(scratch, 0o700)); err != nil {
		return sum, err
	}
	o := &offline{log: slog.New(slog.DiscardHandler), scratch: scratch}
	var stores []*segment.Salvage
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.Close())
		}
		err = errors.Join(err, o.close(), os.RemoveAll(scratch))
	}()
	for _, dir := range req.Disks {
		s, err := segment.OpenSalvage(nil, dir, func(i, of int) {
			if i%16 == 0 {
				progress(fmt.Sprintf("%s: reading what is in segment %d of %d", dir, i+1, of))
			}
		})
		if err != nil {
			report(fmt.Sprintf("disk %s can't be used: %v", dir, err))
			continue
		}
		progress(fmt.Sprintf("%s: %d blobs", dir, s.Blobs()))
		stores = append(stores, s)
	}
	volumes, err := o.exported(ctx, req, report)
	if err != nil {
		return sum, err
	}
	for _, info := range volumes {
		m, err := o.salvaged(ctx, req.Data, info.ID, volume.New, report)
		if err != nil {
			return sum, fmt.Errorf("volume %s: %w", info.Name, err)
		}
		to := req.To
		if req.Volume == "" {
			to = filepath.Join(to, info.Name)
		}
		x := &exporter{
			ctx: ctx, view: volume.View{Reader: m.Reader()}, group: info.ID, stores: stores, to: to, sum: &sum,
			report: report, progress: progress, links: map[cluster.Ino]string{},
		}
		if err := x.run(req.Path); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// exported returns the volumes that were asked for.
func (o *offline) exported(ctx context.Context, req ExportRequest, report func(string)) ([]registry.Volume, error) {
	if n, err := strconv.ParseUint(req.Volume, 10, 32); err == nil {
		return []registry.Volume{{ID: cluster.VolumeID(n), Name: req.Volume}}, nil
	}
	zero, err := o.salvaged(ctx, req.Data, cluster.ClusterGroup, registry.New, report)
	if err != nil {
		return nil, fmt.Errorf("%w: without the registry, name the volume by its number: the number of its folder under DATA/groups", err)
	}
	all := registry.View{Reader: zero.Reader()}.Volumes()
	if req.Volume == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(v registry.Volume) bool { return v.Name == req.Volume })
	if i < 0 {
		return nil, fmt.Errorf("there is no volume %q: %w", req.Volume, cluster.ENOENT)
	}
	return all[i : i+1], nil
}

// salvaged opens a copy of a group's state, from the folder that has the latest
// that can be read.
func (o *offline) salvaged(ctx context.Context, data []string, id cluster.GroupID, core func() fsm.Core, report func(string)) (*fsm.Machine, error) {
	type candidate struct {
		dir         string
		kind        group.LogStore
		term, index uint64
		log         bool // can be read
	}
	var all []candidate
	for _, d := range data {
		dir := filepath.Join(d, "groups", fmt.Sprint(uint32(id)))
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		c := candidate{dir: dir}
		c.kind = group.StoppedLogStore(dir)
		var err error
		if c.index, c.term, err = group.LastLog(dir, c.kind); err == nil {
			c.log = true
		} else {
			report(fmt.Sprintf("the log in %s can't be read (%v): the state is taken as it was at its last flush", dir, err))
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.index, a.index))
	})
	for n, c := range all {
		m, err := o.copyState(filepath.Join(c.dir, "state"), filepath.Join(o.scratch, fmt.Sprintf("%d-%d", uint32(id), n)), core)
		if err != nil {
			report(fmt.Sprintf("the state in %s can't be read: %v", c.dir, err))
			continue
		}
		o.machines = append(o.machines, m)
		if !c.log {
			return m, nil
		}
		applied, _ := m.Applied()
		err = group.ReadLog(c.dir, c.kind, applied+1, func(entries []cluster.Entry) error {
			m.Apply(entries)
			return ctx.Err()
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			at, _ := m.Applied()
			report(fmt.Sprintf("the log in %s can be read up to entry %d of %d only: %v", c.dir, at, c.index, err))
		}
		return m, nil
	}
	return nil, fmt.Errorf("group %d is in none of the data folders that can be read", uint32(id))
}
