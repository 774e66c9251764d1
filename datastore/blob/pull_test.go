package blob

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/peer"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// damagedStore is a store whose copy of a blob reads as damaged until it is
// deleted.
type damagedStore struct {
	Store
	bad     cluster.BlobKey
	deleted atomic.Int32
}

func (d *damagedStore) Read(ctx context.Context, key cluster.BlobKey, off, n uint32) (segment.Blocks, error) {
	if key == d.bad && d.deleted.Load() == 0 {
		return segment.Blocks{}, cluster.ECORRUPT
	}
	return d.Store.Read(ctx, key, off, n)
}

func (d *damagedStore) Delete(ctx context.Context, keys []cluster.BlobKey) error {
	d.deleted.Add(1)
	return d.Store.Delete(ctx, keys)
}

// pullers makes two nodes whose stores can fetch from each other: stores 1 and
// 2 on the first, 1 and 2 on the second as 11 and 12.
func pullers(t testing.TB, l PullLimits) (a, b *Server, addrs [2]string, c *Client) {
	t.Helper()
	var eps [2]*peer.Endpoint
	a, eps[0] = node(t)
	b, eps[1] = node(t)
	for _, id := range []cluster.StoreID{1, 2} {
		st, _ := b.Local(id)
		b.Remove(id)
		b.Add(id+10, st)
	}
	for i, s := range []*Server{a, b} {
		addrs[i] = eps[i].Addr().String()
		s.Pulls(NewClient(OverPeer(eps[i]), s), l)
	}
	mine, err := peer.Listen(peer.Config{Self: "client", Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mine.Close() })
	return a, b, addrs, NewClient(OverPeer(mine), nil)
}

