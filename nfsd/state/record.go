package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// The formats of client records. A front-end reads those of its own version and older
// ones. The second says that the client may have delegations, and is used for such
// clients only, so that without delegations earlier programs can take clients over.
const (
	recordPlain   = 1
	recordVersion = 2
)

// Bounds of what is in a record.
const (
	maxRecordSessions = 1024
	maxRecordSlots    = 1 << 16
	maxRecordText     = 1024 // bytes
	maxRecordExt      = 16 << 10
)

// A Record is a client's record as it is to be stored.
type Record struct {
	ID       uint64
	Bytes    []byte
	Replaces uint64 // whose record goes in the same step, 0: nobody's
	change   uint64
}

// Record returns a client's record, if it has changed since Recorded was told.
// Clients that are not confirmed have none.
func (m *Manager) Record(id uint64) (r Record, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[id]
	if c == nil || !c.confirmedRec || c.recorded == c.changes {
		return r, false
	}
	return Record{ID: id, Bytes: c.encode(nil), Replaces: c.replaces, change: c.changes}, true
}

// RecordWithout returns the record as it is without a session.
func (m *Manager) RecordWithout(s *Session) Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := s.Client
	return Record{ID: c.ID, Bytes: c.encode(s), Replaces: c.replaces, change: c.changes}
}

// Recorded says that the record was stored.
func (m *Manager) Recorded(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clients[r.ID]; c != nil {
		c.recorded = max(c.recorded, r.change)
		c.replaces = 0
	}
}

// Extension returns what another minor version keeps with the client, or nil.
func (m *Manager) Extension(c *Client) Extension {
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.ext
}

// SetExtension sets it: the record changes.
func (m *Manager) SetExtension(c *Client, x Extension) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.ext = x
	c.changes++
}

// encode returns c's record, without a session. Manager.mu is held.
func (c *Client) encode(without *Session) []byte {
	e := xdr.NewEncoder(make([]byte, 0, 512))
	if c.delegating {
		e.Uint32(recordVersion)
	} else {
		e.Uint32(recordPlain)
	}
	e.Uint32(uint32(c.Slot))
	e.Uint32(c.Minor)
	e.String(c.Owner)
	e.Uint64(c.Verifier)
	e.Uint32(c.Principal.Flavor)
	e.Uint32(c.Principal.UID)
	e.String(c.Peer)
	e.Bool(c.complete)
	e.Uint32(c.seq)
	e.Bool(c.cached != nil)
	if r := c.cached; r != nil {
		e.Uint32(uint32(r.Status))
		e.FixedOpaque(r.ID[:])
		e.Uint32(r.Flags)
		encodeChannel(e, &r.Fore)
		encodeChannel(e, &r.Back)
	}
	all := make([]*Session, 0, len(c.sessions))
	for _, s := range c.sessions {
		if s != without {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(string(a.ID[:]), string(b.ID[:])) })
	e.Uint32(uint32(len(all)))
	for _, s := range all {
		e.FixedOpaque(s.ID[:])
		encodeChannel(e, &s.Fore)
		encodeChannel(e, &s.Back)
		e.Bool(s.BackAsked)
		e.Uint32(s.CBProgram)
		e.Bool(s.CBCred.Sys)
		e.Uint32(s.CBCred.UID)
		e.Uint32(s.CBCred.GID)
		e.String(s.CBCred.Machine)
	}
	var ext []byte
	if c.ext != nil {
		ext = c.ext.AppendRecord(nil)
	}
	e.Opaque(ext)
	return e.Bytes()
}

func encodeChannel(e *xdr.Encoder, a *ChannelAttrs) {
	e.Uint32(a.MaxRequest)
	e.Uint32(a.MaxResponse)
	e.Uint32(a.MaxCached)
	e.Uint32(a.MaxOps)
	e.Uint32(a.MaxRequests)
}

func decodeChannel(d *xdr.Decoder) ChannelAttrs {
	return ChannelAttrs{d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()}
}

var errRecord = errors.New("state: damaged client record")

