package state

import "github.com/hawserfs/hawser/cluster"

// MayReclaim reports whether a client may reclaim what it holds, as after a restart
// of its server. No take-over loses anything, and no client is told to; one that does
// nevertheless, since it has lost its connection at a bad moment, is granted what it
// has. It must be older than the take-over, and must not have said that it is done:
// by RECLAIM_COMPLETE (RFC 8881 §18.51.3), or, in NFSv4.0, by letting a lease pass
// (RFC 7530 §9.6.2). To others there is nothing to reclaim: NO_GRACE.
func (m *Manager) MayReclaim(c *Client, now cluster.Time) bool {
	switch {
	case !c.loaded:
		return false
	case c.v40() != nil:
		return now-c.loadedAt <= m.cfg.Lease
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return !c.complete
}
