package state

import (
	"sync"

	"github.com/hawserfs/hawser/nfsd/proto"
)

// A Fingerprint tells a retry from another request under the same sequence id:
// who asks, and the number of operations. More would refuse true retries.
type Fingerprint struct {
	UID, Ops uint32
}

// maxParked bounds the requests that wait for the one that a slot is busy with.
const maxParked = 4

// A slot has the last request of a slot and its reply (RFC 8881 §2.10.6.1).
type slot struct {
	mu  sync.Mutex
	seq uint32
	// unknown: an earlier front-end used the slot, up to which seqid only the
	// client knows; or a request was given up.
	unknown bool
	busy    bool
	cached  bool // reply holds the reply to seq
	print   Fingerprint
	reply   []byte
	parked  []parked
}

type parked struct {
	same bool // a retry: it is sent the reply. Otherwise the next request.
	ch   chan []byte
}

// An Outcome says what to do with a request.
type Outcome uint8

// The outcomes of Begin.
const (
	Refuse Outcome = iota // answer with the status
	Fresh                 // execute, then End
	Maybe                 // execute as what may have been executed by an earlier front-end, then End
	Replay                // answer with the reply
	Park                  // wait for the channel: a reply, or nil: Begin again
)

// Begin takes up a request on a slot.
//
// A retry of what is under way is parked and answered by the first execution:
// NFS4ERR_DELAY would stall a Linux client for 15 s, and executing it twice is what
// slots are there to avoid. The next request, when its predecessor is still under
// way because its caller gave up, is parked likewise.
func (s *Session) Begin(slotid, seq uint32, p Fingerprint) (Outcome, proto.Status, []byte, <-chan []byte) {
	if slotid >= uint32(len(s.slots)) {
		return Refuse, proto.ErrBadslot, nil, nil
	}
	l := &s.slots[slotid]
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.unknown:
		// It may be the last request again, or any later one: those that only read
		// left no trace with the file system.
		l.unknown = false
		l.seq, l.print = seq, p
		l.busy, l.cached = true, false
		return Maybe, proto.OK, nil, nil
	case seq == l.seq+1 && !l.busy:
		l.seq, l.print = seq, p
		l.busy, l.cached = true, false
		return Fresh, proto.OK, nil, nil
	case seq == l.seq+1, seq == l.seq && l.busy:
		same := seq == l.seq
		switch {
		case same && p != l.print:
			return Refuse, proto.ErrSeqFalseRetry, nil, nil
		case len(l.parked) >= maxParked:
			return Refuse, proto.ErrDelay, nil, nil
		}
		ch := make(chan []byte, 1)
		l.parked = append(l.parked, parked{same, ch})
		return Park, proto.OK, nil, ch
	case seq != l.seq || l.seq == 0 && !l.cached:
		return Refuse, proto.ErrSeqMisordered, nil, nil
	case p != l.print:
		return Refuse, proto.ErrSeqFalseRetry, nil, nil
	case !l.cached:
		return Refuse, proto.ErrRetryUncachedRep, nil, nil
	}
	return Replay, proto.OK, append([]byte(nil), l.reply...), nil
}

// End ends the request that a slot is busy with. reply is kept for a retry,
// unless it is nil; flat makes the whole reply for parked retries, and is called
// only if there are any. Nothing that they get is the caller's memory, which is used
// for the next reply before they have it.
func (s *Session) End(slotid uint32, reply []byte, flat func() []byte) {
	l := &s.slots[slotid]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
	if l.cached = reply != nil; l.cached {
		if cap(l.reply) > 4*len(reply) && cap(l.reply) > 4096 {
			l.reply = nil // a rare large reply does not hold its memory for ever
		}
		l.reply = append(l.reply[:0], reply...)
	} else if cap(l.reply) > 4096 {
		l.reply = nil
	}
	if len(l.parked) == 0 {
		return
	}
	whole := append([]byte(nil), reply...)
	if reply == nil {
		whole = flat()
	}
	l.wake(whole)
}

// wake has those who are parked go on. l.mu is held.
func (l *slot) wake(reply []byte) {
	for _, p := range l.parked {
		if p.same {
			p.ch <- reply
		} else {
			p.ch <- nil
		}
	}
	l.parked = nil
}

// GiveUp ends a request that has no reply, and of which nobody knows how much of it
// was done: whatever comes next may be it.
func (s *Session) GiveUp(slotid uint32) {
	l := &s.slots[slotid]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy, l.cached, l.unknown = false, false, true
	l.wake(nil)
}

// HighestSlot returns the highest slot id: it never shrinks.
func (s *Session) HighestSlot() uint32 { return uint32(len(s.slots)) - 1 }