// decode makes a client of its record.
func decode(id uint64, record []byte) (c *Client, sessions []*Session, ext []byte, err error) {
	d := xdr.NewDecoder(record)
	v := d.Uint32()
	if d.Err() == nil && (v < recordPlain || v > recordVersion) {
		return nil, nil, nil, fmt.Errorf("state: client record of version %d: %w", v, cluster.EVERSION)
	}
	c = &Client{ID: id, confirmedRec: true, loaded: true, delegating: v == recordVersion}
	c.lost.Store(c.delegating)
	c.delegatingRecorded.Store(c.delegating)
	slot := d.Uint32()
	c.Slot = uint16(slot)
	c.Minor = d.Uint32()
	c.Owner = string(d.Opaque(maxRecordText))
	c.Verifier = d.Uint64()
	c.Principal = Principal{d.Uint32(), d.Uint32()}
	c.Peer = string(d.Opaque(maxRecordText))
	c.complete = d.Bool()
	c.seq = d.Uint32()
	if d.Bool() {
		r := &CreateSessionResult{Status: proto.Status(d.Uint32()), Sequence: c.seq}
		copy(r.ID[:], d.FixedOpaque(len(r.ID)))
		r.Flags = d.Uint32()
		r.Fore, r.Back = decodeChannel(d), decodeChannel(d)
		c.cached = r
	}
	for range d.Count(maxRecordSessions, 80) {
		s := &Session{}
		copy(s.ID[:], d.FixedOpaque(len(s.ID)))
		s.Fore, s.Back = decodeChannel(d), decodeChannel(d)
		s.BackAsked = d.Bool()
		s.CBProgram = d.Uint32()
		s.CBCred = CallbackCred{d.Bool(), d.Uint32(), d.Uint32(), string(d.Opaque(maxRecordText))}
		if n := s.Fore.MaxRequests; n == 0 || n > maxRecordSlots {
			return nil, nil, nil, errRecord
		}
		sessions = append(sessions, s)
	}
	ext = append([]byte(nil), d.Opaque(maxRecordExt)...)
	if d.Err() != nil || d.Remaining() != 0 || slot == 0 || slot > 1<<16-1 || c.Minor > 2 {
		return nil, nil, nil, errRecord
	}
	return c, sessions, ext, nil
}

// Load makes the clients of the records, as an earlier front-end has left them: their
// leases begin anew, their sessions' slots take whatever seqid comes first, and what
// they hold is learned when it is used. Records that can't be used are left out, and
// the error says why. Nothing else was done with m before.
func (m *Manager) Load(now cluster.Time, records []vfs.ClientRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var faults []error
	for _, r := range records {
		if err := m.load(now, r); err != nil {
			faults = append(faults, fmt.Errorf("client %#x: %w", r.ID, err))
		}
	}
	return errors.Join(faults...)
}

func (m *Manager) load(now cluster.Time, r vfs.ClientRecord) error {
	c, sessions, ext, err := decode(r.ID, r.Record)
	switch {
	case err != nil:
		return err
	case m.clients[c.ID] != nil, m.slots[c.Slot] != nil:
		return fmt.Errorf("state: two clients have number %d", c.Slot)
	case len(m.clients) >= 1<<16-1:
		return errors.New("state: too many clients")
	case m.cfg.Extend == nil:
	case len(ext) > 0:
		if c.ext, err = m.cfg.Extend(c, ext); err != nil {
			return err
		}
	case c.Minor == 0:
		return errRecord // whoever serves NFSv4.0 relies on what is kept with its clients
	}
	if m.confirmed[c.name()] != nil {
		return fmt.Errorf("state: two clients have the name %q", c.Owner)
	}
	c.loadedAt = now
	c.Renew(now)
	m.insert(c)
	m.nextSlot = max(m.nextSlot, c.Slot)
	for _, s := range sessions {
		m.addSession(c, s)
		for i := range s.slots {
			s.slots[i].unknown = true
		}
	}
	return nil
}
