package nfs4

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// Limits of those who wait for locks (RFC 8881 §9.6). Who is not listed asks now and
// then, as all have to.
const (
	maxWaiters       = 64 << 10 // of all clients
	maxClientWaiters = 4096     // of one
	maxNotifying     = 64       // callbacks under way
	// waitAfter is how long after its last LOCK a lock-owner counts as waiting:
	// Linux asks every 30 s, and does not say when it gives up.
	waitAfter = cluster.Time(75 * time.Second)
	// headStart is how long nobody is told of what another was told of before him.
	headStart = cluster.Time(time.Second)
)

// A waiter is a lock-owner who has asked for a lock that another has, and who will
// wait for it.
type waiter struct {
	file  vfs.File
	owner []byte // as the client names it
	lock  vfs.Lock
	asked cluster.Time // last
	told  cluster.Time // that it may be free; 0: not since it asked
}

// overlaps reports whether what w waits for and what o waits for can't both be had.
func (w *waiter) overlaps(o *waiter) bool {
	return w.lock.Owner != o.lock.Owner && (w.lock.Exclusive || o.lock.Exclusive) &&
		w.lock.Start <= o.lock.End && o.lock.Start <= w.lock.End
}

// waiters are those who wait for locks, by file and in the order in which they came.
type waiters struct {
	n     atomic.Int64
	wake  chan struct{}
	leave chan struct{} // the identity is about to be handed over

	mu      sync.Mutex
	files   map[vfs.File][]*waiter
	clients map[uint64]int        // waiters of each
	freed   map[vfs.File]struct{} // files that have waiters and a lock less
}

func (l *waiters) init() {
	l.wake, l.leave = make(chan struct{}, 1), make(chan struct{}, 1)
	l.files = make(map[vfs.File][]*waiter)
	l.clients = make(map[uint64]int)
	l.freed = make(map[vfs.File]struct{})
}

// add lists a waiter, or says that it has asked again: it keeps its place then.
func (l *waiters) add(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.files[w.file] {
		if o.lock.Client == w.lock.Client && o.lock.Owner == w.lock.Owner &&
			o.lock.Start == w.lock.Start && o.lock.End == w.lock.End && o.lock.Exclusive == w.lock.Exclusive {
			o.asked, o.told = w.asked, 0
			return true
		}
	}
	if l.n.Load() >= maxWaiters || l.clients[w.lock.Client] >= maxClientWaiters {
		return false
	}
	l.n.Add(1)
	l.clients[w.lock.Client]++
	l.files[w.file] = append(l.files[w.file], w)
	return true
}

// remove takes the waiters of f that match off the list.
func (l *waiters) remove(f vfs.File, match func(*waiter) bool) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(f, match)
}

func (l *waiters) removeLocked(f vfs.File, match func(*waiter) bool) (some bool) {
	list := slices.DeleteFunc(l.files[f], func(w *waiter) bool {
		if !match(w) {
			return false
		}
		some = true
		l.n.Add(-1)
		if l.clients[w.lock.Client]--; l.clients[w.lock.Client] == 0 {
			delete(l.clients, w.lock.Client)
		}
		return true
	})
	if l.files[f] = list; len(list) == 0 {
		delete(l.files, f)
	}
	return some
}

// unlocked says that f has a lock less. It does not wait.
func (l *waiters) unlocked(f vfs.File) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freedLocked(f)
}

func (l *waiters) freedLocked(f vfs.File) {
	if len(l.files[f]) == 0 {
		return
	}
	l.freed[f] = struct{}{}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// takeFreed returns the files that unlocked was called of.
func (l *waiters) takeFreed() []vfs.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []vfs.File
	for f := range l.freed {
		all = append(all, f)
	}
	clear(l.freed)
	return all
}

// leaving says that the identity is about to be served elsewhere, where nobody is
// listed. It does not wait.
func (l *waiters) leaving() {
	if l.n.Load() == 0 {
		return
	}
	select {
	case l.leave <- struct{}{}:
	default:
	}
}

// everybody returns all waiters.
func (l *waiters) everybody() (all []*waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range l.files {
		all = append(all, list...)
	}
	return all
}

// list returns the waiters of f.
func (l *waiters) list(f vfs.File) []*waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.files[f])
}

// tell says that w is told, unless it was, or one before it that is in its way was
// a moment ago.
func (l *waiters) tell(w *waiter, now cluster.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.files[w.file]
	if w.told != 0 || !slices.Contains(list, w) {
		return false
	}
	for _, o := range list {
		if o.told != 0 && w.overlaps(o) {
			return false
		}
	}
	w.told = now
	return true
}

