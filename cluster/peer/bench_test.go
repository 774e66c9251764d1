package peer

import (
	"fmt"
	"testing"
)

func BenchmarkCall(b *testing.B) {
	for _, size := range []int{128, 64 << 10, 1 << 20} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprintf("size=%d/callers=%d", size, callers), func(b *testing.B) {
				x, y := listen(b, "x", nil), listen(b, "y", nil)
				y.Handle(ServiceBlob, echo)
				body := make([]byte, size)
				b.SetBytes(int64(2 * size))
				b.ReportAllocs()
				b.SetParallelism(max(1, callers/2))
				call := func() {
					r, err := x.Call(b.Context(), y.Addr().String(), ServiceBlob, 0, nil, body)
					if err != nil {
						b.Error(err)
						return
					}
					r.Release()
				}
				if callers == 1 {
					for b.Loop() {
						call()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						call()
					}
				})
			})
		}
	}
}
