package volume

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
)

// fileModel is the naive model of two files: their bytes. It knows nothing of
// extents, blobs or batches.
type fileModel struct {
	e     *dataEnv
	t     *rapid.T
	sets  []ReplicaSet
	coded ReplicaSet
	inos  [2]cluster.Ino
	bytes [2][]byte

	entries []cluster.Entry // not applied yet
	want    []error         // their results
}

const modelMax = 40 << 10 // bytes in a file

func (f *fileModel) grow(i int, size uint64) {
	if n := int(size) - len(f.bytes[i]); n > 0 {
		f.bytes[i] = append(f.bytes[i], make([]byte, n)...)
	}
}

// flush applies what is pending, in batches of random sizes, and compares.
func (f *fileModel) flush() {
	for len(f.entries) > 0 {
		n := rapid.IntRange(1, len(f.entries)).Draw(f.t, "batch")
		for i, r := range f.e.m.Apply(f.entries[:n]) {
			errno := cluster.Errno(uint16(r[0])<<8 | uint16(r[1]))
			if !errors.Is(errno.Err(), f.want[i]) {
				f.t.Fatalf("command %d: %v, want %v", f.entries[i].Index, errno, f.want[i])
			}
		}
		f.entries, f.want = f.entries[n:], f.want[n:]
	}
	for i, ino := range f.inos {
		if got := f.e.read(ino); !bytes.Equal(got, f.bytes[i]) {
			f.t.Fatalf("file %d has other bytes than the model:\n%s", i, f.e.extents(ino))
		}
	}
	f.e.check()
}

func (f *fileModel) commit() {
	i := rapid.IntRange(0, 1).Draw(f.t, "file")
	c := CommitExtents{Ino: f.inos[i]}
	by := rapid.SampledFrom([]string{"a", "b"}).Draw(f.t, "writer")
	// A command with an extent for which there is no blob changes nothing.
	bad := rapid.IntRange(0, 9).Draw(f.t, "bad") == 0
	image := bytes.Clone(f.bytes[i])
	put := func(off uint64, p []byte) {
		if n := int(off) + len(p) - len(image); n > 0 {
			image = append(image, make([]byte, n)...)
		}
		copy(image[off:], p)
	}
	for range rapid.IntRange(1, 4).Draw(f.t, "extents") {
		off := f.offset()
		if rapid.Bool().Draw(f.t, "inline") {
			n := rapid.SampledFrom([]int{1, 7, 100, 2000, 4095, 4096, 5000, cluster.MaxInline}).Draw(f.t, "len")
			n = min(n, modelMax-int(off))
			p := rapid.SliceOfN(rapid.Byte(), 1, 1).Draw(f.t, "p")
			p = bytes.Repeat(p, n)
			for k := range p {
				p[k] += byte(k)
			}
			c.Extents = append(c.Extents, inline(off, p))
			put(off, p)
			continue
		}
		if len(c.Blobs) == 0 || rapid.Bool().Draw(f.t, "newblob") {
			set := rapid.SampledFrom(f.sets).Draw(f.t, "set")
			c.Blobs = append(c.Blobs, f.e.blob(by, set, uint32(rapid.IntRange(1, 9000).Draw(f.t, "bloblen"))))
		}
		b := c.Blobs[len(c.Blobs)-1]
		boff := uint32(rapid.IntRange(0, int(b.Len)-1).Draw(f.t, "blobOff"))
		n := uint32(rapid.IntRange(1, int(min(b.Len-boff, modelMax-uint32(off)))).Draw(f.t, "len"))
		c.Extents = append(c.Extents, NewExtent{Off: off, Len: n, Blob: b.ID, BlobOff: boff})
		p := make([]byte, n)
		for k := range p {
			p[k] = blobByte(b.ID, boff+uint32(k))
		}
		put(off, p)
	}
	var want error
	if bad {
		c.Extents = append(c.Extents, NewExtent{Off: 0, Len: 1, Blob: 1})
		want = cluster.EINVAL
	} else {
		f.bytes[i] = image
	}
	f.entries = append(f.entries, f.e.entry(by, c))
	f.want = append(f.want, want)
}

// offset draws offsets that meet often.
func (f *fileModel) offset() uint64 {
	if rapid.Bool().Draw(f.t, "aligned") {
		return uint64(rapid.IntRange(0, modelMax/4096-1).Draw(f.t, "page")) * 4096
	}
	if rapid.Bool().Draw(f.t, "append") {
		return uint64(min(len(f.bytes[0]), modelMax-1))
	}
	return uint64(rapid.IntRange(0, modelMax-1).Draw(f.t, "off"))
}

