package state

import (
	"sort"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// grace is the time after a start in which clients that were there before
// reclaim what they held (RFC 8881 §8.4.2). Its members are under Manager.mu.
type grace struct {
	running atomic.Bool
	end     cluster.Time
	owners  map[string]bool // who may reclaim: true once it said that it has
}

// BeginGrace starts the grace period for the clients that were recorded. It ends
// at the latest when end has come. Without owners there is none.
func (m *Manager) BeginGrace(end cluster.Time, owners [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grace.end = end
	m.grace.owners = make(map[string]bool, len(owners))
	for _, o := range owners {
		m.grace.owners[string(o)] = false
	}
	m.grace.running.Store(len(owners) > 0)
}

// InGrace reports whether new opens and locks have to wait.
func (m *Manager) InGrace() bool { return m.grace.running.Load() }

// GraceOver reports whether the grace period can end: all have reclaimed, or
// time is up.
func (m *Manager) GraceOver(now cluster.Time) bool {
	if !m.InGrace() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now >= m.grace.end {
		return true
	}
	for _, done := range m.grace.owners {
		if !done {
			return false
		}
	}
	return true
}

// EndGrace ends the grace period, and returns the owners that have not come
// back: their records are to be forgotten.
func (m *Manager) EndGrace() (forget []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grace.running.Store(false)
	for o, done := range m.grace.owners {
		if !done && m.confirmed[o] == nil {
			forget = append(forget, o)
		}
	}
	m.grace.owners = nil
	sort.Strings(forget)
	return forget
}

// MayReclaim says whether c may reclaim now: NO_GRACE if not.
func (m *Manager) MayReclaim(c *Client) proto.Status {
	if !m.InGrace() {
		return proto.ErrNoGrace
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if done, listed := m.grace.owners[c.Owner]; !listed || done || c.complete {
		return proto.ErrNoGrace
	}
	return proto.OK
}

// ReclaimComplete is RECLAIM_COMPLETE for all file systems (RFC 8881 §18.51).
func (m *Manager) ReclaimComplete(c *Client) proto.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.complete {
		return proto.ErrCompleteAlready
	}
	c.complete = true
	if _, listed := m.grace.owners[c.Owner]; listed {
		m.grace.owners[c.Owner] = true
	}
	return proto.OK
}
