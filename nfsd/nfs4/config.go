package nfs4

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// Config says what a Program serves. Zero members mean the defaults.
type Config struct {
	FS vfs.FS // required
	// Clients remembers the clients over a restart; nil: nobody does, and
	// there is no grace period.
	Clients vfs.ClientStore
	// ServerOwner is so_major_id: the identity whose client ids and sessions
	// these are. Front-ends that do not share those must not share it.
	ServerOwner string
	// Scope is the server scope: the same for the whole cluster.
	Scope string

	Lease    time.Duration // default 90 s
	Grace    time.Duration // the longest grace period; default the lease
	Courtesy time.Duration // how long a silent client keeps what nobody wants; default 30 min

	MaxIO       int // bytes in a READ or WRITE; default 1 MiB
	MaxSlots    int // of a session; default 256
	MaxOps      int // in a COMPOUND; default 64
	MaxClients  int // client records; default 16384
	MaxSessions int // of a client; default 64
	MaxHoldings int // opens and lock owners of a client; default 1 Mi

	Boot   uint32              // tells this incarnation from others; default random
	Now    func() cluster.Time // must not go backwards; default the monotonic clock
	Logger *slog.Logger
}

func (c *Config) defaults() error {
	if c.FS == nil {
		return errors.New("nfs4: Config.FS is missing")
	}
	if c.ServerOwner == "" || c.Scope == "" {
		return errors.New("nfs4: Config.ServerOwner and Config.Scope must be set: clients tell servers apart by them")
	}
	dur := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	num := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	dur(&c.Lease, 90*time.Second)
	dur(&c.Grace, c.Lease)
	dur(&c.Courtesy, 30*time.Minute)
	num(&c.MaxIO, 1<<20)
	num(&c.MaxSlots, 256)
	num(&c.MaxOps, 64)
	num(&c.MaxClients, 16384)
	num(&c.MaxSessions, 64)
	num(&c.MaxHoldings, 1<<20)
	if c.Lease < time.Second {
		return errors.New("nfs4: Config.Lease is less than a second: a Linux client can't mount with that")
	}
	for c.Boot == 0 || c.Boot == ^uint32(0) {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		c.Boot = binary.BigEndian.Uint32(b[:])
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() cluster.Time { return cluster.Time(start.UnixNano() + int64(time.Since(start))) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// overhead is what a request or reply has around the data of a READ or WRITE, at
// most, in bytes. The transport has to let at least that through.
const overhead = 16 << 10

// A Program is NFS version 4 as package oncrpc serves it.
type Program struct {
	cfg   Config
	fs    vfs.FS
	log   *slog.Logger
	state *state.Manager
	pool  sync.Pool     // *compound
	kick  chan struct{} // wakes Run

	// records orders what happens to one owner's client record: the store
	// must not forget an owner that has come back.
	records [64]sync.Mutex

	// leftovers: locks of before this start may be left, though nobody can
	// reclaim them.
	leftovers atomic.Bool

	mu      sync.Mutex
	pending []state.Gone // whose release failed, to be tried again
}

// New returns a Program. Start must have returned before it is served, and Run
// must run as long as it is.
func New(cfg Config) (*Program, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	p := &Program{cfg: cfg, fs: cfg.FS, log: cfg.Logger, kick: make(chan struct{}, 1)}
	size := uint32(cfg.MaxIO + overhead)
	p.state = state.New(state.Config{
		Boot:     cfg.Boot,
		Lease:    cluster.Time(cfg.Lease),
		Courtesy: cluster.Time(cfg.Courtesy),
		Fore: state.ChannelAttrs{
			MaxRequest: size, MaxResponse: size, MaxCached: maxCached,
			MaxOps: uint32(cfg.MaxOps), MaxRequests: uint32(cfg.MaxSlots),
		},
		MaxClients:  cfg.MaxClients,
		MaxSessions: cfg.MaxSessions,
		MaxHoldings: cfg.MaxHoldings,
	})
	p.pool.New = func() any { return newCompound(p) }
	return p, nil
}

// maxCached is the largest reply that a slot keeps, in bytes. A Linux client asks
// for several KiB, the size of its largest reply to OPEN.
const maxCached = 16 << 10

// digest names a lock-owner in the file system: the same after a restart of
// the server, different for each client.
func (p *Program) digest(client, owner string) (d vfs.LockOwner) {
	h := sha256.New()
	var n [8]byte
	for _, s := range []string{p.cfg.ServerOwner, client, owner} {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	copy(d[:], h.Sum(nil))
	return d
}
