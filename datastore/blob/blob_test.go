package blob

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// node is a server with two stores on a peer endpoint.
func node(t testing.TB) (*Server, *peer.Endpoint) {
	t.Helper()
	ep, err := peer.Listen(peer.Config{Self: "node", Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ep.Close() })
	srv := NewServer(nil)
	ep.Handle(peer.ServiceBlob, srv.Handle)
	for id := cluster.StoreID(1); id <= 2; id++ {
		s, err := segment.Open("/disk", segment.Options{FS: vfs.NewMem(), SegmentSize: 8 << 20, Manual: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		srv.Add(id, s)
	}
	return srv, ep
}

func key(n uint32) cluster.BlobKey {
	return cluster.BlobKey{Group: 4, Blob: cluster.MakeBlobID(3, n)}
}

func put(c *Client, addr string, id cluster.StoreID, k cluster.BlobKey, data ...[]byte) error {
	_, err := c.Put(bg, addr, id, k, segment.Meta{Set: 1, Epoch: 1}, checksum.Sums(nil).Append(data...), data)
	return err
}

// Every operation, over the network and directly.
func TestOperations(t *testing.T) {
	for _, local := range []bool{false, true} {
		name, own := "remote", (*Server)(nil)
		srv, ep := node(t)
		if local {
			name, own = "local", srv
		}
		t.Run(name, func(t *testing.T) {
			var transport Transport
			addr := ""
			if !local {
				mine, err := peer.Listen(peer.Config{Self: "client", Listen: "127.0.0.1:0"})
				if err != nil {
					t.Fatal(err)
				}
				defer mine.Close()
				transport, addr = OverPeer(mine), ep.Addr().String()
			}
			c := NewClient(transport, own)
			if c.Local(1) != local || c.Local(9) {
				t.Error("Local")
			}
			data := bytes.Repeat([]byte("all work and no play "), 150_000)
			if err := put(c, addr, 1, key(1), data[:5], data[5:100_000], data[100_000:]); err != nil {
				t.Fatal(err)
			}
			u, err := c.Put(bg, addr, 1, key(1), segment.Meta{}, checksum.Sums(nil).Append(data), [][]byte{data})
			if err != nil || u.Blobs != 1 || u.Used < uint64(len(data)) {
				t.Fatalf("the same again: %+v %v", u, err)
			}
			if err := put(c, addr, 1, key(1), data[1:]); !errors.Is(err, cluster.ECONFLICT) {
				t.Errorf("another content: %v", err)
			}
			for _, r := range [][2]uint32{{0, uint32(len(data))}, {0, 1}, {4095, 2}, {1_000_000, 70_000}, {uint32(len(data)) - 1, 1}} {
				b, err := c.Get(bg, addr, 1, key(1), r[0], r[1])
				if err != nil || !bytes.Equal(b.Bytes, data[r[0]:][:r[1]]) {
					t.Fatalf("get %v: %v", r, err)
				}
				b.Release()
				b.Release() // harmless
			}
			for _, r := range [][2]uint32{{0, 0}, {uint32(len(data)), 1}, {1<<32 - 1, 1<<32 - 1}} {
				if _, err := c.Get(bg, addr, 1, key(1), r[0], r[1]); !errors.Is(err, cluster.EINVAL) {
					t.Errorf("get %v: %v", r, err)
				}
			}
			if _, err := c.Get(bg, addr, 2, key(1), 0, 1); !errors.Is(err, cluster.ENOBLOB) {
				t.Errorf("other store: %v", err)
			}
			if i, err := c.Stat(bg, addr, 1, key(1)); err != nil || i.Len != uint32(len(data)) || i.CRC != checksum.Sum(data) || i.Key != key(1) {
				t.Errorf("stat: %+v %v", i, err)
			}
			for n := uint32(2); n <= 9; n++ {
				if err := put(c, addr, 1, key(n), []byte{byte(n)}); err != nil {
					t.Fatal(err)
				}
			}
			l, err := c.List(bg, addr, 1, 4, key(1), 5)
			if err != nil || len(l) != 5 || l[0].Key != key(2) || l[4].Key != key(6) || l[0].Meta != (segment.Meta{Set: 1, Epoch: 1}) {
				t.Errorf("list: %v %v", l, err)
			}
			if err := c.Delete(bg, addr, 1, 4, []cluster.BlobKey{key(3), key(4), key(77)}); err != nil {
				t.Error(err)
			}
			if l, err = c.List(bg, addr, 1, 4, cluster.BlobKey{}, MaxList); err != nil || len(l) != 7 {
				t.Errorf("list: %v %v", l, err)
			}
			if u, err := c.Usage(bg, addr, 1); err != nil || u.Blobs != 7 {
				t.Errorf("usage: %+v %v", u, err)
			}
			if !local {
				if _, err := c.Usage(bg, addr, 9); !errors.Is(err, cluster.EDISK) {
					t.Errorf("no such store: %v", err)
				}
			}
		})
	}
}

// A server answers what makes no sense with an error.
func TestBadRequests(t *testing.T) {
	srv, _ := node(t)
	ok := (&head{op: opPut, store: 1, blob: 1, n: 10}).append(nil)
	for _, r := range []*Request{
		{},
		{Head: ok[:20]},
		{Head: append([]byte{9}, ok[1:]...)},
		{Head: ok},
		{Head: ok, Body: make([]byte, 13)},
		{Head: ok, Body: make([]byte, 14)}, // wrong checksum
		{Head: (&head{op: opPut, store: 1, n: 0}).append(nil)},
		{Head: (&head{op: opPut, store: 1, n: 1 << 31}).append(nil)},
		{Head: (&head{op: opGet, store: 1, n: 1}).append(nil)},
		{Head: (&head{op: opDelete, store: 1, n: 1 << 30}).append(nil)},
		{Head: (&head{op: opDelete, store: 1, n: 2}).append(nil), Body: make([]byte, 9)},
		{Head: (&head{op: opList, store: 1, n: 1 << 30}).append(nil)},
		{Head: (&head{op: 99, store: 1}).append(nil)},
		{Head: (&head{op: opStat, store: 44}).append(nil)},
	} {
		if _, err := srv.Serve(bg, r); err == nil {
			t.Errorf("%v: no error", r)
		}
	}
}

// damager changes a bit of each response's body.
type damager struct {
	Transport
	at int
}

func (d damager) Call(ctx context.Context, addr string, g cluster.GroupID, head []byte, body ...[]byte) (Response, error) {
	r, err := d.Transport.Call(ctx, addr, g, head, body...)
	if err == nil && len(r.Body) > d.at {
		r.Body = bytes.Clone(r.Body)
		r.Body[d.at] ^= 4
	}
	return r, err
}

// What is damaged on the way is found: by the store of a put, by the client of
// a get.
func TestDamagedOnTheWay(t *testing.T) {
	srv, ep := node(t)
	mine, err := peer.Listen(peer.Config{Self: "client", Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	data := bytes.Repeat([]byte("x"), 10000)
	sums := checksum.Sums(nil).Append(data)
	c := NewClient(OverPeer(mine), nil)
	bad := bytes.Clone(data)
	bad[9999] ^= 1
	if _, err := c.Put(bg, ep.Addr().String(), 1, key(1), segment.Meta{}, sums, [][]byte{bad}); !errors.Is(err, cluster.ECORRUPT) {
		t.Errorf("put: %v", err)
	}
	if st, _ := srv.Local(1); st.Usage().Blobs != 0 {
		t.Error("damaged data was stored")
	}
	if err := put(c, ep.Addr().String(), 1, key(1), data); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 11, 12, 10011} {
		c := NewClient(damager{OverPeer(mine), at}, nil)
		if _, err := c.Get(bg, ep.Addr().String(), 1, key(1), 0, 10000); !errors.Is(err, cluster.ECORRUPT) {
			t.Errorf("get, byte %d: %v", at, err)
		}
	}
}

func TestConcurrentAndDead(t *testing.T) {
	_, ep := node(t)
	mine, err := peer.Listen(peer.Config{Self: "client", Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	c := NewClient(OverPeer(mine), nil)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				k := key(uint32(100*w + i))
				data := bytes.Repeat([]byte{byte(w), byte(i)}, 10000)
				if err := put(c, ep.Addr().String(), 1, k, data); err != nil {
					t.Error(err)
					return
				}
				b, err := c.Get(bg, ep.Addr().String(), 1, k, 0, 20000)
				if err != nil || !bytes.Equal(b.Bytes, data) {
					t.Errorf("get: %v", err)
					return
				}
				b.Release()
			}
		})
	}
	wg.Wait()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithTimeout(bg, 2*time.Second)
	defer cancel()
	if _, err := c.Get(ctx, dead, 1, key(1), 0, 1); err == nil {
		t.Error("a dead node answered")
	}
}

func FuzzServe(f *testing.F) {
	f.Add((&head{op: opPut, store: 1, blob: 1, n: 10}).append(nil), make([]byte, 14))
	f.Add((&head{op: opGet, store: 1, blob: 1, n: 10}).append(nil), []byte(nil))
	srv, _ := node(f)
	f.Fuzz(func(_ *testing.T, head, body []byte) {
		r, err := srv.Serve(bg, &Request{Group: 1, Head: head, Body: body})
		if err == nil && r.Done != nil {
			r.Done()
		}
	})
}

func BenchmarkRemote(b *testing.B) {
	_, ep := node(b)
	mine, err := peer.Listen(peer.Config{Self: "client", Listen: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	defer mine.Close()
	c := NewClient(OverPeer(mine), nil)
	data := make([]byte, 1<<20)
	if err := put(c, ep.Addr().String(), 1, key(1), data); err != nil {
		b.Fatal(err)
	}
	b.Run("Get1MiB", func(b *testing.B) {
		b.SetBytes(1 << 20)
		b.ReportAllocs()
		for b.Loop() {
			r, err := c.Get(bg, ep.Addr().String(), 1, key(1), 0, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			r.Release()
		}
	})
}
