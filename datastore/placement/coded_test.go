package placement

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/blob"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

var code42 = cluster.Code{K: 4, M: 2}

func codedSet(id cluster.ReplicaSetID, code cluster.Code, members ...cluster.StoreID) SetInfo {
	return SetInfo{ID: id, Epoch: 10 + uint32(id), Copies: 1, Code: code, Members: members}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>12 + i*7 + i>>3)
	}
	return b
}

func (w *world) putCoded(t *testing.T, p *Placement, code cluster.Code, data []byte) (Coded, []cluster.BlobID) {
	t.Helper()
	half := len(data) / 3
	pl, abandoned, err := p.PutCoded(bg, 1, code, w.alloc, [][]byte{data[:half], data[half:]}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if pl.Len != uint32(len(data)) || pl.CRC != checksum.Sum(data) {
		t.Fatalf("placed %+v", pl)
	}
	return Coded{Blob: pl.Blob, Len: pl.Len, Code: code, Members: w.set(pl.Set).Members}, abandoned
}

// gets counts the bytes that are read of stores.
type gets struct {
	*world
	mu    sync.Mutex
	bytes map[cluster.StoreID]uint32
}

func (g *gets) Get(ctx context.Context, addr string, id cluster.StoreID, k cluster.BlobKey, off, n uint32) (*blob.Buf, error) {
	g.mu.Lock()
	g.bytes[id] += n
	g.mu.Unlock()
	return g.world.Get(ctx, addr, id, k, off, n)
}

// TestCodedReads: any range is read right, with any losses that the code makes
// up for; and with none lost, only from the shards that have it.
func TestCodedReads(t *testing.T) {
	w := newWorld(t, 20)
	rapid.Check(t, func(rt *rapid.T) {
		code := cluster.Code{K: rapid.Uint8Range(2, 16).Draw(rt, "k"), M: rapid.Uint8Range(1, 4).Draw(rt, "m")}
		var members []cluster.StoreID
		for i := range code.Shards() {
			members = append(members, cluster.StoreID(i+1))
		}
		w.mu.Lock()
		w.sets = []SetInfo{codedSet(1, code, members...)}
		w.getErr = map[cluster.StoreID]error{}
		w.mu.Unlock()
		data := pattern(rapid.IntRange(1, 150_000).Draw(rt, "len"))
		c, _ := w.putCoded(t, w.place(), code, data)
		off := rapid.IntRange(0, len(data)-1).Draw(rt, "off")
		n := rapid.IntRange(1, len(data)-off).Draw(rt, "n")
		dst := make([]byte, n)
		g := &gets{world: w, bytes: map[cluster.StoreID]uint32{}}
		p := New(Config{Map: w, Client: g, Hedge: 10 * time.Second})
		if err := p.GetCoded(bg, 1, c, uint32(off), dst); err != nil || !bytes.Equal(dst, data[off:off+n]) {
			rt.Fatal("wrong bytes", err)
		}
		size := int(code.ShardLen(uint32(len(data))))
		for i, id := range members {
			most := max(0, min(off+n, (i+1)*size)-max(off, i*size))
			if off+n == len(data) && most > 0 {
				most = size // what fills it up is read with it
			}
			if int(g.bytes[id]) > most {
				rt.Fatalf("%d bytes were read of shard %d, which has %d", g.bytes[id], i+1, most)
			}
		}
		lost := rapid.Permutation(members).Draw(rt, "lost")
		fail := rapid.SampledFrom([]error{cluster.ENOBLOB, cluster.ECORRUPT, errors.New("no route")}).Draw(rt, "how")
		w.mu.Lock()
		for _, id := range lost[:code.M] {
			w.getErr[id] = fail
		}
		w.mu.Unlock()
		clear(dst)
		g.bytes = map[cluster.StoreID]uint32{}
		if err := New(Config{Map: w, Client: g, Hedge: 10 * time.Second}).GetCoded(bg, 1, c, uint32(off), dst); err != nil || !bytes.Equal(dst, data[off:off+n]) {
			rt.Fatal("wrong bytes after losses", err)
		}
		for id, n := range g.bytes {
			if int(n) > 2*size {
				rt.Fatalf("%d bytes were read of store %d", n, id)
			}
		}
	})
}

func TestCodedErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(w *world)
		want  error
	}{
		{"two missing", func(w *world) { w.getErr[1], w.getErr[2] = cluster.ENOBLOB, cluster.ENOBLOB }, nil},
		{"two down", func(w *world) { w.down[1], w.down[2], w.hang[1], w.hang[2] = true, true, true, true }, nil},
		{"two hang", func(w *world) { w.hang[1], w.hang[3] = true, true }, nil},
		{"one hangs, one is damaged", func(w *world) { w.hang[1], w.getErr[6] = true, cluster.ECORRUPT }, nil},
		{"all missing", func(w *world) {
			for id := range cluster.StoreID(6) {
				w.getErr[id+1] = cluster.ENOBLOB
			}
		}, cluster.ENOBLOB},
		{"three missing", func(w *world) {
			w.getErr[1], w.getErr[2], w.getErr[6] = cluster.ENOBLOB, cluster.ENOBLOB, cluster.ENOBLOB
		}, cluster.ENOBLOB},
		{"three damaged", func(w *world) {
			w.getErr[1], w.getErr[2], w.getErr[6] = cluster.ENOBLOB, cluster.ECORRUPT, cluster.ECORRUPT
		}, cluster.EIO},
		{"three unknown", func(w *world) {
			w.getErr[1], w.getErr[2], w.getErr[6] = cluster.ENOBLOB, cluster.ENOBLOB, errors.New("no route")
		}, cluster.EAGAIN},
		{"three hang", func(w *world) { w.hang[1], w.hang[2], w.hang[3] = true, true, true }, cluster.EAGAIN},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 6, codedSet(1, code42, 1, 2, 3, 4, 5, 6))
			data := pattern(100_000)
			b, _ := w.putCoded(t, w.place(), code42, data)
			w.hedge = 20 * time.Millisecond
			c.setup(w)
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			dst := make([]byte, len(data))
			err := w.place().GetCoded(ctx, 1, b, 0, dst)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if err == nil && !bytes.Equal(dst, data) {
				t.Error("wrong bytes")
			}
		})
	}
	w := newWorld(t, 6, codedSet(1, code42, 1, 2, 3, 4, 5, 6))
	b, _ := w.putCoded(t, w.place(), code42, pattern(100))
	for _, off := range []uint32{96, 1 << 31, 1<<32 - 1} {
		if err := w.place().GetCoded(bg, 1, b, off, make([]byte, 5)); !errors.Is(err, cluster.EINVAL) {
			t.Errorf("at %d: %v", off, err)
		}
	}
	b.Members = b.Members[1:]
	if err := w.place().GetCoded(bg, 1, b, 0, make([]byte, 5)); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("too few members: %v", err)
	}
}

