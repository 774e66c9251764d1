package nfs4

import (
	"testing"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/state"
	"github.com/hawserfs/hawser/nfsd/xdr"
)

// twoCalls are operations of a callback: one with a result that is decoded, one without.
func twoCalls(got *int) []callbackOp {
	return []callbackOp{
		{Op: proto.CBGetattr, Result: func(d *xdr.Decoder) { d.Uint64(); *got++ }},
		{Op: proto.CBRecall},
	}
}

// callbackReply is a CB_COMPOUND's reply: the status, the number of results, and they.
func callbackReply(st proto.Status, n uint32, results ...any) []byte {
	var e xdr.Encoder
	e.Uint32(uint32(st))
	e.String("tag")
	e.Uint32(n)
	for _, r := range results {
		switch r := r.(type) {
		case proto.CBOp:
			e.Uint32(uint32(r))
		case proto.Status:
			e.Uint32(uint32(r))
		case int:
			e.Uint32(uint32(r))
		case uint64:
			e.Uint64(r)
		case state.SessionID:
			e.FixedOpaque(r[:])
		}
	}
	return e.AppendTo(nil)
}

// What the replies to callbacks of NFSv4.0 say (RFC 7530 §15.2).
func TestCallback40Replies(t *testing.T) {
	for name, c := range map[string]struct {
		reply []byte
		st    proto.Status
		bad   bool
	}{
		"all is well":            {callbackReply(0, 2, proto.CBGetattr, proto.OK, uint64(7), proto.CBRecall, proto.OK), proto.OK, false},
		"the second fails":       {callbackReply(proto.ErrBadStateid, 2, proto.CBGetattr, proto.OK, uint64(7), proto.CBRecall, proto.ErrBadStateid), proto.ErrBadStateid, false},
		"the first fails":        {callbackReply(proto.ErrBadhandle, 1, proto.CBGetattr, proto.ErrBadhandle), proto.ErrBadhandle, false},
		"another minor version":  {callbackReply(proto.ErrMinorVersMismatch, 0), proto.ErrMinorVersMismatch, false},
		"illegal":                {callbackReply(proto.ErrOpIllegal, 1, proto.CBIllegal, proto.ErrOpIllegal), proto.ErrOpIllegal, false},
		"one result is missing":  {callbackReply(0, 1, proto.CBGetattr, proto.OK, uint64(7)), 0, true},
		"none, and no error":     {callbackReply(0, 0), 0, true},
		"another operation":      {callbackReply(0, 2, proto.CBRecall, proto.OK, proto.CBRecall, proto.OK), 0, true},
		"results after an error": {callbackReply(proto.ErrBadhandle, 2, proto.CBGetattr, proto.ErrBadhandle, proto.CBRecall, proto.OK), 0, true},
		"more than was asked":    {callbackReply(0, 3, proto.CBGetattr, proto.OK, uint64(7), proto.CBRecall, proto.OK, proto.CBRecall, proto.OK), 0, true},
		"cut off":                {callbackReply(0, 2, proto.CBGetattr, proto.OK, 7), 0, true},
		"empty":                  {nil, 0, true},
	} {
		got := 0
		st, err := decodeReply40(xdr.NewDecoder(c.reply), twoCalls(&got))
		if (err != nil) != c.bad || !c.bad && st != c.st {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

// FuzzCallbackReplies decodes whole replies to callbacks, of 4.0 and with CB_SEQUENCE: a
// success has the results of all operations and is for the slot that was used.
func FuzzCallbackReplies(f *testing.F) {
	id := state.SessionID{1, 2, 3}
	f.Add(callbackReply(0, 2, proto.CBGetattr, proto.OK, uint64(7), proto.CBRecall, proto.OK))
	f.Add(callbackReply(proto.ErrBadhandle, 1, proto.CBGetattr, proto.ErrBadhandle))
	f.Add(callbackReply(0, 3, proto.CBSequence, proto.OK, id, 6, 1, 15, 15, proto.CBGetattr, proto.OK, uint64(7), proto.CBRecall, proto.OK))
	f.Add(callbackReply(proto.ErrDelay, 1, proto.CBSequence, proto.ErrDelay))
	f.Add(callbackReply(proto.ErrBadsession, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := 0
		if st, err := decodeReply40(xdr.NewDecoder(b), twoCalls(&got)); err == nil && st == proto.OK && (got != 1 || len(b) < 12+8+8+8) {
			t.Fatalf("%d bytes with %d results are a success", len(b), got)
		}
		got = 0
		back := &backChannel{s: &state.Session{ID: id}}
		head, st, err := back.decode(xdr.NewDecoder(b), &backSlot{id: 1, seq: 5}, twoCalls(&got))
		if err == nil && head == proto.OK && st == proto.OK && (got != 1 || len(b) < 12+8+16+16+8+8+8) {
			t.Fatalf("%d bytes with %d results are a success", len(b), got)
		}
	})
}
