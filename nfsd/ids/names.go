package ids

import (
	"context"
	"errors"
	"log/slog"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// A NameLookup returns the number of a user or group: ErrUnknown if there is none of
// that name.
type NameLookup func(name string, group bool) (uint32, error)

// SystemName looks a name up as this machine does, like System.
func SystemName(name string, group bool) (uint32, error) {
	var id string
	var unknown bool
	if group {
		g, err := user.LookupGroup(name)
		var e user.UnknownGroupError
		if unknown = errors.As(err, &e); err != nil && !unknown {
			return 0, err
		} else if err == nil {
			id = g.Gid
		}
	} else {
		u, err := user.Lookup(name)
		var e user.UnknownUserError
		if unknown = errors.As(err, &e); err != nil && !unknown {
			return 0, err
		} else if err == nil {
			id = u.Uid
		}
	}
	if unknown {
		return 0, ErrUnknown
	}
	n, err := strconv.ParseUint(id, 10, 32)
	return uint32(n), err
}

// A NamesConfig says how names are looked up. Zero fields mean the defaults.
type NamesConfig struct {
	Domain  string        // required: the DNS domain of the names
	Lookup  NameLookup    // default SystemName
	TTL     time.Duration // how long an answer is good (default 5 min)
	Wait    time.Duration // how long a call waits for an answer (default 5 s)
	Max     int           // names remembered (default 65536)
	MaxBusy int           // lookups under way (default 16)
	Logger  *slog.Logger
}

// Names finds the numbers of the users and groups that clients name, as name@domain
// (RFC 8881 §5.9). It remembers them.
type Names struct {
	cfg  NamesConfig
	one  singleflight.Group
	busy chan struct{}
	now  func() time.Time

	mu    sync.Mutex
	known map[nameKey]named
}

type nameKey struct {
	name  string
	group bool
}

type named struct {
	id      uint32
	ok      bool
	expires time.Time
}

// NewNames returns Names.
func NewNames(cfg NamesConfig) *Names {
	if cfg.Lookup == nil {
		cfg.Lookup = SystemName
	}
	if cfg.TTL == 0 {
		cfg.TTL = 5 * time.Minute
	}
	if cfg.Wait == 0 {
		cfg.Wait = 5 * time.Second
	}
	if cfg.Max == 0 {
		cfg.Max = 65536
	}
	if cfg.MaxBusy == 0 {
		cfg.MaxBusy = 16
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Names{cfg: cfg, busy: make(chan struct{}, cfg.MaxBusy), now: time.Now, known: make(map[nameKey]named)}
}

// ID returns the number of a user or group that is named name@domain. It reports
// false if it is not to be had: another domain, no such name, or no answer in time.
func (n *Names) ID(ctx context.Context, owner string, group bool) (uint32, bool) {
	name, domain, found := strings.Cut(owner, "@")
	if !found || name == "" || !strings.EqualFold(domain, n.cfg.Domain) {
		return 0, false
	}
	k := nameKey{name, group}
	n.mu.Lock()
	e, ok := n.known[k]
	n.mu.Unlock()
	if ok && n.now().Before(e.expires) {
		return e.id, e.ok
	}
	kind := "u"
	if group {
		kind = "g"
	}
	ch := n.one.DoChan(kind+name, func() (any, error) { return n.ask(k, e), nil })
	t := time.NewTimer(n.cfg.Wait)
	defer t.Stop()
	select {
	case r := <-ch:
		e = r.Val.(named)
	case <-t.C:
		n.cfg.Logger.Warn("looking up a name takes too long", "name", name, "waited", n.cfg.Wait)
	case <-ctx.Done():
	}
	return e.id, e.ok
}

// ask looks a name up and remembers the answer. When the lookup fails, what was known
// stays for a while.
func (n *Names) ask(k nameKey, old named) named {
	select {
	case n.busy <- struct{}{}:
	default:
		return old // too many hang already; not remembered
	}
	id, err := n.cfg.Lookup(k.name, k.group)
	<-n.busy
	e := named{id: id, ok: err == nil, expires: n.now().Add(n.cfg.TTL)}
	if err != nil && !errors.Is(err, ErrUnknown) {
		n.cfg.Logger.Warn("looking up a name failed; using what is known", "name", k.name, "err", err)
		e = old
		e.expires = n.now().Add(failTTL)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= n.cfg.Max {
		clear(n.known) // crude and rare; each is asked for once more
	}
	n.known[k] = e
	return e
}
