package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	pebble "github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/volume"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/pack"
	"github.com/hawserfs/hawser/vfs/packing"
)

// A world is a real state machine, blobs in a map, and the bytes that each file
// must have.
type world struct {
	t       interface{ Fatalf(string, ...any) }
	m       *fsm.Machine
	view    volume.View
	index   uint64
	now     time.Time
	writer  cluster.WriterID
	seq     uint64
	counter uint32
	set     volume.ReplicaSet
	blobs   map[cluster.BlobID][]byte
	files   map[cluster.Ino][]byte
	puts    []int // lengths of the packer's blobs

	reading, putting, moving func() error // called before, if not nil
}

func newWorld(t interface{ Fatalf(string, ...any) }) *world {
	m, err := fsm.Open(fsm.Options{Dir: "v", FS: pebble.NewMem(), Core: volume.New(), CacheBytes: 1 << 20, MemTableBytes: 8 << 20})
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := &world{
		t: t, m: m, view: volume.View{Reader: m.Reader()}, now: time.Unix(1000, 0),
		blobs: map[cluster.BlobID][]byte{}, files: map[cluster.Ino][]byte{},
	}
	w.must(volume.Format{HashKey: [16]byte{1}, Mode: 0o777, Class: cluster.Class{Copies: 2}})
	if w.writer, err = fsm.DecodeOpenWriter(w.must(&fsm.OpenWriter{Node: "n", Nonce: 1})); err != nil {
		t.Fatalf("%v", err)
	}
	r, err := volume.DecodePutReplicaSetResult(w.must(volume.PutReplicaSet{Set: volume.ReplicaSet{Members: []cluster.StoreID{1, 2}, Copies: 2}}))
	if err != nil {
		t.Fatalf("%v", err)
	}
	w.set = r.Set
	return w
}

func (w *world) close() {
	if err := w.m.Close(); err != nil {
		w.t.Fatalf("%v", err)
	}
}

func (w *world) apply(b fsm.Body) ([]byte, error) {
	w.index++
	env := fsm.Envelope{Time: cluster.Time(w.now.UnixNano())}
	if w.writer != 0 {
		w.seq++
		env.Writer, env.Lane, env.Seq = w.writer, 1, w.seq
	}
	return fsm.SplitResult(w.m.Apply([]cluster.Entry{{Index: w.index, Term: 1, Command: fsm.AppendCommand(nil, env, b)}})[0])
}

func (w *world) must(b fsm.Body) []byte {
	body, err := w.apply(b)
	if err != nil {
		w.t.Fatalf("%T: %v", b, err)
	}
	return body
}

func (w *world) create(name string) cluster.Ino {
	r, err := volume.DecodeCreateResult(w.must(volume.Create{Dir: cluster.RootIno, Name: name, Type: cluster.TypeRegular, Gen: 1}))
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	w.files[r.Attr.Ino] = []byte{}
	return r.Attr.Ino
}

// note writes p into the book of a file.
func (w *world) note(ino cluster.Ino, off int, p []byte) {
	f := bytes.Clone(w.files[ino])
	if n := off + len(p) - len(f); n > 0 {
		f = append(f, make([]byte, n)...)
	}
	copy(f[off:], p)
	w.files[ino] = f
}

// write writes bytes as a front-end does: inline what is short.
func (w *world) write(ino cluster.Ino, off int, p []byte) {
	c := volume.CommitExtents{Ino: ino}
	x := volume.NewExtent{Off: uint64(off), Len: uint32(len(p))}
	if len(p) <= cluster.MaxInline {
		x.Bytes = p
	} else {
		b := w.blob(p)
		c.Blobs, x.Blob = []volume.NewBlob{b}, b.ID
	}
	c.Extents = []volume.NewExtent{x}
	w.must(c)
	w.note(ino, off, p)
}

func (w *world) blob(p []byte) volume.NewBlob {
	w.counter++
	b := volume.NewBlob{ID: cluster.MakeBlobID(w.writer, w.counter), Set: w.set.ID, Epoch: w.set.Epoch, Len: uint32(len(p)), CRC: checksum.Sum(p)}
	w.blobs[b.ID] = bytes.Clone(p)
	return b
}

func (w *world) truncate(ino cluster.Ino, size int) {
	w.must(volume.SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: uint64(size)}})
	f := append(bytes.Clone(w.files[ino][:min(size, len(w.files[ino]))]), make([]byte, max(0, size-len(w.files[ino])))...)
	w.files[ino] = f
}

func (w *world) remove(name string, ino cluster.Ino) {
	w.must(volume.Remove{Dir: cluster.RootIno, Name: name})
	w.must(volume.ReleaseUnlinked{Inos: []cluster.Ino{ino}})
	delete(w.files, ino)
	for w.view.Reapable(cluster.Time(w.now.UnixNano())) {
		w.must(volume.Reap{Max: 1000})
	}
}

