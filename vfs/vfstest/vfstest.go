// Package vfstest says what a vfs.FS must do: one suite that every
// implementation passes.
package vfstest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// Users that are not root.
var (
	Root  = vfs.Cred{}
	Alice = vfs.Cred{UID: 1000, GID: 100, GIDs: []uint32{200}}
	Bob   = vfs.Cred{UID: 1001, GID: 100}
	Carol = vfs.Cred{UID: 1002, GID: 300}
)

// A T is one test of the suite.
type T struct {
	*testing.T
	FS  vfs.FS
	Vol vfs.File // root of the first volume
	Dir vfs.File // of this test alone; everybody may write in it
}

// Run runs the suite on fs, which must have at least one volume, whose root
// root may write.
func Run(t *testing.T, fs vfs.FS) {
	var vol vfs.File
	_, err := fs.ReadDir(req(Root), vfs.Root, 0, false, func(d *vfs.Dirent) bool {
		vol = d.File
		return false
	})
	if err != nil || vol == (vfs.File{}) {
		t.Fatalf("no volume: %v", err)
	}
	groups := []map[string]func(*T){treeTests, permTests, dataTests, lockTests, xattrTests, stateTests, replayTests}
	for _, tests := range groups {
		for name, fn := range tests {
			t.Run(name, func(t *testing.T) {
				x := &T{T: t, FS: fs, Vol: vol}
				c, err := fs.Create(req(Root), vol, "test-"+name, vfs.CreateArgs{
					Type: cluster.TypeDirectory, How: vfs.Guarded, Attr: mode(0o777),
				})
				if err != nil {
					t.Fatal(err)
				}
				x.Dir = c.File
				fn(x)
			})
		}
	}
}

func req(c vfs.Cred) *vfs.Request { return vfs.NewRequest(context.Background(), c) }

func mode(m uint32) vfs.SetAttr { return vfs.SetAttr{Mask: cluster.SetMode, Mode: m} }

