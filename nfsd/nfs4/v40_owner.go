package nfs4

import (
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A sequenced is the part that one owner has in a request.
type sequenced struct {
	o   *state.Owner
	seq uint32
}

// ordered executes a request of owners, in whose turn it is, or answers it as the
// first time if it is a retransmission (RFC 7530 §9.1.7 and §9.1.9). It ends the
// owners' use. do executes it, with the arguments at c.d.
func (c *compound) ordered(op proto.Op, do func() proto.Status, owners ...sequenced) (st proto.Status) {
	taken := 0
	defer func() {
		for i, s := range owners {
			if i < taken {
				s.o.Turn <- struct{}{}
			}
			s.o.Leave()
		}
	}()
	for _, s := range owners {
		select {
		case <-s.o.Turn:
			taken++
		case <-c.call.Context().Done():
			return proto.ErrDelay // which is not sent: the client uses the numbers again
		}
	}
	switch owners[0].o.Check(op, owners[0].seq) {
	case state.BadSeqid:
		return proto.ErrBadSeqid
	case state.Again:
		return c.replayed(op, owners[0].o.Last())
	}
	for _, s := range owners[1:] {
		// The first owner says that this is a new request. The number of one that holds
		// nothing is as good as any: Linux forgets a lock-owner that got no lock, and
		// uses its name again from 0 on (RFC 7530 §9.1.10).
		if s.o.Check(op, s.seq) != state.Execute && s.o.Holds() {
			return proto.ErrBadSeqid
		}
	}
	at := xdr.Mark(len(c.e.Buffer()))
	st = do()
	if c.d.Err() != nil {
		st = proto.ErrBadxdr
	}
	if st == statusFenced || !state.Advances(st) {
		return st
	}
	r := state.Reply{Status: st}
	if st == proto.OK || c.keepBody {
		r.Body = append([]byte(nil), c.e.Buffer()[at:]...)
	}
	if op == proto.OpOpen && st == proto.OK {
		r.File = c.cur
	}
	for _, s := range owners {
		s.o.Record(op, s.seq, r)
	}
	return st
}

// replayed answers as the first time.
func (c *compound) replayed(op proto.Op, r state.Reply) proto.Status {
	c.keepBody = true
	c.e.Raw(r.Body)
	if op == proto.OpOpen && r.Status == proto.OK {
		c.setCur(r.File)
	}
	return r.Status
}

// ownerOf returns the owner of a stateid of the current file. Unknown: there is none
// any more, and the client was taken over.
func (c *compound) ownerOf(sid state.Stateid) (*state.Owner, proto.Status) {
	if st := c.holder(sid); st != proto.OK {
		return nil, st
	}
	o, st := c.p.state.OwnerOf(c.client, sid, c.p.cfg.Now())
	if c.learn(&st, sid, c.cur) {
		o, st = c.p.state.OwnerOf(c.client, sid, c.p.cfg.Now())
	}
	return o, st
}

// notOrdered answers a request of whose stateid ownerOf has said st: if the client takes
// that for the use of a number (RFC 7530 §9.1.7), so does the owner, if it is known.
func (c *compound) notOrdered(op proto.Op, sid state.Stateid, seq uint32, st proto.Status) proto.Status {
	if st = c.settle(st); !state.Advances(st) {
		return st
	}
	return c.orderedAnyway(op, sid, seq, func() proto.Status { return st })
}

// orderedAnyway is ordered of a request whose stateid stands for nothing that is known
// here.
func (c *compound) orderedAnyway(op proto.Op, sid state.Stateid, seq uint32, do func() proto.Status) proto.Status {
	if c.client != nil {
		if o := c.p.state.GivenTo(c.client, sid, c.cur, c.p.cfg.Now()); o != nil {
			return c.ordered(op, do, sequenced{o, seq})
		}
	}
	return do()
}

// close40 is CLOSE (RFC 7530 §16.2).
func (c *compound) close40() proto.Status {
	args := *c.d
	seq := c.d.Uint32()
	sid := c.stateid()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	o, st := c.ownerOf(sid)
	switch st {
	case proto.OK:
	case state.Unknown, proto.ErrStale: // it may have been closed, and not answered
		return c.orderedAnyway(proto.OpClose, sid, seq, func() proto.Status {
			*c.d = args
			return c.close()
		})
	default:
		return c.notOrdered(proto.OpClose, sid, seq, st)
	}
	return c.ordered(proto.OpClose, func() proto.Status {
		*c.d = args
		st := c.close()
		if st == proto.OK {
			o.Closed(sid)
		}
		return st
	}, sequenced{o, seq})
}

// openDowngrade40 is OPEN_DOWNGRADE (RFC 7530 §16.19).
func (c *compound) openDowngrade40() proto.Status {
	args := *c.d
	sid := c.stateid()
	seq := c.d.Uint32()
	c.d.Skip(8)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	o, st := c.ownerOf(sid)
	if st != proto.OK {
		return c.notOrdered(proto.OpOpenDowngrade, sid, seq, st)
	}
	return c.ordered(proto.OpOpenDowngrade, func() proto.Status {
		*c.d = args
		return c.openDowngrade()
	}, sequenced{o, seq})
}

// lock40 is LOCK (RFC 7530 §16.10). A new lock-owner's first request is numbered by
// the open-owner, too.
func (c *compound) lock40() proto.Status {
	args := *c.d
	c.d.Skip(4 + 4 + 8 + 8)
	fresh := c.d.Bool()
	var owners [2]sequenced
	var sid state.Stateid
	var id uint64
	var name []byte
	if fresh {
		owners[0].seq = c.d.Uint32()
		sid = c.stateid()
		owners[1].seq = c.d.Uint32()
		id = c.d.Uint64()
		name = c.d.Opaque(proto.OpaqueLimit)
	} else {
		sid = c.stateid()
		owners[0].seq = c.d.Uint32()
	}
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if fresh && sid.Kind() == state.KindLock {
		return proto.ErrBadStateid // or its owner would be both owners, and wait for itself
	}
	o, st := c.ownerOf(sid)
	if st != proto.OK {
		return c.notOrdered(proto.OpLock, sid, owners[0].seq, st)
	}
	owners[0].o = o
	n := 1
	if fresh {
		if id != c.client.ID {
			o.Leave()
			return proto.ErrStaleClientid
		}
		if owners[1].o, st = c.p.state.LockOwner(c.client, name, c.p.cfg.Now()); st != proto.OK {
			o.Leave()
			return st
		}
		n = 2
	}
	return c.ordered(proto.OpLock, func() proto.Status {
		*c.d = args
		return c.lock()
	}, owners[:n]...)
}

// lockt40 is LOCKT (RFC 7530 §16.11).
func (c *compound) lockt40() proto.Status {
	args := *c.d
	c.d.Skip(4 + 8 + 8)
	id := c.d.Uint64()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if st := c.client40(id); st != proto.OK {
		return st
	}
	*c.d = args
	return c.lockt()
}

// locku40 is LOCKU (RFC 7530 §16.12).
func (c *compound) locku40() proto.Status {
	args := *c.d
	c.d.Uint32()
	seq := c.d.Uint32()
	sid := c.stateid()
	c.d.Skip(16)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	o, st := c.ownerOf(sid)
	if st != proto.OK {
		return c.notOrdered(proto.OpLocku, sid, seq, st)
	}
	return c.ordered(proto.OpLocku, func() proto.Status {
		*c.d = args
		return c.locku()
	}, sequenced{o, seq})
}

// rflagsAt is where OPEN's result has its flags: after the stateid and change_info4.
const rflagsAt = 16 + 4 + 8 + 8

// open40 is OPEN (RFC 7530 §16.16).
func (c *compound) open40() proto.Status {
	args := *c.d
	seq := c.d.Uint32()
	c.d.Skip(4 + 4)
	id := c.d.Uint64()
	name := c.d.Opaque(proto.OpaqueLimit)
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	if st := c.client40(id); st != proto.OK {
		return st
	}
	var a openArgs // for the decoder to be behind it, if it is a retransmission
	*c.d = args
	if st := c.decodeOpen(&a); st == proto.ErrBadxdr {
		return st
	}
	o, st := c.p.state.OpenOwner(c.client, name, c.p.cfg.Now())
	if st != proto.OK {
		return st
	}
	return c.ordered(proto.OpOpen, func() proto.Status {
		*c.d = args
		if sid, f, ok := o.Pending(); ok {
			c.cancel(sid, f) // it was a stray one (RFC 7530 §16.18.5)
			o.Cancelled()
		}
		at := xdr.Mark(len(c.e.Buffer()))
		st := c.open()
		if st != proto.OK {
			return st
		}
		flags := uint32(proto.OpenResultLocktypePosix)
		switch {
		case a.claim == proto.ClaimPrevious:
			o.Confirm()
		case !o.Confirmed():
			flags |= proto.OpenResultConfirm
			c.p.state.Opened(o, c.sid)
		}
		c.e.PutUint32At(at+rflagsAt, flags)
		return proto.OK
	}, sequenced{o, seq})
}

// openConfirm40 is OPEN_CONFIRM (RFC 7530 §16.18).
func (c *compound) openConfirm40() proto.Status {
	sid := c.stateid()
	seq := c.d.Uint32()
	if c.d.Err() != nil {
		return proto.ErrBadxdr
	}
	o, st := c.ownerOf(sid)
	if st != proto.OK {
		return c.settle(st)
	}
	return c.ordered(proto.OpOpenConfirm, func() proto.Status {
		sid, st := c.p.state.ConfirmOpen(o, sid, c.cur)
		if st == proto.OK {
			sid.Encode(c.e)
		}
		return st
	}, sequenced{o, seq})
}

// cancel closes an open of the client that was not confirmed. What fails goes with the
// client.
func (c *compound) cancel(sid state.Stateid, f vfs.File) {
	cur, attr, ok := c.cur, c.attr, c.attrOK
	c.cur, c.attrOK = f, false
	defer func() { c.cur, c.attr, c.attrOK = cur, attr, ok }()
	mu := c.p.fileLock(c.client.ID, f)
	mu.Lock()
	defer mu.Unlock()
	ch, st := c.p.state.PlanClose(c.client, sid, f)
	if st == proto.OK {
		st = c.apply(&ch)
	}
	if st == proto.OK {
		if st = c.p.state.Close(c.client, sid, f); st == proto.OK {
			c.fs.Close(f)
		}
	}
	if st != proto.OK {
		c.p.log.Warn("can't close a file whose OPEN was not confirmed", "client", c.client.Owner, "status", st)
	}
}
