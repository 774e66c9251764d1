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
// the least, in bytes: there is room for a credential and a SEQUENCE or CB_SEQUENCE
// with an operation.
const minChannelSize = 256

// minCallbackOps is how many operations a usable back channel takes: a CB_SEQUENCE
// and another.
const minCallbackOps = 2

// A Session is a session (RFC 8881 §2.10).
type Session struct {
	ID        SessionID
	Client    *Client
	Fore      ChannelAttrs
	Back      ChannelAttrs
	BackAsked bool // CREATE_SESSION4_FLAG_CONN_BACK_CHAN
	CBProgram uint32
	CBCred    CallbackCred // what callbacks are sent with; under Manager.mu, see CallbackCred
	Attached  any          // what Config.Attach made
	slots     []slot
}

// A CallbackCred is the AUTH_SYS credential of callbacks (RFC 8881 §18.36.3), or
// none. A Linux client obeys only the one that it has offered.
type CallbackCred struct {
	Sys      bool
	UID, GID uint32
	Machine  string
}

// CreateSessionArgs is what CREATE_SESSION asks for.
type CreateSessionArgs struct {
	ClientID   uint64
	Sequence   uint32
	Flags      uint32
	Fore, Back ChannelAttrs
	CBProgram  uint32
	CBCred     CallbackCred
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
	if c.repeats(&a) {
		return *c.cached, nil
	}
	r := CreateSessionResult{Sequence: a.Sequence}
	r.Status = m.negotiate(c, &a, &r)
	c.seq = a.Sequence
	c.cached = &r
	c.changes++
	c.Renew(now)
	if r.Status != proto.OK {
		return r, nil
	}
	gone := m.confirm(c)
	m.nextSession++
	binary.BigEndian.PutUint64(r.ID[:], c.ID)
	binary.BigEndian.PutUint32(r.ID[8:], m.cfg.Epoch)
	binary.BigEndian.PutUint32(r.ID[12:], m.nextSession)
	m.addSession(c, &Session{
		ID: r.ID, Fore: r.Fore, Back: r.Back, CBProgram: a.CBProgram, CBCred: a.CBCred,
		BackAsked: r.Flags&proto.CreateSessionFlagConnBackChan != 0,
	})
	return r, gone
}

// confirm confirms a client, if it is not. An older incarnation is dropped, and its
// record goes when c's is first written. m.mu is held.
func (m *Manager) confirm(c *Client) (gone []Gone) {
	if c.confirmedRec {
		return nil
	}
	if old := m.confirmed[c.name()]; old != nil {
		c.replaces = old.ID
		g := m.remove(old)
		g.Record = 0
		gone = append(gone, g)
	}
	delete(m.unconfirmed, c.name())
	m.confirmed[c.name()] = c
	c.confirmedRec = true
	c.changes++
	return gone
}

func (m *Manager) addSession(c *Client, s *Session) {
	s.Client = c
	s.slots = make([]slot, s.Fore.MaxRequests)
	if m.cfg.Attach != nil {
		s.Attached = m.cfg.Attach(s)
	}
	c.sessions[s.ID] = s
	m.sessions.put(s)
}

// mayCreate says whether a is the next CREATE_SESSION of c, which may be nil, or a
// retry of the last: phases 1 to 3 of RFC 8881 §18.36.4. A client is confirmed by
// the principal that made it only; once it is, others may add sessions to it.
func (c *Client) mayCreate(a *CreateSessionArgs) proto.Status {
	switch {
	case c == nil:
		return proto.ErrStaleClientid
	case c.repeats(a):
		return proto.OK
	case a.Sequence != c.seq+1 && (a.Sequence != c.seq || c.cached == nil):
		return proto.ErrSeqMisordered
	case c.Principal != a.Principal && !c.confirmedRec:
		return proto.ErrClidInuse // and the slot is left to the one whose record it is
	}
	return proto.OK
}

// repeats reports whether a is to be answered as the last CREATE_SESSION. One whose
// channels were too small is looked at again: a retry is too small again, and a client
// that does not count what has failed can do better.
func (c *Client) repeats(a *CreateSessionArgs) bool {
	return c.cached != nil && a.Sequence == c.seq && c.cached.Status != proto.ErrToosmall
}

// Superseded returns the client that a successful CREATE_SESSION with these
// arguments would drop, an older incarnation, or 0: what that one holds in the file
// system is to be released before.
func (m *Manager) Superseded(a CreateSessionArgs) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[a.ClientID]
	if c.mayCreate(&a) != proto.OK || c.confirmedRec || c.repeats(&a) {
		return 0
	}
	var r CreateSessionResult
	old := m.confirmed[c.name()]
	if old == nil || m.negotiate(c, &a, &r) != proto.OK {
		return 0
	}
	return old.ID
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
	if b := &a.Back; (*b != ChannelAttrs{} || a.Flags&proto.CreateSessionFlagConnBackChan != 0) &&
		(b.MaxRequest < minChannelSize || b.MaxResponse < minChannelSize || b.MaxOps < minCallbackOps) {
		return proto.ErrToosmall // no callback could be sent (RFC 8881 §18.36.3)
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

// SetCallback changes what callbacks are sent with (BACKCHANNEL_CTL, RFC 8881 §18.33).
func (m *Manager) SetCallback(s *Session, program uint32, cred CallbackCred) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.CBProgram, s.CBCred = program, cred
	s.Client.changes++
}

// Callback returns what callbacks are sent with.
func (m *Manager) Callback(s *Session) (program uint32, cred CallbackCred) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return s.CBProgram, s.CBCred
}

// Sessions returns a client's sessions, in no order.
func (m *Manager) Sessions(c *Client) []*Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*Session, 0, len(c.sessions))
	for _, s := range c.sessions {
		all = append(all, s)
	}
	return all
}

// EachSession calls fn for every session. fn must not call m.
func (m *Manager) EachSession(fn func(*Session)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.clients {
		for _, s := range c.sessions {
			fn(s)
		}
	}
}

// DestroySession ends a session (RFC 8881 §18.37), whose client's record without it
// has been written. Requests that are under way in it still end; the client's
// other state stays.
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

// ReclaimComplete is RECLAIM_COMPLETE for all file systems (RFC 8881 §18.51). again:
// it may have been executed, and not answered.
func (m *Manager) ReclaimComplete(c *Client, again bool) proto.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.complete && !again && c.recorded == c.changes {
		return proto.ErrCompleteAlready
	}
	if !c.complete {
		c.complete = true
		c.changes++
	}
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
