package scrub

import "time"

// A Pace spreads a pass over a part of its period. It has no memory.
type Pace struct {
	Every time.Duration // from the beginning of a pass to that of the next
	Rate  uint64        // bytes a second, at most
}

const (
	// share is how much of the period a pass may take, so that there is room for
	// times when the store can't be read.
	shareNum, shareDen = 4, 5
	// leastRate is how slow a pass gets at most: 1/64 of Rate. A pass over a
	// store with little is over soon.
	leastShare = 64
)

// RateAt returns how many bytes a second are to be read at now, in a pass that
// began at began and has left bytes to go.
func (p Pace) RateAt(began, now time.Time, left uint64) uint64 {
	end := began.Add(p.Every / shareDen * shareNum)
	rest := end.Sub(now)
	if rest <= 0 {
		return p.Rate
	}
	need := float64(left) / rest.Seconds()
	least := max(p.Rate/leastShare, 1)
	if need >= float64(p.Rate) {
		return p.Rate
	}
	return max(uint64(need), least)
}

// Wait returns how long to wait after n bytes were read in took, at a rate.
func Wait(n, rate uint64, took time.Duration) time.Duration {
	if rate == 0 {
		return 0
	}
	return max(0, time.Duration(float64(n)/float64(rate)*float64(time.Second))-took)
}

// A Tally counts the damaged copies of a disk in a window of time, to tell a disk
// that is failing. It counts each copy once. It is not safe for concurrent use.
type Tally[K comparable] struct {
	Max    int           // copies in Window that are too many; 0: none ever is
	Window time.Duration // 0: for ever
	seen   map[K]time.Time
}

// Note counts a damaged copy, and reports whether there are too many now.
func (t *Tally[K]) Note(key K, now time.Time) bool {
	if t.Max <= 0 {
		return false
	}
	if t.seen == nil {
		t.seen = map[K]time.Time{}
	}
	if len(t.seen) >= t.Max || t.Window > 0 {
		for k, at := range t.seen {
			if t.Window > 0 && now.Sub(at) >= t.Window {
				delete(t.seen, k)
			}
		}
	}
	if _, there := t.seen[key]; !there && len(t.seen) < t.Max {
		t.seen[key] = now
	}
	return len(t.seen) >= t.Max
}
