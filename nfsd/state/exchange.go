package state

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// ExchangeArgs is what EXCHANGE_ID asks for.
type ExchangeArgs struct {
	Owner     []byte
	Verifier  uint64
	Principal Principal
	Minor     uint32
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
	name := clientName{owner: string(a.Owner)}
	conf := m.confirmed[name]
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
		if (conf.loaded || conf.busy()) && !m.lapsed(conf, now) {
			return ExchangeResult{}, nil, proto.ErrClidInuse
		}
		gone = append(gone, m.remove(conf))
	case conf.Verifier == a.Verifier: // asked again
		conf.Renew(now)
		return conf.exchanged(), nil, proto.OK
	}
	// A new client, or a new incarnation: an older one keeps its state until
	// CREATE_SESSION confirms the new one.
	if old := m.unconfirmed[name]; old != nil {
		m.remove(old)
	}
	more, ok := m.room(now)
	gone = append(gone, more...)
	if !ok {
		return ExchangeResult{}, gone, proto.ErrDelay
	}
	c := m.newClient(name.owner, a.Verifier, a.Principal, a.Peer, nil)
	c.Minor = a.Minor
	c.Renew(now)
	return c.exchanged(), gone, proto.OK
}

// room makes room for one more client, if need be. m.mu is held.
func (m *Manager) room(now cluster.Time) ([]Gone, bool) {
	if len(m.clients) < m.cfg.MaxClients {
		return nil, true
	}
	gone := m.expireLapsed(now)
	return gone, len(gone) > 0
}

func (c *Client) exchanged() ExchangeResult {
	return ExchangeResult{ClientID: c.ID, Sequence: c.seq + 1, Confirmed: c.confirmedRec}
}
