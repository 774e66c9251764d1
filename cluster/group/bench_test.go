package group

import (
	"fmt"
	"testing"
)

func BenchmarkPropose(b *testing.B) {
	for _, from := range []string{"leader", "follower"} {
		for _, callers := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", from, callers), func(b *testing.B) {
				c := newCluster(b, 3, func(cfg *Config) { cfg.SegmentSize = 16 << 20 })
				n := c.leader()
				if from == "follower" {
					n = c.followers()[0]
				}
				cmd := make([]byte, 200) // all of the same id: the machine does nothing
				b.SetParallelism(max(1, callers/2))
				propose := func() {
					if _, _, err := n.group.Propose(b.Context(), cmd); err != nil {
						b.Error(err)
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				if callers == 1 {
					for range b.N {
						propose()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						propose()
					}
				})
			})
		}
	}
}

func BenchmarkReadIndex(b *testing.B) {
	for _, from := range []string{"leader", "follower"} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", from, callers), func(b *testing.B) {
				c := newCluster(b, 3, nil)
				n := c.leader()
				if from == "follower" {
					n = c.followers()[0]
				}
				b.SetParallelism(max(1, callers/2))
				read := func() {
					if _, err := n.group.ReadIndex(b.Context()); err != nil {
						b.Error(err)
					}
				}
				read()
				b.ReportAllocs()
				b.ResetTimer()
				if callers == 1 {
					for range b.N {
						read()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						read()
					}
				})
			})
		}
	}
}
