package node

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hawserfs/hawser/cmd/hawser/internal/admin"
	"github.com/hawserfs/hawser/nfsd/client"
)

// exported runs an export and returns what it reported.
func exported(t *testing.T, req ExportRequest) (ExportSummary, []string) {
	t.Helper()
	var lines []string
	sum, err := Export(within(t), req, func(l string) { lines = append(lines, l) }, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return sum, lines
}

func wantFile(t *testing.T, path string, want []byte) os.FileInfo {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v, or another content", path, err)
		return nil
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestExport writes the files of a stopped node to a folder: all of them with
// what belongs to them, again without writing what is there, and with parts
// missing where copies are.
func TestExport(t *testing.T) {
	c := config(t, "n1")
	n := start(t, c)
	if err := n.Init(within(t), admin.InitRequest{Name: "c", Class: admin.Class{Copies: 1}}); err != nil {
		t.Fatal(err)
	}
	n.use(func(c *client.Client) { writeFiles(t, c, "/main") })
	decorate(t, n)
	n.stop()
	to := t.TempDir()
	req := ExportRequest{Volume: "main", To: to, Data: []string{c.Node.Data}, Disks: c.Node.Disks}
	sum, lines := exported(t, req)
	// Where tests don't run as root, owners are told of once.
	if lines = slicesWithout(lines, "run this as root"); len(lines) > 0 || sum.Files != 4 || sum.Damaged > 0 {
		t.Errorf("%+v, %q", sum, lines)
	}
	for name, size := range files {
		wantFile(t, filepath.Join(to, name), content(uint64(size), size))
	}
	st := wantFile(t, filepath.Join(to, "sub", "deep", "file"), []byte("hello"))
	if st == nil || st.Mode().Perm() != 0o640 || !st.ModTime().Equal(time.Unix(1_000_000_000, 5)) {
		t.Errorf("mode and time: %v", st)
	}
	if d, err := os.Stat(filepath.Join(to, "sub", "deep")); err != nil || d.Mode().Perm() != 0o750 {
		t.Errorf("a folder: %v, %v", d, err)
	}
	value := make([]byte, 100)
	if k, err := unix.Getxattr(filepath.Join(to, "sub", "deep", "file"), "user.color", value); err != nil || string(value[:k]) != "blue" {
		t.Errorf("extended attribute: %q, %v", value[:max(k, 0)], err)
	}
	if l, err := os.Readlink(filepath.Join(to, "sub", "link")); err != nil || l != "deep/file" {
		t.Errorf("link: %q, %v", l, err)
	}
	other, err := os.Stat(filepath.Join(to, "sub", "name"))
	if err != nil || !os.SameFile(st, other) {
		t.Errorf("the second name: %v", err)
	}
	if rest, _ := filepath.Glob(filepath.Join(to, ".hawser*")); len(rest) > 0 {
		t.Errorf("left behind: %v", rest)
	}

	t.Run("again", func(t *testing.T) {
		if err := os.Remove(filepath.Join(to, "small")); err != nil {
			t.Fatal(err)
		}
		sum, _ := exported(t, req)
		if sum.Files != 4 || sum.Bytes != uint64(files["small"]) {
			t.Errorf("%+v", sum)
		}
	})

	t.Run("a part, and all volumes", func(t *testing.T) {
		r := req
		r.To, r.Path = t.TempDir(), "/sub/deep"
		if sum, _ := exported(t, r); sum.Files != 1 {
			t.Errorf("%+v", sum)
		}
		wantFile(t, filepath.Join(r.To, "file"), []byte("hello"))
		r.To, r.Path, r.Volume = t.TempDir(), "", ""
		exported(t, r)
		wantFile(t, filepath.Join(r.To, "main", "sub", "deep", "file"), []byte("hello"))
		r.Volume = "none"
		if _, err := Export(within(t), r, func(string) {}, func(string) {}); err == nil {
			t.Error("a volume that is not there was exported")
		}
	})

	t.Run("interrupted", func(t *testing.T) {
		r := req
		r.To = t.TempDir()
		ctx, cancel := context.WithCancel(within(t))
		cancel()
		if _, err := Export(ctx, r, func(string) {}, func(string) {}); err == nil {
			t.Error("no error")
		}
		exported(t, r)
		wantFile(t, filepath.Join(r.To, "large"), content(uint64(files["large"]), files["large"]))
	})

	t.Run("without the index and with a damaged copy", func(t *testing.T) {
		if err := os.RemoveAll(filepath.Join(c.Node.Disks[0], "idx")); err != nil {
			t.Fatal(err)
		}
		flip(t, c)
		r := req
		r.To = t.TempDir()
		sum, lines := exported(t, r)
		lines = slicesWithout(lines, "run this as root")
		if sum.Damaged != 1 || sum.Files != 3 || len(lines) != 1 || !strings.Contains(lines[0], "large: bytes 1048576 to 2097152 are missing: blob ") {
			t.Errorf("%+v, %q", sum, lines)
		}
		size := files["large"]
		want := content(uint64(size), size)
		clear(want[1<<20 : 2<<20])
		wantFile(t, filepath.Join(r.To, "large.hawser-incomplete"), want)
		if _, err := os.Stat(filepath.Join(r.To, "large")); err == nil {
			t.Error("a file of which a part is missing has its name")
		}
	})

	t.Run("without disks", func(t *testing.T) {
		r := req
		r.To, r.Disks = t.TempDir(), []string{t.TempDir()}
		sum, lines := exported(t, r)
		// What is in the state machine is there.
		wantFile(t, filepath.Join(r.To, "small"), content(uint64(files["small"]), files["small"]))
		if sum.Damaged != 1 || sum.Files != 3 || !strings.Contains(strings.Join(lines, "\n"), "has no segments") {
			t.Errorf("%+v, %q", sum, lines)
		}
	})
}

func slicesWithout(lines []string, part string) (out []string) {
	for _, l := range lines {
		if !strings.Contains(l, part) {
			out = append(out, l)
		}
	}
	return out
}

// decorate makes what files can have beside their bytes.
func decorate(t *testing.T, n *testNode) {
	t.Helper()
	n.use(func(c *client.Client) {
		ctx := within(t)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		root, err := c.Walk(ctx, "/main")
		must(err)
		sub, err := c.Mkdir(ctx, root, "sub", 0o755)
		must(err)
		deep, err := c.Mkdir(ctx, sub, "deep", 0o750)
		must(err)
		put(t, c, deep, "file", []byte("hello"))
		file, err := c.Walk(ctx, "/main/sub/deep/file")
		must(err)
		must(c.Setxattr(ctx, file, "color", []byte("blue"), 0))
		_, err = c.Link(ctx, file, sub, "name")
		must(err)
		_, err = c.Symlink(ctx, sub, "link", "deep/file")
		must(err)
		must(c.Setattr(ctx, file, client.Stateid{}, &client.SetAttr{
			Mode: client.Ptr(uint32(0o640)), Mtime: client.Ptr(time.Unix(1_000_000_000, 5)),
		}))
	})
}
