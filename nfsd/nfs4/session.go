package nfs4

import (
	"net"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// principal returns who makes or uses a client record.
func (c *compound) principal() state.Principal {
	p := state.Principal{Flavor: uint32(c.call.Cred.Flavor)}
	if a := c.call.Cred.Sys; a != nil {
		p.UID = a.UID
	}
	return p
}

// peer names the machine at the connection's other end, for the log.
func (c *compound) peer() string {
	if c.call.Conn == nil {
		return ""
	}
	addr := c.call.Conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// exchangeFlags returns the flags that EXCHANGE_ID can have in a minor version.
func exchangeFlags(minor uint32) uint32 {
	const all = proto.ExchgIDFlagSuppMovedRefer | proto.ExchgIDFlagSuppMovedMigr |
		proto.ExchgIDFlagBindPrincStateid | proto.ExchgIDFlagMaskPNFS | proto.ExchgIDFlagUpdConfirmedRecA
	if minor < 2 {
		return all
	}
	return all | proto.ExchgIDFlagSuppFenceOps
}

// exchangeID is EXCHANGE_ID (RFC 8881 §18.35). Whatever state protection the
// client asks for, it gets SP4_NONE, as it may.
func (c *compound) exchangeID() proto.Status {
	var a state.ExchangeArgs
	a.Verifier = c.d.Uint64()
	a.Owner = c.d.Opaque(proto.OpaqueLimit)
	flags := c.d.Uint32()
	switch c.d.Uint32() {
	case proto.SP4None:
	case proto.SP4MachCred:
		skipBitmap(c.d)
		skipBitmap(c.d)
	case proto.SP4SSV:
		return c.refuseSSV()
	default:
		return proto.ErrBadxdr
	}
	for range c.d.Count(1, 4) { // eia_client_impl_id
		c.d.Opaque(proto.OpaqueLimit)
		c.d.Opaque(proto.OpaqueLimit)
		c.d.Uint64()
		c.d.Uint32()
	}
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if flags&^exchangeFlags(c.minor) != 0 {
		return proto.ErrInval
	}
	a.Principal = c.principal()
	a.Peer = c.peer()
	a.Minor = c.minor
	a.Update = flags&proto.ExchgIDFlagUpdConfirmedRecA != 0
	r, gone, st := c.p.state.ExchangeID(c.p.cfg.Now(), a)
	c.p.expired(gone)
	c.p.release(c.call.Context(), gone)
	if st != proto.OK {
		if st == proto.ErrClidInuse {
			c.p.log.Warn("two clients have one name, or one has two users: give each its own nfs4_unique_id",
				"client", string(a.Owner), "from", c.peer())
		}
		return st
	}
	out := uint32(proto.ExchgIDFlagUseNonPNFS)
	if r.Confirmed {
		out |= proto.ExchgIDFlagConfirmedR
	}
	c.e.Uint64(r.ClientID)
	c.e.Uint32(r.Sequence)
	c.e.Uint32(out)
	c.e.Uint32(proto.SP4None)
	c.e.Uint64(0) // so_minor_id
	c.e.String(c.p.cfg.ServerOwner)
	c.e.String(c.p.cfg.Scope)
	c.e.Uint32(0) // no eir_server_impl_id
	return proto.OK
}

// refuseSSV takes an ssv_sp_parms4, and says that none of the algorithms is
// supported, or that there are none (RFC 8881 §18.35.3).
func (c *compound) refuseSSV() proto.Status {
	skipBitmap(c.d)
	skipBitmap(c.d)
	var algorithms [2]int // of hashing, of encryption
	for i := range algorithms {
		algorithms[i] = c.d.Count(maxAlgorithms, 4)
		for range algorithms[i] {
			c.d.Opaque(proto.OpaqueLimit)
		}
	}
	window := c.d.Uint32()
	c.d.Uint32() // ssp_num_gss_handles
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case algorithms[0] == 0, algorithms[1] == 0, window == 0:
		return proto.ErrInval
	}
	return proto.ErrHashAlgUnsupp
}

// maxAlgorithms bounds the algorithms that a client can offer.
const maxAlgorithms = 64

func skipBitmap(d *xdr.Decoder) {
	for range d.Count(maxBitmap, 4) {
		d.Uint32()
	}
}

func decodeChannel(d *xdr.Decoder) state.ChannelAttrs {
	d.Uint32() // ca_headerpadsize: none is used
	a := state.ChannelAttrs{
		MaxRequest: d.Uint32(), MaxResponse: d.Uint32(), MaxCached: d.Uint32(),
		MaxOps: d.Uint32(), MaxRequests: d.Uint32(),
	}
	for range d.Count(1, 4) {
		d.Uint32()
	}
	return a
}

func encodeChannel(e *xdr.Encoder, a *state.ChannelAttrs) {
	e.Uint32(0)
	e.Uint32(a.MaxRequest)
	e.Uint32(a.MaxResponse)
	e.Uint32(a.MaxCached)
	e.Uint32(a.MaxOps)
	e.Uint32(a.MaxRequests)
	e.Uint32(0) // no ca_rdma_ird
}

// A callbackSecurity is what a client offers callbacks to be sent with.
type callbackSecurity struct {
	cred  state.CallbackCred // the first that can be used
	plain bool               // there is one that can be used
	gss   bool               // one names an RPCSEC_GSS context
}

// callbackSec takes the callback_sec_parms4 of CREATE_SESSION or BACKCHANNEL_CTL.
func callbackSec(d *xdr.Decoder) (s callbackSecurity) {
	for range d.Count(16, 4) {
		switch oncrpc.Flavor(d.Uint32()) {
		case oncrpc.AuthNone:
			s.plain = true
		case oncrpc.AuthSysF:
			s.plain = true
			d.Uint32()
			machine := d.Opaque(255)
			uid, gid := d.Uint32(), d.Uint32()
			for range d.Count(oncrpc.MaxGroups, 4) {
				d.Uint32()
			}
			if !s.cred.Sys && d.Err() == nil {
				s.cred = state.CallbackCred{Sys: true, UID: uid, GID: gid, Machine: string(machine)}
			}
		case oncrpc.RPCSecGSS:
			d.Uint32()
			d.Opaque(proto.OpaqueLimit)
			d.Opaque(proto.OpaqueLimit)
			s.gss = true
		default:
			d.Fail(xdr.ErrLong)
		}
	}
	return s
}

// createSession is CREATE_SESSION (RFC 8881 §18.36).
func (c *compound) createSession() proto.Status {
	var a state.CreateSessionArgs
	a.ClientID = c.d.Uint64()
	a.Sequence = c.d.Uint32()
	a.Flags = c.d.Uint32()
	a.Fore = decodeChannel(c.d)
	a.Back = decodeChannel(c.d)
	a.CBProgram = c.d.Uint32()
	sec := callbackSec(c.d)
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case sec.gss && !sec.plain:
		return proto.ErrNoent // there are no RPCSEC_GSS contexts here, and nothing else to use
	}
	a.CBCred = sec.cred
	a.Principal = c.principal()
	ctx := c.call.Context()
	old := c.p.state.Superseded(a)
	if old != 0 {
		// The client has restarted: what its last incarnation held goes first, while
		// the record still says that there may be something.
		if err := c.fs.ReleaseClient(ctx, old); err != nil {
			return status(err)
		}
	}
	r, gone := c.p.state.CreateSession(c.p.cfg.Now(), a)
	for i := range gone {
		if gone[i].Client == old {
			gone[i].Client = 0 // just released
		}
	}
	c.p.restarted(gone, c.peer())
	c.p.release(ctx, gone)
	if st := c.p.record(ctx, a.ClientID); st != proto.OK {
		return st
	}
	if r.Status != proto.OK {
		return r.Status
	}
	if s := c.p.state.Session(&r.ID); s != nil && r.Flags&proto.CreateSessionFlagConnBackChan != 0 {
		channelOf(s).bind(c.call.Conn)
	}
	c.e.FixedOpaque(r.ID[:])
	c.e.Uint32(r.Sequence)
	c.e.Uint32(r.Flags)
	encodeChannel(c.e, &r.Fore)
	encodeChannel(c.e, &r.Back)
	return proto.OK
}

