package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSegment = 128 << 10

var bg = context.Background()

func testUUID(seed byte) (u [16]byte) {
	for i := range u {
		u[i] = seed + byte(i)
	}
	return u
}

func open(t testing.TB, fs vfs.FS, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{FS: fs, Manual: true, SegmentSize: testSegment, UUID: testUUID(1), IndexCache: 1 << 20}
	for _, c := range change {
		c(&o)
	}
	s, err := Open("/disk", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func key(n int) cluster.BlobKey {
	return cluster.BlobKey{Group: cluster.GroupID(n%3 + 1), Blob: cluster.MakeBlobID(7, uint32(n))}
}

// content is the only content that key(n) ever has.
func content(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, 1+r.IntN(20<<10))
	for i := 0; i < len(b); i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], r.Uint64())
		copy(b[i:], w[:])
	}
	return b
}

func put(s *Store, n int) error {
	b := content(n)
	k := len(b) / 3
	return s.Put(bg, key(n), Meta{Set: 5, Epoch: 2}, checksum.Sums(nil).Append(b), b[:k], b[k:])
}

func mustPut(t testing.TB, s *Store, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if err := put(s, n); err != nil {
			t.Fatalf("put %d: %v", n, err)
		}
	}
}

func mustDelete(t testing.TB, s *Store, ns ...int) {
	t.Helper()
	var ks []cluster.BlobKey
	for _, n := range ns {
		ks = append(ks, key(n))
	}
	if err := s.Delete(bg, ks); err != nil {
		t.Fatal(err)
	}
}

func mustHave(t testing.TB, s *Store, ns ...int) {
	t.Helper()
	for _, n := range ns {
		want := content(n)
		got, err := s.Get(bg, key(n), 0, uint32(len(want)), nil)
		if err != nil {
			t.Fatalf("blob %d: %v", n, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("blob %d has another content", n)
		}
	}
}

func mustLack(t testing.TB, s *Store, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if _, err := s.Get(bg, key(n), 0, 1, nil); err != cluster.ENOBLOB {
			t.Fatalf("blob %d: %v, want ENOBLOB", n, err)
		}
	}
}

func mustReclaim(t testing.TB, s *Store) int64 {
	t.Helper()
	n, err := s.Reclaim()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// check compares the books with the index.
func check(t testing.TB, s *Store) {
	t.Helper()
	live := map[uint32]int64{}
	var blobs, used uint64
	if err := s.ascend([]byte{keyBlob}, nil, func(i Info, l location) bool {
		live[l.seg] += spanLen(int(i.Len))
		blobs++
		used += uint64(spanLen(int(i.Len)))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if u := s.Usage(); u.Blobs != blobs || u.Used != used {
		t.Fatalf("usage says %d blobs, %d bytes; the index has %d, %d", u.Blobs, u.Used, blobs, used)
	}
	for no, g := range s.segs {
		if g.live != live[no] || g.dead < 0 || g.tombs < 0 {
			t.Fatalf("segment %d: live %d, dead %d, tombs %d; the index has %d", no, g.live, g.dead, g.tombs, live[no])
		}
	}
	for no := range live {
		if s.segs[no] == nil {
			t.Fatalf("the index refers to segment %d, which is not there", no)
		}
	}
}

func ints(from, to int) (ns []int) {
	for ; from < to; from++ {
		ns = append(ns, from)
	}
	return ns
}
