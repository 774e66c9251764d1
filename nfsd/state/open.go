package state

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// openKey names an open: an open-owner has one of a file.
type openKey struct {
	owner string
	file  vfs.File
}

// An Open is what an open-owner has open of a file.
type Open struct {
	holding
	owner        string
	access, deny uint32 // under client.mu
}

// OpenArgs says what is opened.
type OpenArgs struct {
	Owner        []byte
	File         vfs.File
	Access, Deny uint32 // proto.ShareAccess…, proto.ShareDeny…
}

// Open records an OPEN. fresh: the owner had not had the file open; otherwise
// the open has been upgraded, and the caller's own hold on the file is one too many.
// All opens of one owner and file have one stateid, whose seqid grows.
func (m *Manager) Open(c *Client, a OpenArgs) (sid Stateid, fresh bool, st proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return sid, false, proto.ErrExpired
	}
	if o := c.opens[openKey{string(a.Owner), a.File}]; o != nil {
		access, deny := o.access|a.Access, o.deny|a.Deny
		if !m.shares.change(a.File, o.access, o.deny, access, deny) {
			return sid, false, proto.ErrShareDenied
		}
		o.access, o.deny = access, deny
		o.bump()
		return m.stateid(&o.holding), false, proto.OK
	}
	if len(c.opens)+len(c.locks) >= m.cfg.MaxHoldings {
		return sid, false, proto.ErrDelay
	}
	if !m.shares.change(a.File, 0, 0, a.Access, a.Deny) {
		return sid, false, proto.ErrShareDenied
	}
	o := &Open{owner: string(a.Owner), access: a.Access, deny: a.Deny}
	o.holding = holding{id: m.nextID.Add(1), client: c, file: a.File, seq: 1, open: o}
	c.opens[openKey{o.owner, a.File}] = o
	m.table.put(&o.holding)
	return m.stateid(&o.holding), true, proto.OK
}

// findOpen returns the open that a stateid stands for. c.mu is held.
func (m *Manager) findOpen(c *Client, sid Stateid, f vfs.File) (*Open, proto.Status) {
	h, st := m.findOn(c, sid, f)
	if st != proto.OK {
		return nil, st
	}
	if h.lock != nil {
		return nil, proto.ErrBadStateid
	}
	return h.open, proto.OK
}

// Downgrade records an OPEN_DOWNGRADE (RFC 8881 §18.18): to less than there is.
func (m *Manager) Downgrade(c *Client, sid Stateid, f vfs.File, access, deny uint32) (Stateid, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, sid, f)
	if st != proto.OK {
		return Stateid{}, st
	}
	if access == 0 || access&^o.access != 0 || deny&^o.deny != 0 {
		return Stateid{}, proto.ErrInval
	}
	m.shares.change(f, o.access, o.deny, access, deny)
	o.access, o.deny = access, deny
	o.bump()
	return m.stateid(&o.holding), proto.OK
}

// Close records a CLOSE (RFC 8881 §18.2). The locks held through the open are
// gone with it: the caller has to release those returned in the file system.
func (m *Manager) Close(c *Client, sid Stateid, f vfs.File) ([]vfs.Lock, proto.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, st := m.findOpen(c, sid, f)
	if st != proto.OK {
		return nil, st
	}
	var held []vfs.Lock
	for k, l := range c.locks {
		if l.open != o {
			continue
		}
		for _, r := range l.held {
			held = append(held, vfs.Lock{Owner: l.digest, Client: c.ID, Start: r.start, End: r.end})
		}
		m.table.drop(l.id)
		delete(c.locks, k)
	}
	m.shares.change(f, o.access, o.deny, 0, 0)
	m.table.drop(o.id)
	delete(c.opens, openKey{o.owner, f})
	return held, proto.OK
}
