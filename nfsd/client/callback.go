package client

import (
	"sync"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// cbSlots is how many callbacks may be under way in a session.
const cbSlots = 16

// A lockKey names a lock owner of a file.
type lockKey struct{ fh, owner string }

// A callbackService answers a server's callbacks, as Linux does: it checks the
// credential and the slots' sequence numbers (RFC 8881 §20.9), and keeps no replies.
type callbackService struct {
	mu       sync.Mutex
	sessions map[string]*[cbSlots]uint32 // the last sequence of each slot
	waiting  map[lockKey]chan struct{}   // each has room for one
	offloads map[Stateid]Offload         // that have ended, and nobody has asked about
	ended    chan struct{}               // closed when offloads has one more
	executed map[proto.CBOp]int
	recalled map[Stateid]struct{} // delegations
}

func newCallbackService() *callbackService {
	return &callbackService{
		sessions: make(map[string]*[cbSlots]uint32),
		waiting:  make(map[lockKey]chan struct{}),
		offloads: make(map[Stateid]Offload),
		ended:    make(chan struct{}),
		executed: make(map[proto.CBOp]int),
		recalled: make(map[Stateid]struct{}),
	}
}

// Executed returns how many callbacks of a kind the client has executed.
func (c *Client) Executed(op proto.CBOp) int {
	c.cb.mu.Lock()
	defer c.cb.mu.Unlock()
	return c.cb.executed[op]
}

func (s *callbackService) program() oncrpc.Program {
	return oncrpc.Program{
		Number: proto.CBProgram, MinVersion: proto.CBVersion, MaxVersion: proto.CBVersion,
		Handler: oncrpc.HandlerFunc(s.serve),
	}
}

// open says that there is a session.
func (s *callbackService) open(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[string(id)] = new([cbSlots]uint32)
}

// maxTag bounds a CB_COMPOUND's tag, in bytes.
const maxTag = 1024

func (s *callbackService) serve(call *oncrpc.Call, e *xdr.Encoder) oncrpc.AcceptStat {
	switch call.Procedure {
	case proto.ProcCBNull:
		return oncrpc.Success
	case proto.ProcCBCompound:
	default:
		return oncrpc.ProcUnavail
	}
	d := call.Args
	tag := d.Opaque(maxTag)
	d.Uint32() // minor version
	d.Uint32() // callback_ident
	n := d.Uint32()
	if d.Err() != nil {
		return oncrpc.GarbageArgs
	}
	if call.Cred.Sys == nil {
		return oncrpc.SystemErr // not who the callbacks were to be from
	}
	status := e.Reserve32()
	e.Opaque(tag)
	count := e.Reserve32()
	st, done := proto.OK, uint32(0)
	for ; done < n && st == proto.OK; done++ {
		st = s.operation(d, e, done == 0)
	}
	e.PutUint32At(status, uint32(st))
	e.PutUint32At(count, done)
	return oncrpc.Success
}

// operation executes one operation.
func (s *callbackService) operation(d *xdr.Decoder, e *xdr.Encoder, first bool) proto.Status {
	op := proto.CBOp(d.Uint32())
	e.Uint32(uint32(op))
	mark := e.Reserve32()
	st := proto.ErrNotsupp
	switch {
	case d.Err() != nil:
		st = proto.ErrBadxdr
	case first != (op == proto.CBSequence):
		st = proto.ErrOpNotInSession
	case op == proto.CBSequence:
		st = s.sequence(d, e)
	case op == proto.CBNotifyLock:
		st = s.notifyLock(d)
	case op == proto.CBOffload:
		st = s.offload(d)
	case op == proto.CBRecall:
		st = s.recall(d)
	}
	if st == proto.OK && op != proto.CBSequence {
		s.mu.Lock()
		s.executed[op]++
		s.mu.Unlock()
	}
	e.PutUint32At(mark, uint32(st))
	return st
}

// sequence is CB_SEQUENCE.
func (s *callbackService) sequence(d *xdr.Decoder, e *xdr.Encoder) proto.Status {
	id := d.FixedOpaque(proto.SessionIDSize)
	seq, slot := d.Uint32(), d.Uint32()
	d.Uint32() // csa_highest_slotid
	d.Bool()   // csa_cachethis
	for range d.Count(64, proto.SessionIDSize+4) {
		d.FixedOpaque(proto.SessionIDSize)
		for range d.Count(64, 8) {
			d.Uint64()
		}
	}
	if d.Err() != nil {
		return proto.ErrBadxdr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := s.sessions[string(id)]
	switch {
	case slots == nil:
		return proto.ErrBadsession
	case slot >= cbSlots:
		return proto.ErrBadslot
	case seq == slots[slot] && seq != 0:
		return proto.ErrRetryUncachedRep
	case seq != slots[slot]+1:
		return proto.ErrSeqMisordered
	}
	slots[slot] = seq
	e.FixedOpaque(id)
	e.Uint32(seq)
	e.Uint32(slot)
	e.Uint32(cbSlots - 1)
	e.Uint32(cbSlots - 1)
	return proto.OK
}

// notifyLock is CB_NOTIFY_LOCK.
func (s *callbackService) notifyLock(d *xdr.Decoder) proto.Status {
	fh := d.Opaque(proto.FHSize)
	d.Uint64() // client id
	owner := d.Opaque(proto.OpaqueLimit)
	if d.Err() != nil {
		return proto.ErrBadxdr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.waiting[lockKey{string(fh), string(owner)}]; ch != nil {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	return proto.OK
}

// wait says that an owner waits for a lock, until done is called.
func (s *callbackService) wait(fh FH, owner string) (told <-chan struct{}, done func()) {
	k := lockKey{string(fh), owner}
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[k] = ch
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[k] == ch {
			delete(s.waiting, k)
		}
	}
}