// check compares every file with its book, and runs the verifier.
func (w *world) check() {
	for ino, want := range w.files {
		a, _ := w.view.Inode(ino)
		got := make([]byte, a.Size)
		w.view.Extents(ino, 0, a.Size, func(e *volume.Extent) bool {
			if e.Blob == 0 {
				copy(got[e.Off:], e.Bytes)
			} else {
				copy(got[e.Off:e.End()], w.blobs[e.Blob][e.BlobOff:])
			}
			return true
		})
		if !bytes.Equal(got, want) {
			w.t.Fatalf("inode %d has other bytes than were written", ino)
		}
	}
	s := w.m.Snapshot()
	defer s.Close()
	volume.Check(volume.View{Reader: s}, func(p volume.Problem) { w.t.Fatalf("check: %v", p) })
}

func (w *world) inline() (n int) {
	for ino := range w.files {
		w.view.Extents(ino, 0, cluster.MaxFileSize, func(e *volume.Extent) bool {
			if e.Blob == 0 {
				n += int(e.Len)
			}
			return true
		})
	}
	return n
}

func (w *world) extents(ino cluster.Ino) (n int) {
	w.view.Extents(ino, 0, cluster.MaxFileSize, func(*volume.Extent) bool {
		n++
		return true
	})
	return n
}

func (w *world) thin() int { return len(packing.View{View: w.view}.Thin(0, 1000)) }

// Read, Put and Relocate implement pack.Mover.

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (w *world) Read(_ context.Context, id cluster.BlobID, off uint32, dst []byte) error {
	copy(dst, w.blobs[id][off:])
	return call(w.reading)
}

func (w *world) Put(_ context.Context, _ pack.Class, data []byte) (pack.Placed, error) {
	if err := call(w.putting); err != nil {
		return pack.Placed{}, err
	}
	w.puts = append(w.puts, len(data))
	return packing.Placed(w.blob(data)), nil
}

func (w *world) Relocate(_ context.Context, blobs []pack.Placed, moves []pack.Move, done []pack.Mark) (int, error) {
	if err := call(w.moving); err != nil {
		return 0, err
	}
	body, err := w.apply(packing.Command(blobs, moves, done))
	if err != nil {
		return 0, err
	}
	return packing.Did(body, len(moves))
}

func (w *world) packer(change func(c *pack.Config)) *pack.Packer {
	c := pack.Config{Volume: packing.View{View: w.view}, Mover: w}
	if change != nil {
		change(&c)
	}
	return pack.New(c)
}

func data(seed, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(seed*7 + i*3 + i/256)
	}
	return p
}