func TestPull(t *testing.T) {
	a, b, addrs, c := pullers(t, PullLimits{})
	data := bytes.Repeat([]byte("a rolling stone gathers no moss "), 50_001)
	want := &PullRequest{
		Key: key(1), Meta: segment.Meta{Set: 7, Epoch: 3}, Len: uint32(len(data)), CRC: checksum.Sum(data),
		Sources: []Source{{2, addrs[0]}, {1, addrs[0]}, {12, addrs[1]}},
	}
	if _, err := c.Pull(bg, addrs[1], 11, want); !errors.Is(err, cluster.ENOBLOB) {
		t.Fatalf("no source has it: %v", err)
	}
	if err := put(c, addrs[0], 1, key(1), data); err != nil {
		t.Fatal(err)
	}
	// The first source has it not, the second has.
	for i, copied := range []bool{true, false} {
		r, err := c.Pull(bg, addrs[1], 11, want)
		if err != nil || r.Copied != copied || r.Usage.Blobs != 1 {
			t.Fatalf("pull %d: %+v %v", i, r, err)
		}
	}
	got, err := c.Get(bg, addrs[1], 11, key(1), 0, want.Len)
	if err != nil || !bytes.Equal(got.Bytes, data) {
		t.Fatal("what was pulled is not what was put", err)
	}
	got.Release()
	if i, err := c.Stat(bg, addrs[1], 11, key(1)); err != nil || i.Meta != want.Meta {
		t.Fatalf("%+v %v", i, err)
	}
	// From a store of the same node, by a client that has it, too.
	local := NewClient(nil, b)
	b.Pulls(local, PullLimits{})
	if r, err := local.Pull(bg, "", 12, &PullRequest{Key: want.Key, Meta: want.Meta, Len: want.Len, CRC: want.CRC, Sources: []Source{{11, ""}}}); err != nil || !r.Copied {
		t.Fatal(r, err)
	}

	for name, tc := range map[string]struct {
		change func(*PullRequest)
		want   cluster.Errno
	}{
		"a source that is not there": {func(q *PullRequest) { q.Sources = []Source{{99, addrs[0]}} }, cluster.EAGAIN},
		"the map says another checksum": {func(q *PullRequest) {
			q.CRC++
		}, cluster.ECORRUPT},
		"the map says another length":  {func(q *PullRequest) { q.Len++ }, cluster.ECORRUPT},
		"no sources":                   {func(q *PullRequest) { q.Sources = nil }, cluster.EINVAL},
		"too many sources":             {func(q *PullRequest) { q.Sources = make([]Source, MaxSources+1) }, cluster.EINVAL},
		"more than a blob":             {func(q *PullRequest) { q.Len = segment.MaxPayload + 1 }, cluster.EINVAL},
		"another content is there":     {func(q *PullRequest) { q.Key = key(2) }, cluster.ECONFLICT},
		"nobody has it, one is silent": {func(q *PullRequest) { q.Key = key(3); q.Sources = append(q.Sources, Source{5, ""}) }, cluster.EAGAIN},
	} {
		q := *want
		tc.change(&q)
		if q.Key == key(2) {
			if err := put(c, addrs[0], 2, key(2), []byte("another")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Pull(bg, addrs[0], 2, &q); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if st, _ := a.Local(2); q.Key != key(2) {
			if _, err := st.Stat(q.Key); !errors.Is(err, cluster.ENOBLOB) {
				t.Errorf("%s: something was stored: %v", name, err)
			}
		}
	}
	c2 := NewClient(nil, NewServer(nil))
	if _, err := c2.Pull(bg, "", 1, want); err == nil {
		t.Error("a store without an address pulled")
	}
	a.pulls.Store(nil)
	if _, err := c.Pull(bg, addrs[0], 2, want); !errors.Is(err, cluster.ENOTSUP) {
		t.Errorf("a node that does not pull: %v", err)
	}
}

// Verify replaces a damaged copy, and only when a right one is in its hands.
func TestPullVerify(t *testing.T) {
	a, _, addrs, c := pullers(t, PullLimits{})
	data := bytes.Repeat([]byte("0123456789"), 10_000)
	st, _ := a.Local(2)
	bad := &damagedStore{Store: st, bad: key(1)}
	a.Add(2, bad)
	if err := put(c, addrs[0], 2, key(1), data); err != nil {
		t.Fatal(err)
	}
	q := &PullRequest{
		Key: key(1), Meta: segment.Meta{Set: 1, Epoch: 1}, Len: uint32(len(data)), CRC: checksum.Sum(data),
		Sources: []Source{{11, addrs[1]}},
	}
	if r, err := c.Pull(bg, addrs[0], 2, q); err != nil || r.Copied {
		t.Fatalf("without Verify it is left alone: %+v %v", r, err)
	}
	q.Verify = true
	if _, err := c.Pull(bg, addrs[0], 2, q); !errors.Is(err, cluster.ENOBLOB) || bad.deleted.Load() != 0 {
		t.Fatalf("without a right copy: %v, %d deleted", err, bad.deleted.Load())
	}
	if err := put(c, addrs[1], 11, key(1), data); err != nil {
		t.Fatal(err)
	}
	for i, copied := range []bool{true, false} {
		if r, err := c.Pull(bg, addrs[0], 2, q); err != nil || r.Copied != copied {
			t.Fatalf("pull %d: %+v %v", i, r, err)
		}
	}
	if bad.deleted.Load() != 1 {
		t.Fatalf("%d deleted", bad.deleted.Load())
	}
}

// A slow store keeps pulls waiting; no more run or wait than the limits say.
type slowStore struct {
	Store
	now, most atomic.Int32
	go_       chan struct{}
}

func (s *slowStore) Stat(cluster.BlobKey) (segment.Info, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	<-s.go_
	s.now.Add(-1)
	return segment.Info{}, cluster.EIO
}

func TestPullLimits(t *testing.T) {
	st, err := segment.Open("/disk", segment.Options{FS: vfs.NewMem(), SegmentSize: 8 << 20, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	synctest.Test(t, func(t *testing.T) {
		slow := &slowStore{go_: make(chan struct{})}
		srv := NewServer(nil)
		slow.Store = st
		srv.Add(1, slow)
		c := NewClient(nil, srv)
		srv.Pulls(c, PullLimits{Concurrent: 2, Waiting: 3})
		var wg sync.WaitGroup
		var refused atomic.Int32
		for range 9 {
			wg.Go(func() {
				_, err := c.Pull(bg, "", 1, &PullRequest{Key: key(1), Len: 1, Sources: []Source{{Store: 2}}})
				if errors.Is(err, cluster.EAGAIN) {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if slow.most.Load() != 2 || refused.Load() != 4 {
			t.Errorf("%d run, %d refused", slow.most.Load(), refused.Load())
		}
		close(slow.go_)
		wg.Wait()
	})
}

func TestPullRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bucket{rate: 1 << 20}
		begin := time.Now()
		for range 10 {
			if err := b.take(bg, 1<<19); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d < 4300*time.Millisecond || d > 4600*time.Millisecond {
			t.Errorf("5 MiB at 1 MiB/s took %v", d)
		}
		ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
		defer cancel()
		if err := b.take(ctx, 1); !errors.Is(err, cluster.EAGAIN) {
			t.Errorf("a pull that can't begin in time: %v", err)
		}
	})
}

func FuzzPull(f *testing.F) {
	q := &PullRequest{Sources: []Source{{1, "a:1"}, {2, "b:2"}}, Verify: true}
	b, _ := appendPull(nil, q)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parsePull(&head{}, 1, b)
		if err != nil || len(q.Sources) == 0 {
			return
		}
		again, err := appendPull(nil, q)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x is read and written as %x (%v)", b, again, err)
		}
	})
}
