package state

import (
	"encoding/binary"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
)

// A SessionID is a sessionid4.
type SessionID [proto.SessionIDSize]byte

// ChannelAttrs are the limits of a channel (channel_attrs4); sizes in bytes.
type ChannelAttrs struct {
	MaxRequest, MaxResponse uint32
	MaxCached               uint32 // of a reply in the cache
	MaxOps                  uint32 // in a COMPOUND
	MaxRequests             uint32 // slots
}

// minChannelSize is the largest request and reply that a usable channel has at
// the least, in bytes.
const minChannelSize = 1024

// A Session is a session (RFC 8881 §2.10).
type Session struct {
	ID        SessionID
	Client    *Client
	Fore      ChannelAttrs
	Back      ChannelAttrs
	CBProgram uint32
	slots     []slot
}

// CreateSessionArgs is what CREATE_SESSION asks for.
type CreateSessionArgs struct {
	ClientID   uint64
	Sequence   uint32
	Flags      uint32
	Fore, Back ChannelAttrs
	CBProgram  uint32
	Principal  Principal
}

// CreateSessionResult is what CREATE_SESSION grants. It is kept to answer a retry.
type CreateSessionResult struct {
	Status     proto.Status
	ID         SessionID
	Sequence   uint32
	Flags      uint32
	Fore, Back ChannelAttrs
}

// CreateSession makes a session, and confirms its client if need be (RFC 8881
// §18.36.4). The result, also a failure, is kept for a retry with the same
// sequence: answering that with SEQ_MISORDERED would make the client drop all its state.
func (m *Manager) CreateSession(now cluster.Time, a CreateSessionArgs) (CreateSessionResult, []Gone) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[a.ClientID]
	if st := c.mayCreate(&a); st != proto.OK {
		return CreateSessionResult{Status: st}, nil
	}
	if a.Sequence == c.seq {
		return *c.cached, nil
	}
	r := CreateSessionResult{Sequence: a.Sequence}
	r.Status = m.negotiate(c, &a, &r)
	c.seq = a.Sequence
	c.cached = &r
	c.Renew(now)
	if r.Status != proto.OK {
		return r, nil
	}
	var gone []Gone
	if !c.confirmedRec {
		if old := m.confirmed[c.Owner]; old != nil { // the client has restarted
			g := m.remove(old)
			g.Forget = false
			gone = append(gone, g)
		}
		delete(m.unconfirmed, c.Owner)
		m.confirmed[c.Owner] = c
		c.confirmedRec = true
	}
	m.nextSession++
	binary.BigEndian.PutUint64(r.ID[:], c.ID)
	binary.BigEndian.PutUint64(r.ID[8:], m.nextSession)
	s := &Session{
		ID: r.ID, Client: c, Fore: r.Fore, Back: r.Back, CBProgram: a.CBProgram,
		slots: make([]slot, r.Fore.MaxRequests),
	}
	c.sessions[s.ID] = s
	m.sessions.put(s)
	return r, gone
}

// mayCreate says whether a is the next CREATE_SESSION of c, which may be nil, or a
// retry of the last: phases 1 to 3 of RFC 8881 §18.36.4. A client is confirmed by
// the principal that made it only; once it is, others may add sessions to it.
func (c *Client) mayCreate(a *CreateSessionArgs) proto.Status {
	switch {
	case c == nil:
		return proto.ErrStaleClientid
	case a.Sequence == c.seq && c.cached != nil:
		return proto.OK
	case a.Sequence != c.seq+1:
		return proto.ErrSeqMisordered
	case c.Principal != a.Principal && !c.confirmedRec:
		return proto.ErrClidInuse // and the slot is left to the one whose record it is
	}
	return proto.OK
}

// Unrecorded returns the owner of the client that this CREATE_SESSION would
// confirm: it has to be recorded durably before. Others are not: a record
// without a client would hold up the grace period after the next restart.
func (m *Manager) Unrecorded(a CreateSessionArgs) (owner string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[a.ClientID]
	if c.mayCreate(&a) != proto.OK || c.confirmedRec || a.Sequence == c.seq {
		return "", false
	}
	var r CreateSessionResult
	return c.Owner, m.negotiate(c, &a, &r) == proto.OK
}

// knownFlags are the flags that CREATE_SESSION can have.
const knownFlags = proto.CreateSessionFlagPersist | proto.CreateSessionFlagConnBackChan | proto.CreateSessionFlagConnRDMA

// negotiate fills in what a session gets: never more than was asked for.
func (m *Manager) negotiate(c *Client, a *CreateSessionArgs, r *CreateSessionResult) proto.Status {
	f := a.Fore
	if a.Flags&^uint32(knownFlags) != 0 {
		return proto.ErrInval
	}
	if f.MaxRequest < minChannelSize || f.MaxResponse < minChannelSize {
		return proto.ErrToosmall
	}
	if f.MaxOps == 0 || f.MaxRequests == 0 {
		return proto.ErrInval
	}
	if len(c.sessions) >= m.cfg.MaxSessions {
		return proto.ErrNospc
	}
	most := &m.cfg.Fore
	r.Fore = ChannelAttrs{
		MaxRequest:  min(f.MaxRequest, most.MaxRequest),
		MaxResponse: min(f.MaxResponse, most.MaxResponse),
		MaxCached:   min(f.MaxCached, most.MaxCached),
		MaxOps:      min(f.MaxOps, most.MaxOps),
		MaxRequests: min(f.MaxRequests, most.MaxRequests),
	}
	if a.Flags&proto.CreateSessionFlagConnBackChan != 0 {
		r.Flags |= proto.CreateSessionFlagConnBackChan
	}
	// The back channel's operations and slots must not be changed (RFC 8881 §18.36.3).
	r.Back = a.Back
	r.Back.MaxCached = 0
	return proto.OK
}

// Session returns a session, or nil.
func (m *Manager) Session(id *SessionID) *Session { return m.sessions.get(id) }

// DestroySession ends a session (RFC 8881 §18.37). Requests that are under
// way in it still end; the client's other state stays.
func (m *Manager) DestroySession(id *SessionID) proto.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions.get(id)
	if s == nil {
		return proto.ErrBadsession
	}
	m.sessions.drop(s.ID)
	delete(s.Client.sessions, s.ID)
	return proto.OK
}

const sessionShards = 16

// sessionTable finds sessions by id.
type sessionTable struct {
	shards [sessionShards]struct {
		mu sync.RWMutex
		m  map[SessionID]*Session
		_  [24]byte
	}
}

func (t *sessionTable) get(id *SessionID) *Session {
	s := &t.shards[id[15]%sessionShards]
	s.mu.RLock()
	x := s.m[*id]
	s.mu.RUnlock()
	return x
}

func (t *sessionTable) put(x *Session) {
	s := &t.shards[x.ID[15]%sessionShards]
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[SessionID]*Session)
	}
	s.m[x.ID] = x
	s.mu.Unlock()
}

func (t *sessionTable) drop(id SessionID) {
	s := &t.shards[id[15]%sessionShards]
	s.mu.Lock()
	delete(s.m, id)
	s.mu.Unlock()
}
