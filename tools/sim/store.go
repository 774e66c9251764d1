package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

const theGroup cluster.GroupID = 1

func keyOf(b cluster.BlobID) cluster.BlobKey { return cluster.BlobKey{Group: theGroup, Blob: b} }

// A store is a disk's: a model of datastore/segment, or that itself.
type store struct {
	w    *World
	n    *node
	id   cluster.StoreID
	lost bool // for good
	// draining says that it is to be emptied.
	draining bool
	disk     disk
	syncs    bool
	acks     []func() // of what is synced next
}

// A disk keeps copies. What is put or deleted is durable after sync.
type disk interface {
	put(b cluster.BlobID, set cluster.ReplicaSetID, epoch uint32, data []byte) error
	get(b cluster.BlobID) ([]byte, error) // ENOBLOB
	drop(ids []cluster.BlobID) error
	list(after cluster.BlobID, n int) []cluster.BlobID
	durable(b cluster.BlobID) bool
	meta(b cluster.BlobID) segment.Meta
	sync()
	crash()
	close()
}

// put is the arrival of a PUT.
func (s *store) put(b cluster.BlobID, set cluster.ReplicaSetID, epoch uint32, data []byte, reply func(error)) {
	if s.lost {
		reply(cluster.EDISK)
		return
	}
	if !s.w.calm && s.w.oneIn(300) {
		reply(cluster.ENOSPC)
		return
	}
	s.w.rules.put(b, data)
	err := s.disk.put(b, set, epoch, data)
	if errors.Is(err, cluster.ECONFLICT) {
		s.w.rules.missf("store %d: blob %v is put with another content", s.id, b)
	}
	if err != nil || s.w.broken(BreakSync) {
		reply(err)
		return
	}
	s.acks = append(s.acks, func() { reply(nil) })
	s.planSync()
}

func (s *store) planSync() {
	if s.syncs {
		return
	}
	s.syncs = true
	d := s.w.between(100*time.Microsecond, 2*time.Millisecond)
	if !s.w.calm && s.w.oneIn(250) {
		d = s.w.between(10*time.Millisecond, 2*time.Second)
	}
	p := s.n.proc
	s.w.after(d, func() {
		if !p.alive {
			return
		}
		s.syncs = false
		s.disk.sync()
		acks := s.acks
		s.acks = nil
		for _, ack := range acks {
			ack()
		}
	})
}

// drop is the arrival of a DELETE.
func (s *store) drop(ids []cluster.BlobID, reply func(error)) {
	if s.lost {
		reply(cluster.EDISK)
		return
	}
	for _, b := range ids {
		s.w.rules.dropped(s, b)
	}
	if err := s.disk.drop(ids); err != nil {
		s.w.failf("store %d: delete: %v", s.id, err)
	}
	s.planSync()
	reply(nil)
}

// crash loses what was not durable, or some of it.
func (s *store) crash() {
	s.syncs, s.acks = false, nil
	if !s.lost {
		s.disk.crash()
	}
}

// modelDisk is a disk that keeps copies in memory.
type modelDisk struct {
	w      *World
	ids    []cluster.BlobID // sorted
	copies map[cluster.BlobID]copyOf
	recent []cluster.BlobID // put since the last sync
	gone   []goneCopy       // deleted since the last sync
}

type copyOf struct {
	data    []byte
	meta    segment.Meta
	durable bool
}

type goneCopy struct {
	id   cluster.BlobID
	data []byte
	meta segment.Meta
}

func newModelDisk(w *World) *modelDisk {
	return &modelDisk{w: w, copies: map[cluster.BlobID]copyOf{}}
}

func (d *modelDisk) put(b cluster.BlobID, set cluster.ReplicaSetID, epoch uint32, data []byte) error {
	if c, ok := d.copies[b]; ok {
		if string(c.data) != string(data) {
			return cluster.ECONFLICT
		}
		return nil
	}
	i, _ := slices.BinarySearch(d.ids, b)
	d.ids = slices.Insert(d.ids, i, b)
	d.copies[b] = copyOf{data: data, meta: segment.Meta{Set: set, Epoch: epoch}}
	d.recent = append(d.recent, b)
	return nil
}

func (d *modelDisk) get(b cluster.BlobID) ([]byte, error) {
	if c, ok := d.copies[b]; ok {
		return c.data, nil
	}
	return nil, cluster.ENOBLOB
}

func (d *modelDisk) remove(b cluster.BlobID) {
	i, _ := slices.BinarySearch(d.ids, b)
	d.ids = slices.Delete(d.ids, i, i+1)
	delete(d.copies, b)
}

