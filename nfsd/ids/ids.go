// Package ids finds the groups of a user. AUTH_SYS can name 16 groups at most,
// and a Linux client leaves out the rest without a word; who is in more gets
// the right permissions only if the server looks them up by user id.
package ids

import (
	"context"
	"errors"
	"log/slog"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// ErrUnknown is a Lookup's answer that there is no such user.
var ErrUnknown = errors.New("ids: no such user")

// A Lookup returns all groups of a user, supplementary and primary:
// ErrUnknown if there is no such user.
type Lookup func(uid uint32) ([]uint32, error)

// System looks users up as this machine does: in NSS if the program was built
// with cgo, and in /etc/passwd and /etc/group otherwise.
func System(uid uint32) ([]uint32, error) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	var unknown user.UnknownUserIdError
	if errors.As(err, &unknown) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	names, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	gids := make([]uint32, 0, len(names))
	for _, n := range names {
		g, err := strconv.ParseUint(n, 10, 32)
		if err != nil {
			return nil, err
		}
		gids = append(gids, uint32(g))
	}
	return gids, nil
}

// A Config says how groups are looked up. Zero fields mean the defaults.
type Config struct {
	Lookup  Lookup        // default System
	TTL     time.Duration // how long an answer is good (default 5 min)
	Wait    time.Duration // how long a call waits for an answer (default 5 s)
	Max     int           // users remembered (default 65536)
	MaxBusy int           // lookups under way (default 16)
	Logger  *slog.Logger
}

// Groups remembers the groups of users. Reading takes no lock.
type Groups struct {
	cfg   Config
	known sync.Map // uint32 -> *entry
	n     atomic.Int64
	one   singleflight.Group
	busy  chan struct{}
	now   func() time.Time
}

// An entry is what is known about a user: gids is nil if that is nothing.
type entry struct {
	gids    []uint32
	expires time.Time
}

// failTTL is how long a failed lookup is not tried again.
const failTTL = 10 * time.Second

// New returns Groups.
func New(cfg Config) *Groups {
	if cfg.Lookup == nil {
		cfg.Lookup = System
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
	return &Groups{cfg: cfg, busy: make(chan struct{}, cfg.MaxBusy), now: time.Now}
}

// Of returns the groups of a user. It reports false if they are not to be had:
// the user is not known here, or the answer takes too long. The slice must
// not be changed.
func (g *Groups) Of(ctx context.Context, uid uint32) ([]uint32, bool) {
	var old *entry
	if v, ok := g.known.Load(uid); ok {
		old = v.(*entry)
		if g.now().Before(old.expires) {
			return old.gids, old.gids != nil
		}
	}
	ch := g.one.DoChan(strconv.FormatUint(uint64(uid), 10), func() (any, error) {
		return g.ask(uid, old), nil
	})
	t := time.NewTimer(g.cfg.Wait)
	defer t.Stop()
	select {
	case r := <-ch:
		old = r.Val.(*entry)
	case <-t.C:
		g.cfg.Logger.Warn("looking up a user's groups takes too long; going on without", "uid", uid, "waited", g.cfg.Wait)
	case <-ctx.Done():
	}
	if old == nil {
		return nil, false
	}
	return old.gids, old.gids != nil
}

// ask looks uid up and remembers the answer. When the lookup fails, what was
// known (old, may be nil) stays for a while.
func (g *Groups) ask(uid uint32, old *entry) *entry {
	e := &entry{}
	if old != nil {
		e.gids = old.gids
	}
	select {
	case g.busy <- struct{}{}:
	default:
		return e // too many hang already; not remembered
	}
	gids, err := g.cfg.Lookup(uid)
	<-g.busy
	switch {
	case err == nil:
		e.gids, e.expires = gids, g.now().Add(g.cfg.TTL)
		if gids == nil {
			e.gids = []uint32{}
		}
	case errors.Is(err, ErrUnknown):
		e.gids, e.expires = nil, g.now().Add(g.cfg.TTL)
	default:
		g.cfg.Logger.Warn("looking up a user's groups failed; using what is known", "uid", uid, "err", err)
		e.expires = g.now().Add(failTTL)
	}
	if _, known := g.known.Swap(uid, e); !known && g.n.Add(1) > int64(g.cfg.Max) {
		// Forgetting all is crude and rare; each is asked for once more.
		g.known.Clear()
		g.n.Store(0)
	}
	return e
}

// Handler returns a handler that serves calls by h, after it has replaced the
// groups in their AUTH_SYS credentials by those looked up. The superuser's, and
// those of users not known, stay as the client sent them.
func (g *Groups) Handler(h oncrpc.Handler) oncrpc.Handler {
	return oncrpc.HandlerFunc(func(call *oncrpc.Call, reply *xdr.Encoder) oncrpc.AcceptStat {
		if a := call.Cred.Sys; a != nil && a.UID != 0 {
			if gids, ok := g.Of(call.Context(), a.UID); ok {
				a.GIDs = gids
			}
		}
		return h.ServeRPC(call, reply)
	})
}
