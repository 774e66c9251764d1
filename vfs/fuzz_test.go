package vfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// FuzzHandle parses any bytes as a file handle: only what the key made is
// accepted. With sign, the fuzzer gets past the key.
func FuzzHandle(f *testing.F) {
	key := HandleKey{1, 31: 2}
	good := key.Append(nil, File{Volume: 3, Ino: 1 << 40, Gen: 5})
	f.Add(good, false)
	f.Add(good[:20], true)
	f.Add(bytes.Repeat([]byte{0xff}, handleSize), true)
	other := HandleKey{2}
	f.Add(other.Append(nil, File{Volume: 3, Ino: 4}), false)
	f.Fuzz(func(t *testing.T, in []byte, sign bool) {
		if sign && len(in) >= handleBody {
			in = bytes.Clone(in[:handleBody])
			hi, lo := key.mac(in)
			in = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(in, hi), lo)
		}
		got, err := key.Parse(in)
		if err != nil {
			if !errors.Is(err, cluster.EBADHANDLE) && !errors.Is(err, cluster.ESTALE) {
				t.Fatal(err)
			}
			return
		}
		if again := key.Append(nil, got); !bytes.Equal(again, in) {
			t.Fatalf("%x is %+v, whose handle is %x", in, got, again)
		}
	})
}