// restarted logs that clients have come back as new incarnations, and warns if
// that may be two machines with one name, which evict each other for ever.
func (p *Program) restarted(gone []state.Gone, from string) {
	for i := range gone {
		g := &gone[i]
		if g.Peer == from {
			p.log.Info("client has restarted", "client", g.Owner, "from", from, "opens dropped", len(g.Files))
			continue
		}
		p.log.Warn("a client came back from another address; if these are two machines, give each its own nfs4_unique_id",
			"client", g.Owner, "from", from, "before", g.Peer, "opens dropped", len(g.Files))
	}
}

// bindConnToSession is BIND_CONN_TO_SESSION (RFC 8881 §18.34). Connections are bound
// to the fore channel by using it, too.
func (c *compound) bindConnToSession() proto.Status {
	var id state.SessionID
	copy(id[:], c.d.FixedOpaque(len(id)))
	dir := c.d.Uint32()
	c.d.Bool()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	s := c.p.state.Session(&id)
	if s == nil {
		return proto.ErrBadsession
	}
	switch dir {
	case proto.CDFCFore, proto.CDFCBack:
	case proto.CDFCForeOrBoth, proto.CDFCBackOrBoth:
		dir = proto.CDFSBoth
	default:
		return proto.ErrInval
	}
	if dir != proto.CDFSFore {
		channelOf(s).bind(c.call.Conn)
	}
	s.Client.Renew(c.p.cfg.Now())
	c.e.FixedOpaque(id[:])
	c.e.Uint32(dir)
	c.e.Bool(false) // no RDMA
	return proto.OK
}

