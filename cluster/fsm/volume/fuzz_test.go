package volume

import (
	"bytes"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// FuzzDecode decodes any bytes as each command and result: what is
// accepted is the same when it is written again.
func FuzzDecode(f *testing.F) {
	for i, x := range examples {
		f.Add(uint8(i), x.value.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, in []byte) {
		x := examples[int(which)%len(examples)]
		v, err := x.decode(in)
		if err != nil {
			return
		}
		enc := v.(appender).AppendTo(nil)
		again, err := x.decode(enc)
		if err != nil || !bytes.Equal(again.(appender).AppendTo(nil), enc) {
			t.Fatalf("%x is %+v, and again %+v, %v", in, v, again, err)
		}
	})
}

// FuzzRecords decodes any bytes as the key and the value of each record: the
// verifier reads what a damaged disk gives it.
func FuzzRecords(f *testing.F) {
	e, done := openTree(f)
	if _, err := e.apply(Create{Dir: cluster.RootIno, Name: "n", Type: cluster.TypeRegular, Gen: 1}); err != nil {
		f.Fatal(err)
	}
	if _, err := e.apply(SetXattr{Ino: cluster.RootIno, Name: "n", Value: []byte("v")}); err != nil {
		f.Fatal(err)
	}
	e.m.Reader().Ascend(nil, []byte{0xff}, func(key, val []byte) bool {
		f.Add(bytes.Clone(key), bytes.Clone(val))
		return true
	})
	done()
	f.Fuzz(func(t *testing.T, key, val []byte) {
		if len(key) == 0 {
			return
		}
		_, _ = parseInodeKey(key)
		_, _, _ = parseDirentKey(key)
		_, _, _ = parseXattrKey(key)
		_, _, _ = parseExtentKey(key)
		_, _, _ = parseSetBlobKey(key)
		_, _, _ = parseOwnerKey(key)
		_, _ = parseMarkKey(key)
		_, _ = decodeOwners(nil, val)
		_, _ = parseHolderKey(key)
		_, _, _ = parseUnlinkedKey(key)
		_, _, _, _ = parseClientStateKey(key)
		_, _, _ = decodeStored(key, val)
		_, _ = decodeLock(key, val)
		_, _ = decodeBlob(1, val)
		_, _ = decodeToCode(key, val)
		_, _ = decodeGarbage(val)
		_, _ = decodeSlot(val)
		_, _ = decodeInode(val)
		_, _ = decodeRecord(val)
		if x, ok := decodeExtent(1<<20, val); ok && (x.Off >= 1<<20 || x.End() != 1<<20) {
			t.Fatalf("%x is the extent %+v", val, x)
		}
	})
}
