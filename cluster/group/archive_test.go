package group

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
)

// makeArchive returns the archive of a folder with a few files.
func makeArchive(t testing.TB) []byte {
	dir := filepath.Join(t.TempDir(), "checkpoint")
	for name, content := range map[string]string{
		"MANIFEST": "one", "empty": "", "sub/deep/000001.sst": string(bytes.Repeat([]byte("table "), 10000)),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := newArchiveReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != r.size {
		t.Fatalf("%d bytes, %d announced, %v", len(b), r.size, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatal("the folder is still there")
	}
	return b
}

func unpack(dir string, r io.Reader) error {
	w, err := newArchiveWriter(dir)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		w.abort()
		return err
	}
	return w.Close()
}

func TestArchiveRoundTrip(t *testing.T) {
	b := makeArchive(t)
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(b), "bytes": iotest.OneByteReader(bytes.NewReader(b)), "halves": iotest.HalfReader(bytes.NewReader(b)),
	} {
		dir := filepath.Join(t.TempDir(), "in")
		if err := unpack(dir, r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := newArchiveReader(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(again)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%s: another archive, %v", name, err)
		}
		_ = again.Close()
	}
}

// TestDamagedArchive flips bits and cuts the archive short: none is accepted.
func TestDamagedArchive(t *testing.T) {
	b := makeArchive(t)
	base := t.TempDir()
	for i := 0; i < len(b); i += 1 + len(b)/60 {
		damaged := bytes.Clone(b)
		damaged[i] ^= 1 << (i % 8)
		dir := filepath.Join(base, "flip")
		if err := unpack(dir, bytes.NewReader(damaged)); err == nil {
			t.Fatalf("a flipped bit in byte %d is not noticed", i)
		}
		_ = os.RemoveAll(dir)
		if err := unpack(dir, bytes.NewReader(b[:i])); err == nil {
			t.Fatalf("the first %d bytes are accepted", i)
		}
		_ = os.RemoveAll(dir)
	}
}

func TestArchiveStaysInItsFolder(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"../out", "/tmp/out", "a/../../out"} {
		b := append([]byte(archiveMagic), 'F', 0, byte(len(name)), 0, 0, 0, 0, 0, 0, 0, 0)
		dir := filepath.Join(base, "in")
		if err := unpack(dir, bytes.NewReader(append(b, name...))); err == nil {
			t.Fatalf("%s is accepted", name)
		}
		_ = os.RemoveAll(dir)
	}
}
