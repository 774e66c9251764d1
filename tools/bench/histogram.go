package bench

import (
	"math/bits"
	"time"
)

// The buckets of a Histogram: each power of two is divided in 2^subBits, so
// that a value is known to better than 1/2^subBits of itself. Values below
// 2^subBits ns have a bucket of their own, those above maxLatency share one.
const (
	subBits    = 6
	subBuckets = 1 << subBits
	maxBits    = 42
	buckets    = (maxBits-subBits)*subBuckets + subBuckets
)

// maxLatency is the longest latency that is told apart: 73 minutes.
const maxLatency = time.Duration(1)<<maxBits - 1

// A Histogram counts latencies in log-linear buckets. Its memory is the same
// however many it counts. The zero Histogram is ready for use, by one goroutine
// at a time.
type Histogram struct {
	counts   [buckets]uint64
	n        uint64
	min, max time.Duration
}

// bucketOf returns the bucket of a latency.
func bucketOf(d time.Duration) int {
	v := uint64(d)
	e := max(bits.Len64(v)-1-subBits, 0)
	return e<<subBits + int(v>>e)
}

// bounds returns the least latency of a bucket, and how many latencies it has.
func bounds(i int) (low, width time.Duration) {
	if i < 2*subBuckets {
		return time.Duration(i), 1
	}
	e := i>>subBits - 1
	return time.Duration(subBuckets+i&(subBuckets-1)) << e, 1 << e
}

// Record counts a latency.
func (h *Histogram) Record(d time.Duration) {
	d = min(max(d, 0), maxLatency)
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.counts[bucketOf(d)]++
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	for i, c := range o.counts {
		h.counts[i] += c
	}
}

// Count returns how many latencies were counted.
func (h *Histogram) Count() uint64 { return h.n }

// Quantile returns the least latency that at least q of all (0 to 1) are not
// above, to within a bucket's width; 0 if nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n))
	if float64(rank) < q*float64(h.n) || rank == 0 {
		rank++
	}
	if rank >= h.n {
		return h.max
	}
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			low, width := bounds(i)
			return min(max(low+width/2, h.min), h.max)
		}
	}
	return h.max
}