// TestPutCoded: each member gets its shard under its number; where one fails or
// hangs, all go to another set under another id; and the data is given back when
// nothing refers to it any more.
func TestPutCoded(t *testing.T) {
	one, two := codedSet(1, code42, 1, 2, 3, 4, 5, 6), codedSet(2, code42, 7, 8, 9, 10, 11, 12)
	for _, c := range []struct {
		name      string
		setup     func(w *world)
		abandoned int
	}{
		{"all well", func(w *world) { w.sets = w.sets[1:] }, 0},
		{"one is down", func(w *world) { w.down[3] = true }, 0},
		{"one fails", func(w *world) { w.local[1], w.putErr[6] = true, cluster.EDISK }, 1},
		{"one hangs", func(w *world) { w.local[1], w.hang[6], w.hedge = true, true, 20*time.Millisecond }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 12, one, two)
			c.setup(w)
			data := pattern(70_000)
			b, abandoned := w.putCoded(t, w.place(), code42, data)
			if len(abandoned) != c.abandoned || b.Members[0] != 7 {
				t.Fatalf("on %v, abandoned %v", b.Members, abandoned)
			}
			for i, id := range b.Members {
				info, err := w.Stat(bg, "", id, cluster.BlobKey{Group: 1, Blob: b.Blob, Shard: uint8(i + 1)})
				if err != nil || info.Len != code42.ShardLen(70_000) || info.Meta != (segment.Meta{Set: 2, Epoch: 12}) {
					t.Errorf("shard %d: %+v, %v", i+1, info, err)
				}
			}
		})
	}
	w := newWorld(t, 12, one, set(3, 3, 7, 8, 9))
	w.down[2] = true
	n := 0
	_, ids, err := w.place().PutCoded(bg, 1, code42, w.alloc, [][]byte{pattern(70_000)}, func() { n++ })
	if !errors.Is(err, cluster.EAGAIN) || n != 1 || len(ids) != 0 {
		t.Errorf("no set to write to: %v, released %d times, %v", err, n, ids)
	}
	if _, _, err := w.place().PutCoded(bg, 1, code42, w.alloc, nil, func() { n++ }); !errors.Is(err, cluster.EINVAL) || n != 2 {
		t.Errorf("no data: %v, released %d times", err, n)
	}
}

