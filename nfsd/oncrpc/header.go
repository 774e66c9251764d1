package oncrpc

import (
	"encoding/binary"

	"github.com/hawserfs/hawser/nfsd/xdr"
)

// markSize is the size of a record mark (RFC 5531 §11).
const (
	markSize = 4
	lastFrag = 1 << 31
)

// replyHeader is the size of the mark and the header of an accepted reply with
// a null verifier.
const replyHeader = markSize + 6*4

var blankReply [replyHeader]byte

// A verdict is what the header of a call leads to.
type verdict uint8

const (
	malformed   verdict = iota // no reply is possible
	badVersion                 // RPC version is not 2
	badCred                    // credential refused
	dispatch                   // to be served, if there is such a program
	wrongObject                // a reply where a call was expected
)

// decodeCall decodes a call's header into c, whose Args then are at the
// arguments (RFC 5531 §9). sys is where an AUTH_SYS credential goes.
func decodeCall(c *Call, sys *AuthSys) (verdict, AuthStat) {
	d := c.Args
	c.XID = d.Uint32()
	kind := d.Uint32()
	version := d.Uint32()
	if d.Err() != nil {
		return malformed, 0
	}
	if kind != msgCall {
		return wrongObject, 0
	}
	if version != rpcVersion {
		return badVersion, 0
	}
	c.Program = d.Uint32()
	c.Version = d.Uint32()
	c.Procedure = d.Uint32()
	flavor := Flavor(d.Uint32())
	body := d.Opaque(maxAuthBody)
	d.Uint32() // the verifier's flavor; its body says nothing for the flavors served
	d.Opaque(maxAuthBody)
	if d.Err() != nil {
		return malformed, 0
	}
	c.Cred = Cred{Flavor: flavor}
	switch flavor {
	case AuthNone:
		return dispatch, AuthOK
	case AuthSysF:
		if !sys.decode(body) {
			return badCred, AuthBadCred
		}
		c.Cred.Sys = sys
		return dispatch, AuthOK
	case AuthShort:
		return badCred, AuthRejectedCred // this server has handed out none
	}
	// RPCSEC_GSS, AUTH_TLS and what is unknown: refused at once, so that the
	// client falls back.
	return badCred, AuthBadCred
}

// putReplyHeader fills in the header of an accepted reply. size is that of the
// record without its mark.
func putReplyHeader(h []byte, size int, xid uint32, stat AcceptStat) {
	binary.BigEndian.PutUint32(h[0:], lastFrag|uint32(size))
	binary.BigEndian.PutUint32(h[4:], xid)
	binary.BigEndian.PutUint32(h[8:], msgReply)
	binary.BigEndian.PutUint32(h[12:], msgAccepted)
	binary.BigEndian.PutUint32(h[16:], uint32(AuthNone))
	binary.BigEndian.PutUint32(h[20:], 0)
	binary.BigEndian.PutUint32(h[24:], uint32(stat))
}

// putMark fills in the mark of a record of one fragment.
func putMark(e *xdr.Encoder) {
	binary.BigEndian.PutUint32(e.Prefix(), lastFrag|uint32(e.Len()))
}

// encodeDenied makes e, which has room for a mark before it, a reply that
// rejects the call (MSG_DENIED).
func encodeDenied(e *xdr.Encoder, xid uint32, v verdict, auth AuthStat) {
	e.Uint32(xid)
	e.Uint32(msgReply)
	e.Uint32(msgDenied)
	if v == badVersion {
		e.Uint32(rejectMismatch)
		e.Uint32(rpcVersion)
		e.Uint32(rpcVersion)
	} else {
		e.Uint32(rejectAuth)
		e.Uint32(uint32(auth))
	}
	putMark(e)
}

// decodeReply decodes a reply's header after XID and message type, and leaves
// d at the results. A reply other than SUCCESS is a *CallError.
func decodeReply(d *xdr.Decoder) error {
	kind := d.Uint32()
	var stat AcceptStat
	if kind == msgAccepted {
		d.Uint32()
		d.Opaque(maxAuthBody)
		stat = AcceptStat(d.Uint32())
		if d.Err() == nil && stat == Success {
			return nil
		}
	}
	e := &CallError{Stat: stat}
	switch kind {
	case msgAccepted:
		if e.Stat == ProgMismatch {
			e.Low, e.High = d.Uint32(), d.Uint32()
		}
	case msgDenied:
		e.Denied = true
		switch d.Uint32() {
		case rejectMismatch:
			e.Low, e.High = d.Uint32(), d.Uint32()
		case rejectAuth:
			e.Auth = AuthStat(d.Uint32())
		default:
			d.Fail(errBadHeader)
		}
	default:
		d.Fail(errBadHeader)
	}
	if d.Err() != nil {
		return errBadHeader
	}
	return e
}

// encodeCall appends a call's header to e, which has room for a mark before it.
func encodeCall(e *xdr.Encoder, xid uint32, r *Request) {
	e.Uint32(xid)
	e.Uint32(msgCall)
	e.Uint32(rpcVersion)
	e.Uint32(r.Program)
	e.Uint32(r.Version)
	e.Uint32(r.Procedure)
	r.Cred.append(e)
	e.Uint32(uint32(AuthNone))
	e.Uint32(0)
}
