package bench

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// latencies draws latencies of all magnitudes.
var latencies = rapid.Custom(func(t *rapid.T) time.Duration {
	return time.Duration(rapid.Int64Range(0, 1<<rapid.IntRange(0, maxBits).Draw(t, "bits")-1).Draw(t, "ns"))
})

func TestQuantileIsNearTheExactOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(latencies, 1, 300).Draw(t, "latencies")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		var h Histogram
		for _, d := range all {
			h.Record(d)
		}
		slices.Sort(all)
		rank := 0
		for float64(rank+1) < q*float64(len(all)) {
			rank++
		}
		want, got := all[rank], h.Quantile(q)
		if diff := (got - want).Abs(); diff > want/subBuckets {
			t.Fatalf("quantile %v of %v is %v, want %v", q, all, got, want)
		}
	})
}

func TestMergeIsAsCountingAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts [2]Histogram
		var all Histogram
		for i := range parts {
			for _, d := range rapid.SliceOfN(latencies, 0, 50).Draw(t, "latencies") {
				parts[i].Record(d)
				all.Record(d)
			}
		}
		parts[0].Merge(&parts[1])
		if parts[0] != all {
			t.Fatal("merged histograms differ from one that counted all")
		}
	})
}

func TestBucketsFollowEachOther(t *testing.T) {
	next := time.Duration(0)
	for i := range buckets {
		low, width := bounds(i)
		if low != next {
			t.Fatalf("bucket %d begins at %d, the one before ends at %d", i, low, next)
		}
		if bucketOf(low) != i || bucketOf(low+width-1) != i {
			t.Fatalf("bucket %d of %d to %d: its ends are in %d and %d", i, low, low+width-1, bucketOf(low), bucketOf(low+width-1))
		}
		next = low + width
	}
	if next != maxLatency+1 {
		t.Errorf("the buckets end at %d, the longest latency is %d", next, maxLatency)
	}
}

func TestHistogramIsBounded(t *testing.T) {
	var h Histogram
	if size := unsafe.Sizeof(h); size > 24<<10 {
		t.Errorf("a histogram is %d bytes", size)
	}
	if n := testing.AllocsPerRun(100, func() { h.Record(time.Millisecond) }); n > 0 {
		t.Errorf("Record allocates %v times", n)
	}
	h.Record(-1)
	h.Record(maxLatency + 1)
	if h.Quantile(0) != 0 || h.Quantile(1) != maxLatency {
		t.Errorf("%v to %v: what is out of range is not counted at its ends", h.Quantile(0), h.Quantile(1))
	}
	if (&Histogram{}).Quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
}
