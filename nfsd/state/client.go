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

	renewed atomic.Int64 // cluster.Time of the last sign of life

	mu    sync.Mutex
	dead  bool
	opens map[openKey]*Open
	locks map[lockKey]*Lock
}

// Renew renews the client's lease.
func (c *Client) Renew(now cluster.Time) { c.renewed.Store(int64(now)) }

// lapsed reports whether the client's lease has ended.
func (m *Manager) lapsed(c *Client, now cluster.Time) bool {
	return now-cluster.Time(c.renewed.Load()) > m.cfg.Lease
}

// busy reports whether c holds sessions or state. m.mu is held.
func (c *Client) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions) > 0 || len(c.opens) > 0 || len(c.locks) > 0
}

// Gone is a client whose state has been dropped. The caller has to do to the file
// system what follows from it: close the files, release the client's locks, and
// forget its owner if it is to be forgotten.
type Gone struct {
	Client uint64 // 0: it can't have had locks
	Owner  string
	Peer   string     // where it came from
	Files  []vfs.File // each was open once for each time it is listed
	Forget bool       // there is no other record of the owner
}

// remove drops c with all its state. m.mu is held.
func (m *Manager) remove(c *Client) Gone {
	delete(m.clients, c.ID)
	if m.confirmed[c.Owner] == c {
		delete(m.confirmed, c.Owner)
	}
	if m.unconfirmed[c.Owner] == c {
		delete(m.unconfirmed, c.Owner)
	}
	for _, s := range c.sessions {
		m.sessions.drop(s.ID)
	}
	c.sessions = nil
	g := Gone{Owner: c.Owner, Peer: c.Peer, Forget: c.confirmedRec}
	if c.confirmedRec { // others have never had locks
		g.Client = c.ID
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for _, l := range c.locks {
		m.table.drop(l.id)
	}
	for _, o := range c.opens {
		m.table.drop(o.id)
		m.shares.change(o.file, o.access, o.deny, 0, 0)
		g.Files = append(g.Files, o.file)
	}
	c.opens, c.locks = nil, nil
	return g
}

// ExchangeArgs is what EXCHANGE_ID asks for.
type ExchangeArgs struct {
	Owner     []byte
	Verifier  uint64
	Principal Principal
	Update    bool   // EXCHGID4_FLAG_UPD_CONFIRMED_REC_A
	Peer      string // where it comes from, for the log
}

// ExchangeResult is the client id, and the sequence that CREATE_SESSION shall have.
type ExchangeResult struct {
	ClientID  uint64
	Sequence  uint32
	Confirmed bool
}

// ExchangeID makes or finds a client record: the cases of RFC 8881 §18.35.4.
func (m *Manager) ExchangeID(now cluster.Time, a ExchangeArgs) (ExchangeResult, []Gone, proto.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone []Gone
	conf := m.confirmed[string(a.Owner)]
	if a.Update {
		switch {
		case conf == nil:
			return ExchangeResult{}, nil, proto.ErrNoent
		case conf.Verifier != a.Verifier:
			return ExchangeResult{}, nil, proto.ErrNotSame
		case conf.Principal != a.Principal:
			return ExchangeResult{}, nil, proto.ErrPerm
		}
		return conf.exchanged(), nil, proto.OK
	}
	switch {
	case conf == nil:
	case conf.Principal != a.Principal: // two clients with one name, or another principal
		if conf.busy() && !m.lapsed(conf, now) {
			return ExchangeResult{}, nil, proto.ErrClidInuse
		}
		gone = append(gone, m.remove(conf))
	case conf.Verifier == a.Verifier: // asked again
		conf.Renew(now)
		return conf.exchanged(), nil, proto.OK
	}
	// A new client, or a new incarnation: an older one keeps its state until
	// CREATE_SESSION confirms the new one.
	if old := m.unconfirmed[string(a.Owner)]; old != nil {
		m.remove(old)
	}
	if len(m.clients) >= m.cfg.MaxClients {
		more := m.expire(now)
		gone = append(gone, more...)
		if len(more) == 0 {
			return ExchangeResult{}, gone, proto.ErrDelay
		}
	}
	m.nextClient++
	c := &Client{
		ID:        uint64(m.cfg.Boot)<<32 | uint64(m.nextClient),
		Owner:     string(a.Owner),
		Verifier:  a.Verifier,
		Principal: a.Principal,
		Peer:      a.Peer,
		sessions:  make(map[SessionID]*Session),
		opens:     make(map[openKey]*Open),
		locks:     make(map[lockKey]*Lock),
	}
	c.Renew(now)
	m.clients[c.ID] = c
	m.unconfirmed[c.Owner] = c
	return c.exchanged(), gone, proto.OK
}

func (c *Client) exchanged() ExchangeResult {
	return ExchangeResult{ClientID: c.ID, Sequence: c.seq + 1, Confirmed: c.confirmedRec}
}

// DestroyClientid drops a client that holds nothing (RFC 8881 §18.50).
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

// ExpireLapsed drops all clients whose lease has ended: for when somebody
// needs what they hold.
func (m *Manager) ExpireLapsed(now cluster.Time) []Gone {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.expire(now)
}

func (m *Manager) expire(now cluster.Time) []Gone {
	var gone []Gone
	for _, c := range m.clients {
		if m.lapsed(c, now) {
			gone = append(gone, m.remove(c))
		}
	}
	return gone
}

// Confirmed reports whether there is a confirmed record of the owner.
func (m *Manager) Confirmed(owner string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.confirmed[owner] != nil
}

// Lapsed reports whether id is a client here whose lease has ended.
func (m *Manager) Lapsed(id uint64, now cluster.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[id]
	return c != nil && m.lapsed(c, now)
}
