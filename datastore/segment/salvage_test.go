package segment

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

func salvage(t *testing.T, fs vfs.FS) *Salvage {
	t.Helper()
	s, err := OpenSalvage(fs, "/disk", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Everything that a store has is found in its segments alone: without the index,
// also without the superblock, and nothing is written. Of a copy that was made
// whole, the whole one is read.
func TestSalvage(t *testing.T) {
	mem := vfs.NewMem()
	s := open(t, mem)
	mustPut(t, s, ints(0, 60)...)
	mustDelete(t, s, 5)
	damage(t, s, mem, 7, false)
	damage(t, s, mem, 8, false)
	damage(t, s, mem, 9, true)
	mustReplace(t, s, true, 8)
	mustClose(t, s)
	removeIndex(t, mem)
	for _, super := range []bool{true, false} {
		if !super {
			if err := mem.Remove("/disk/super"); err != nil {
				t.Fatal(err)
			}
		}
		a := salvage(t, mem)
		for n := range 60 {
			b, err := a.Read(key(n))
			switch {
			case n == 7 && errors.Is(err, cluster.ECORRUPT) && a.Has(key(n)):
			case n == 9 && err == cluster.ENOBLOB && !a.Has(key(n)):
			case n == 7 || n == 9 || err != nil || !bytes.Equal(b.Data, content(n)):
				t.Errorf("blob %d: %v", n, err)
			}
			b.Release()
		}
	}
	if names, err := mem.List("/disk"); err != nil || strings.Contains(strings.Join(names, " "), "idx") {
		t.Errorf("the folder has %v, %v", names, err)
	}
}

func TestSalvageNothing(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/disk", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSalvage(mem, "/disk", nil); err == nil || !strings.Contains(err.Error(), "has no segments") {
		t.Errorf("%v", err)
	}
	if IsStore(mem, "/disk") || IsStore(mem, "/none") {
		t.Error("an empty folder is a store")
	}
	s := open(t, mem)
	mustPut(t, s, 1)
	mustClose(t, s)
	if !IsStore(mem, "/disk") {
		t.Error("a store is none")
	}
}