func (f *fileModel) punch() {
	i := rapid.IntRange(0, 1).Draw(f.t, "file")
	off := f.offset()
	n := uint64(rapid.IntRange(1, modelMax-int(off)).Draw(f.t, "len"))
	extend := rapid.IntRange(0, 3).Draw(f.t, "extend") == 0
	f.entries = append(f.entries, f.e.entry("a", Punch{Ino: f.inos[i], Off: off, Len: n, Extend: extend}))
	f.want = append(f.want, nil)
	if extend {
		f.grow(i, off+n)
		return
	}
	if size := uint64(len(f.bytes[i])); off < size {
		clear(f.bytes[i][off:min(size, off+n)])
	}
}

func (f *fileModel) truncate() {
	i := rapid.IntRange(0, 1).Draw(f.t, "file")
	size := f.offset()
	f.entries = append(f.entries, f.e.entry("b", SetAttr{Ino: f.inos[i], Attr: cluster.SetAttr{Mask: cluster.SetSize, Size: size}}))
	f.want = append(f.want, nil)
	f.bytes[i] = f.bytes[i][:min(int(size), len(f.bytes[i]))]
	f.bytes[i] = bytes.Clone(f.bytes[i])
	f.grow(i, size)
}

func (f *fileModel) clone() {
	i := rapid.IntRange(0, 1).Draw(f.t, "from")
	j := rapid.IntRange(0, 1).Draw(f.t, "to")
	if len(f.bytes[i]) == 0 {
		return
	}
	src := rapid.IntRange(0, len(f.bytes[i])-1).Draw(f.t, "src")
	n := rapid.IntRange(1, len(f.bytes[i])-src).Draw(f.t, "len")
	dst := rapid.IntRange(0, modelMax-n).Draw(f.t, "dst")
	f.entries = append(f.entries, f.e.entry("a", Clone{
		Src: f.inos[i], Dst: f.inos[j], SrcOff: uint64(src), DstOff: uint64(dst), Len: uint64(n),
	}))
	if i == j && src < dst+n && dst < src+n {
		f.want = append(f.want, cluster.EINVAL)
		return
	}
	f.want = append(f.want, nil)
	p := bytes.Clone(f.bytes[i][src : src+n])
	f.grow(j, uint64(dst+n))
	copy(f.bytes[j][dst:], p)
}

// relocate moves extents of both files as they were at the last flush: what was
// done since is applied before it.
func (f *fileModel) relocate() {
	by := rapid.SampledFrom([]string{"a", "b"}).Draw(f.t, "by")
	p := f.e.packing(by, rapid.SampledFrom(f.sets).Draw(f.t, "set"), cluster.MaxBlob)
	p.all(uint32(rapid.IntRange(100, 9000).Draw(f.t, "cut")), f.inos[:]...)
	moves := p.c.Moves
	p.c.Moves = nil
	for _, m := range moves {
		if rapid.IntRange(0, 4).Draw(f.t, "leave") > 0 {
			p.c.Moves = append(p.c.Moves, m)
		}
	}
	if len(p.c.Moves) == len(moves) { // as the packer does it
		for _, ino := range f.inos {
			if m := f.e.markOf(ino); m.Ino != 0 {
				p.c.Done = append(p.c.Done, m)
			}
		}
	}
	f.e.know(p.blob, p.bytes)
	f.entries = append(f.entries, f.e.entry(by, p.c))
	f.want = append(f.want, nil)
}

func TestExtentsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newData(t)
		defer e.close()
		e.open("a", "n1")
		e.open("b", "n2")
		f := &fileModel{e: e, t: t, sets: []ReplicaSet{e.set(1, 2), e.set(2, 3)}, coded: e.codedSet(code21, 1, 2, 3)}
		f.inos = [2]cluster.Ino{e.create("x"), e.create("y")}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				f.punch()
			case 1:
				f.truncate()
			case 2:
				f.clone()
			case 3:
				f.flush()
			case 4:
				f.relocate()
			case 5:
				f.recode()
			default:
				f.commit()
			}
		}
		f.flush()
		e.replay()
		// With both files gone, nothing is left but garbage.
		for _, name := range []string{"x", "y"} {
			e.must("", Remove{Dir: cluster.RootIno, Name: name})
		}
		for _, by := range []string{"a", "b"} {
			e.must(by, ReleaseUnlinked{Inos: f.inos[:]})
		}
		for {
			r, err := DecodeReapResult(e.must("", Reap{Max: uint32(rapid.IntRange(1, 20).Draw(t, "max"))}))
			if err != nil {
				t.Fatalf("reap: %v", err)
			}
			e.check()
			if !r.More {
				break
			}
		}
		var c checkCounts
		c.count(e)
		if c.blobs != 0 || c.extents != 0 || e.view.Usage() != (Usage{Inodes: 1}) {
			t.Fatalf("left behind: %+v, %+v", c, e.view.Usage())
		}
	})
}

type checkCounts struct{ blobs, extents uint64 }

func (c *checkCounts) count(e *dataEnv) {
	r := Check(e.view, func(Problem) {})
	c.blobs, c.extents = r.Blobs, r.Extents
}