// backchannelCtl is BACKCHANNEL_CTL (RFC 8881 §18.33).
func (c *compound) backchannelCtl() proto.Status {
	program := c.d.Uint32()
	sec := callbackSec(c.d)
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case sec.gss:
		return proto.ErrNoent // as it must be here, whatever else is offered (RFC 8881 §18.33.3)
	}
	c.p.state.SetCallback(c.session, program, sec.cred)
	return c.p.record(c.call.Context(), c.client.ID)
}

// destroySession is DESTROY_SESSION (RFC 8881 §18.37).
func (c *compound) destroySession() proto.Status {
	var id state.SessionID
	copy(id[:], c.d.FixedOpaque(len(id)))
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case c.session != nil && c.session.ID == id && c.index+1 < c.ops:
		return proto.ErrNotOnlyOp // its own session, and not as the last operation
	}
	s := c.p.state.Session(&id)
	if s == nil {
		return proto.ErrBadsession
	}
	mu := c.p.recordLock(s.Client.ID)
	mu.Lock()
	defer mu.Unlock()
	if st := c.p.store(c.call.Context(), c.p.state.RecordWithout(s)); st != proto.OK {
		return st
	}
	st := c.p.state.DestroySession(&id)
	if st == proto.OK {
		c.p.forgetSessions([]state.SessionID{id})
	}
	return st
}

// destroyClientid is DESTROY_CLIENTID (RFC 8881 §18.50).
func (c *compound) destroyClientid() proto.Status {
	id := c.d.Uint64()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	gone, st := c.p.state.DestroyClientid(id)
	c.p.release(c.call.Context(), gone)
	return st
}

// reclaimComplete is RECLAIM_COMPLETE (RFC 8881 §18.51).
func (c *compound) reclaimComplete() proto.Status {
	oneFS := c.d.Bool()
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case oneFS && !c.hasCur:
		return proto.ErrNofilehandle
	case oneFS:
		return proto.OK // file systems do not move between servers
	}
	if st := c.p.state.ReclaimComplete(c.client, c.replay); st != proto.OK {
		return st
	}
	return c.p.record(c.call.Context(), c.client.ID)
}

// testStateid is TEST_STATEID (RFC 8881 §18.48).
func (c *compound) testStateid() proto.Status {
	n := c.d.Count(maxTest, 16)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	c.e.Uint32(uint32(n))
	for range n {
		c.e.Uint32(uint32(c.p.state.Test(c.client, state.DecodeStateid(c.d))))
	}
	return proto.OK
}

// maxTest is how many stateids TEST_STATEID can have.
const maxTest = 4096

// freeStateid is FREE_STATEID (RFC 8881 §18.38).
func (c *compound) freeStateid() proto.Status {
	sid := state.DecodeStateid(c.d)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	f, drop, st := c.p.state.Free(c.client, c.resolve(sid))
	if st == state.Unknown {
		if f, drop, st = c.freeUnknown(c.resolve(sid)); st == state.Unknown && c.replay {
			return proto.OK // it may have been freed by this very request
		}
	}
	if st != proto.OK {
		return c.settle(st)
	}
	c.plain()
	for _, id := range drop {
		if err := c.fs.DropState(&c.req, f, id, false); err != nil {
			return status(err)
		}
	}
	return proto.OK
}

// freeUnknown is FREE_STATEID of what a taken-over client has not used since: the
// operation does not say of which file it is, so that is looked up.
func (c *compound) freeUnknown(sid state.Stateid) (f vfs.File, drop []vfs.StateID, st proto.Status) {
	found := false
	c.req.Fresh()
	err := c.fs.ClientStates(&c.req, c.client.ID, func(of vfs.File, s vfs.State) bool {
		f, found = of, s.Other == sid.Other
		return !found
	})
	switch {
	case err != nil:
		return f, nil, status(err)
	case !found:
		return f, nil, state.Unknown
	}
	if st := c.lesson(f, state.Stateid{}); st != proto.OK {
		return f, nil, st
	}
	return c.p.state.Free(c.client, sid)
}

// secinfo is SECINFO (RFC 8881 §18.29).
func (c *compound) secinfo() proto.Status {
	name, st := c.name()
	if st != proto.OK {
		return st
	}
	if _, _, err := c.fs.Lookup(&c.req, c.cur, name); err != nil {
		return status(err)
	}
	return c.flavors()
}

// secinfoNoName is SECINFO_NO_NAME (RFC 8881 §18.45).
func (c *compound) secinfoNoName() proto.Status {
	style := c.d.Uint32()
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case style == proto.SecinfoStyleParent:
		if _, _, err := c.fs.LookupParent(&c.req, c.cur); err != nil {
			return status(err)
		}
	case style != proto.SecinfoStyleCurrentFH:
		return proto.ErrBadxdr
	}
	return c.flavors()
}

// flavors appends what credentials are accepted, and consumes the current file handle.
func (c *compound) flavors() proto.Status {
	c.e.Uint32(1)
	c.e.Uint32(uint32(oncrpc.AuthSysF))
	c.hasCur, c.hasSid, c.attrOK = false, false, false
	return proto.OK
}
