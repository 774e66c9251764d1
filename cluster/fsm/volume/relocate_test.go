package volume

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// page returns n bytes that depend on seed and place.
func page(seed byte, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = seed + byte(i)*3
	}
	return p
}

// A packing makes a blob of parts of files and the moves into it.
type packing struct {
	e     *dataEnv
	by    string
	blob  NewBlob
	c     Relocate
	bytes []byte
}

func (e *dataEnv) packing(by string, set ReplicaSet, length uint32) *packing {
	b := e.blob(by, set, length)
	return &packing{e: e, by: by, blob: b, c: Relocate{Blobs: []NewBlob{b}}}
}

// move adds the move of an extent as it is now.
func (p *packing) move(ino cluster.Ino, x *Extent) {
	m := Move{Ino: ino, Off: x.Off, Len: x.Len, Blob: x.Blob, BlobOff: x.BlobOff, NewBlob: p.blob.ID, NewOff: uint32(len(p.bytes))}
	if x.Blob == 0 {
		m.CRC = InlineSum(x.Bytes)
		p.bytes = append(p.bytes, x.Bytes...)
	} else {
		for i := range x.Len {
			p.bytes = append(p.bytes, p.e.byteOf(x.Blob, x.BlobOff+i))
		}
	}
	p.c.Moves = append(p.c.Moves, m)
}

// all adds moves of all extents of files, in parts of at most cut bytes.
func (p *packing) all(cut uint32, inos ...cluster.Ino) {
	for _, ino := range inos {
		var xs []Extent
		p.e.view.Extents(ino, 0, maxOffset, func(x *Extent) bool {
			c := *x
			c.Bytes = bytes.Clone(x.Bytes)
			xs = append(xs, c)
			return true
		})
		for i := range xs {
			x := &xs[i]
			for off := x.Off; off < x.End(); {
				part := x.cut(off, x.End())
				if x.Blob != 0 {
					part = x.cut(off, min(x.End(), off+uint64(cut)))
				}
				p.move(ino, &part)
				off = part.End()
			}
		}
	}
}

// run applies the command: its blob has what was gathered, and zeros behind it.
func (p *packing) run() RelocateResult {
	p.e.t.Helper()
	p.e.know(p.blob, p.bytes)
	r, err := DecodeRelocateResult(p.e.must(p.by, p.c))
	if err != nil {
		p.e.t.Fatalf("%v", err)
	}
	return r
}

func (r RelocateResult) did(n int) (did []int) {
	for i := range n {
		if r.Did(i) {
			did = append(did, i)
		}
	}
	return did
}

func (e *dataEnv) attrOf(ino cluster.Ino) cluster.Attr {
	a, ok := e.view.Inode(ino)
	if !ok {
		e.t.Fatalf("inode %d is gone", ino)
	}
	return a
}

func (e *dataEnv) marked() (inos []cluster.Ino) {
	e.view.Marks(0, func(ino cluster.Ino, _ uint64) bool {
		inos = append(inos, ino)
		return true
	})
	return inos
}

func (e *dataEnv) markOf(ino cluster.Ino) (m Mark) {
	e.view.Marks(ino, func(at cluster.Ino, index uint64) bool {
		if at == ino {
			m = Mark{at, index}
		}
		return false
	})
	return m
}

