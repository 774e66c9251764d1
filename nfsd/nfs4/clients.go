package nfs4

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// Start takes the identity over: it loads the client records, after which the
// Program can be served. The file system must have fenced those who may still serve
// it. Clients that lose nothing are not told.
func (p *Program) Start(ctx context.Context) error {
	if p.cfg.Clients != nil {
		records, err := p.cfg.Clients.Load(ctx)
		if err != nil {
			return fmt.Errorf("nfs4: reading the client records of the identity: %w", err)
		}
		if err := p.state.Load(p.cfg.Now(), records); err != nil {
			p.log.Error("some clients can't be taken over; they have to mount again", "err", err)
		}
		clients, sessions, _ := p.state.Counts()
		p.log.Info("serving an identity", "identity", p.cfg.Identity, "epoch", p.cfg.Epoch,
			"clients taken over", clients, "sessions", sessions)
	}
	var w vfs.Watcher = watcher{p}
	if p.cfg.Delegate != nil {
		w = changeWatcher{watcher{p}}
	}
	cancel := p.fs.Watch(w)
	p.mu.Lock()
	p.unwatch = cancel
	p.mu.Unlock()
	return nil
}

// stopWatching ends what Start began. It may be repeated.
func (p *Program) stopWatching() {
	p.mu.Lock()
	cancel := p.unwatch
	p.unwatch = nil
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// A watcher is told what other front-ends do to files.
type watcher struct{ p *Program }

// Unlinked has the opens of a file recorded that are known here only.
func (w watcher) Unlinked(f vfs.File) []vfs.State { return w.p.state.Unrecorded(f) }

// Unlocked tells those who wait for locks.
func (w watcher) Unlocked(f vfs.File) { w.p.waiters.unlocked(f) }

// tick is how often Run looks for what is due.
const tick = time.Second

// Run drops clients that have been silent for too long and does what could not be
// done at once, until ctx ends.
func (p *Program) Run(ctx context.Context) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() { p.notifyLocks(ctx) })
	if p.cfg.Delegate != nil {
		waiting.Go(func() { p.recallAll(ctx) })
	}
	p.copies.open(ctx)
	defer p.copies.close()
	waiting.Go(func() { p.resumeCopies(ctx) })
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			p.stopWatching()
			return
		case <-t.C:
		case <-p.kick:
		}
		p.Tick(ctx, p.cfg.Now())
	}
}

// Tick does what is due at the time now; Run calls it.
func (p *Program) Tick(ctx context.Context, now cluster.Time) {
	if p.door.state.Load() != doorOpen {
		return // what is due is the next front-end's business
	}
	p.mu.Lock()
	again, ended := p.pending, p.ended
	p.pending, p.ended = nil, nil
	p.mu.Unlock()
	if len(ended) > 0 {
		if err := p.fs.DropSessions(ctx, ended); err != nil {
			p.log.Debug("can't forget the results of sessions that are gone; trying again", "err", err)
			p.mu.Lock()
			p.ended = append(p.ended, ended[:min(len(ended), maxEnded)]...)
			p.mu.Unlock()
		}
	}
	p.waiters.tick(now)
	p.recallSoon()
	p.release(ctx, again)
	if gone := p.state.Expire(now); len(gone) > 0 {
		p.expired(gone)
		p.release(ctx, gone)
	}
	if p.v40 != nil {
		p.v40.tick(ctx, now)
	}
}

// maxEnded bounds the ended sessions that are remembered until the file system has
// forgotten their results.
const maxEnded = 64 << 10

func (p *Program) expired(gone []state.Gone) {
	for i := range gone {
		if gone[i].Record != 0 {
			p.log.Info("client expired", "client", gone[i].Owner, "opens", len(gone[i].Files))
		}
	}
}

// ExpireClient expires a client of this identity if its lease has ended, because
// what it holds is needed. It reports whether the client holds nothing any more.
func (p *Program) ExpireClient(ctx context.Context, clientID uint64) bool {
	gone := p.state.ExpireClient(clientID, p.cfg.Now())
	p.expired(gone)
	return len(gone) > 0 && p.release(ctx, gone)
}

// yield has the client that holds what is needed expire, wherever it is served, if its
// lease has ended. It reports whether it has.
func (p *Program) yield(ctx context.Context, holder uint64) bool {
	switch {
	case cluster.ClientIdentity(holder) == p.cfg.Identity:
		return p.ExpireClient(ctx, holder)
	case p.cfg.Conflict != nil:
		return p.cfg.Conflict(ctx, holder)
	}
	return false
}

// release does to the file system and to the client store what follows from the
// end of clients. What fails is tried again at the next tick. It reports whether
// nothing is left to do.
func (p *Program) release(ctx context.Context, gone []state.Gone) bool {
	all := true
	for _, g := range gone {
		for _, f := range g.Files {
			p.fs.Close(f)
		}
		g.Files = nil
		if err := p.releaseOne(ctx, &g); err != nil {
			all = false
			p.log.Warn("can't release a client's locks or record; trying again", "client", g.Owner, "err", err)
			p.mu.Lock()
			p.pending = append(p.pending, g)
			p.mu.Unlock()
		}
	}
	return all
}

// releaseOne releases what a client holds, and then deletes its record: as long as
// that is there, whoever serves the identity knows that there is something to release.
func (p *Program) releaseOne(ctx context.Context, g *state.Gone) error {
	if g.Client != 0 {
		if err := p.fs.ReleaseClient(ctx, g.Client); err != nil {
			return err
		}
		g.Client = 0
	}
	p.forgetSessions(g.Sessions)
	g.Sessions = nil
	if g.Record == 0 || p.cfg.Clients == nil {
		return nil
	}
	err := p.cfg.Clients.Delete(ctx, g.Record)
	if errno(err) == cluster.EFENCED {
		p.lose()
		return nil
	}
	return err
}

// forgetSessions has the results of sessions forgotten, some time.
func (p *Program) forgetSessions(ids []state.SessionID) {
	if len(ids) == 0 {
		return
	}
	p.mu.Lock()
	for _, id := range ids {
		p.ended = append(p.ended, id)
	}
	p.mu.Unlock()
	p.wake()
}

// record stores a client's record, if it has changed. It must have returned OK
// before the client is told of the change.
func (p *Program) record(ctx context.Context, id uint64) proto.Status {
	mu := p.recordLock(id)
	mu.Lock()
	defer mu.Unlock()
	r, changed := p.state.Record(id)
	if !changed {
		return proto.OK
	}
	return p.store(ctx, r)
}

func (p *Program) store(ctx context.Context, r state.Record) proto.Status {
	if p.cfg.Clients == nil {
		p.state.Recorded(r)
		return proto.OK
	}
	if err := p.cfg.Clients.Put(ctx, r.ID, r.Bytes, r.Replaces); err != nil {
		if errno(err) != cluster.EFENCED {
			p.log.Warn("can't record a client; it tries again", "client", r.ID, "err", err)
			return proto.ErrDelay
		}
		return statusFenced
	}
	p.state.Recorded(r)
	return proto.OK
}

func (p *Program) recordLock(id uint64) *sync.Mutex { return &p.records[id%uint64(len(p.records))] }

// fileLock is held while something is opened, downgraded or closed for a client.
func (p *Program) fileLock(client uint64, f vfs.File) *sync.Mutex {
	h := (uint64(f.Ino)*0x9e3779b97f4a7c15 ^ client*0xbf58476d1ce4e5b9) + uint64(f.Volume)
	return &p.files[h>>32%uint64(len(p.files))]
}

// wake makes Run look at once.
func (p *Program) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}