// TestPackSmallFiles: files of 4 KiB take their size and little more in blobs,
// and nothing in the state machine; smaller ones stay.
func TestPackSmallFiles(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	const n = 1400
	for i := range n {
		w.write(w.create(fmt.Sprint("f", i)), 0, data(i, 4096))
	}
	w.write(w.create("tiny"), 0, data(1, pack.InlineLimit))
	p := w.packer(nil)
	if err := p.Pack(t.Context(), w.now.Add(30*time.Second)); err != nil || len(w.puts) != 0 {
		t.Fatalf("%v: %d blobs after half a minute", err, len(w.puts))
	}
	if c := p.Counters(); c.Waiting != n {
		t.Errorf("%d files wait, want %d", c.Waiting, n)
	}
	// One blob is full; what is left waits for more.
	if err := p.Pack(t.Context(), w.now.Add(2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	w.check()
	if len(w.puts) != 2 || w.puts[0] != cluster.MaxBlob {
		t.Fatalf("blobs of %v bytes", w.puts)
	}
	if got := w.inline(); got != pack.InlineLimit {
		t.Errorf("%d bytes are in the state machine", got)
	}
	if c := p.Counters(); c.Packed != n*4096 || c.Moves != n || c.LeftOut != 0 || c.Waiting != 0 {
		t.Errorf("%+v", c)
	}
	// There is nothing to be done again.
	if err := p.Pack(t.Context(), w.now.Add(time.Hour)); err != nil || len(w.puts) != 2 {
		t.Fatalf("%v: %d blobs", err, len(w.puts))
	}
}

// TestPackLittleWaits: less than a blob's worth waits for more, but not for ever.
func TestPackLittleWaits(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.write(w.create("f"), 0, data(1, 5000))
	p := w.packer(nil)
	for _, c := range []struct {
		after time.Duration
		blobs int
	}{{2 * time.Minute, 0}, {9 * time.Minute, 0}, {11 * time.Minute, 1}} {
		if err := p.Pack(t.Context(), w.now.Add(c.after)); err != nil || len(w.puts) != c.blobs {
			t.Fatalf("after %v: %v, %d blobs", c.after, err, len(w.puts))
		}
	}
	w.check()
}

// TestPackBusyFile: a log that is written on all the time does not stay in the
// state machine for ever.
func TestPackBusyFile(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	ino := w.create("log")
	p := w.packer(func(c *pack.Config) { c.Min = 1 })
	most := 0
	for i := range 120 {
		w.write(ino, len(w.files[ino]), data(i, 1000))
		w.now = w.now.Add(20 * time.Second)
		if err := p.Pack(t.Context(), w.now); err != nil {
			t.Fatal(err)
		}
		w.check()
		most = max(most, w.inline())
	}
	if most > 45*1000 {
		t.Errorf("up to %d bytes are in the state machine", most)
	}
	if n := w.extents(ino); n > 30 {
		t.Errorf("the log has %d extents", n)
	}
}

// TestPackOverwrittenMeanwhile: a byte that is written between the look at a file
// and the command stays.
func TestPackOverwrittenMeanwhile(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	a, b := w.create("a"), w.create("b")
	w.write(a, 0, data(1, 5000))
	w.write(b, 0, data(2, 5000))
	w.moving = func() error {
		w.moving = nil
		w.write(a, 4321, []byte("new"))
		return nil
	}
	p := w.packer(nil)
	if err := p.Pack(t.Context(), w.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.check()
	if c := p.Counters(); c.LeftOut != 1 || c.Moves != 1 {
		t.Errorf("%+v", c)
	}
}

// TestPackWhileWritten: whatever is done to files between the look at them and
// the command, they have what was written last; and all is packed in the end.
func TestPackWhileWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		defer w.close()
		names := map[cluster.Ino]string{}
		for i := range 6 {
			name := fmt.Sprint(i)
			names[w.create(name)] = name
		}
		change := func() {
			live := slices.Sorted(maps.Keys(w.files))
			if len(live) == 0 {
				return
			}
			ino := rapid.SampledFrom(live).Draw(t, "ino")
			size := len(w.files[ino])
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				w.truncate(ino, rapid.IntRange(0, size+3000).Draw(t, "size"))
			case 1:
				to := rapid.SampledFrom(live).Draw(t, "to")
				if to != ino && size > 0 {
					dst := rapid.IntRange(0, 9000).Draw(t, "dst")
					w.must(volume.Clone{Src: ino, Dst: to, DstOff: uint64(dst)})
					w.note(to, dst, w.files[ino])
				}
			case 2:
				off := rapid.IntRange(0, size+1).Draw(t, "off")
				n := rapid.IntRange(1, 5000).Draw(t, "n")
				w.must(volume.Punch{Ino: ino, Off: uint64(off), Len: uint64(n)})
				if off < size {
					w.note(ino, off, make([]byte, min(n, size-off)))
				}
			case 3:
				if len(live) > 3 {
					w.remove(names[ino], ino)
				}
			case 4:
				w.write(ino, rapid.IntRange(0, size).Draw(t, "off"), data(rapid.IntRange(0, 99).Draw(t, "seed"), rapid.IntRange(17000, 40000).Draw(t, "long")))
			default:
				w.write(ino, rapid.IntRange(0, size).Draw(t, "off"), data(rapid.IntRange(0, 99).Draw(t, "seed"), rapid.SampledFrom([]int{1, 100, 2000, 4096, 9000}).Draw(t, "len")))
			}
		}
		hook := func() error {
			switch rapid.IntRange(0, 5).Draw(t, "meanwhile") {
			case 0, 1, 2:
				change()
			case 3:
				return cluster.EAGAIN // the node dies, or can't reach anyone
			}
			return nil
		}
		p := w.packer(func(c *pack.Config) { c.Min, c.Max = 20000, 64<<10 })
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(0, 5).Draw(t, "changes") {
				change()
			}
			w.reading, w.putting, w.moving = hook, hook, hook
			if rapid.IntRange(0, 3).Draw(t, "crash") == 0 {
				p = w.packer(func(c *pack.Config) { c.Min, c.Max = 20000, 64<<10 })
			}
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "later")) * time.Second)
			_ = p.Pack(context.Background(), w.now)
			_ = p.Compact(context.Background(), w.now)
			w.check()
		}
		w.reading, w.putting, w.moving = nil, nil, nil
		w.now = w.now.Add(time.Hour)
		for range 4 {
			if err := errors.Join(p.Pack(context.Background(), w.now), p.Compact(context.Background(), w.now)); err != nil {
				t.Fatalf("%v", err)
			}
		}
		w.check()
		for ino, f := range w.files {
			if len(f) > pack.InlineLimit {
				w.view.Extents(ino, 0, cluster.MaxFileSize, func(e *volume.Extent) bool {
					if e.Blob == 0 && e.Len > pack.InlineLimit {
						t.Fatalf("inode %d: %d bytes stay in the state machine", ino, e.Len)
					}
					return true
				})
			}
		}
		if n := w.thin(); n > 0 {
			t.Fatalf("%d blobs are thin", n)
		}
	})
}