// TestRelocate: files read the same before and after, and nothing else of them
// changes either; a clone, an unlinked file that is open, and a file that lost a
// part of the blob are files like others.
func TestRelocate(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	e.open("b", "n2")
	set := e.set(1, 2)
	small, mixed, clone, open := e.create("small"), e.create("mixed"), e.create("clone"), e.create("open")
	e.must("a", CommitExtents{Ino: small, Extents: []NewExtent{inline(0, page(1, 4096))}})
	old := e.blob("a", set, 9000)
	e.must("a", CommitExtents{Ino: mixed, Blobs: []NewBlob{old}, Extents: []NewExtent{
		{Off: 0, Len: 9000, Blob: old.ID}, inline(3000, page(2, 100)), inline(20000, page(3, 5000)),
	}})
	e.must("a", Clone{Src: mixed, Dst: clone, DstOff: 777})
	e.must("a", CommitExtents{Ino: open, Extents: []NewExtent{inline(10, page(4, 3000))}})
	e.must("", Remove{Dir: cluster.RootIno, Name: "open"})
	all := []cluster.Ino{small, mixed, clone, open}
	if got := e.marked(); !slices.Equal(got, all) {
		t.Fatalf("marked %v, want %v", got, all)
	}
	e.check()
	before := map[cluster.Ino][]byte{}
	attrs := map[cluster.Ino]cluster.Attr{}
	for _, ino := range all {
		before[ino], attrs[ino] = e.read(ino), e.attrOf(ino)
	}
	usage := e.view.Usage()

	p := e.packing("b", set, 60000)
	p.all(1<<20, all...)
	for _, ino := range all {
		p.c.Done = append(p.c.Done, e.markOf(ino))
	}
	r := p.run()
	if n := len(p.c.Moves); len(r.did(n)) != n {
		t.Fatalf("%d moves, did %v", n, r.did(n))
	}
	for _, ino := range all {
		if !bytes.Equal(e.read(ino), before[ino]) {
			t.Errorf("inode %d reads otherwise:\n%s", ino, e.extents(ino))
		}
		if got := e.attrOf(ino); got != attrs[ino] {
			t.Errorf("inode %d has other attributes:\n have %+v\n want %+v", ino, got, attrs[ino])
		}
	}
	if e.view.Usage() != usage {
		t.Errorf("usage %+v, was %+v", e.view.Usage(), usage)
	}
	if got := e.marked(); len(got) != 0 {
		t.Errorf("%v are marked still", got)
	}
	// The fragments of a file are one extent where there is no hole between them.
	if got, want := e.extents(mixed), fmt.Sprintf("[0,9000) blob %v+4096\n[20000,25000) blob %v+13096\n", p.blob.ID, p.blob.ID); got != want {
		t.Errorf("extents:\n%swant:\n%s", got, want)
	}
	if e.refs(old.ID) != 0 || !e.inGarbage(set.ID, old.ID) {
		t.Errorf("the old blob has %d references", e.refs(old.ID))
	}
	b, _ := e.view.Blob(p.blob.ID)
	if owners, known := e.view.Owners(&b); !known || !slices.Equal(owners, all) {
		t.Errorf("owners %v, %v, want %v", owners, known, all)
	}
	e.check()
	e.replay()
	// It goes like any other blob, and its owners with it.
	for _, name := range []string{"small", "mixed", "clone"} {
		e.must("", Remove{Dir: cluster.RootIno, Name: name})
	}
	for _, by := range []string{"a", "b"} {
		e.must(by, ReleaseUnlinked{Inos: all})
	}
	for e.view.Reapable(0) {
		e.must("", Reap{Max: 3})
		e.check()
	}
	if !e.inGarbage(set.ID, p.blob.ID) {
		t.Error("the pack is not garbage")
	}
}

// TestRelocateOnlyWhatIsThere: a move of what has changed since is left out,
// whatever changed it, and the others are done; the file stays marked.
func TestRelocateOnlyWhatIsThere(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(e *dataEnv, ino cluster.Ino, set ReplicaSet)
		stale  bool // the file is gone
	}{
		{"overwritten by other bytes", func(e *dataEnv, ino cluster.Ino, _ ReplicaSet) {
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(99, 4096))}})
		}, false},
		{"a byte is overwritten", func(e *dataEnv, ino cluster.Ino, _ ReplicaSet) {
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(4095, []byte{0xee})}})
		}, false},
		{"overwritten by a blob", func(e *dataEnv, ino cluster.Ino, set ReplicaSet) {
			e.must("a", commitOf(ino, e.blob("a", set, 4096)))
		}, false},
		{"truncated", func(e *dataEnv, ino cluster.Ino, _ ReplicaSet) {
			e.must("a", SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: 4095}})
		}, false},
		{"punched", func(e *dataEnv, ino cluster.Ino, _ ReplicaSet) {
			e.must("a", Punch{Ino: ino, Off: 100, Len: 10})
		}, false},
		{"cloned over", func(e *dataEnv, ino cluster.Ino, _ ReplicaSet) {
			other := e.create("source")
			e.must("a", CommitExtents{Ino: other, Extents: []NewExtent{inline(0, page(50, 4096))}})
			e.must("a", Clone{Src: other, Dst: ino})
		}, false},
		{"removed", func(e *dataEnv, ino cluster.Ino, _ ReplicaSet) {
			e.must("", Remove{Dir: cluster.RootIno, Name: "changing"})
			e.must("a", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
		}, true},
		{"reaped", func(e *dataEnv, ino cluster.Ino, _ ReplicaSet) {
			e.must("", Remove{Dir: cluster.RootIno, Name: "changing"})
			e.must("a", ReleaseUnlinked{Inos: []cluster.Ino{ino}})
			e.must("", Reap{Max: 100})
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newData(t)
			defer e.close()
			e.open("a", "n1")
			set := e.set(1, 2)
			changing, quiet := e.create("changing"), e.create("quiet")
			for _, ino := range []cluster.Ino{changing, quiet} {
				e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(byte(ino), 4096))}})
			}
			p := e.packing("a", set, 8192)
			p.all(1<<20, changing, quiet)
			p.c.Done = []Mark{e.markOf(changing), e.markOf(quiet)}
			c.change(e, changing, set)
			var want []byte
			if !c.stale {
				want = e.read(changing)
			}
			if r := p.run(); !slices.Equal(r.did(2), []int{1}) {
				t.Fatalf("did %v", r.did(2))
			}
			if !c.stale && !bytes.Equal(e.read(changing), want) {
				t.Error("the change was undone")
			}
			if slices.Contains(e.marked(), quiet) || c.name == "truncated" && !slices.Contains(e.marked(), changing) {
				t.Errorf("marked %v", e.marked())
			}
			e.check()
		})
	}
}

