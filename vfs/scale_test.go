package vfs_test

import (
	"runtime"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// inUse returns the memory of the heap and of stacks, in bytes.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestScaleSparseFile reads a file of 100 GiB with hardly any data, from end to
// end, and changes it: memory does not grow with it.
func TestScaleSparseFile(t *testing.T) {
	for name, class := range map[string]cluster.Class{"strict": strict, "relaxed": relaxed} {
		t.Run(name, func(t *testing.T) { sparseFile(t, class) })
	}
}

func sparseFile(t *testing.T, class cluster.Class) {
	const size, page, written = 100 << 30, 4096, 1000
	e := newEnv(t, class, func(c *vfs.Config) { c.ReadAhead = 8 << 20 })
	f := e.create("sparse")
	if _, err := e.Setattr(req(), f, vfs.SetAttr{Mask: cluster.SetSize, Size: size}, true); err != nil {
		t.Fatal(err)
	}
	if err := e.Open(req(), f); err != nil {
		t.Fatal(err)
	}
	defer e.Close(f)
	step := uint64(size / written)
	before := inUse()
	most := int64(0)
	measure := func(what string) {
		m := inUse() - before
		most = max(most, m)
		if m > 48<<20 {
			t.Errorf("%s: %d MiB", what, m>>20)
		}
	}
	for i := range uint64(written) {
		e.write(f, i*step, fill(byte(i), page), vfs.Unstable)
	}
	if _, err := e.Commit(req(), f); err != nil {
		t.Fatal(err)
	}
	measure("after writing 4 KiB in each of 1,000 places")
	zeros, data := 0, 0
	each := uint64(1 << 20)
	if testing.Short() || raceDetector {
		each = 64 << 20 // a MiB of each 64
	}
	for off := uint64(0); off < size; off += each {
		d, err := e.Read(req(), f, off, 1<<20)
		if err != nil || d.N != 1<<20 {
			t.Fatalf("at %d: %d bytes, %v", off, d.N, err)
		}
		for _, b := range d.Bufs {
			if b[0] == 0 {
				zeros += len(b)
			} else {
				data += len(b)
			}
		}
		if d.Release != nil {
			d.Release()
		}
		if off%(8<<30) == 0 {
			measure("while reading")
		}
	}
	measure("after reading")
	// Holes and data alternate.
	at := uint64(0)
	for range written - 1 {
		hole, err := e.Seek(req(), f, at, vfs.SeekHole)
		if err != nil || hole != at+page {
			t.Fatalf("after the data at %d: hole at %d, %v", at, hole, err)
		}
		if at, err = e.Seek(req(), f, hole, vfs.SeekData); err != nil {
			t.Fatal(err)
		}
	}
	copied := e.create("clone")
	if err := e.Clone(req(), f, 0, copied, 0, 0); err != nil {
		t.Fatal(err)
	}
	if got := e.read(copied, 7*step, page); got[0] != 7 {
		t.Errorf("the clone has %d", got[0])
	}
	if err := e.Deallocate(req(), f, 0, size); err != nil {
		t.Fatal(err)
	}
	measure("after a clone and a hole of everything")
	a, err := e.Getattr(req(), f)
	if err != nil || a.Size != size || a.Used > written*page {
		t.Errorf("size %d, used %d, %v", a.Size, a.Used, err)
	}
	t.Logf("at most %d KiB; read %d MiB of holes and %d KiB of data", most>>10, zeros>>20, data>>10)
}
