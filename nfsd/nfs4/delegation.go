package nfs4

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// Delegations are to read, of files in relaxed directories, and of volumes for which
// they are switched on. A front-end grants them by itself: it hears of every change
// that it applies (vfs.ChangeWatcher), whoever made it, and has them recalled then.
// Before it changes such a file for a client itself, it has those of other clients
// returned. A take-over ends all of them: see state.Manager.Revoked.

// delegate answers what OPEN says of delegations (RFC 8881 §18.16.3). attr is what
// the client is shown of the file.
func (c *compound) delegate(a *openArgs, f vfs.File, attr *vfs.Attr) {
	c.fresh = true
	if c.p.cfg.Delegate == nil || c.minor == 0 {
		c.noDelegation(a.wants, proto.WNDNotSuppFtype)
		return
	}
	why, may := c.mayDelegate(a, f, attr)
	if !may {
		c.noDelegation(a.wants, why)
		return
	}
	d, why := c.offer(f, attr)
	if d == nil {
		c.noDelegation(a.wants, why)
		return
	}
	c.e.Uint32(proto.OpenDelegateRead)
	d.Stateid().Encode(c.e)
	c.e.Bool(false) // it is not being recalled
	// An nfsace4 that saves nobody an ACCESS: it allows nothing to nobody.
	c.e.Uint32(0)
	c.e.Uint32(0)
	c.e.Uint32(0)
	c.e.String("")
}

// mayDelegate says whether an open may get a delegation, as far as it is easily known,
// or why not.
func (c *compound) mayDelegate(a *openArgs, f vfs.File, attr *vfs.Attr) (why uint32, may bool) {
	switch a.wants & proto.ShareAccessWantDelegMask {
	case proto.ShareAccessWantNoPreference, proto.ShareAccessWantReadDeleg, proto.ShareAccessWantAnyDeleg:
	case proto.ShareAccessWantWriteDeleg:
		return proto.WNDWriteDelegNotSuppFtype, false
	default:
		return proto.WNDNotWanted, false
	}
	switch {
	case attr.Type != cluster.TypeRegular, attr.Class.Consistency != cluster.Relaxed:
		return proto.WNDNotSuppFtype, false
	case a.access&proto.ShareAccessWrite != 0:
		return proto.WNDWriteDelegNotSuppFtype, false
	case a.claim == proto.ClaimDelegateCur, a.claim == proto.ClaimDelegCurFH:
		return proto.WNDContention, false // the client is about to return one
	case c.replay, !c.mayNotify():
		return proto.WNDResource, false
	}
	v, err := c.fs.Volume(&c.req, f)
	if err != nil || !c.p.cfg.Delegate(v) {
		return proto.WNDNotSuppFtype, false
	}
	return 0, true
}

// offer delegates f to the client, or says why it does not.
func (c *compound) offer(f vfs.File, attr *vfs.Attr) (*state.Delegation, uint32) {
	m := c.p.state
	if !c.client.Delegating() {
		// Whoever takes the client over has to know that it may have delegations.
		m.SetDelegating(c.client)
		if c.p.record(c.call.Context(), c.client.ID) != proto.OK {
			return nil, proto.WNDResource
		}
		c.client.DelegatingRecorded()
	}
	// The file stays while it is delegated, and its changes are told of.
	if c.fs.Open(&c.req, f) != nil {
		return nil, proto.WNDResource
	}
	other := m.NewOther(c.client, state.KindDelegation, proto.ShareAccessRead, nil, f, c.newSalt())
	d, why := m.Offer(c.client, f, attr, c.req.Cred().UID, other, c.p.cfg.Now())
	if d != nil && (!c.quiet(f, attr.Change) || !m.Grant(d)) {
		m.Withdraw(d)
		d, why = nil, proto.WNDContention
	}
	if d == nil {
		c.fs.Close(f)
	}
	return d, why
}

// quiet reports whether nobody writes f, or keeps others from reading it, and whether
// it still is what the client is shown. What changes from now on recalls the offer.
func (c *compound) quiet(f vfs.File, change uint64) bool {
	states, err := c.fs.States(&c.req, f)
	if err != nil {
		return false
	}
	for i := range states {
		if s := &states[i]; s.Kind == vfs.StateCopy || s.Disturbs() {
			return false
		}
	}
	// Not as this request has agreed to see it, but as it is.
	now, err := c.fs.Getattr(vfs.NewRequest(c.call.Context(), *c.req.Cred()), f)
	return err == nil && now.Change == change
}

// withhold leaves out of what is asked of s what the client must not see yet, since it has,
// or may believe to have, the file delegated. What it opens, it has not.
func (c *compound) withhold(asked bitmap, s *subject) bitmap {
	if c.client == nil || s.attr == nil || s.ftype != cluster.TypeRegular {
		return asked
	}
	if c.p.state.Delegated() {
		if a := c.p.state.Shown(c.client, s.file); a != nil {
			s.attr = a
		}
	}
	if !c.fresh && c.client.Hides(c.p.cfg.Now) {
		return asked.without(attrSet(proto.AttrChange))
	}
	return asked
}

// noDelegation appends that there is none, and why, to a client that has said
// what it wants.
func (c *compound) noDelegation(wants, why uint32) {
	switch wants & proto.ShareAccessWantDelegMask {
	case proto.ShareAccessWantNoPreference:
		c.e.Uint32(proto.OpenDelegateNone)
		return
	case proto.ShareAccessWantNoDeleg:
		why = proto.WNDNotWanted
	case proto.ShareAccessWantCancel:
		why = proto.WNDCancelled
	}
	c.e.Uint32(proto.OpenDelegateNoneExt)
	c.e.Uint32(why)
	if why == proto.WNDContention || why == proto.WNDResource {
		c.e.Bool(false) // the client will not be told when that changes
	}
}

// delegreturn is DELEGRETURN (RFC 8881 §18.6).
func (c *compound) delegreturn() proto.Status {
	sid := state.DecodeStateid(c.d)
	switch {
	case c.d.Err() != nil:
		return proto.ErrBadxdr
	case c.minor == 0:
		return proto.ErrBadStateid // there are none
	}
	held, st := c.p.state.Return(c.client, c.resolve(sid), c.cur)
	if held {
		c.fs.Close(c.cur)
	}
	return st
}