// TestRelocateRefusals: what makes no sense has no effect at all.
func TestRelocateRefusals(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	e.open("b", "n2")
	set := e.set(1, 2)
	ino := e.create("f")
	e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(1, 4096))}})
	old := e.blob("a", set, 4096)
	e.must("a", commitOf(e.create("g"), old))
	for _, c := range []struct {
		name   string
		change func(c *Relocate)
		want   error
	}{
		{"no writer", nil, cluster.EINVAL},
		{"the blob of another writer", func(c *Relocate) { c.Blobs[0] = e.blob("b", set, 4096); c.Moves[0].NewBlob = c.Blobs[0].ID }, cluster.ERETRY},
		{"an old epoch", func(c *Relocate) { c.Blobs[0].Epoch-- }, cluster.ERETRY},
		{"a blob that is there", func(c *Relocate) { c.Blobs[0] = old; c.Moves[0].NewBlob = old.ID }, cluster.ERETRY},
		{"into a blob that is not of the command", func(c *Relocate) { c.Moves[0].NewBlob = old.ID }, cluster.EINVAL},
		{"the same blob twice", func(c *Relocate) { c.Blobs = append(c.Blobs, c.Blobs[0]) }, cluster.EINVAL},
		{"behind the blob", func(c *Relocate) { c.Moves[0].NewOff = 1 }, cluster.EINVAL},
		{"nothing", func(c *Relocate) { c.Moves[0].Len = 0 }, cluster.EINVAL},
		{"behind the largest file", func(c *Relocate) { c.Moves[0].Off = cluster.MaxFileSize }, cluster.EINVAL},
		{"more than an extent has", func(c *Relocate) { c.Moves[0].Len = cluster.MaxInline + 1 }, cluster.EINVAL},
		{"too many moves", func(c *Relocate) { c.Moves = slices.Repeat(c.Moves, MaxMoves+1) }, cluster.EINVAL},
		{"too many marks", func(c *Relocate) { c.Done = make([]Mark, MaxMoves+1) }, cluster.EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := e.packing("a", set, 4096)
			p.all(1<<20, ino)
			by := "a"
			if c.change == nil {
				by = ""
			} else {
				c.change(&p.c)
			}
			if _, err := e.apply(by, p.c); !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if got := e.extents(ino); got != "[0,4096) inline\n" {
				t.Errorf("extents:\n%s", got)
			}
			e.check()
		})
	}
}

// TestRelocateTwice: a command that is sent again as another one finds nothing
// to move; its blob is garbage.
func TestRelocateTwice(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	ino := e.create("f")
	e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(1, 4096))}})
	p, again := e.packing("a", set, 4096), e.packing("a", set, 4096)
	p.all(1<<20, ino)
	again.all(1<<20, ino)
	p.run()
	if r := again.run(); r.did(1) != nil {
		t.Error("moved twice")
	}
	if !e.inGarbage(set.ID, again.blob.ID) || e.refs(p.blob.ID) != 1 {
		t.Error("the second blob is in use")
	}
	e.check()
}

