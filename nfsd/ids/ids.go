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
	"time"

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
type Groups struct{ *cache[uint32, []uint32] }

// New returns Groups.
func New(cfg Config) *Groups {
	if cfg.Lookup == nil {
		cfg.Lookup = System
	}
	l := limits{TTL: cfg.TTL, Wait: cfg.Wait, Max: cfg.Max, MaxBusy: cfg.MaxBusy, Logger: cfg.Logger}
	return &Groups{newCache(l, cfg.Lookup, func(uid uint32) string { return strconv.FormatUint(uint64(uid), 10) })}
}

// Of returns the groups of a user. It reports false if they are not to be had:
// the user is not known here, or the answer takes too long. The slice must
// not be changed.
func (g *Groups) Of(ctx context.Context, uid uint32) ([]uint32, bool) { return g.get(ctx, uid) }

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
