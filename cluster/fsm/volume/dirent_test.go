package volume

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// withHash puts a hash in the place of the real one for the test.
func withHash(t *testing.T, hash func(k0, k1 uint64, name []byte) uint64) {
	old := hashName
	t.Cleanup(func() { hashName = old })
	hashName = hash
}

func (e *treeEnv) mkfile(dir cluster.Ino, name string) error {
	e.gen++
	_, err := e.apply(Create{Dir: dir, Name: name, Type: cluster.TypeRegular, How: Guarded, Gen: e.gen})
	return err
}

// list returns the entries after cookie as NAME@COOKIE, with the hash's part
// of the cookie taken off.
func (e *treeEnv) list(after uint64) string {
	var b strings.Builder
	e.view.ReadDir(cluster.RootIno, after, func(d *Dirent) bool {
		fmt.Fprintf(&b, "%s@%d ", d.Name, d.Cookie)
		return true
	})
	return strings.TrimSpace(b.String())
}

// TestCollisions has names of one hash: at most cookieSlots, found whatever
// was removed before them, with cookies that stay.
func TestCollisions(t *testing.T) {
	withHash(t, func(_, _ uint64, _ []byte) uint64 { return 0 })
	e := newTree(t)
	step := func(line, want string) {
		t.Helper()
		if err := e.line(strings.Fields(line)); !strings.HasPrefix(err, "ok") && !strings.HasPrefix(err, "created") {
			t.Fatalf("%s: %s", line, err)
		}
		if got := e.list(0); got != want {
			t.Errorf("%s:\n have %s\n want %s", line, got, want)
		}
		Check(e.view, func(p Problem) { t.Errorf("%s: %v", line, p) })
	}
	step("mkfile /a", "a@8")
	step("mkfile /b", "a@8 b@9")
	step("mkfile /c", "a@8 b@9 c@10")
	step("rm /a", "b@9 c@10")
	step("rm /b", "c@10")
	step("mkfile /d", "d@8 c@10")
	step("mkfile /e", "d@8 e@9 c@10")
	step("rm /d", "e@9 c@10")
	step("mv /e /f", "f@8 c@10")
	step("mv /f /c", "c@10")
	step("rm /c", "")
	step("mkfile /g", "g@8")
	step("mkfile /h", "g@8 h@9")
	step("mv /h /g", "g@8")
	step("rm /g", "")
	if n := countKeys(e, prefixDirent); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	for i := range cookieSlots {
		if err := e.mkfile(cluster.RootIno, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.mkfile(cluster.RootIno, "more"); !errors.Is(err, cluster.ENOSPC) {
		t.Errorf("one name too many: %v", err)
	}
	if got := e.list(9); !strings.HasPrefix(got, "2@10 3@11") {
		t.Errorf("after cookie 9: %s", got)
	}
}

func countKeys(e *treeEnv, prefix byte) (n int) {
	e.view.Ascend([]byte{prefix}, []byte{prefix + 1}, func(_, _ []byte) bool {
		n++
		return true
	})
	return n
}

// TestCookieRange has the extreme hashes: cookies are above 2 and below 2^63.
func TestCookieRange(t *testing.T) {
	for _, h := range []uint64{0, 1, 15, 16, 17, 1 << 63, ^uint64(0)} {
		withHash(t, func(_, _ uint64, _ []byte) uint64 { return h })
		var v record
		if c := v.firstSlot(1, "x"); c <= 2 || c+cookieSlots-1 >= 1<<63 || c%cookieSlots != 0 {
			t.Errorf("hash %x: cookie %d", h, c)
		}
	}
}

// TestReadDirResumes lists a directory in pieces, whose entries are removed as
// they are listed: each is listed once, and the cookie of a removed entry goes
// on after it.
func TestReadDirResumes(t *testing.T) {
	e := newTree(t)
	const files = 500
	for i := range files {
		if err := e.mkfile(cluster.RootIno, fmt.Sprint("file", i)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	cookie := uint64(0)
	for eof := false; !eof; {
		n := 0
		var names []string
		eof = e.view.ReadDir(cluster.RootIno, cookie, func(d *Dirent) bool {
			if n == 7 {
				return false
			}
			n++
			if seen[d.Name] {
				t.Fatalf("%s twice", d.Name)
			}
			seen[d.Name] = true
			names = append(names, d.Name)
			cookie = d.Cookie
			return true
		})
		for _, name := range names {
			if _, err := e.apply(Remove{Dir: cluster.RootIno, Name: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) != files {
		t.Errorf("%d of %d entries", len(seen), files)
	}
	if eof := e.view.ReadDir(cluster.RootIno, 1<<63, func(*Dirent) bool { return false }); !eof {
		t.Error("no end behind the last cookie there can be")
	}
}

// TestFormat: before it the tree's commands are refused; again it does nothing.
func TestFormat(t *testing.T) {
	m, err := fsm.Open(fsm.Options{Dir: "volume", FS: vfs.NewMem(), Core: New(), CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	e := &treeEnv{tb: t, m: m, view: View{m.Reader()}}
	for _, b := range []fsm.Body{
		Create{Dir: 1, Name: "n", Type: cluster.TypeRegular, Gen: 1},
		Link{Ino: 1, Dir: 1, Name: "n"},
		Remove{Dir: 1, Name: "n"},
		Rename{FromDir: 1, FromName: "n", ToDir: 1, ToName: "m"},
		SetAttr{Ino: 1},
		SetClass{Ino: 1, Class: someClass},
		SetXattr{Ino: 1, Name: "n"},
		RemoveXattr{Ino: 1, Name: "n"},
	} {
		if _, err := e.apply(b); !errors.Is(err, cluster.ESTALE) {
			t.Errorf("%T before Format: %v", b, err)
		}
	}
	if _, err := e.apply(Format{Mode: 0o700, Class: cluster.Class{Copies: 4}}); !errors.Is(err, cluster.EINVAL) {
		t.Errorf("Format with 4 copies: %v", err)
	}
	if e.view.Formatted() {
		t.Error("formatted by a command that failed")
	}
	if _, err := e.apply(Format{Mode: 0o700, Class: someClass}); err != nil {
		t.Fatal(err)
	}
	before, _ := e.view.Inode(cluster.RootIno)
	if _, err := e.apply(Format{Mode: 0o755, Class: cluster.Class{Copies: 1}}); err != nil {
		t.Fatal(err)
	}
	if after, _ := e.view.Inode(cluster.RootIno); after != before || !e.view.Formatted() {
		t.Errorf("Format again: %+v, was %+v", after, before)
	}
}

// BenchmarkCreate creates files in one directory, in batches as a loaded
// leader applies them.
func BenchmarkCreate(b *testing.B) {
	e := newTree(b)
	const batch = 64
	log := make([]cluster.Entry, 0, batch)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.index++
		log = append(log, e.entry(Create{
			Dir: cluster.RootIno, Name: fmt.Sprint("file", i), Type: cluster.TypeRegular, How: Guarded, Gen: 1,
			Attr: cluster.SetAttr{Mask: cluster.SetMode, Mode: 0o644},
		}))
		if len(log) == batch {
			e.m.Apply(log)
			log = log[:0]
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	e := newTree(b)
	for i := range 1000 {
		if err := e.mkfile(cluster.RootIno, fmt.Sprint("file", i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d, ok := e.view.Lookup(cluster.RootIno, "file500")
		if !ok {
			b.Fatal("not found")
		}
		e.view.Inode(d.Ino)
	}
}