// ok fails the test if err is not nil.
func (t *T) ok(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails fails the test if err is not want.
func (t *T) fails(err error, want vfs.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// result fails the test if err is not want, which may be OK.
func (t *T) result(what string, err error, want vfs.Errno) {
	t.Helper()
	if !errors.Is(err, want.Err()) {
		t.Errorf("%s: error %v, want %v", what, err, want.Err())
	}
}

// make creates an object as cred.
func (t *T) make(c vfs.Cred, dir vfs.File, name string, ft vfs.FileType, m uint32) vfs.Created {
	t.Helper()
	args := vfs.CreateArgs{Type: ft, How: vfs.Guarded, Attr: mode(m)}
	if ft == cluster.TypeSymlink {
		args.Target = "target of " + name
	}
	made, err := t.FS.Create(req(c), dir, name, args)
	t.ok(err)
	return made
}

func (t *T) file(name string) vfs.File {
	t.Helper()
	return t.make(Root, t.Dir, name, cluster.TypeRegular, 0o644).File
}

func (t *T) mkdir(dir vfs.File, name string) vfs.File {
	t.Helper()
	return t.make(Root, dir, name, cluster.TypeDirectory, 0o755).File
}

func (t *T) attr(f vfs.File) vfs.Attr {
	t.Helper()
	a, err := t.FS.Getattr(req(Root), f)
	t.ok(err)
	return a
}

func (t *T) lookup(dir vfs.File, name string) (vfs.File, error) {
	f, _, err := t.FS.Lookup(req(Root), dir, name)
	return f, err
}

func (t *T) write(f vfs.File, off uint64, p []byte, how vfs.Stability) vfs.Verifier {
	t.Helper()
	own := bytes.Clone(p)
	got, v, err := t.FS.Write(req(Root), f, off, own, how)
	t.ok(err)
	clear(own) // the caller's again
	if got < how {
		t.Fatalf("written with stability %d, asked for %d", got, how)
	}
	return v
}

func (t *T) commit(f vfs.File) vfs.Verifier {
	t.Helper()
	v, err := t.FS.Commit(req(Root), f)
	t.ok(err)
	return v
}

func (t *T) setSize(f vfs.File, size uint64) {
	t.Helper()
	_, err := t.FS.Setattr(req(Root), f, vfs.SetAttr{Mask: cluster.SetSize, Size: size}, true)
	t.ok(err)
}

// read reads n bytes at off, in as many calls as it takes.
func (t *T) read(f vfs.File, off uint64, n int) []byte {
	t.Helper()
	got := []byte{}
	for len(got) < n {
		d, err := t.FS.Read(req(Root), f, off+uint64(len(got)), n-len(got))
		t.ok(err)
		sum := 0
		for _, b := range d.Bufs {
			got = append(got, b...)
			sum += len(b)
		}
		if sum != d.N {
			t.Fatalf("read says %d bytes and has %d", d.N, sum)
		}
		t.holes(off, got, sum, d.Holes)
		if d.Release != nil {
			d.Release()
		}
		if d.EOF {
			break
		}
		if d.N == 0 {
			t.Fatalf("read of nothing before the end, at %d", off+uint64(len(got)))
		}
	}
	return got
}

// holes fails the test if the holes that a read shows are not in order and apart in
// its last n bytes, or are not zeros; got is what was read from off on.
func (t *T) holes(off uint64, got []byte, n int, holes []vfs.Hole) {
	t.Helper()
	end := off + uint64(len(got))
	at := end - uint64(n)
	for i, h := range holes {
		if h.Len == 0 || h.Off < at || h.Off == at && i > 0 || h.Off > end || h.Len > end-h.Off {
			t.Fatalf("hole %+v of a read up to %d, behind %d", h, end, at)
		}
		at = h.Off + h.Len
		if p := got[h.Off-off : at-off]; bytes.Count(p, []byte{0}) != len(p) {
			t.Fatalf("hole %+v is not zeros", h)
		}
	}
}

// content fails the test if f does not have exactly want.
func (t *T) content(f vfs.File, want []byte) {
	t.Helper()
	if size := t.attr(f).Size; size != uint64(len(want)) {
		t.Fatalf("size %d, want %d", size, len(want))
	}
	got := t.read(f, 0, len(want)+10)
	if !bytes.Equal(got, want) {
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		t.Fatalf("content differs from byte %d on (%d bytes, want %d)", i, len(got), len(want))
	}
}

// names returns what is in dir, read by pages of page entries.
func (t *T) names(dir vfs.File, page int) []vfs.Dirent {
	t.Helper()
	var list []vfs.Dirent
	var cookie uint64
	for {
		n := 0
		eof, err := t.FS.ReadDir(req(Root), dir, cookie, true, func(d *vfs.Dirent) bool {
			if n == page {
				return false
			}
			n++
			if d.Cookie <= cookie || d.Cookie <= 2 || d.Cookie >= 1<<63 {
				t.Fatalf("cookie %d after %d", d.Cookie, cookie)
			}
			cookie = d.Cookie
			e := *d
			if d.Attr == nil {
				t.Fatalf("no attributes of %q", d.Name)
			}
			a := *d.Attr
			e.Attr = &a
			list = append(list, e)
			return true
		})
		t.ok(err)
		if eof {
			return list
		}
		if n == 0 {
			t.Fatal("no entries and not the end")
		}
	}
}

// moves fails the test if fn does not make the change attribute of f grow.
func (t *T) moves(what string, f vfs.File, fn func()) {
	t.Helper()
	before := t.attr(f)
	fn()
	after := t.attr(f)
	if after.Change <= before.Change {
		t.Errorf("%s: change attribute %d after %d", what, after.Change, before.Change)
	}
	if after.Ctime < before.Ctime {
		t.Errorf("%s: ctime went back", what)
	}
}
