package client

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// A CallbackAddr says where an NFSv4.0 server reaches the client: a universal
// address (RFC 5665 §5.2.3.3), such as "tcp" and "192.0.2.5.3.2". The zero one means
// nowhere.
type CallbackAddr struct {
	Program     uint32
	Netid, Addr string
	Ident       uint32
}

// Setclientid appends SETCLIENTID (RFC 7530 §16.33).
func (c *Compound) Setclientid(verifier uint64, id []byte, cb CallbackAddr) *Compound {
	if cb == (CallbackAddr{}) {
		cb = CallbackAddr{Program: proto.CBProgram, Netid: "tcp", Addr: "0.0.0.0.0.0"}
	}
	e := c.Op(proto.OpSetclientid)
	e.Uint64(verifier)
	e.Opaque(id)
	e.Uint32(cb.Program)
	e.String(cb.Netid)
	e.String(cb.Addr)
	e.Uint32(cb.Ident)
	return c
}

// SetclientidConfirm appends SETCLIENTID_CONFIRM (RFC 7530 §16.34).
func (c *Compound) SetclientidConfirm(id, verifier uint64) *Compound {
	e := c.Op(proto.OpSetclientidConfirm)
	e.Uint64(id)
	e.Uint64(verifier)
	return c
}

// Renew appends RENEW (RFC 7530 §16.29).
func (c *Compound) Renew(id uint64) *Compound {
	c.Op(proto.OpRenew).Uint64(id)
	return c
}

// ReleaseLockowner appends RELEASE_LOCKOWNER (RFC 7530 §16.37).
func (c *Compound) ReleaseLockowner(id uint64, owner []byte) *Compound {
	e := c.Op(proto.OpReleaseLockowner)
	e.Uint64(id)
	e.Opaque(owner)
	return c
}

// OpenConfirm appends OPEN_CONFIRM (RFC 7530 §16.18).
func (c *Compound) OpenConfirm(s Stateid, seq uint32) *Compound {
	c.sequenced = true
	e := c.Op(proto.OpOpenConfirm)
	putStateid(e, s)
	e.Uint32(seq)
	return c
}

// OpenDowngrade appends OPEN_DOWNGRADE; seq is looked at by NFSv4.0 alone.
func (c *Compound) OpenDowngrade(s Stateid, seq, access, deny uint32) *Compound {
	c.sequenced, c.cache = true, true
	e := c.Op(proto.OpOpenDowngrade)
	putStateid(e, s)
	e.Uint32(seq)
	e.Uint32(access)
	e.Uint32(deny)
	return c
}

// CloseSeq appends CLOSE with a sequence number of the open-owner, for NFSv4.0.
func (c *Compound) CloseSeq(seq uint32, s Stateid) *Compound {
	c.sequenced, c.cache = true, true
	e := c.Op(proto.OpClose)
	e.Uint32(seq)
	putStateid(e, s)
	return c
}

// LockSeq appends LOCK with sequence numbers, for NFSv4.0: of the open-owner and the
// lock-owner if lock is nil, and of the lock-owner alone otherwise.
func (c *Compound) LockSeq(client uint64, l *Range, openSeq uint32, open Stateid, lock *Stateid, lockSeq uint32, owner []byte, reclaim bool) *Compound {
	c.sequenced, c.cache = true, true
	e := c.Op(proto.OpLock)
	e.Uint32(l.Type)
	e.Bool(reclaim)
	e.Uint64(l.Offset)
	e.Uint64(l.Length)
	e.Bool(lock == nil)
	if lock != nil {
		putStateid(e, *lock)
		e.Uint32(lockSeq)
		return c
	}
	e.Uint32(openSeq)
	putStateid(e, open)
	e.Uint32(lockSeq)
	e.Uint64(client)
	e.Opaque(owner)
	return c
}

// UnlockSeq appends LOCKU with a sequence number of the lock-owner, for NFSv4.0.
func (c *Compound) UnlockSeq(l *Range, seq uint32, s Stateid) *Compound {
	c.sequenced, c.cache = true, true
	e := c.Op(proto.OpLocku)
	e.Uint32(l.Type)
	e.Uint32(seq)
	putStateid(e, s)
	e.Uint64(l.Offset)
	e.Uint64(l.Length)
	return c
}

// GetStateid takes a stateid4.
func GetStateid(d *xdr.Decoder) Stateid { return getStateid(d) }

// PutStateid appends a stateid4.
func PutStateid(e *xdr.Encoder, s Stateid) { putStateid(e, s) }

// GetAttrs takes an fattr4.
func GetAttrs(d *xdr.Decoder) (a Attrs, err error) {
	err = getAttrs(d, &a)
	return a, err
}

// GetBitmap takes a bitmap4.
func GetBitmap(d *xdr.Decoder) []int { return getBitmap(d) }

// GetChangeInfo takes a change_info4.
func GetChangeInfo(d *xdr.Decoder) ChangeInfo { return getChangeInfo(d) }

// GetOpen takes OPEN's result: the stateid and the flags.
func GetOpen(d *xdr.Decoder) (s Stateid, flags uint32, err error) { return getOpenFlags(d) }
