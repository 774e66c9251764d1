package state

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A Callback says where an NFSv4.0 client is reached (cb_client4 and
// callback_ident, RFC 7530 §16.33).
type Callback struct {
	Program     uint32
	Netid, Addr string // a universal address
	Ident       uint32
}

// maxCallback bounds the parts of a universal address, in bytes.
const maxCallback = 128

// A V40 is what is kept with an NFSv4.0 client.
type V40 struct {
	// Under Manager.mu.
	confirm  uint64 // setclientid_confirm of the record
	callback Callback
	update   *callbackUpdate // a SETCLIENTID of the confirmed client that is not confirmed

	// Under Client.mu.
	opens, locks map[string]*Owner
	orphans      map[[3]byte]*Owner     // open-owners of a taken-over client, by the hash of their names, known or not
	closed       map[vfs.StateID]*Owner // by the stateid of the last CLOSE
}

// A callbackUpdate is a record { v, x, c, k, t } beside a confirmed one of the same
// client id (RFC 7530 §16.33.5).
type callbackUpdate struct {
	confirm  uint64
	callback Callback
}

func newV40(confirm uint64, cb Callback) *V40 {
	return &V40{
		confirm: confirm, callback: cb,
		opens: make(map[string]*Owner), locks: make(map[string]*Owner),
		orphans: make(map[[3]byte]*Owner), closed: make(map[vfs.StateID]*Owner),
	}
}

// v40Version is the format of what AppendRecord makes.
const v40Version = 1

// AppendRecord appends what another front-end has to know of the client. It knows
// nothing of the owners' sequences: the first number of each is then as good as any.
func (x *V40) AppendRecord(b []byte) []byte {
	e := xdr.NewEncoder(nil)
	e.Uint32(v40Version)
	e.Uint64(x.confirm)
	e.Uint32(x.callback.Program)
	e.String(x.callback.Netid)
	e.String(x.callback.Addr)
	e.Uint32(x.callback.Ident)
	return append(b, e.Bytes()...)
}

// ExtendV40 decodes what AppendRecord made: it is for Config.Extend.
func ExtendV40(c *Client, b []byte) (Extension, error) {
	d := xdr.NewDecoder(b)
	if v := d.Uint32(); c.Minor != 0 || d.Err() == nil && v != v40Version {
		return nil, errRecord
	}
	confirm := d.Uint64()
	cb := Callback{Program: d.Uint32(), Netid: d.String(maxCallback), Addr: d.String(maxCallback), Ident: d.Uint32()}
	if d.Err() != nil || d.Remaining() != 0 {
		return nil, errRecord
	}
	return newV40(confirm, cb), nil
}

// v40 returns what is kept with c, or nil if it is no client of NFSv4.0. The
// Extension is set once, before the client is in any table.
func (c *Client) v40() *V40 {
	x, _ := c.ext.(*V40)
	return x
}

// SetClientIDArgs is what SETCLIENTID asks for.
type SetClientIDArgs struct {
	ID        []byte
	Verifier  uint64
	Callback  Callback
	Principal Principal
	Peer      string // where it comes from, for the log
	// Confirm is the new setclientid_confirm: unpredictable, and never the same.
	Confirm uint64
}

// SetClientID makes a client record, or another for the callback of one that is
// confirmed: the cases of RFC 7530 §16.33.5. CLID_INUSE comes with who uses it.
func (m *Manager) SetClientID(now cluster.Time, a *SetClientIDArgs) (id uint64, using Callback, gone []Gone, st proto.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := clientName{v40: true, owner: string(a.ID)}
	conf := m.confirmed[name]
	switch {
	case conf == nil:
	case conf.Principal != a.Principal: // two clients with one name, or another principal
		if (conf.loaded || conf.busy()) && !m.lapsed(conf, now) {
			return 0, conf.v40().callback, nil, proto.ErrClidInuse
		}
		gone = append(gone, m.remove(conf))
	case conf.Verifier == a.Verifier: // only the callback may be new
		conf.v40().update = &callbackUpdate{a.Confirm, a.Callback}
		return conf.ID, using, nil, proto.OK
	}
	// A new client, or a new incarnation: an older one keeps its state until
	// the new one is confirmed.
	if old := m.unconfirmed[name]; old != nil {
		m.remove(old)
	}
	more, ok := m.room(now)
	gone = append(gone, more...)
	if !ok {
		return 0, using, gone, proto.ErrDelay
	}
	c := m.newClient(name.owner, a.Verifier, a.Principal, a.Peer, newV40(a.Confirm, a.Callback))
	c.Renew(now)
	return c.ID, using, gone, proto.OK
}

// Confirming returns the client that a SETCLIENTID_CONFIRM would drop, an older
// incarnation, or 0: what that one holds in the file system is to be released before.
func (m *Manager) Confirming(id, confirm uint64, p Principal) (old uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[id]
	if c == nil || c.v40() == nil || c.confirmedRec || c.v40().confirm != confirm || c.Principal != p {
		return 0
	}
	if o := m.confirmed[c.name()]; o != nil {
		return o.ID
	}
	return 0
}

// ConfirmClientID confirms a record: the cases of RFC 7530 §16.34.5. The caller
// stores the client's record before it answers.
func (m *Manager) ConfirmClientID(now cluster.Time, id, confirm uint64, p Principal) (cb Callback, gone []Gone, st proto.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[id]
	var x *V40
	if c != nil {
		x = c.v40()
	}
	if x == nil {
		return cb, nil, proto.ErrStaleClientid
	}
	updates := c.confirmedRec && x.update != nil && x.update.confirm == confirm
	switch {
	case !updates && x.confirm != confirm:
		return cb, nil, proto.ErrStaleClientid
	case c.Principal != p:
		return cb, nil, proto.ErrClidInuse
	case updates:
		x.confirm, x.callback, x.update = confirm, x.update.callback, nil
		c.changes++
	case !c.confirmedRec:
		gone = m.confirm(c)
		c.Renew(now)
	}
	return x.callback, gone, proto.OK
}

// Client40 returns the NFSv4.0 client of an id, whose lease it renews (RFC 7530
// §9.5). EXPIRED: there was one, and it is gone. STALE_CLIENTID: there was none.
func (m *Manager) Client40(id uint64, now cluster.Time) (*Client, proto.Status) {
	m.mu.Lock()
	c := m.clients[id]
	ok := c != nil && c.confirmedRec && c.Minor == 0
	st := proto.ErrStaleClientid
	if c == nil && m.given(id) {
		st = proto.ErrExpired
	}
	m.mu.Unlock()
	if !ok {
		return nil, st
	}
	c.Renew(now)
	return c, proto.OK
}

// given reports whether a client of this identity may have had the id. m.mu is held.
func (m *Manager) given(id uint64) bool {
	if cluster.ClientIdentity(id) != m.cfg.Identity || uint32(id) == 0 {
		return false
	}
	// All of this epoch are up to nextClient, and ids of later ones do not exist.
	first, last := cluster.MakeClientID(m.cfg.Identity, m.cfg.Epoch, 0), cluster.MakeClientID(m.cfg.Identity, m.cfg.Epoch, m.nextClient)
	return id < first || id <= last
}

// Holder40 returns the NFSv4.0 client that a stateid names, whose lease it renews.
// Whether the stateid is good is not looked at, so that it is renewed by some that are
// not (RFC 7530 §9.5 asks for a valid one): they were its own, once. STALE_STATEID:
// no front-end made it. EXPIRED: its client is gone.
func (m *Manager) Holder40(sid Stateid, now cluster.Time) (*Client, proto.Status) {
	switch {
	case sid.Other == Anonymous.Other, sid.Other == allOnes:
		return nil, proto.ErrBadStateid
	case sid.Kind() == 0:
		return nil, proto.ErrStaleStateid
	}
	slot := otherSlot(sid.Other)
	m.mu.Lock()
	c, last := m.slots[slot], m.nextSlot
	m.mu.Unlock()
	switch {
	case c == nil && slot <= last:
		return nil, proto.ErrExpired
	case c == nil || c.Minor != 0:
		return nil, proto.ErrBadStateid
	}
	c.Renew(now)
	return c, proto.OK
}

// Callback40 returns where an NFSv4.0 client is reached.
func (m *Manager) Callback40(c *Client) Callback {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := c.v40(); x != nil {
		return x.callback
	}
	return Callback{}
}
