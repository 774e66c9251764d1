package scrub

import (
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/checksum"
	"github.com/hawserfs/hawser/datastore/segment"
)

// BenchmarkStep scrubs a store on the disk, of blobs of 1 MiB, without a pace.
func BenchmarkStep(b *testing.B) {
	s, err := segment.Open(b.TempDir()+"/disk", segment.Options{Manual: true, Reserve: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := make([]byte, 1<<20)
	sums := checksum.Sums(nil).Append(data)
	for n := range uint32(200) {
		if err := s.Put(bg, key(1, n), segment.Meta{}, sums, data); err != nil {
			b.Fatal(err)
		}
	}
	x := New(Config{ID: 1, Store: OnStore(s), Map: &world{}, Source: &world{}})
	var after cluster.BlobKey
	var total uint64
	for b.Loop() {
		r, err := x.Step(bg, after)
		if err != nil {
			b.Fatal(err)
		}
		total += r.Bytes
		if after = r.After; r.Done {
			after = cluster.BlobKey{}
		}
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds()/1e6, "MB/s")
}
