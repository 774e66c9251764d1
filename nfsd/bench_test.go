package nfsd

import (
	"context"
	"sync"
	"testing"

	"github.com/hawserfs/hawser/nfsd/client"
	"github.com/hawserfs/hawser/nfsd/nfs4"
	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
	"github.com/hawserfs/hawser/vfs/memfs"
)

// The benchmarks here measure the server and our client together over loopback,
// on the processors that they share. Allocations are those of both.

// A cachedFS is a file system in memory that hands data out as it lies there, as
// a cache of blobs does. All but reading is memfs.
type cachedFS struct {
	*memfs.FS
	data []byte
}

func (c *cachedFS) Read(_ *vfs.Request, _ vfs.File, off uint64, n int) (vfs.Data, error) {
	return vfs.Data{Bufs: [][]byte{c.data[off : off+uint64(n)]}, N: n}, nil
}

const benchFile = 8 << 20

// startBench starts a server with a file, and returns the file open.
func startBench(b testing.TB, conns int) (*client.Client, *client.File) {
	p, err := nfs4.New(nfs4.Config{
		FS: &cachedFS{memfs.New(memfs.Options{}), make([]byte, benchFile)}, ServerOwner: "test", Scope: "test",
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := Listen(Config{
		Listen: []string{"127.0.0.1:0"},
		Programs: []oncrpc.Program{{
			Number: proto.Program, MinVersion: proto.Version, MaxVersion: proto.Version, Handler: p,
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve() })
	ctx := context.Background()
	c, err := client.Dial(ctx, s.Addrs()[0].String(), client.Options{Conns: conns})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(ctx); err != nil {
			b.Error(err)
		}
		s.Close()
		wg.Wait()
	})
	dir, err := c.Walk(ctx, "main")
	if err != nil {
		b.Fatal(err)
	}
	f, err := c.CreateFile(ctx, dir, "file", 0o644)
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Truncate(ctx, benchFile); err != nil {
		b.Fatal(err)
	}
	return c, f
}

// inFlight is how many requests are under way for each processor.
const inFlight = 16

// parallel calls do from inFlight goroutines for each processor; i is different
// in each call of one of them.
func parallel(b *testing.B, do func(i int) error) {
	b.SetParallelism(inFlight)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if err := do(i); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

func benchmarkRead(b *testing.B, size int) {
	_, f := startBench(b, 2)
	ctx := context.Background()
	b.SetBytes(int64(size))
	parallel(b, func(i int) error {
		_, err := f.ReadDiscard(ctx, uint64(i*size)%benchFile, size)
		return err
	})
}

func BenchmarkRead1M(b *testing.B) { benchmarkRead(b, 1<<20) }
func BenchmarkRead4K(b *testing.B) { benchmarkRead(b, 4<<10) }

func BenchmarkGetattr(b *testing.B) {
	c, f := startBench(b, 2)
	ctx := context.Background()
	parallel(b, func(int) error {
		_, err := c.Getattr(ctx, f.FH())
		return err
	})
}

// BenchmarkGetattrOne measures the way there and back: one request at a time.
func BenchmarkGetattrOne(b *testing.B) {
	c, f := startBench(b, 1)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Getattr(ctx, f.FH()); err != nil {
			b.Fatal(err)
		}
	}
}

// Server and client together allocate no more than this for a READ or GETATTR.
func TestAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes pools forget")
	}
	const most = 6
	c, f := startBench(t, 1)
	ctx := context.Background()
	for what, do := range map[string]func() error{
		"READ":    func() error { _, err := f.ReadDiscard(ctx, 0, 4<<10); return err },
		"GETATTR": func() error { _, err := c.Getattr(ctx, f.FH()); return err },
	} {
		n := testing.AllocsPerRun(500, func() {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		})
		if n > most {
			t.Errorf("%s: %v allocations, want at most %d", what, n, most)
		}
	}
}
