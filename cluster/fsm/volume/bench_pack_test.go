package volume

import (
	"strconv"
	"testing"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
)

// BenchmarkCreateWrite: files that are created and get 4 KiB: two commands.
func BenchmarkCreateWrite(b *testing.B) {
	p := make([]byte, 4096)
	benchmarkApply(b, benchBatch, func(e *dataEnv, i int) fsm.Body {
		if i%2 == 0 {
			return Create{Dir: cluster.RootIno, Name: strconv.Itoa(i / 2), Type: cluster.TypeRegular, Gen: 1}
		}
		return CommitExtents{Ino: cluster.Ino(i/2) + 2, Extents: []NewExtent{inline(0, p)}}
	})
}
