package ids

import (
	"context"
	"errors"
	"log/slog"
	"os/user"
	"strconv"
	"strings"
	"time"
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
	*cache[nameKey, uint32]
	domain string
}

type nameKey struct {
	name  string
	group bool
}

// flight returns a name for k that no other key has.
func (k nameKey) flight() string {
	if k.group {
		return "g" + k.name
	}
	return "u" + k.name
}

// NewNames returns Names.
func NewNames(cfg NamesConfig) *Names {
	if cfg.Lookup == nil {
		cfg.Lookup = SystemName
	}
	l := limits{TTL: cfg.TTL, Wait: cfg.Wait, Max: cfg.Max, MaxBusy: cfg.MaxBusy, Logger: cfg.Logger}
	lookup := func(k nameKey) (uint32, error) { return cfg.Lookup(k.name, k.group) }
	return &Names{newCache(l, lookup, nameKey.flight), cfg.Domain}
}

// ID returns the number of a user or group that is named name@domain. It reports
// false if it is not to be had: another domain, no such name, or no answer in time.
func (n *Names) ID(ctx context.Context, owner string, group bool) (uint32, bool) {
	name, domain, found := strings.Cut(owner, "@")
	if !found || name == "" || !strings.EqualFold(domain, n.domain) {
		return 0, false
	}
	return n.get(ctx, nameKey{name, group})
}
