package nfs4

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// Config says what a Program serves. Zero members mean the defaults.
type Config struct {
	FS vfs.FS // required
	// Identity is whose clients are served, and Epoch counts who served it: another
	// Program of the identity has another one. Default 1 and 1: the only one there is.
	Identity cluster.IdentityID
	Epoch    uint32
	// StateKey proves stateids: the same on all nodes, and secret. Default random.
	StateKey [32]byte
	// Clients keeps the client records, for whoever serves the identity next; nil:
	// they are lost with this Program.
	Clients vfs.ClientStore
	// Valid says whether the identity is certainly served here: replies are held
	// while it is not. nil: always.
	Valid func() bool
	// Lost is called once, in a goroutine, when it turns out that the identity is
	// served elsewhere (EFENCED). The Program has been abandoned then.
	Lost func()
	// Conflict asks whoever serves the identity of another client to expire it, if its
	// lease has ended, since it holds what is needed. It reports whether it was. nil: no.
	Conflict func(ctx context.Context, clientID uint64) bool
	// Names finds the number of a user or group named name@domain. nil: clients have
	// to send numbers.
	Names func(ctx context.Context, owner string, group bool) (uint32, bool)
	// Delegate says of which volumes files in relaxed directories may be delegated, to
	// read. nil: of none.
	Delegate func(vfs.Volume) bool
	// ServerOwner is so_major_id: the same wherever the identity is served, and
	// different from those of other identities.
	ServerOwner string
	// Scope is the server scope: the same for the whole cluster.
	Scope string

	Lease    time.Duration // default 90 s
	Courtesy time.Duration // how long a silent client keeps what nobody wants; default 30 min

	MaxIO       int // bytes in a READ or WRITE; default 1 MiB
	MaxSlots    int // of a session; default 256
	MaxOps      int // in a COMPOUND; default 64
	MaxClients  int // client records; default 16384
	MaxSessions int // of a client; default 64
	MaxHoldings int // opens and lock owners of a client; default 1 Mi
	// MaxDelegations is of a client; default 16384, with Delegate.
	MaxDelegations int

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
	dur(&c.Courtesy, 30*time.Minute)
	num(&c.MaxIO, 1<<20)
	num(&c.MaxSlots, 256)
	num(&c.MaxOps, 64)
	num(&c.MaxClients, 16384)
	num(&c.MaxSessions, 64)
	num(&c.MaxHoldings, 1<<20)
	num(&c.MaxDelegations, 16384)
	if c.Delegate == nil {
		c.MaxDelegations = 0
	}
	if c.Lease < time.Second {
		return errors.New("nfs4: Config.Lease is less than a second: a Linux client can't mount with that")
	}
	if c.Identity == 0 {
		c.Identity, c.Epoch = 1, max(c.Epoch, 1)
	}
	if c.StateKey == ([32]byte{}) {
		if c.Clients != nil {
			return errors.New("nfs4: Config.StateKey is missing: without it the next front-end refuses the stateids of this one")
		}
		if _, err := rand.Read(c.StateKey[:]); err != nil {
			return err
		}
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

// A Program is NFS version 4 as package oncrpc serves it, for one identity.
type Program struct {
	cfg   Config
	fs    vfs.FS
	log   *slog.Logger
	state *state.Manager
	v40   v40Handler // nil: there is no NFSv4.0
	pool  sync.Pool  // *compound
	kick  chan struct{}
	door  door

	recalls chan struct{} // there are delegations to recall

	waiters waiters // for locks
	copies  copies

	// records orders the writing of one client's record, and files what opens and
	// closes for one client and file.
	records  [64]sync.Mutex
	files    [4096]sync.Mutex
	lostOnce sync.Once

	mu      sync.Mutex
	pending []state.Gone // whose release failed, to be tried again
	ended   [][16]byte   // sessions whose results are to be forgotten
	unwatch func()
}

// New returns a Program. Start must have returned before it is served, and Run
// must run as long as it is.
func New(cfg Config) (*Program, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	p := &Program{cfg: cfg, fs: cfg.FS, log: cfg.Logger, kick: make(chan struct{}, 1), recalls: make(chan struct{}, 1)}
	p.door.init()
	p.waiters.init()
	p.copies.init()
	size := uint32(cfg.MaxIO + overhead)
	sc := state.Config{
		Identity: cfg.Identity,
		Epoch:    cfg.Epoch,
		Key:      cfg.StateKey,
		Lease:    cluster.Time(cfg.Lease),
		Courtesy: cluster.Time(cfg.Courtesy),
		Fore: state.ChannelAttrs{
			MaxRequest: size, MaxResponse: size, MaxCached: maxCached,
			MaxOps: uint32(cfg.MaxOps), MaxRequests: uint32(cfg.MaxSlots),
		},
		MaxClients:     cfg.MaxClients,
		MaxSessions:    cfg.MaxSessions,
		MaxHoldings:    cfg.MaxHoldings,
		MaxDelegations: cfg.MaxDelegations,
		Attach:         func(s *state.Session) any { return newBackChannel(p, s) },
	}
	if newV40 != nil {
		p.v40 = newV40(p)
		sc.Extend = p.v40.extend
	}
	p.state = state.New(sc)
	p.pool.New = func() any { return newCompound(p) }
	return p, nil
}

// maxCached is the largest reply that a slot keeps, in bytes. A Linux client asks
// for several KiB, the size of its largest reply to OPEN.
const maxCached = 16 << 10

// digest names a lock-owner in the file system: the same wherever the identity is
// served, different for each client.
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
