package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/datastore/checksum"
)

// -golden makes the golden files anew: see testdata/golden/README.md.
var golden = flag.Bool("golden", false, "make the golden files anew")

const goldenDir = "../../testdata/golden/v1/segment"

// makeGolden writes a store with 0 to 7, of which 3 is deleted, and 5 was
// damaged and made whole.
func makeGolden(t *testing.T) {
	t.Helper()
	mem := vfs.NewMem()
	s := open(t, mem)
	mustPut(t, s, ints(0, 8)...)
	damage(t, s, mem, 5, false)
	mustReplace(t, s, true, 5)
	mustDelete(t, s, 3)
	mustClose(t, s)
	if err := errors.Join(os.RemoveAll(goldenDir), os.MkdirAll(goldenDir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range goldenFiles(t, mem) {
		if err := os.WriteFile(filepath.Join(goldenDir, name), readAll(t, mem, "/disk/"+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenFiles are the superblock and the segments with records.
func goldenFiles(t *testing.T, fs vfs.FS) (names []string) {
	t.Helper()
	all, err := fs.List("/disk")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if n == "super" || strings.HasPrefix(n, segPrefix) && len(bytes.TrimRight(readAll(t, fs, "/disk/"+n)[Align:], "\x00")) > 0 {
			names = append(names, n)
		}
	}
	return names
}

func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, max(st.Size(), Align))
	n, _ := f.ReadAt(b, 0)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// goldenStore is the golden store in memory, with change made to each file.
func goldenStore(t *testing.T, change func(name string, b []byte)) *vfs.MemFS {
	t.Helper()
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/disk", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(goldenDir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(e.Name(), b)
		}
		f, err := mem.Create("/disk/"+e.Name(), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = f.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// TestGolden opens a store that version 1 has written.
func TestGolden(t *testing.T) {
	if *golden {
		makeGolden(t)
	}
	mem := goldenStore(t, nil)
	a := salvage(t, mem)
	s := open(t, mem)
	defer mustClose(t, s)
	for _, n := range ints(0, 8) {
		if n == 3 {
			mustLack(t, s, n)
			continue
		}
		mustHave(t, s, n)
		b, err := a.Read(key(n))
		if err != nil || !bytes.Equal(b.Data, content(n)) {
			t.Errorf("salvaged blob %d: %v", n, err)
		}
		b.Release()
	}
	if s.Usage().Blobs != 7 {
		t.Errorf("%d blobs", s.Usage().Blobs)
	}
	check(t, s)
	mustPut(t, s, 20)
}

// A store or a segment of a later version is refused, and says so; it is not
// taken for a damaged one.
func TestGoldenNewer(t *testing.T) {
	le := binary.LittleEndian
	for what, change := range map[string]func(name string, b []byte){
		"superblock": func(name string, b []byte) {
			if name == "super" {
				le.PutUint32(b[8:], formatVersion+1)
				le.PutUint32(b[len(b)-4:], checksum.Sum(b[:len(b)-4]))
			}
		},
		"segment": func(name string, b []byte) {
			if name != "super" {
				le.PutUint32(b[4:], formatVersion+1)
				le.PutUint32(b[28:], checksum.Sum(b[:28]))
			}
		},
	} {
		mem := goldenStore(t, change)
		_, err := Open("/disk", Options{FS: mem, Manual: true})
		if err == nil || !strings.Contains(err.Error(), "has format 2, this program knows 1: upgrade the program") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := OpenSalvage(mem, "/disk", nil); err == nil || !strings.Contains(err.Error(), "upgrade the program") {
			t.Errorf("%s, salvaged: %v", what, err)
		}
	}
}
