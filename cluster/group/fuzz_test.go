package group

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// FuzzArchive unpacks any bytes, in two pieces: nothing is written outside the
// folder, and what is accepted makes the same archive again.
func FuzzArchive(f *testing.F) {
	part := func(name, content string) []byte {
		b := binary.BigEndian.AppendUint16([]byte{'F'}, uint16(len(name)))
		b = binary.BigEndian.AppendUint64(b, uint64(len(content)))
		b = append(append(b, name...), content...)
		return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	}
	whole := func(parts ...[]byte) []byte {
		b := []byte(archiveMagic)
		for _, p := range parts {
			b = append(b, p...)
		}
		e := binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(parts)))
		return append(b, binary.BigEndian.AppendUint32(e, crc32.Checksum(e, castagnoli))...)
	}
	f.Add(whole(), 3)
	f.Add(whole(part("a", "one"), part("d/b", "")), 30)
	f.Add(whole(part("a", "one"), part("a", "two")), 20)
	f.Add(whole(part("a", "one"), part("a/b", "two")), 20)
	f.Add(whole(part("../a", "one")), 20)
	f.Add(whole(part("\x00", "one")), 20)
	f.Add(append([]byte(archiveMagic), "F\x00\x01\x7f\xff\xff\xff\xff\xff\xff\xffa"...), 9)
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		outer, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(outer)
		dir := filepath.Join(outer, "in")
		w, err := newArchiveWriter(dir)
		if err != nil {
			t.Fatal(err)
		}
		cut = min(max(cut, 0), len(in))
		_, err = w.Write(in[:cut])
		if err == nil {
			_, err = w.Write(in[cut:])
		}
		if len(w.buf) > fileFixed+maxFileName {
			t.Fatalf("%d bytes are gathered", len(w.buf))
		}
		if err != nil {
			w.abort()
		} else {
			err = w.Close()
		}
		if entries, _ := os.ReadDir(outer); len(entries) != 1 {
			t.Fatalf("something is beside the folder: %v", entries)
		}
		if err != nil {
			return
		}
		r, err := newArchiveReader(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if r.size != int64(len(in)) {
			t.Fatalf("accepted %x, which has other files than were unpacked", in)
		}
	})
}

// FuzzSeal checks that a log entry with any checksum but its own is refused.
func FuzzSeal(f *testing.F) {
	data, sum := seal([]byte("command"))
	f.Add(data, sum)
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, data, sum []byte) {
		_, want := seal(data)
		err := checkSeal(&raft.Log{Type: raft.LogCommand, Data: data, Extensions: sum})
		if (err == nil) != bytes.Equal(sum, want) {
			t.Fatalf("checksum %x of %x: %v", sum, data, err)
		}
	})
}
