package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// TestScaleDirectory makes a directory with a million entries, and lists, finds
// and removes them, with the memory of its caches and little more.
func TestScaleDirectory(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("makes a million files; the race detector takes memory of its own")
	}
	const files = 1_000_000
	// On a disk: one in memory would be in the way of measuring.
	options := fsm.Options{Dir: t.TempDir(), Core: New(), CacheBytes: 32 << 20, MemTableBytes: 8 << 20}
	start := resident(t)
	m, err := fsm.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	index, most := uint64(0), int64(0)
	var entries []cluster.Entry
	apply := func() {
		for i, r := range m.Apply(entries) {
			if _, err := fsm.SplitResult(r); err != nil {
				t.Fatalf("command %d: %v", i, err)
			}
		}
		entries = entries[:0]
	}
	propose := func(b fsm.Body) {
		index++
		entries = append(entries, cluster.Entry{
			Index: index, Term: 1, Command: fsm.AppendCommand(nil, fsm.Envelope{Time: cluster.Time(index)}, b),
		})
		if len(entries) == 256 {
			apply()
		}
	}
	measure := func(what string) {
		used := resident(t) - start
		most = max(most, used)
		if used > 160<<20 {
			t.Errorf("%s: %d MiB", what, used>>20)
		}
	}
	name := func(i int) string { return fmt.Sprintf("file-%07d", i) }
	propose(Format{HashKey: [16]byte{1, 2, 3}, Mode: 0o777, Class: cluster.Class{Copies: 3}})
	apply()
	began := time.Now()
	for i := range files {
		propose(Create{Dir: cluster.RootIno, Name: name(i), Type: cluster.TypeRegular, How: Guarded, Gen: 1})
		if i%(files/8) == 0 {
			measure(fmt.Sprintf("at %d files", i))
		}
	}
	apply()
	made := time.Since(began)
	measure("with all files")

	view := View{m.Reader()}
	root, ok := view.Inode(cluster.RootIno)
	if !ok {
		t.Fatal("the root is gone")
	}
	began = time.Now()
	pages, seen, cookie := 0, 0, uint64(0)
	var longest time.Duration
	for eof := false; !eof; pages++ {
		page := time.Now()
		n := 0
		eof = view.ReadDir(cluster.RootIno, cookie, func(e *Dirent) bool {
			cookie = e.Cookie
			seen, n = seen+1, n+1
			return n < 1000
		})
		longest = max(longest, time.Since(page))
		if pages%250 == 0 {
			measure("while listing")
		}
	}
	listed := time.Since(began)
	if seen != files {
		t.Errorf("%d entries of %d (%+v)", seen, files, root)
	}
	began = time.Now()
	for i := 0; i < files; i += files / 10_000 {
		if _, ok := view.Lookup(cluster.RootIno, name(i)); !ok {
			t.Fatalf("%s is gone", name(i))
		}
	}
	found := time.Since(began) / 10_000
	for i := 0; i < files; i += 10 {
		propose(Remove{Dir: cluster.RootIno, Name: name(i)})
	}
	apply()
	measure("after removing a tenth")
	if _, ok := view.Lookup(cluster.RootIno, name(10)); ok {
		t.Error("a removed file is there")
	}

	// Opened again, it is all on the disk.
	if err := errors.Join(flush(m), m.Close()); err != nil {
		t.Fatal(err)
	}
	if m, err = fsm.Open(options); err != nil {
		t.Fatal(err)
	}
	if _, ok := (View{m.Reader()}).Lookup(cluster.RootIno, name(files-1)); !ok {
		t.Error("a file is gone after opening")
	}
	measure("opened again")
	size, err := diskSize(options.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files, %d MiB on disk: at most %d MiB; %v a create, %v to list (a page of 1000 takes at most %v), %v a lookup",
		files, size>>20, most>>20, made/time.Duration(files), listed.Round(time.Millisecond), longest.Round(time.Microsecond), found)
}

func diskSize(dir string) (n int64, err error) {
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

func flush(m *fsm.Machine) error {
	_, _, err := m.Flush()
	return err
}

// resident returns the memory that the process has, in bytes: the caches of the
// store are not all in Go's heap.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
