package fsm

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// Bounds of what is stored for origins.
const (
	MaxOps          = 1024    // operations of a request: Origin.Op is below it
	MaxStoredResult = 4 << 10 // bytes in a result that is stored for an origin
)

// An Origin names the operation of a client's request that a command is part
// of. A command with an origin is executed once, whichever writers send it and
// however often: the result is stored, and told again. A slot has the results
// of one request, the last.
type Origin struct {
	Session [16]byte // zero: the command has no origin
	Slot    uint32
	Seq     uint32
	Sum     uint32 // of the request; with another Sum it is another request
	Op      uint16 // number of the operation in its request
	Sub     uint16 // number of the command in its operation
	// Step counts the commands of a Sub that is done in several, each going on
	// where the one before stopped. The last one's result is stored only.
	Step uint32
	// Ordered: Seq counts up (modulo 2^32), an older one is refused with
	// EREPLAY, and so is the same Seq with another Sum. Otherwise another Seq
	// or Sum is a new request.
	Ordered bool
}

// IsZero reports whether there is no origin.
func (o *Origin) IsZero() bool { return o.Session == [16]byte{} }

func appendOrigin(dst []byte, o *Origin) []byte {
	dst = append(dst, o.Session[:]...)
	dst = codec.AppendUvarint(dst, uint64(o.Slot))
	dst = codec.AppendUint32(dst, o.Seq)
	dst = codec.AppendUint32(dst, o.Sum)
	dst = codec.AppendUvarint(dst, uint64(o.Op))
	dst = codec.AppendUvarint(dst, uint64(o.Sub))
	dst = codec.AppendUvarint(dst, uint64(o.Step))
	return codec.AppendBool(dst, o.Ordered)
}

func decodeOrigin(d *codec.Dec, o *Origin) {
	copy(o.Session[:], d.Fixed(len(o.Session)))
	o.Slot = d.Uvarint32()
	o.Seq = d.Uint32()
	o.Sum = d.Uint32()
	o.Op = d.Uvarint16()
	o.Sub = d.Uvarint16()
	o.Step = d.Uvarint32()
	if o.Ordered = d.Bool(); o.Op >= MaxOps {
		d.Fail()
	}
}

// slotPrefix begins the key of a slot's record: session, slot.
const slotPrefix = 's'

func appendSlotKey(dst []byte, session *[16]byte, slot uint32) []byte {
	return codec.AppendUint32(append(append(dst, slotPrefix), session[:]...), slot)
}

// A slotHead begins a slot's record. The results of its request's commands
// follow it.
type slotHead struct {
	seq, sum uint32
}

const slotFormat = 1

func (h *slotHead) appendTo(dst []byte) []byte {
	dst = append(dst, slotFormat)
	return codec.AppendUint32(codec.AppendUint32(dst, h.seq), h.sum)
}

func decodeSlotHead(d *codec.Dec) (h slotHead, ok bool) {
	format := d.Uint8()
	h.seq, h.sum = d.Uint32(), d.Uint32()
	return h, d.Err() == nil && format == slotFormat
}

// A StoredResult is what a command that was executed has left for its origin.
type StoredResult struct {
	Kind   Kind
	Step   uint32
	Result []byte
}

// A stored result and where it is in the record.
type slotEntry struct {
	StoredResult
	op, sub uint16
}

func appendSlotEntry(dst []byte, e *slotEntry) []byte {
	dst = codec.AppendUvarint(dst, uint64(e.op))
	dst = codec.AppendUvarint(dst, uint64(e.sub))
	dst = codec.AppendUvarint(dst, uint64(e.Step))
	dst = append(dst, byte(e.Kind))
	return codec.AppendBytes(dst, e.Result)
}

func decodeSlotEntry(d *codec.Dec) (e slotEntry, ok bool) {
	e.op, e.sub, e.Step = d.Uvarint16(), d.Uvarint16(), d.Uvarint32()
	e.Kind = Kind(d.Uint8())
	e.Result = d.Bytes(MaxStoredResult)
	return e, d.Err() == nil
}

// A slotState says how an origin stands to its slot's record.
type slotState uint8

const (
	slotOther slotState = iota // the record is of an earlier request, or there is none
	slotSame                   // it is of this request
	slotOlder                  // it is of a later one, or of another with the same number
)

// compare says how o stands to a record with head h.
func (h *slotHead) compare(o *Origin) slotState {
	switch {
	case h.seq == o.Seq && h.sum == o.Sum:
		return slotSame
	case !o.Ordered || int32(o.Seq-h.seq) > 0:
		return slotOther
	}
	return slotOlder
}

// findStored looks for o in the record of its slot. A result of EREPLAY says
// that o is older than what was executed.
func findStored(record []byte, o *Origin) (s StoredResult, state slotState, found bool) {
	d := codec.NewDec(record)
	h, ok := decodeSlotHead(&d)
	if !ok {
		panic(fatalError{errCorruptRecord(appendSlotKey(nil, &o.Session, o.Slot))})
	}
	if state = h.compare(o); state != slotSame {
		return s, state, false
	}
	for d.Len() > 0 {
		e, ok := decodeSlotEntry(&d)
		if !ok {
			panic(fatalError{errCorruptRecord(appendSlotKey(nil, &o.Session, o.Slot))})
		}
		if e.op == o.Op && e.sub == o.Sub {
			return e.StoredResult, state, true
		}
	}
	return s, state, false
}

// LoadResult returns the result that the last command of o's Op and Sub has
// left, whatever its Step; ok is false if none was executed. If a later request
// of the slot was executed, the result is EREPLAY, and the Kind 0.
func LoadResult(r Reader, o *Origin) (s StoredResult, ok bool) {
	var key [1 + 16 + 4]byte
	record, ok := r.Get(nil, appendSlotKey(key[:0], &o.Session, o.Slot))
	if !ok {
		return s, false
	}
	s, state, found := findStored(record, o)
	if state == slotOlder {
		return StoredResult{Result: Result(cluster.EREPLAY)}, true
	}
	return s, found
}
