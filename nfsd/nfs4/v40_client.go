package nfs4

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// maxNetid bounds a netid and a universal address, in bytes.
const maxNetid = 128

// setclientid is SETCLIENTID (RFC 7530 §16.33).
func (c *compound) setclientid() proto.Status {
	a := state.SetClientIDArgs{Verifier: c.d.Uint64(), ID: c.d.Opaque(proto.OpaqueLimit)}
	a.Callback.Program = c.d.Uint32()
	a.Callback.Netid = c.d.String(maxNetid)
	a.Callback.Addr = c.d.String(maxNetid)
	a.Callback.Ident = c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	var b [8]byte
	for a.Confirm == 0 {
		if _, err := rand.Read(b[:]); err != nil {
			return proto.ErrDelay
		}
		a.Confirm = binary.BigEndian.Uint64(b[:])
	}
	a.Principal, a.Peer = c.principal(), c.peer()
	id, using, gone, st := c.p.state.SetClientID(c.p.cfg.Now(), &a)
	c.p.expired(gone)
	c.p.release(c.call.Context(), gone)
	switch st {
	case proto.OK:
		c.e.Uint64(id)
		c.e.Uint64(a.Confirm)
	case proto.ErrClidInuse:
		c.p.log.Warn("two clients have one name, or one has two users: give each its own nfs4_unique_id",
			"client", string(a.ID), "from", a.Peer)
		c.keepBody = true
		c.e.String(using.Netid)
		c.e.String(using.Addr)
	}
	return st
}

// setclientidConfirm is SETCLIENTID_CONFIRM (RFC 7530 §16.34). The record is stored
// before the reply: another front-end then knows the client.
func (c *compound) setclientidConfirm() proto.Status {
	id, confirm := c.d.Uint64(), c.d.Uint64()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	ctx, p := c.call.Context(), c.principal()
	old := c.p.state.Confirming(id, confirm, p)
	if old != 0 {
		// The client has restarted: what its last incarnation held goes first, while
		// the record still says that there may be something.
		if err := c.fs.ReleaseClient(ctx, old); err != nil {
			return status(err)
		}
	}
	cb, gone, st := c.p.state.ConfirmClientID(c.p.cfg.Now(), id, confirm, p)
	for i := range gone {
		if gone[i].Client == old {
			gone[i].Client = 0 // just released
		}
	}
	c.p.restarted(gone, c.peer())
	c.p.release(ctx, gone)
	if st != proto.OK {
		return st
	}
	if st := c.p.record(ctx, id); st != proto.OK {
		return st
	}
	c.p.v40.(*handler40).probes.add(id, cb)
	return proto.OK
}

// renew is RENEW (RFC 7530 §16.29).
func (c *compound) renew() proto.Status {
	id := c.d.Uint64()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	return c.client40(id)
}

// releaseLockowner is RELEASE_LOCKOWNER (RFC 7530 §16.37).
func (c *compound) releaseLockowner() proto.Status {
	id := c.d.Uint64()
	name := c.d.Opaque(proto.OpaqueLimit)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if st := c.client40(id); st != proto.OK {
		return st
	}
	if c.client.Loaded() {
		if st := c.learnOwner(name); st != proto.OK {
			return st
		}
	}
	drop, st := c.p.state.ReleaseOwner(c.client, name)
	for f, all := range drop {
		for _, other := range all {
			if err := c.fs.DropState(&c.req, f, other, false); err != nil {
				c.p.log.Warn("can't delete the record of a lock-owner's state", "client", c.client.Owner, "err", err)
			}
		}
	}
	return st
}

// learnOwner brings in the lock states of a lock-owner of before a take-over.
func (c *compound) learnOwner(name []byte) proto.Status {
	digest := c.p.digest(c.client.LockName(), string(name))
	files := make(map[vfs.File]bool)
	err := c.fs.ClientStates(&c.req, c.client.ID, func(f vfs.File, s vfs.State) bool {
		if s.Kind == vfs.StateLock && s.Digest == digest {
			files[f] = true
		}
		return true
	})
	if err != nil {
		return status(err)
	}
	for f := range files {
		if st := c.lesson(f, state.Stateid{}); st != proto.OK {
			return st
		}
	}
	return proto.OK
}

// delegpurge40 is DELEGPURGE (RFC 7530 §16.5): CLAIM_DELEGATE_PREV is not supported.
func (c *compound) delegpurge40() proto.Status {
	c.d.Uint64()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	return proto.ErrNotsupp
}

// delegreturn40 is DELEGRETURN.
func (c *compound) delegreturn40() proto.Status {
	sid := state.DecodeStateid(c.d)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if _, st := c.p.state.Holder40(sid, c.p.cfg.Now()); st != proto.OK {
		return st
	}
	return proto.ErrBadStateid
}

// secinfo40 is SECINFO (RFC 7530 §16.31), which leaves the current file handle.
func (c *compound) secinfo40() proto.Status {
	name, st := c.name()
	if st != proto.OK {
		return st
	}
	if _, _, err := c.fs.Lookup(&c.req, c.cur, name); err != nil {
		return status(err)
	}
	c.e.Uint32(1)
	c.e.Uint32(uint32(oncrpc.AuthSysF))
	return proto.OK
}
