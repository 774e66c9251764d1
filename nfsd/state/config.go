package state

import (
	"sync"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
)

// Config says how a Manager behaves. All members must be set.
type Config struct {
	// Boot tells this incarnation of the server from others: random, neither 0 nor 2^32-1.
	Boot uint32
	// Lease is how long a client may be silent, in nanoseconds.
	Lease cluster.Time
	// Courtesy is how long a silent client keeps its state after the lease,
	// as long as nobody needs what it holds; nanoseconds.
	Courtesy cluster.Time
	// Fore is the most that a session's fore channel gets.
	Fore ChannelAttrs
	// MaxClients and MaxSessions (of one client) bound the tables.
	MaxClients, MaxSessions int
	// MaxHoldings bounds the opens and lock owners of one client.
	MaxHoldings int
}

// A Manager has the state of all clients.
type Manager struct {
	cfg      Config
	table    table
	shares   shares
	sessions sessionTable
	nextID   atomic.Uint64 // holdings

	mu          sync.Mutex // the members below, and the members of Client that say so
	clients     map[uint64]*Client
	confirmed   map[string]*Client // by owner
	unconfirmed map[string]*Client
	nextClient  uint32
	nextSession uint64

	grace grace
}

// New returns a Manager without any client.
func New(cfg Config) *Manager {
	return &Manager{
		cfg:         cfg,
		clients:     make(map[uint64]*Client),
		confirmed:   make(map[string]*Client),
		unconfirmed: make(map[string]*Client),
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
