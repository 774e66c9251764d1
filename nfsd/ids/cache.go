package ids

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// limits bound a cache. Zero fields mean the defaults.
type limits struct {
	TTL     time.Duration // how long an answer is good (default 5 min)
	Wait    time.Duration // how long a call waits for an answer (default 5 s)
	Max     int           // answers remembered (default 65536)
	MaxBusy int           // lookups under way (default 16)
	Logger  *slog.Logger
}

func (l *limits) defaults() {
	if l.TTL == 0 {
		l.TTL = 5 * time.Minute
	}
	if l.Wait == 0 {
		l.Wait = 5 * time.Second
	}
	if l.Max == 0 {
		l.Max = 65536
	}
	if l.MaxBusy == 0 {
		l.MaxBusy = 16
	}
	if l.Logger == nil {
		l.Logger = slog.New(slog.DiscardHandler)
	}
}

// failTTL is how long a failed lookup is not tried again.
const failTTL = 10 * time.Second

// A cache remembers the answers of lookups that may hang. Reading takes no lock.
type cache[K comparable, V any] struct {
	limits
	lookup func(K) (V, error)
	flight func(K) string // a key's name: lookups of one name are one
	known  sync.Map       // K -> *answer[V]
	n      atomic.Int64
	one    singleflight.Group
	busy   chan struct{}
	now    func() time.Time
}

// An answer is what is known of a key: whether there is a value, and it.
type answer[V any] struct {
	value   V
	ok      bool
	expires time.Time
}

func newCache[K comparable, V any](l limits, lookup func(K) (V, error), flight func(K) string) *cache[K, V] {
	l.defaults()
	return &cache[K, V]{limits: l, lookup: lookup, flight: flight, busy: make(chan struct{}, l.MaxBusy), now: time.Now}
}

// get returns the value of a key. It reports false if it is not to be had: there
// is none, or the answer takes too long and none is known from before.
func (c *cache[K, V]) get(ctx context.Context, k K) (V, bool) {
	var old answer[V]
	if v, ok := c.known.Load(k); ok {
		old = *v.(*answer[V])
		if c.now().Before(old.expires) {
			return old.value, old.ok
		}
	}
	ch := c.one.DoChan(c.flight(k), func() (any, error) { return c.ask(k, old), nil })
	t := time.NewTimer(c.Wait)
	defer t.Stop()
	select {
	case r := <-ch:
		old = r.Val.(answer[V])
	case <-t.C:
		c.Logger.Warn("a lookup takes too long; using what is known", "of", k, "waited", c.Wait)
	case <-ctx.Done():
	}
	return old.value, old.ok
}

// ask looks k up and remembers the answer. When the lookup fails, what was known
// stays for a while.
func (c *cache[K, V]) ask(k K, old answer[V]) answer[V] {
	select {
	case c.busy <- struct{}{}:
	default:
		return old // too many hang already; not remembered
	}
	v, err := c.lookup(k)
	<-c.busy
	a := answer[V]{value: v, ok: err == nil, expires: c.now().Add(c.TTL)}
	if err != nil && !errors.Is(err, ErrUnknown) {
		c.Logger.Warn("a lookup failed; using what is known", "of", k, "err", err)
		a = old
		a.expires = c.now().Add(failTTL)
	}
	if c.n.Load() >= int64(c.Max) {
		// Forgetting all is crude and rare; each is asked for once more.
		c.known.Clear()
		c.n.Store(0)
	}
	if _, known := c.known.Swap(k, &a); !known {
		c.n.Add(1)
	}
	return a
}