// tick drops those who do not wait any more, or were told and have not asked, so that
// others are told.
func (l *waiters) tick(now cluster.Time) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.files {
		if l.removeLocked(f, func(w *waiter) bool {
			return now-w.asked > waitAfter || w.told != 0 && now-w.told > headStart
		}) {
			l.freedLocked(f)
		}
	}
}

// mayNotify reports whether those who wait for locks are told, as OPEN says with
// OPEN4_RESULT_MAY_NOTIFY_LOCK (RFC 8881 §18.16.3).
func (c *compound) mayNotify() bool { return c.minor > 0 && c.p.caller(c.client) != nil }

// willNotify reports whether the client has asked for a back channel: after a take-over it
// binds a connection to it before long.
func (c *compound) willNotify() bool {
	return slices.ContainsFunc(c.p.state.Sessions(c.client), func(s *state.Session) bool { return s.BackAsked })
}

// await lists the owner of a lock that was denied as waiting for it.
func (c *compound) await(l vfs.Lock, owner string) {
	// Just after a take-over a client has no back channel yet: it asks first.
	if !c.mayNotify() && !(c.minor > 0 && c.client.Loaded() && c.willNotify()) {
		return
	}
	l.Wire, l.State = nil, nil
	w := &waiter{file: c.cur, owner: []byte(owner), lock: l, asked: c.p.cfg.Now()}
	if !c.p.waiters.add(w) {
		return
	}
	// What was in the way may have gone just before it was listed.
	if conflict, err := c.fs.TestLock(&c.req, c.cur, l); err == nil && conflict == nil {
		c.p.waiters.unlocked(c.cur)
	}
}

// granted takes the owner of a lock off the list.
func (p *Program) granted(f vfs.File, l *vfs.Lock) {
	p.waiters.remove(f, func(w *waiter) bool {
		return w.lock.Client == l.Client && w.lock.Owner == l.Owner && w.lock.Start <= l.End && l.Start <= w.lock.End
	})
}

// notifyLocks tells those who wait for locks when these may be free, until ctx ends.
func (p *Program) notifyLocks(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	room := make(chan struct{}, maxNotifying)
	tell := func(w *waiter) {
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			p.notifyWaiter(ctx, w)
		})
	}
	for {
		select {
		case <-p.waiters.wake:
		case <-p.waiters.leave:
			// They ask again, and are answered, and listed, by whoever is next.
			for _, w := range p.waiters.everybody() {
				if p.door.state.Load() != doorQuiet || ctx.Err() != nil {
					break
				}
				tell(w)
			}
			continue
		case <-ctx.Done():
			return
		}
		for _, f := range p.waiters.takeFreed() {
			p.notifyWaiters(ctx, f, tell)
		}
	}
}

// notifyWaiters calls tell for those who wait for a lock of f that is free.
func (p *Program) notifyWaiters(ctx context.Context, f vfs.File, tell func(*waiter)) {
	if p.door.state.Load() != doorOpen {
		return // whoever serves the identity next is asked by and by
	}
	for _, w := range p.waiters.list(f) {
		conflict, err := p.fs.TestLock(vfs.NewRequest(ctx, vfs.Cred{}), f, w.lock)
		switch {
		case errno(err) == cluster.ESTALE:
			p.waiters.remove(f, func(*waiter) bool { return true })
			return
		case err != nil || conflict != nil:
			continue
		}
		if p.waiters.tell(w, p.cfg.Now()) {
			tell(w)
		}
	}
}

// notifyWaiter tells one (CB_NOTIFY_LOCK, RFC 8881 §20.11). Who can't be told is taken
// off the list, and the next is told.
func (p *Program) notifyWaiter(ctx context.Context, w *waiter) {
	err := errNoPath
	if c := p.state.Client(w.lock.Client); c != nil {
		if to := p.caller(c); to != nil {
			var st proto.Status
			if st, err = to.Call(ctx, notifyLock(p.fs.AppendHandle(nil, w.file), w)); st != proto.OK && err == nil {
				err = st
			}
		}
	}
	if err == nil {
		return
	}
	p.log.Debug("can't tell a client that a lock may be free", "client", w.lock.Client, "err", err)
	p.waiters.remove(w.file, func(o *waiter) bool { return o == w })
	p.waiters.unlocked(w.file)
}

// notifyLock is CB_NOTIFY_LOCK.
func notifyLock(handle []byte, w *waiter) callbackOp {
	client, owner := w.lock.Client, bytes.Clone(w.owner)
	return callbackOp{Op: proto.CBNotifyLock, Args: func(e *xdr.Encoder) {
		e.Opaque(handle)
		e.Uint64(client)
		e.Opaque(owner)
	}}
}
