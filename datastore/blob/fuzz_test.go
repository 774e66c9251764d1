package blob

import (
	"bytes"
	"context"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// FuzzHead parses any bytes as a request's head: what is accepted is the same
// when it is written again.
func FuzzHead(f *testing.F) {
	f.Add((&head{op: opPut, store: 1, blob: 1 << 40, shard: 3, set: 4, epoch: 5, n: 10}).append(nil))
	f.Add((&head{op: 200, off: 1<<32 - 1, n: 1<<32 - 1}).append(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := parseHead(in)
		if err == nil && !bytes.Equal(h.append(nil)[:headLen-4], in[:headLen-4]) {
			t.Fatalf("%x is %+v", in, h)
		}
	})
}

// wire is a transport whose answer is always the same.
type wire struct{ head, body []byte }

func (w wire) Call(context.Context, string, cluster.GroupID, []byte, ...[]byte) (Response, error) {
	return Response{Head: w.head, Body: w.body}, nil
}

// FuzzReply gives the client any reply to each request: it is an error, or what
// was asked for, every byte of it checked.
func FuzzReply(f *testing.F) {
	data := []byte("data")
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 4}, append([]byte(checksum.Sums(nil).Append(data)), data...), uint32(1), uint32(2))
	f.Add(make([]byte, 32), []byte{}, uint32(0), uint32(1))
	f.Add(make([]byte, infoLen), make([]byte, 3*infoLen), uint32(1<<32-1), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, head, body []byte, off, n uint32) {
		c := NewClient(wire{head, body}, nil)
		if b, err := c.Get(bg, "x", 1, key(1), off, n); err == nil {
			if len(b.Bytes) != int(n) || !bytes.Contains(body, b.Bytes) {
				t.Fatalf("asked for %d bytes, got %d", n, len(b.Bytes))
			}
			b.Release()
		}
		if infos, err := c.List(bg, "x", 1, 4, key(1), 10); err == nil && len(infos) > 10 {
			t.Fatalf("asked for 10 blobs, got %d", len(infos))
		}
		_, _ = c.Stat(bg, "x", 1, key(1))
		_, _ = c.Usage(bg, "x", 1)
		_, _ = c.Put(bg, "x", 1, key(1), segment.Meta{Set: 1}, checksum.Sums(nil).Append(data), [][]byte{data})
	})
}
