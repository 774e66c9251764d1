package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/member"
	"github.com/hawserfs/hawser/conf"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/segment"
)

// disks are the node's stores, one on each disk.
type disks struct {
	log    *slog.Logger
	server *blob.Server
	stores []*segment.Store
	wear   []*wear // of each store
}

func openDisks(c conf.Config, log *slog.Logger) (*disks, error) {
	d := &disks{log: log, server: blob.NewServer(log)}
	if !slices.Contains(c.Node.Roles, "data") {
		return d, nil
	}
	for _, dir := range c.Node.Disks {
		w := newWear(c.Scrub, log)
		s, err := segment.Open(dir, segment.Options{
			SegmentSize: int64(c.Store.SegmentSize), Reserve: uint64(c.Store.Reserve), Logger: log.With("disk", dir),
			Damaged: w.damaged,
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("disk %s: %w", dir, err), d.close())
		}
		w.store.Store(s)
		d.stores, d.wear = append(d.stores, s), append(d.wear, w)
	}
	return d, nil
}

// reports is what the node says of its stores in heartbeats.
func (d *disks) reports() []member.StoreReport {
	out := make([]member.StoreReport, len(d.stores))
	for i, s := range d.stores {
		uuid, u := s.UUID(), s.Usage()
		out[i] = member.StoreReport{
			UUID: hex.EncodeToString(uuid[:]), Capacity: u.Capacity, Used: u.Used, Failed: s.Failed() != nil,
			Full: u.Free < cluster.MaxBlob,
		}
	}
	return out
}

// follow serves each store under its number as soon as the cluster has given
// it one, and marks it as the cluster's. A store that another node has, too, is a
// copied folder, and is not served. begun is called with each that is.
func (d *disks) follow(ctx context.Context, self cluster.NodeID, m *member.Node, f *faults, begun func(cluster.StoreID, *segment.Store, *wear)) {
	for served := 0; served < len(d.stores); pause(ctx, 50*time.Millisecond) {
		if ctx.Err() != nil {
			return
		}
		r, err := m.Registry()
		if err != nil {
			continue
		}
		c, ok := r.Cluster()
		if !ok {
			continue
		}
		for i, s := range d.stores {
			record, ok := r.StoreByUUID(s.UUID())
			if _, there := d.server.Local(record.ID); !ok || there {
				continue
			}
			part := fmt.Sprintf("store %d of this node is not served", record.ID)
			if record.Node != self {
				// It becomes this node's in a moment, if it was moved here.
				f.set(part, fmt.Sprintf("node %s has it: if the disk's folder was copied from there, give this node an empty one", record.Node))
				continue
			}
			if err := s.SetClusterID(c.ID()); err != nil {
				if f.set(part, err.Error()+": give this node an empty folder") {
					d.log.Error("a disk is not served: give this node an empty folder", "store", uint32(record.ID), "err", err)
				}
				continue
			}
			f.set(part, "")
			d.server.Add(record.ID, s)
			begun(record.ID, s, d.wear[i])
			served++
		}
	}
}

func (d *disks) close() error {
	var faults []error
	for _, s := range d.stores {
		faults = append(faults, s.Close())
	}
	return errors.Join(faults...)
}
