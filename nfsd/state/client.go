package state

import (
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/vfs"
)

// A Principal is who made a client record: the flavor and user of the RPC credential.
type Principal struct {
	Flavor, UID uint32
}

// A Client is a client record (RFC 8881 §2.4).
type Client struct {
	ID        uint64
	Slot      uint16 // its number among the identity's clients now; stateids name it
	Minor     uint32 // 0 for NFSv4.0; otherwise that of the EXCHANGE_ID
	Owner     string // co_ownerid
	Verifier  uint64 // co_verifier: another one is another incarnation of the client
	Principal Principal
	Peer      string // where it came from, for the log

	// Under Manager.mu.
	confirmedRec bool
	seq          uint32 // the last csa_sequence
	cached       *CreateSessionResult
	sessions     map[SessionID]*Session
	complete     bool // has sent RECLAIM_COMPLETE
	ext          Extension
	delegating   bool   // may have delegations
	changes      uint64 // of the record
	recorded     uint64 // up to which of them it has been recorded
	replaces     uint64 // the client whose record goes with the next one

	// lost: an earlier front-end may have granted delegations. They have ended with it,
	// which the client has yet to hear: nobody could tell it of changes meanwhile.
	lost               atomic.Bool
	hidden             atomic.Int64 // cluster.Time until which it is looking for them; 0: it is not
	revoked            atomic.Int32 // delegations that the client has to free
	delegatingRecorded atomic.Bool  // that it may have delegations has been recorded
	told               told         // that they are lost; under mu

	loaded   bool         // taken over: it may hold what is not known here yet
	loadedAt cluster.Time // if loaded
	renewed  atomic.Int64 // cluster.Time of the last sign of life

	mu    sync.Mutex
	dead  bool
	opens map[openKey]*Open
	locks map[lockKey]*Lock

	delegations map[vfs.StateID]*Delegation
}

// A clientName is what a client calls itself. Clients of NFSv4.0 and of later minor
// versions have names apart: a machine that mounts by both under one name would
// otherwise end its own other client with each mount, or be given its id, which it can't
// use. (RFC 8881 §2.4.1 allows a server to compare them.)
type clientName struct {
	v40   bool
	owner string
}

func (c *Client) name() clientName { return clientName{c.v40() != nil, c.Owner} }

// LockName returns what tells c's lock-owners from other clients', also after a
// take-over or a restart of the client.
func (c *Client) LockName() string {
	if c.v40() != nil {
		return "NFSv4.0\x00" + c.Owner
	}
	return c.Owner
}

// Renew renews the client's lease.
func (c *Client) Renew(now cluster.Time) { c.renewed.Store(int64(now)) }

// Delegating reports whether it is recorded that c may have delegations: see SetDelegating.
func (c *Client) Delegating() bool { return c.delegatingRecorded.Load() }

// DelegatingRecorded says that it is.
func (c *Client) DelegatingRecorded() { c.delegatingRecorded.Store(true) }

// Revoked reports whether Manager.Revoked has anything to say.
func (c *Client) Revoked() bool { return c.revoked.Load() > 0 || c.lost.Load() }

// Loaded reports whether the client was taken over, so that it may hold states
// that are not known here: see Learn.
func (c *Client) Loaded() bool { return c.loaded }

// lapsed reports whether the client's lease has ended.
func (m *Manager) lapsed(c *Client, now cluster.Time) bool {
	return now-cluster.Time(c.renewed.Load()) > m.cfg.Lease
}

// busy reports whether c holds sessions or state. What it has not named since it was
// taken over does not count: it may have closed that just before, and the record is
// there still, since those of closed files are deleted some time after the answer. m.mu
// is held.
func (c *Client) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.opens {
		if !o.idle {
			return true
		}
	}
	for _, l := range c.locks {
		if !l.idle {
			return true
		}
	}
	return len(c.sessions) > 0 || len(c.delegations) > int(c.revoked.Load())
}

// newClient makes a client, unconfirmed, with an id and a slot. m.mu is held, and
// there are fewer than MaxClients.
func (m *Manager) newClient(owner string, verifier uint64, p Principal, peer string, ext Extension) *Client {
	m.nextClient++
	c := &Client{
		ID:    cluster.MakeClientID(m.cfg.Identity, m.cfg.Epoch, m.nextClient),
		Owner: owner, Verifier: verifier, Principal: p, Peer: peer, ext: ext,
	}
	// The number that was free for longest: what still has an older client's does not fit.
	for m.nextSlot++; m.nextSlot == 0 || m.slots[m.nextSlot] != nil; m.nextSlot++ {
	}
	c.Slot = m.nextSlot
	m.insert(c)
	return c
}

