package nfs4

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

// rpcHeader is the size of an RPC reply's header, which the limits of a
// channel include (RFC 8881 §18.36.3).
const rpcHeader = 24

// sequenceResult is the size of SEQUENCE's result after its status, in bytes.
const sequenceResult = 16 + 5*4

// sequence executes SEQUENCE as the first operation (RFC 8881 §18.46). again: the
// request is a retry, and the reply to it has been encoded, whole.
func (c *compound) sequence() (st proto.Status, again bool) {
	c.e.Uint32(uint32(proto.OpSequence))
	mark := c.e.Reserve32()
	var id state.SessionID
	copy(id[:], c.d.FixedOpaque(len(id)))
	seq := c.d.Uint32()
	slot := c.d.Uint32()
	c.d.Uint32() // sa_highest_slotid: the table of slots does not shrink
	cache := c.d.Bool()
	if c.d.Err() != nil {
		st = proto.ErrBadxdr
	} else {
		st, again = c.begin(&id, slot, seq, cache)
	}
	if again {
		return st, true
	}
	c.e.PutUint32At(mark, uint32(st))
	if st != proto.OK {
		return st, false
	}
	s := c.session
	c.client = s.Client
	c.limit = int(s.Fore.MaxResponse) - rpcHeader
	if c.cache = cache; cache {
		c.limit = min(c.limit, int(s.Fore.MaxCached)-rpcHeader)
	}
	high := s.HighestSlot()
	c.e.FixedOpaque(id[:])
	c.e.Uint32(seq)
	c.e.Uint32(slot)
	c.e.Uint32(high)
	c.e.Uint32(high)
	flags := channelOf(s).status()
	if c.client.Revoked() {
		flags |= c.p.state.Revoked(s, slot, seq, c.p.cfg.Now())
	}
	c.e.Uint32(flags)
	return proto.OK, false
}

// begin takes up the request on its slot, waiting while the slot is busy with
// the same request or the one before.
func (c *compound) begin(id *state.SessionID, slot, seq uint32, cache bool) (proto.Status, bool) {
	s := c.p.state.Session(id)
	switch {
	case s == nil:
		return proto.ErrBadsession, false
	case c.ops > s.Fore.MaxOps:
		return proto.ErrTooManyOps, false
	case c.d.Offset()+c.d.Remaining() > int(s.Fore.MaxRequest):
		return proto.ErrReqTooBig, false
	}
	// Its own result has to fit, or the slot stays as it is (RFC 8881 §18.46.3).
	switch size := rpcHeader + c.e.Len() + sequenceResult; {
	case size > int(s.Fore.MaxResponse):
		return proto.ErrRepTooBig, false
	case cache && size > int(s.Fore.MaxCached):
		return proto.ErrRepTooBigToCache, false
	}
	print := state.Fingerprint{UID: c.req.Cred().UID, Ops: c.ops}
	for {
		outcome, st, reply, wait := s.Begin(slot, seq, print)
		switch outcome {
		case state.Refuse:
			return st, false
		case state.Fresh, state.Maybe:
			c.session, c.slot, c.inSlot = s, slot, true
			c.origin = vfs.Origin{Session: *id, Slot: slot, Seq: seq, Ordered: true}
			c.replay = outcome == state.Maybe
			s.Client.Renew(c.p.cfg.Now())
			return proto.OK, false
		case state.Park:
			select {
			case reply = <-wait:
				if reply == nil {
					continue
				}
			case <-c.call.Context().Done():
				return proto.ErrDelay, false // the server is closing, and so is the connection
			}
		}
		s.Client.Renew(c.p.cfg.Now())
		c.e.Truncate(0)
		c.e.Raw(reply)
		return proto.OK, true
	}
}

// sequenceLate is SEQUENCE where it must not be; allowed refuses it before.
func (c *compound) sequenceLate() proto.Status { return proto.ErrSequencePos }
