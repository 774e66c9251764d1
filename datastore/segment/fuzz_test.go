package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
)

// FuzzRecord decodes any bytes as a record's head: what is accepted is within
// the limits, and the same when it is written again. With sign, the fuzzer gets
// past the checksum.
func FuzzRecord(f *testing.F) {
	uuid := testUUID(1)
	for _, r := range []record{
		{kind: kindBlob, head: headLen(100), info: Info{Key: key(1), Len: 100, CRC: 5}, seg: 3, off: Align, seq: 9},
		{kind: kindTombstone, head: headLen(2 * keySize), info: Info{Len: 2 * keySize}, seg: 3, off: Align},
		{kind: kindPad, head: 4 * Align, seg: 3, off: Align},
	} {
		b := make([]byte, headLen(int(r.info.Len)))
		r.encode(b, &uuid, make(checksum.Sums, checksum.Size(int(r.info.Len))))
		f.Add(b[:headerSize+8], false)
		f.Add(b[:headerSize+8], true)
	}
	f.Fuzz(func(t *testing.T, in []byte, sign bool) {
		in = bytes.Clone(in)
		if n, ok := sumsLen(in); sign && ok && len(in) >= headerSize+n {
			binary.LittleEndian.PutUint32(in[40:], 3)
			binary.LittleEndian.PutUint32(in[44:], 1)
			binary.LittleEndian.PutUint32(in[60:], headerSum(in, &uuid, n))
		}
		_ = parseTombstone(in)
		var r record
		sums, ok := r.decode(in, &uuid, 3, Align)
		if !ok {
			return
		}
		if r.info.Len > MaxPayload && r.kind != kindPad || r.head < Align || r.span() < r.head || r.end() <= r.off {
			t.Fatalf("accepted: %+v", r)
		}
		again := make([]byte, align(int64(headerSize+len(sums))))
		r.encode(again, &uuid, sums)
		if r.kind != kindPad && !bytes.Equal(again[:headerSize+len(sums)], in[:headerSize+len(sums)]) {
			t.Fatalf("%x is %+v", in, r)
		}
	})
}

// FuzzSuper decodes any bytes as a superblock and as a segment's header.
func FuzzSuper(f *testing.F) {
	good := super{uuid: testUUID(1), segmentSize: testSegment, clusterID: "c"}
	f.Add(good.encode(), false)
	f.Add(append([]byte(superMagic), 9, 0, 0, 0), true)
	var head [Align]byte
	encodeSegmentHeader(head[:], segmentMagic, 7, &good.uuid)
	f.Add(head[:32], false)
	f.Fuzz(func(t *testing.T, in []byte, sign bool) {
		in = bytes.Clone(in)
		if n := len(in) - 4; sign && n >= 0 {
			binary.LittleEndian.PutUint32(in[n:], checksum.Sum(in[:n]))
		}
		_, _ = decodeSegmentHeader(in, &good.uuid)
		var s super
		if s.decode(in) == nil && (!validSegmentSize(s.segmentSize) || !bytes.Equal(s.encode(), in)) {
			t.Fatalf("%x is %+v", in, s)
		}
	})
}

// FuzzSegment opens a store in which a record and what follows it were
// overwritten, with and without its index. It opens, never returns a wrong
// byte, and takes new blobs.
func FuzzSegment(f *testing.F) {
	uuid := testUUID(1)
	head := func(r record) []byte {
		b := make([]byte, headLen(int(r.info.Len)))
		r.encode(b, &uuid, make(checksum.Sums, checksum.Size(int(r.info.Len))))
		return b[:headerSize+16]
	}
	f.Add(head(record{kind: kindPad, head: 1 << 30, seq: 5}), uint8(2), true, true)
	f.Add(head(record{kind: kindTombstone, head: headLen(48), info: Info{Len: 48}, seq: 1 << 60}), uint8(1), true, true)
	f.Add(head(record{kind: kindBlob, head: headLen(MaxPayload), info: Info{Key: key(1), Len: MaxPayload}, seq: 2}), uint8(0), true, true)
	f.Add([]byte("HSR1"), uint8(3), false, false)
	f.Add(make([]byte, 100), uint8(3), false, true)
	f.Fuzz(func(t *testing.T, in []byte, victim uint8, sign, lose bool) {
		if len(in) > 64<<10 {
			return
		}
		fs := vfs.NewMem()
		s := open(t, fs)
		mustPut(t, s, ints(0, 5)...)
		_, loc, err := s.idx.lookup(key(int(victim % 5)))
		if err != nil {
			t.Fatal(err)
		}
		in = bytes.Clone(in)
		if n, ok := sumsLen(in); sign && ok && len(in) >= headerSize+n {
			binary.LittleEndian.PutUint32(in[40:], loc.seg)
			binary.LittleEndian.PutUint32(in[44:], uint32(loc.off/Align))
			binary.LittleEndian.PutUint32(in[60:], headerSum(in, &uuid, n))
		}
		mustClose(t, s)
		file, err := openFile(fs, "/disk/"+fileName(segPrefix, loc.seg), false)
		if err != nil {
			t.Fatal(err)
		}
		n := min(int64(len(in)), testSegment-loc.off)
		if err := file.write(loc.off, in[:n]); err != nil {
			t.Fatal(err)
		}
		file.drop()
		if lose {
			if err := fs.RemoveAll("/disk/idx"); err != nil {
				t.Fatal(err)
			}
		}
		s = open(t, fs)
		for i := range 5 {
			want := content(i)
			got, err := s.Get(bg, key(i), 0, uint32(len(want)), nil)
			if err == nil && !bytes.Equal(got, want) {
				t.Fatalf("blob %d is wrong", i)
			}
			// A blob that the fuzzer made with this key may be shorter.
			if err != nil && !errors.Is(err, cluster.ENOBLOB) && !errors.Is(err, cluster.ECORRUPT) && !errors.Is(err, cluster.EINVAL) {
				t.Fatalf("blob %d: %v", i, err)
			}
		}
		check(t, s)
		mustPut(t, s, 7, 8)
		mustHave(t, s, 7, 8)
		mustClose(t, s)
	})
}