// TestThin: blobs are listed while less than half of them is referred to, also
// by clones, and what is left of them can be moved out.
func TestThin(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	ino, other := e.create("f"), e.create("g")
	b := e.blob("a", set, 10000)
	thin := func(want bool) {
		t.Helper()
		var got []cluster.BlobID
		e.view.Thin(0, func(id cluster.BlobID) bool {
			got = append(got, id)
			return true
		})
		if slices.Contains(got, b.ID) != want {
			t.Fatalf("thin: %v, want %v", got, want)
		}
		e.check()
	}
	e.must("a", commitOf(ino, b))
	thin(false)
	e.must("a", Punch{Ino: ino, Off: 1000, Len: 5000}) // cut in two
	thin(false)
	e.must("a", SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: 9999}})
	thin(true)
	e.must("a", SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: 9000}})
	thin(true)
	e.must("a", Clone{Src: ino, Dst: other})
	thin(false)
	e.must("a", SetAttr{Ino: other, Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: 500}})
	thin(true)
	rec, _ := e.view.Blob(b.ID)
	owners, known := e.view.Owners(&rec)
	if want := []cluster.Ino{ino, other}; !known || !slices.Equal(owners, want) {
		t.Fatalf("owners %v, %v", owners, known)
	}
	f, g := e.read(ino), e.read(other)
	p := e.packing("a", set, 6000)
	p.all(300, owners...)
	p.run()
	if e.refs(b.ID) != 0 || !bytes.Equal(e.read(ino), f) || !bytes.Equal(e.read(other), g) {
		t.Errorf("the old blob has %d references:\n%s%s", e.refs(b.ID), e.extents(ino), e.extents(other))
	}
	e.check()
}

// TestTooShared: a blob that very many files share has a bounded number of
// owner records, and says that they are not all.
func TestTooShared(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	src := e.create("src")
	b := e.blob("a", set, 10000)
	e.must("a", commitOf(src, b))
	var inos []cluster.Ino
	for i := range maxShares + 3 {
		ino := e.create(fmt.Sprint(i))
		inos = append(inos, ino)
		e.must("a", Clone{Src: src, Dst: ino})
		e.must("a", Clone{Src: src, Dst: ino, DstOff: 10000})
		rec, _ := e.view.Blob(b.ID)
		if _, known := e.view.Owners(&rec); known != (i < maxShares) {
			t.Fatalf("%d clones: all owners known: %v", i+1, known)
		}
	}
	e.check()
	for _, ino := range append(inos, src) {
		e.must("a", SetAttr{Ino: ino, Attr: cluster.SetAttr{Mask: cluster.SetSize}})
	}
	e.check() // it has found owner records of nothing, otherwise
	if !e.inGarbage(set.ID, b.ID) {
		t.Error("in use")
	}
}

// TestMarks: files are marked that have something to be moved, and no others.
func TestMarks(t *testing.T) {
	e := newData(t)
	defer e.close()
	e.open("a", "n1")
	set := e.set(1, 2)
	for i, c := range []struct {
		name string
		make func(ino cluster.Ino)
		want bool
	}{
		{"a small file", func(ino cluster.Ino) {
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(1, InlineLimit))}})
		}, false},
		{"a byte more", func(ino cluster.Ino) {
			e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(0, page(1, InlineLimit+1))}})
		}, true},
		{"grown line by line", func(ino cluster.Ino) {
			for k := range 20 {
				e.must("a", CommitExtents{Ino: ino, Extents: []NewExtent{inline(uint64(k*100), page(1, 100))}})
			}
		}, true},
		{"a blob", func(ino cluster.Ino) { e.must("a", commitOf(ino, e.blob("a", set, 20000))) }, false},
		{"short blobs in a row", func(ino cluster.Ino) {
			b := e.blob("a", set, 20000)
			e.must("a", commitOf(ino, b))
			b = e.blob("a", set, 20000)
			e.must("a", CommitExtents{Ino: ino, Blobs: []NewBlob{b}, Extents: []NewExtent{{Off: 20000, Len: 20000, Blob: b.ID}}})
		}, true},
		{"large blobs in a row", func(ino cluster.Ino) {
			for k := range 3 {
				b := e.blob("a", set, cluster.MaxBlob)
				c := commitOf(ino, b)
				c.Extents[0].Off = uint64(k) * cluster.MaxBlob
				e.must("a", c)
			}
		}, false},
	} {
		ino := e.create(fmt.Sprint(i))
		c.make(ino)
		if got := slices.Contains(e.marked(), ino); got != c.want {
			t.Errorf("%s: marked %v", c.name, got)
		}
		e.check()
	}
}