// insert puts a client into the tables. m.mu is held.
func (m *Manager) insert(c *Client) {
	c.sessions = make(map[SessionID]*Session)
	c.opens = make(map[openKey]*Open)
	c.locks = make(map[lockKey]*Lock)
	c.delegations = make(map[vfs.StateID]*Delegation)
	m.clients[c.ID] = c
	m.slots[c.Slot] = c
	if c.confirmedRec {
		m.confirmed[c.name()] = c
	} else {
		m.unconfirmed[c.name()] = c
	}
}

// Client returns a client by its id, or nil.
func (m *Manager) Client(id uint64) *Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clients[id]
}

// ClientOf returns the client that a stateid names, or nil.
func (m *Manager) ClientOf(sid Stateid) *Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slots[otherSlot(sid.Other)]
}

// Gone is a client whose state has been dropped. The caller has to do to the file
// system and the store what follows from it: close the files, release the client's
// locks and states, forget the results of its sessions, and delete its record.
type Gone struct {
	Client   uint64 // whose locks and states there may be; 0: none
	Record   uint64 // whose record is to be deleted, after the release; 0: none
	Owner    string
	Peer     string      // where it came from
	Files    []vfs.File  // each was open once for each time it is listed
	Sessions []SessionID // that it had
}

// remove drops c with all its state. m.mu is held.
func (m *Manager) remove(c *Client) Gone {
	delete(m.clients, c.ID)
	delete(m.slots, c.Slot)
	name := c.name()
	if m.confirmed[name] == c {
		delete(m.confirmed, name)
	}
	if m.unconfirmed[name] == c {
		delete(m.unconfirmed, name)
	}
	g := Gone{Owner: c.Owner, Peer: c.Peer}
	for _, s := range c.sessions {
		m.sessions.drop(s.ID)
		g.Sessions = append(g.Sessions, s.ID)
	}
	c.sessions = nil
	if c.confirmedRec {
		g.Record = c.ID
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded || len(c.opens) > 0 || len(c.locks) > 0 {
		g.Client = c.ID
	}
	c.dead = true
	for _, l := range c.locks {
		m.forgetLock(l)
	}
	for _, o := range c.opens {
		m.forget(o)
		g.Files = append(g.Files, o.file)
	}
	for _, d := range c.delegations {
		if d.phase != revoked {
			g.Files = append(g.Files, d.file)
		}
		m.forgetDelegation(d)
	}
	c.opens, c.locks = nil, nil
	return g
}

// DestroyClientid drops a client that holds nothing (RFC 8881 §18.50). What a
// taken-over client has not named since goes with it: it says that it has nothing
// left, and asking it to close what it does not know of would keep that for ever.
func (m *Manager) DestroyClientid(id uint64) ([]Gone, proto.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[id]
	if c == nil {
		return nil, proto.ErrStaleClientid
	}
	if c.busy() {
		return nil, proto.ErrClientidBusy
	}
	return []Gone{m.remove(c)}, proto.OK
}

// Expire drops the clients that have been silent for longer than lease and
// courtesy, and unconfirmed records older than a lease.
func (m *Manager) Expire(now cluster.Time) []Gone {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []Gone
	for _, c := range m.clients {
		silent := now - cluster.Time(c.renewed.Load())
		if silent > m.cfg.Lease+m.cfg.Courtesy || !c.confirmedRec && silent > m.cfg.Lease {
			gone = append(gone, m.remove(c))
		}
	}
	return gone
}

// ExpireClient drops a client whose lease has ended, because somebody needs what
// it holds. It reports nothing dropped if the lease runs, or there is no such client.
func (m *Manager) ExpireClient(id uint64, now cluster.Time) []Gone {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clients[id]; c != nil && m.lapsed(c, now) {
		return []Gone{m.remove(c)}
	}
	return nil
}

// ExpireHolders drops the clients that have f open and whose lease has ended.
func (m *Manager) ExpireHolders(f vfs.File, now cluster.Time) []Gone {
	var ids []uint64
	m.shares.each(f, func(o *Open) { ids = append(ids, o.client.ID) })
	var gone []Gone
	for _, id := range ids {
		gone = append(gone, m.ExpireClient(id, now)...)
	}
	return gone
}

// expireLapsed drops all clients whose lease has ended, to make room. m.mu is held.
func (m *Manager) expireLapsed(now cluster.Time) []Gone {
	var gone []Gone
	for _, c := range m.clients {
		if m.lapsed(c, now) {
			gone = append(gone, m.remove(c))
		}
	}
	return gone
}
