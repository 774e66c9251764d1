package nfs4

import (
	"context"
	"net/netip"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/vfs"
)

// peers are the machines that have sent requests of NFSv4.0: the file system keeps
// results for each.
type peers struct {
	mu sync.Mutex
	m  map[netip.Addr]cluster.Time
}

// idlePeer is after how long without a request the results kept for a machine are
// forgotten: much longer than a request can be sent again.
const idlePeer = cluster.Time(60 * 60 * 1e9)

func (p *peers) seen(a netip.Addr, now cluster.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil {
		p.m = make(map[netip.Addr]cluster.Time)
	}
	p.m[a] = now
}

// idle returns, and forgets, the machines that were not heard of for long.
func (p *peers) idle(now cluster.Time) (all []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, at := range p.m {
		if now-at > idlePeer {
			all = append(all, a)
			delete(p.m, a)
		}
	}
	return all
}

// tick does what is due for NFSv4.0; Program.Tick calls it.
func (h *handler40) tick(ctx context.Context, now cluster.Time) {
	h.probes.run(ctx)
	last := cluster.Time(h.swept.Load())
	if now-last < cluster.Time(h.p.cfg.Lease) || !h.swept.CompareAndSwap(int64(last), int64(now)) {
		return
	}
	h.probes.keep(func(id uint64) bool { return h.p.state.Client(id) != nil })
	if idle := h.peers.idle(now); len(idle) > 0 {
		h.p.mu.Lock()
		for _, a := range idle {
			h.p.ended = append(h.p.ended, h.machine(a))
		}
		h.p.mu.Unlock()
	}
	for _, u := range h.p.state.SweepOwners(now) {
		c := newCompound(h.p)
		c.req.Reset(ctx, vfs.Cred{})
		c.client = u.Owner.Client
		select {
		case <-u.Owner.Turn:
			if sid, f, ok := u.Owner.Pending(); ok && sid.Other == u.Other {
				c.cancel(sid, f)
				u.Owner.Cancelled()
			}
			u.Owner.Turn <- struct{}{}
		default: // it is being confirmed
		}
		u.Owner.Leave()
	}
}
