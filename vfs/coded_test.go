package vfs_test

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/writer"
)

var code21 = cluster.Code{K: 2, M: 1}

// kinds counts a file's bytes in copies, in shards and in neither.
func (e *env) kinds(f vfs.File) (copies, coded, inline uint64) {
	v := e.view()
	v.Extents(f.Ino, 0, 1<<40, func(x *volume.Extent) bool {
		b, ok := v.Blob(x.Blob)
		switch {
		case x.Blob == 0:
			inline += uint64(x.Len)
		case ok && b.Kind == volume.Coded:
			coded += uint64(x.Len)
		case ok:
			copies += uint64(x.Len)
		}
		return true
	})
	return copies, coded, inline
}

// TestEncodeOnWrite: whole blobs of a stream are shards at once, where there are
// stores for it; else they are copies, which are to be coded later.
func TestEncodeOnWrite(t *testing.T) {
	class := relaxed
	class.Code = code21
	for _, stores := range []bool{true, false} {
		e := newEnv(t, class, func(c *vfs.Config) { c.CacheBytes = 1 })
		if stores {
			e.group.do(t, volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{1, 2, 3}, Copies: 1, Code: code21}})
		}
		f := e.create("f")
		data := make([]byte, 2*cluster.MaxBlob+200_000)
		for i := range data {
			data[i] = byte(i>>10 + i)
		}
		const chunk = 1 << 20
		for off := 0; off < len(data); off += chunk {
			e.write(f, uint64(off), data[off:min(len(data), off+chunk)], vfs.Unstable)
		}
		if _, err := e.Commit(req(), f); err != nil {
			t.Fatal(err)
		}
		copies, coded, _ := e.kinds(f)
		if want := uint64(2 * cluster.MaxBlob); stores && (coded != want || copies != 200_000) || !stores && (coded != 0 || copies != want+200_000) {
			t.Errorf("stores %v: %d bytes in copies, %d in shards", stores, copies, coded)
		}
		listed := 0
		e.view().ToCode(0, func(volume.ToCode) bool { listed++; return true })
		if want := map[bool]int{true: 1, false: 3}[stores]; listed != want {
			t.Errorf("stores %v: %d blobs are to be coded, not %d", stores, listed, want)
		}
		if got := e.read(f, 0, chunk); !bytes.Equal(got, data[:chunk]) {
			t.Errorf("stores %v: wrong bytes", stores)
		}
		if got := e.read(f, cluster.MaxBlob-5000, 10_000); !bytes.Equal(got, data[cluster.MaxBlob-5000:][:10_000]) {
			t.Errorf("stores %v: wrong bytes where two blobs meet", stores)
		}
		// An overwrite is a new extent on top.
		e.write(f, cluster.MaxBlob-5000, fill('x', 50_000), vfs.FileSync)
		copy(data[cluster.MaxBlob-5000:], fill('x', 50_000))
		if got := e.read(f, cluster.MaxBlob-10_000, 100_000); !bytes.Equal(got, data[cluster.MaxBlob-10_000:][:100_000]) {
			t.Errorf("stores %v: wrong bytes after an overwrite", stores)
		}
		st, err := e.Statfs(req(), f)
		if err != nil || st.TotalBytes != 0 {
			t.Errorf("%+v, %v", st, err)
		}
		e.close()
	}
}

// TestReadsRecoded: a read finds a blob in the form that it has, also when what
// it was is gone.
func TestReadsRecoded(t *testing.T) {
	e := newEnv(t, strict, func(c *vfs.Config) { c.CacheBytes = 1 })
	e.group.do(t, volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{1, 2, 3}, Copies: 1, Code: code21}})
	f := e.create("f")
	data := fill('d', 100_000)
	e.write(f, 0, data, vfs.FileSync)
	before, _ := e.view().Inode(f.Ino)
	w := writer.New(writer.Config{
		Group: e.group, Node: "b", Nonce: rand.Uint64, Now: now, Logger: slog.New(slog.DiscardHandler), Base: context.Background(),
	})
	s, err := w.Session(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var b volume.Blob
	e.view().Extents(f.Ino, 0, 1<<40, func(x *volume.Extent) bool {
		b, _ = e.view().Blob(x.Blob)
		return true
	})
	for _, code := range []cluster.Code{code21, {}} {
		put := e.blobs.PutOwned
		placed, _, err := put(context.Background(), 1, 1, s.Alloc, [][]byte{data}, func() {})
		if !code.IsZero() {
			placed, _, err = e.blobs.PutCoded(context.Background(), 1, code, s.Alloc, [][]byte{data}, func() {})
		}
		if err != nil {
			t.Fatal(err)
		}
		to := volume.NewBlob{ID: placed.Blob, Set: placed.Set, Epoch: placed.Epoch, Len: placed.Len, CRC: placed.CRC}
		if _, _, err := s.Propose(context.Background(), volume.Recode{Blob: b.ID, From: b.Stored, To: to}); err != nil {
			t.Fatal(err)
		}
		e.blobs.mu.Lock()
		delete(e.blobs.data, b.Stored)
		e.blobs.mu.Unlock()
		b.Stored = placed.Blob
		if got := e.read(f, 10, 50_000); !bytes.Equal(got, data[10:50_010]) {
			t.Errorf("code %v: wrong bytes", code)
		}
	}
	if e.blobs.coded == 0 {
		t.Error("no shard was read")
	}
	if after, _ := e.view().Inode(f.Ino); after != before {
		t.Errorf("the file was %+v, is %+v", before, after)
	}
}