// TestRebuild: each shard can be made of the others, where as many are lost as
// the code makes up for, and its member is not asked.
func TestRebuild(t *testing.T) {
	for _, n := range []int{1, 5000, 70_000, 300_000} {
		w := newWorld(t, 6, codedSet(1, code42, 1, 2, 3, 4, 5, 6))
		b, _ := w.putCoded(t, w.place(), code42, pattern(n))
		size := code42.ShardLen(uint32(n))
		for i, id := range b.Members {
			buf, err := w.Get(bg, "", id, cluster.BlobKey{Group: 1, Blob: b.Blob, Shard: uint8(i + 1)}, 0, size)
			if err != nil {
				t.Fatal(err)
			}
			w.getErr = map[cluster.StoreID]error{b.Members[(i+2)%6]: cluster.ECORRUPT}
			g := &gets{world: w, bytes: map[cluster.StoreID]uint32{}}
			dst := make([]byte, size)
			if err := New(Config{Map: w, Client: g, Hedge: time.Minute}).Rebuild(bg, 1, b, i, dst); err != nil || !bytes.Equal(dst, buf.Bytes) {
				t.Errorf("%d bytes, shard %d: wrong, %v", n, i+1, err)
			}
			if g.bytes[id] != 0 {
				t.Errorf("shard %d was read of its own member", i+1)
			}
			buf.Release()
			w.getErr = map[cluster.StoreID]error{}
		}
		p := w.place()
		w.getErr = map[cluster.StoreID]error{1: cluster.ENOBLOB, 2: cluster.ENOBLOB}
		if err := p.Rebuild(bg, 1, b, 5, make([]byte, size)); !errors.Is(err, cluster.ENOBLOB) {
			t.Errorf("two others are missing, too: %v", err)
		}
		w.getErr = map[cluster.StoreID]error{}
		w.hang[1] = true
		w.hedge = 20 * time.Millisecond
		if err := w.place().Rebuild(bg, 1, b, 5, make([]byte, size)); err != nil {
			t.Errorf("one hangs: %v", err)
		}
		for _, i := range []int{-1, 6} {
			if err := p.Rebuild(bg, 1, b, i, make([]byte, size)); !errors.Is(err, cluster.EINVAL) {
				t.Errorf("shard %d: %v", i+1, err)
			}
		}
		if err := p.Rebuild(bg, 1, b, 0, make([]byte, size-1)); !errors.Is(err, cluster.EINVAL) {
			t.Errorf("no room: %v", err)
		}
	}
}
