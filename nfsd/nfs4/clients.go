package nfs4

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/state"
)

// Start reads which clients held state before this server was started, and
// begins the grace period in which they can reclaim it (RFC 8881 §8.4.2).
func (p *Program) Start(ctx context.Context) error {
	if p.cfg.Clients == nil {
		return nil
	}
	owners, err := p.cfg.Clients.Clients(ctx)
	if err != nil {
		return fmt.Errorf("nfs4: reading the clients of before: %w", err)
	}
	p.state.BeginGrace(p.cfg.Now()+cluster.Time(p.cfg.Grace), owners)
	if len(owners) > 0 {
		p.log.Info("grace period: waiting for clients to reclaim", "clients", len(owners), "at most", p.cfg.Grace)
		return nil
	}
	// Nobody can reclaim. What may be left in the file system goes as soon as
	// it can be reached; serving does not wait for that.
	p.leftovers.Store(true)
	p.wake()
	return nil
}

// tick is how often Run looks for what is due.
const tick = time.Second

// Run drops clients that have been silent for too long and ends the grace
// period, until ctx ends.
func (p *Program) Run(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-p.kick:
		}
		p.Tick(ctx, p.cfg.Now())
	}
}

// Tick does what is due at the time now; Run calls it.
func (p *Program) Tick(ctx context.Context, now cluster.Time) {
	p.mu.Lock()
	again := p.pending
	p.pending = nil
	p.mu.Unlock()
	p.release(ctx, again)
	if gone := p.state.Expire(now); len(gone) > 0 {
		p.expired(gone)
		p.release(ctx, gone)
	}
	if p.leftovers.Load() && p.fs.EndGrace(ctx) == nil {
		p.leftovers.Store(false)
	}
	if !p.state.GraceOver(now) {
		return
	}
	// Locks of before that were not reclaimed go first: nobody may take new
	// ones while they are still there.
	if err := p.fs.EndGrace(ctx); err != nil {
		p.log.Warn("can't end the grace period; trying again", "err", err)
		return
	}
	forget := p.state.EndGrace()
	p.log.Info("grace period is over", "clients that did not come back", len(forget))
	for _, o := range forget {
		p.release(ctx, []state.Gone{{Owner: o, Forget: true}})
	}
}

func (p *Program) expired(gone []state.Gone) {
	for i := range gone {
		if gone[i].Forget {
			p.log.Info("client expired", "client", gone[i].Owner, "opens", len(gone[i].Files))
		}
	}
}

// expireLapsed drops all clients whose lease has ended, because something
// that one of them may hold is needed. It reports whether there were any.
func (p *Program) expireLapsed(ctx context.Context) bool {
	gone := p.state.ExpireLapsed(p.cfg.Now())
	p.expired(gone)
	p.release(ctx, gone)
	return len(gone) > 0
}

// release does to the file system and to the client store what follows from the
// end of clients. What fails is tried again at the next tick.
func (p *Program) release(ctx context.Context, gone []state.Gone) {
	for _, g := range gone {
		for _, f := range g.Files {
			p.fs.Close(f)
		}
		g.Files = nil
		if err := p.releaseOne(ctx, &g); err != nil {
			p.log.Warn("can't release a client's locks or record; trying again", "client", g.Owner, "err", err)
			p.mu.Lock()
			p.pending = append(p.pending, g)
			p.mu.Unlock()
		}
	}
}

func (p *Program) releaseOne(ctx context.Context, g *state.Gone) error {
	if g.Client != 0 {
		if err := p.fs.ReleaseClient(ctx, g.Client); err != nil {
			return err
		}
		g.Client = 0
	}
	if !g.Forget || p.cfg.Clients == nil {
		return nil
	}
	mu := p.record(g.Owner)
	mu.Lock()
	defer mu.Unlock()
	if p.state.Confirmed(g.Owner) {
		return nil // it has come back
	}
	return p.cfg.Clients.DeleteClient(ctx, []byte(g.Owner))
}

var recordSeed = maphash.MakeSeed()

func (p *Program) record(owner string) *sync.Mutex {
	return &p.records[maphash.String(recordSeed, owner)%uint64(len(p.records))]
}

// wake makes Run look at once.
func (p *Program) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}
