package nfs4

import (
	"crypto/sha256"
	"math/bits"
	"net/netip"
	"sync/atomic"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/vfs"
)

func init() { newV40 = func(p *Program) v40Handler { return newHandler40(p) } }

// A handler40 serves NFSv4.0 in a Program.
type handler40 struct {
	p       *Program
	started cluster.Time
	swept   atomic.Int64
	replays replayCache
	probes  probes
	peers   peers
}

func newHandler40(p *Program) *handler40 {
	h := &handler40{p: p, started: p.cfg.Now()}
	h.swept.Store(int64(h.started))
	h.probes.init(p)
	return h
}

// A request40 is what NFSv4.0 keeps with a COMPOUND.
type request40 struct {
	replay  *replay // taken up, and not ended
	changed bool    // an operation that changes something was executed
}

// maxOps40 bounds the operations of a COMPOUND.
const maxOps40 = 1024

// mayReplay is how long after a take-over a request may be one that was executed by
// the front-end before: until a client has given it up.
const mayReplay = replayAge

// begin is as in v40Handler. A request that is being executed already is parked, and
// answered by that.
func (h *handler40) begin(c *compound) bool {
	peer := peerOf(c.call)
	k := replayKey{peer: peer, xid: c.call.XID, sum: checksum(c.call, peer)}
	for {
		reply, wait, fresh := h.replays.begin(k, h.p.cfg.Now())
		if fresh != nil {
			c.four = request40{replay: fresh}
			break
		}
		if wait != nil {
			select {
			case reply = <-wait:
			case <-c.call.Context().Done():
				c.call.Conn.Close() // the server is closing
			}
			if reply == nil && c.call.Context().Err() == nil {
				continue
			}
		}
		c.e.Truncate(0)
		c.e.Raw(reply)
		return true
	}
	c.limit = h.p.cfg.MaxIO + overhead
	// The session is the machine: its ports, and with them the connections, are told
	// apart by the checksum, so that what is kept for a machine has a limit.
	c.origin = vfs.Origin{
		Session: h.machine(peer.Addr()), Slot: replaySlot(k.xid), Seq: k.xid, Sum: k.sum,
	}
	h.peers.seen(peer.Addr(), h.p.cfg.Now())
	c.replay = h.p.cfg.Epoch > 1 && h.p.cfg.Now()-h.started < mayReplay
	return false
}

// machine returns what stands for a machine's session.
func (h *handler40) machine(a netip.Addr) (id [16]byte) {
	sum := sha256.Sum256(append([]byte("v4.0 "+h.p.cfg.ServerOwner+"\x00"), a.AsSlice()...))
	copy(id[:], sum[:])
	return id
}

// replaySlots is among how many slots the requests of a machine are divided.
const replaySlots = 1024

// replaySlot returns the slot of a request. What is kept of a request is there until
// another one has the same slot, so as many as can be under way must have others. Machines
// count in their own byte order: with Linux on x86 the first byte counts.
func replaySlot(xid uint32) uint32 { return (xid ^ bits.ReverseBytes32(xid)) % replaySlots }

// end is as in v40Handler.
func (h *handler40) end(c *compound) {
	x := c.four.replay
	if x == nil {
		return
	}
	c.four.replay = nil
	var keep, whole []byte
	if c.four.changed && !c.e.HasRefs() {
		if b := c.e.Bytes(); len(b) <= maxReplay {
			keep = b
		}
	}
	if h.replays.awaited(x) {
		if whole = keep; whole == nil {
			whole = c.flatten()
		} else {
			whole = append([]byte(nil), whole...)
		}
	}
	h.replays.end(x, h.p.cfg.Now(), keep, whole)
}

// giveUp ends a request that was not answered: a retransmission is executed.
func (c *compound) giveUp() {
	if x := c.four.replay; x != nil {
		c.four.replay = nil
		c.p.v40.(*handler40).replays.end(x, 0, nil, nil)
	}
}

// holder is as in v40Handler.
func (h *handler40) holder(c *compound, sid state.Stateid) (st proto.Status) {
	c.client, st = h.p.state.Holder40(sid, h.p.cfg.Now())
	return st
}

// client sets c.client to whom an id belongs.
func (c *compound) client40(id uint64) (st proto.Status) {
	c.client, st = c.p.state.Client40(id, c.p.cfg.Now())
	return st
}

func (h *handler40) extend(c *state.Client, record []byte) (state.Extension, error) {
	return state.ExtendV40(c, record)
}

// operation is as in v40Handler.
func (h *handler40) operation(op proto.Op) *operation {
	if op > proto.MaxOp40 {
		return nil
	}
	o := &operations40[op]
	if !o.legal {
		return nil
	}
	return &o.operation
}

// An operation40 is an operation of NFSv4.0.
type operation40 struct {
	operation
	legal bool
}

// operations40 are those that NFSv4.0 has: its own, and the others' whose statuses are
// translated.
var operations40 = func() (all [proto.MaxOp40 + 1]operation40) {
	own := map[proto.Op]operation{
		proto.OpClose:              {(*compound).close40, needCur | changes},
		proto.OpDelegpurge:         {(*compound).delegpurge40, 0},
		proto.OpDelegreturn:        {(*compound).delegreturn40, needCur},
		proto.OpLock:               {(*compound).lock40, needCur | changes},
		proto.OpLockt:              {(*compound).lockt40, needCur},
		proto.OpLocku:              {(*compound).locku40, needCur | changes},
		proto.OpOpen:               {(*compound).open40, needCur | changes},
		proto.OpOpenConfirm:        {(*compound).openConfirm40, needCur | changes},
		proto.OpOpenDowngrade:      {(*compound).openDowngrade40, needCur | changes},
		proto.OpReleaseLockowner:   {(*compound).releaseLockowner, changes},
		proto.OpRenew:              {(*compound).renew, 0},
		proto.OpSecinfo:            {(*compound).secinfo40, needCur},
		proto.OpSetclientid:        {(*compound).setclientid, changes},
		proto.OpSetclientidConfirm: {(*compound).setclientidConfirm, changes},
	}
	for op := proto.OpAccess; op <= proto.MaxOp40; op++ {
		o, mine := own[op]
		if !mine {
			o = operations[op]
		}
		all[op] = operation40{operation{nil, o.flags}, true}
		if o.do == nil {
			continue
		}
		all[op].do = func(c *compound) proto.Status {
			c.four.changed = c.four.changed || o.flags&changes != 0
			return status40(op, o.do(c))
		}
	}
	return all
}()

// status40 makes a status of what NFSv4.0 has: RFC 7530 §13.1 lists the errors, and
// which operation can have which.
func status40(op proto.Op, st proto.Status) proto.Status {
	switch st {
	case proto.ErrRepTooBig, proto.ErrRepTooBigToCache, proto.ErrReqTooBig, proto.ErrTooManyOps:
		return proto.ErrResource
	case proto.ErrWrongType:
		return proto.ErrInval
	case proto.ErrSymlink:
		if op != proto.OpLookup && op != proto.OpLookupp && op != proto.OpOpen {
			return proto.ErrInval
		}
	case proto.ErrNofilehandle:
		if op == proto.OpRestorefh {
			return proto.ErrRestorefh
		}
	}
	return st
}