// TestCompact: what is left in packs of which most is gone is moved together,
// and the packs go.
func TestCompact(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	const n = 300
	var inos []cluster.Ino
	for i := range n {
		ino := w.create(fmt.Sprint(i))
		inos = append(inos, ino)
		w.write(ino, 0, data(i, 2000))
	}
	p := w.packer(func(c *pack.Config) { c.Max = 200000 })
	w.now = w.now.Add(time.Hour)
	if err := p.Pack(t.Context(), w.now); err != nil {
		t.Fatal(err)
	}
	for i, ino := range inos {
		if i%3 != 0 {
			w.remove(fmt.Sprint(i), ino)
		}
	}
	packs := len(w.puts)
	if got := w.thin(); got != packs {
		t.Fatalf("%d of %d packs are thin", got, packs)
	}
	if err := p.Compact(t.Context(), w.now); err != nil {
		t.Fatal(err)
	}
	w.check()
	live := 0
	for id := range w.blobs {
		if b, ok := w.view.Blob(id); ok {
			live += int(b.Len)
		}
	}
	if want := n / 3 * 2000; w.thin() != 0 || live != want {
		t.Errorf("%d thin packs, blobs of %d bytes, want %d", w.thin(), live, want)
	}
	if c := p.Counters(); c.Compacted != n/3*2000 {
		t.Errorf("%+v", c)
	}
}

// TestCompactLeavesAlone: a file that is being overwritten takes its blob away
// by itself; and clones share what they share afterwards.
func TestCompactLeavesAlone(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	ino, clone := w.create("f"), w.create("clone")
	w.write(ino, 0, data(1, 1<<20))
	w.truncate(ino, 200000)
	w.must(volume.Clone{Src: ino, Dst: clone})
	w.note(clone, 0, w.files[ino])
	p := w.packer(nil)
	if err := p.Compact(t.Context(), w.now.Add(time.Second)); err != nil || len(w.puts) != 0 {
		t.Fatalf("%v: %v", err, w.puts)
	}
	if c := p.Counters(); c.Thin != 1 {
		t.Errorf("%+v", c)
	}
	if err := p.Compact(t.Context(), w.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.check()
	if !slices.Equal(w.puts, []int{200000}) || w.thin() != 0 {
		t.Errorf("blobs of %v, %d are thin", w.puts, w.thin())
	}
}

// TestDefragment: a range of many short extents becomes one; one with holes
// between them, and long ones, stay as they are.
func TestDefragment(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	short, few, sparse := w.create("short"), w.create("few"), w.create("sparse")
	for i := range 100 {
		w.write(short, i*20000, data(i, 20000))
		w.write(sparse, i*30000, data(i, 20000))
	}
	for i := range 10 {
		w.write(few, i*20000, data(i, 20000))
	}
	p := w.packer(nil)
	w.now = w.now.Add(time.Hour)
	if err := p.Pack(t.Context(), w.now); err != nil {
		t.Fatal(err)
	}
	w.check()
	if a, b, c := w.extents(short), w.extents(few), w.extents(sparse); a != 1 || b != 10 || c != 100 {
		t.Errorf("%d, %d and %d extents", a, b, c)
	}
	if c := p.Counters(); c.Joined != 100*20000 || c.Packed != 0 {
		t.Errorf("%+v", c)
	}
}

// TestPackErrors: where no blob can be made, the files stay as they are, and
// what can be done is.
func TestPackErrors(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.write(w.create("f"), 0, data(1, 5000))
	p := w.packer(nil)
	w.putting = func() error { return cluster.ENOSPC }
	if err := p.Pack(t.Context(), w.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if c := p.Counters(); c.Errors != 1 || w.inline() != 5000 {
		t.Errorf("%+v, %d bytes inline", c, w.inline())
	}
	// Whoever does not lead any more does nothing.
	w.putting = nil
	q := w.packer(func(c *pack.Config) { c.Lead = func() bool { return false } })
	if err := q.Pack(t.Context(), w.now.Add(time.Hour)); err == nil || len(w.puts) != 0 {
		t.Errorf("%v, %d blobs", err, len(w.puts))
	}
	if err := p.Pack(t.Context(), w.now.Add(time.Hour)); err != nil || w.inline() != 0 {
		t.Errorf("%v, %d bytes inline", err, w.inline())
	}
	w.check()
}
