package vfs

import (
	"testing"

	"github.com/hawserfs/hawser/cluster"
)

// TestNeighbours: parts of one frame that are read after each other are
// neighbours; those of different blobs, frames or volumes, long parts, and those
// between which others were read, are not.
func TestNeighbours(t *testing.T) {
	reads := func(nb *neighbours, n int, at func(i int) (g cluster.GroupID, b cluster.BlobID, off, n uint32)) (near int) {
		for i := range n {
			if g, b, off, n := at(i); nb.read(g, b, off, n) {
				near++
			}
		}
		return near
	}
	for _, c := range []struct {
		name string
		at   func(i int) (cluster.GroupID, cluster.BlobID, uint32, uint32)
		want int
	}{
		{"files in a row", func(i int) (cluster.GroupID, cluster.BlobID, uint32, uint32) { return 1, 7, uint32(i) * 4096, 4096 }, 250 - nearReads},
		{"files in any order", func(i int) (cluster.GroupID, cluster.BlobID, uint32, uint32) {
			return 1, 7, uint32(i*37%250) * 4096, 4096
		}, 250 - nearReads},
		{"long parts", func(i int) (cluster.GroupID, cluster.BlobID, uint32, uint32) {
			return 1, 7, uint32(i) * 4096, 100 << 10
		}, 0},
		{"blobs one by one", func(i int) (cluster.GroupID, cluster.BlobID, uint32, uint32) {
			return 1, cluster.BlobID(i + 1), 0, 4096
		}, 0},
		{"volumes one by one", func(i int) (cluster.GroupID, cluster.BlobID, uint32, uint32) {
			return cluster.GroupID(i + 1), 7, 0, 4096
		}, 0},
	} {
		if got := reads(new(neighbours), 250, c.at); got != c.want {
			t.Errorf("%s: %d of 250 reads have neighbours, want %d", c.name, got, c.want)
		}
	}
	// A random reader of very many frames has hardly any.
	r := uint64(1)
	if got := reads(new(neighbours), 10_000, func(int) (cluster.GroupID, cluster.BlobID, uint32, uint32) {
		r = r*6364136223846793005 + 1442695040888963407
		return 1, cluster.BlobID(r >> 33 % 5000), 0, 4096
	}); got > 10 {
		t.Errorf("%d of 10000 random reads have neighbours", got)
	}
}
