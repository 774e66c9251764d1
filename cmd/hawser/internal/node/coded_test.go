package node

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// TestCodedBlobs: what a store should have of a coded blob is one shard; a shard is
// made anew of the whole blob only if that is the right one; and an export needs
// as many shards as the code has data shards.
func TestCodedBlobs(t *testing.T) {
	code := cluster.Code{K: 2, M: 1}
	data := content(3, 100_000)
	id := cluster.MakeBlobID(1, 1)
	m, err := fsm.Open(fsm.Options{Dir: "/state", FS: vfs.NewMem(), Core: volume.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	seq := uint64(0)
	for i, b := range []fsm.Body{
		volume.Format{HashKey: [16]byte{1}, Mode: 0o755, Class: cluster.Class{Copies: 3}},
		&fsm.OpenWriter{Node: "n1", Nonce: 7},
		volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{4, 7, 5}, Copies: 3, Code: code}},
		volume.Create{Dir: cluster.RootIno, Name: "f", Type: cluster.TypeRegular, Gen: 1},
		volume.CommitExtents{
			Ino: 2, Blobs: []volume.NewBlob{{ID: id, Set: 1, Epoch: 1, Len: uint32(len(data)), CRC: checksum.Sum(data)}},
			Extents: []volume.NewExtent{{Len: uint32(len(data)), Blob: id}},
		},
	} {
		env := fsm.Envelope{Time: 1}
		if i > 2 {
			seq++
			env.Writer, env.Seq, env.LowWater = 1, seq, 1
		}
		r := m.Apply([]cluster.Entry{{Index: uint64(i + 2), Term: 1, Command: fsm.AppendCommand(nil, env, b)}})
		if _, err := fsm.SplitResult(r[0]); err != nil {
			t.Fatalf("%T: %v", b, err)
		}
	}
	view := volume.View{Reader: m.Reader()}
	for i, store := range []cluster.StoreID{4, 7, 5} {
		w, ok := wantOf(view, 1, store, id)
		if !ok || !w.Coded || w.Key != (cluster.BlobKey{Group: 1, Blob: id, Shard: uint8(i + 1)}) || w.Len != code.ShardLen(uint32(len(data))) {
			t.Errorf("store %d: %+v, %v", store, w, ok)
		}
	}
	if _, ok := wantOf(view, 1, 6, id); ok {
		t.Error("a store that is no member should have something")
	}

	// The shards, each on a disk of its own.
	var disks []string
	for i := range code.Shards() {
		f, err := shardOf(code, data, checksum.Sum(data), uint8(i+1))
		if err != nil || f.Sums.Verify(f.Data) >= 0 || len(f.Data) != int(code.ShardLen(uint32(len(data)))) {
			t.Fatalf("shard %d: %v", i+1, err)
		}
		dir := filepath.Join(t.TempDir(), "disk")
		s, err := segment.Open(dir, segment.Options{SegmentSize: 16 << 20, Reserve: 1, Manual: true})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Put(within(t), cluster.BlobKey{Group: 1, Blob: id, Shard: uint8(i + 1)}, segment.Meta{Set: 1, Epoch: 1}, f.Sums, f.Data)
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		disks = append(disks, dir)
	}
	if _, err := shardOf(code, data, checksum.Sum(data)+1, 1); !errors.Is(err, cluster.ECORRUPT) {
		t.Errorf("a shard of another content: %v", err)
	}
	for _, c := range []struct {
		disks []int
		ok    bool
	}{{[]int{0, 1, 2}, true}, {[]int{0, 2}, true}, {[]int{1, 2}, true}, {[]int{0, 1}, true}, {[]int{2}, false}, {nil, false}} {
		x := &exporter{ctx: within(t), view: view, group: 1}
		for _, i := range c.disks {
			s, err := segment.OpenSalvage(nil, disks[i], nil)
			if err != nil {
				t.Fatal(err)
			}
			x.stores = append(x.stores, s)
		}
		b, err := x.read(id)
		if (err == nil) != c.ok || c.ok && !bytes.Equal(b.Data, data) {
			t.Errorf("with the disks %v: %v", c.disks, err)
		}
		b.Release()
		for _, s := range x.stores {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