func (d *modelDisk) drop(ids []cluster.BlobID) error {
	for _, b := range ids {
		if c, ok := d.copies[b]; ok {
			if c.durable {
				d.gone = append(d.gone, goneCopy{b, c.data, c.meta})
			}
			d.remove(b)
		}
	}
	return nil
}

func (d *modelDisk) list(after cluster.BlobID, n int) []cluster.BlobID {
	i, found := slices.BinarySearch(d.ids, after)
	if found {
		i++
	}
	return slices.Clone(d.ids[i:min(i+n, len(d.ids))])
}

func (d *modelDisk) durable(b cluster.BlobID) bool { return d.copies[b].durable }

func (d *modelDisk) meta(b cluster.BlobID) segment.Meta { return d.copies[b].meta }

func (d *modelDisk) sync() {
	for _, b := range d.recent {
		if c, ok := d.copies[b]; ok {
			c.durable = true
			d.copies[b] = c
		}
	}
	d.recent, d.gone = d.recent[:0], d.gone[:0]
}

// crash undoes what was not synced, or some of it.
func (d *modelDisk) crash() {
	for _, b := range d.recent {
		if _, ok := d.copies[b]; ok && d.w.oneIn(2) {
			d.remove(b)
		}
	}
	for _, c := range d.gone {
		if _, ok := d.copies[c.id]; !ok && d.w.oneIn(2) {
			_ = d.put(c.id, c.meta.Set, c.meta.Epoch, c.data)
		}
	}
	d.sync()
}

func (d *modelDisk) close() {}

// segmentDisk is the real store on a file system that forgets what was not
// synced. A put is durable when it returns.
type segmentDisk struct {
	w    *World
	n    byte
	fs   *vfs.MemFS
	s    *segment.Store
	open bool
}

func newSegmentDisk(w *World, n byte) *segmentDisk {
	d := &segmentDisk{w: w, n: n, fs: vfs.NewCrashableMem()}
	d.start()
	return d
}

func (d *segmentDisk) start() {
	var uuid [16]byte
	for i := range uuid {
		uuid[i] = d.n + byte(i) + 1
	}
	s, err := segment.Open("/disk", segment.Options{FS: d.fs, Manual: true, SegmentSize: 1 << 20, UUID: uuid, IndexCache: 256 << 10})
	if err != nil {
		d.w.failf("store %d does not open: %v", d.n, err)
	}
	d.s, d.open = s, true
}

func (d *segmentDisk) put(b cluster.BlobID, set cluster.ReplicaSetID, epoch uint32, data []byte) error {
	return d.s.Put(context.Background(), keyOf(b), segment.Meta{Set: set, Epoch: epoch}, checksum.Sums(nil).Append(data), data)
}

func (d *segmentDisk) get(b cluster.BlobID) ([]byte, error) {
	i, err := d.s.Stat(keyOf(b))
	if err != nil {
		return nil, err
	}
	return d.s.Get(context.Background(), keyOf(b), 0, i.Len, nil)
}

func (d *segmentDisk) drop(ids []cluster.BlobID) error {
	keys := make([]cluster.BlobKey, len(ids))
	for i, b := range ids {
		keys[i] = keyOf(b)
	}
	return d.s.Delete(context.Background(), keys)
}

func (d *segmentDisk) list(after cluster.BlobID, n int) (ids []cluster.BlobID) {
	infos, err := d.s.List(theGroup, keyOf(after), n)
	if err != nil {
		d.w.failf("store %d: list: %v", d.n, err)
	}
	for i := range infos {
		ids = append(ids, infos[i].Key.Blob)
	}
	return ids
}

func (d *segmentDisk) durable(b cluster.BlobID) bool {
	_, err := d.s.Stat(keyOf(b))
	return err == nil
}

func (d *segmentDisk) meta(b cluster.BlobID) segment.Meta {
	i, _ := d.s.Stat(keyOf(b))
	return i.Meta
}

func (d *segmentDisk) sync() {
	if d.w.oneIn(50) {
		if _, err := d.s.Reclaim(); err != nil {
			d.w.failf("store %d: reclaim: %v", d.n, err)
		}
	}
}

func (d *segmentDisk) crash() {
	fs := d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: d.w.rng.IntN(3) * 50, RNG: newRand(d.w.rng.Uint64(), 2)})
	d.close()
	d.fs = fs
	d.start()
}

func (d *segmentDisk) close() {
	if !d.open {
		return
	}
	d.open = false
	if err := d.s.Close(); err != nil {
		d.w.failf("store %d: close: %v", d.n, fmt.Errorf("%w", err))
	}
}
