package state

import (
	"sync"

	"github.com/hawserfs/hawser/cluster"
)

// Config says how a Manager behaves. All members must be set but those that may be nil.
type Config struct {
	// Identity is whose clients these are, and Epoch counts who served it: client
	// and session ids name both, so that they are never given twice.
	Identity cluster.IdentityID
	Epoch    uint32
	// Key is what stateids prove themselves with: the same for all front-ends that
	// may serve the identity, and secret.
	Key [32]byte
	// Lease is how long a client may be silent, in nanoseconds.
	Lease cluster.Time
	// Courtesy is how long a silent client keeps its state after the lease,
	// as long as nobody needs what it holds; nanoseconds.
	Courtesy cluster.Time
	// Fore is the most that a session's fore channel gets.
	Fore ChannelAttrs
	// MaxClients (at most 65535) and MaxSessions (of one client) bound the tables.
	MaxClients, MaxSessions int
	// MaxHoldings bounds the opens and lock owners of one client.
	MaxHoldings int
	// MaxDelegations bounds the delegations of one client; 0: there are none.
	MaxDelegations int
	// Attach, if it is not nil, makes what the caller keeps with a session.
	Attach func(*Session) any
	// Extend, if it is not nil, decodes what AppendRecord of a client's Extension made.
	Extend func(*Client, []byte) (Extension, error)
}

// An Extension is what another minor version keeps with a client.
type Extension interface {
	// AppendRecord appends what another front-end has to know of it.
	AppendRecord(b []byte) []byte
}

// A Manager has the state of all clients of an identity.
type Manager struct {
	cfg      Config
	table    table
	shares   shares
	recalls  recalls
	sessions sessionTable

	delegations delegations

	mu          sync.Mutex // the members below, and the members of Client that say so
	clients     map[uint64]*Client
	slots       map[uint16]*Client // by Client.Slot
	confirmed   map[clientName]*Client
	unconfirmed map[clientName]*Client
	nextClient  uint32
	nextSlot    uint16
	nextSession uint32
}

// New returns a Manager without any client.
func New(cfg Config) *Manager {
	cfg.MaxClients = min(cfg.MaxClients, 1<<16-1)
	return &Manager{
		cfg:         cfg,
		clients:     make(map[uint64]*Client),
		slots:       make(map[uint16]*Client),
		confirmed:   make(map[clientName]*Client),
		unconfirmed: make(map[clientName]*Client),
	}
}

// Counts returns the number of client records, sessions and opens.
func (m *Manager) Counts() (clients, sessions, opens int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.clients {
		clients++
		sessions += len(c.sessions)
		c.mu.Lock()
		opens += len(c.opens)
		c.mu.Unlock()
	}
	return clients, sessions, opens
}
