package state

import (
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// Limits of recalls.
const (
	retell      = cluster.Time(1e9) // until a client that was not reached is told again
	maxTelling  = 8                 // recalls of one client under way
	maxRefusals = 5                 // times that a client says that it has no such delegation
)

// recalls has the delegations that are being recalled.
type recalls struct {
	mu sync.Mutex
	m  map[*Delegation]struct{}
}

func (r *recalls) enter(d *Delegation, now, until cluster.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = make(map[*Delegation]struct{})
	}
	d.next, d.until = now, until
	r.m[d] = struct{}{}
}

func (r *recalls) leave(d *Delegation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, d)
}

// Recall has the delegations of f recalled that others than the client except have: f
// is to be changed, or was, by except. fresh: there is something that Recalls returns now. ended,
// unless it is nil, is closed when one of them is in nobody's way any more; then there
// may be others.
func (m *Manager) Recall(f vfs.File, except *Client, now cluster.Time) (fresh bool, ended <-chan struct{}) {
	for _, d := range m.delegations.of(f) {
		c := d.client
		c.mu.Lock()
		if c == except {
			d.own = true
			c.mu.Unlock()
			continue
		}
		if c.delegations[d.other] == d && d.phase != revoked {
			if d.phase != recalled {
				// An offer is not made, and the client need not be told.
				if d.phase == granted {
					m.recalls.enter(d, now, now+m.cfg.Lease)
					fresh = true
				}
				d.phase = recalled
				m.delegations.contend(f, now)
			}
			ended = d.ended
		}
		c.mu.Unlock()
	}
	return fresh, ended
}

// Recalls returns the delegations whose clients are to be told now that they are
// recalled: Told says how that went. It revokes those that should have been returned
// by now, and returns the files of these; their clients are told by SEQUENCE. The lease
// time is what RFC 8881 §10.4.6 grants at least.
func (m *Manager) Recalls(now cluster.Time) (tell []*Delegation, revoked []vfs.File) {
	var late []*Delegation
	telling := make(map[*Client]int)
	m.recalls.mu.Lock()
	for d := range m.recalls.m {
		if d.telling {
			telling[d.client]++
		}
	}
	for d := range m.recalls.m {
		switch {
		case now >= d.until || m.lapsed(d.client, now):
			late = append(late, d)
		case !d.telling && !d.heard && now >= d.next && telling[d.client] < maxTelling:
			d.telling = true
			telling[d.client]++
			tell = append(tell, d)
		}
	}
	m.recalls.mu.Unlock()
	for _, d := range late {
		if m.revoke(d) {
			revoked = append(revoked, d.file)
		}
	}
	return tell, revoked
}

// revoke ends a delegation without its client.
func (m *Manager) revoke(d *Delegation) bool {
	c := d.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delegations[d.other] != d || d.phase == revoked {
		return false
	}
	d.phase = revoked
	c.revoked.Add(1)
	m.delegations.leave(d)
	m.recalls.leave(d)
	close(d.ended)
	return true
}

// Told says how CB_RECALL of a delegation went: reached with the client's status, or
// not. gone: the client does not have it, and has said so often enough for that not to
// be because of a reply that is under way; its file is not needed for it any more.
func (m *Manager) Told(d *Delegation, reached bool, st proto.Status, now cluster.Time) (gone bool) {
	m.recalls.mu.Lock()
	d.telling, d.next = false, now+retell
	if reached {
		d.heard = st == proto.OK
		if st == proto.ErrBadStateid || st == proto.ErrBadhandle {
			d.refusals++
		}
	}
	gone = d.refusals >= maxRefusals
	m.recalls.mu.Unlock()
	if !gone {
		return false
	}
	c := d.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delegations[d.other] != d || d.phase == revoked {
		return false
	}
	m.forgetDelegation(d)
	return true
}

// SetDelegating notes that c may have delegations from now on: whoever takes it over
// has to tell it that they have ended. The record changes.
func (m *Manager) SetDelegating(c *Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !c.delegating {
		c.delegating = true
		c.changes++
	}
}

// A told is the request whose reply says that delegations have ended.
type told struct {
	session   *Session
	slot, seq uint32
	at        cluster.Time
}

// Revoked returns what SEQUENCE says of c's delegations (RFC 8881 §18.46.3):
// proto.Seq4StatusRecallableStateRevoked while some are revoked that the client has
// not freed. After a take-over it is said until the client has certainly heard it: it
// has ended all of them.
func (m *Manager) Revoked(s *Session, slot, seq uint32, now cluster.Time) uint32 {
	c := s.Client
	switch {
	case c.revoked.Load() > 0:
		return proto.Seq4StatusRecallableStateRevoked
	case !c.lost.Load():
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch t := &c.told; {
	case t.session == nil:
		*t = told{s, slot, seq, now}
	case t.session == s && t.slot == slot && t.seq != seq, // it has had the reply
		now-t.at > m.cfg.Lease:
		c.lost.Store(false)
		c.hidden.Store(int64(now + hideFor))
		return 0
	}
	return proto.Seq4StatusRecallableStateRevoked
}

// hideFor is how long a client is given to find out which delegations have ended, in
// nanoseconds, when it has heard that some have.
const hideFor = cluster.Time(5e9)

// Hides reports whether c may believe that it has delegations which have ended with an
// earlier front-end: then it is not told that files have changed, as by Shown. now is
// called if need be.
func (c *Client) Hides(now func() cluster.Time) bool {
	if c.lost.Load() {
		return true
	}
	until := c.hidden.Load()
	if until == 0 {
		return false
	}
	if now() < cluster.Time(until) {
		return true
	}
	c.hidden.Store(0)
	return false
}
