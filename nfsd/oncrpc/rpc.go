package oncrpc

import (
	"errors"
	"fmt"
	"strconv"
)

// Numbers of RFC 5531 §9.
const (
	rpcVersion = 2

	msgCall  = 0
	msgReply = 1

	msgAccepted = 0
	msgDenied   = 1

	rejectMismatch = 0
	rejectAuth     = 1

	maxAuthBody = 400 // bytes in a credential or verifier (§8.2)
)

// A Flavor is a kind of credential (RFC 5531 §8.1).
type Flavor uint32

// The flavors.
const (
	AuthNone  Flavor = 0
	AuthSysF  Flavor = 1 // AUTH_SYS; the credential itself is AuthSys
	AuthShort Flavor = 2
	RPCSecGSS Flavor = 6 // RFC 2203
	AuthTLS   Flavor = 7 // RFC 9289
)

// An AcceptStat is the outcome of a call that was accepted (accept_stat, RFC 5531 §9).
type AcceptStat uint32

// The outcomes.
const (
	Success      AcceptStat = 0
	ProgUnavail  AcceptStat = 1
	ProgMismatch AcceptStat = 2
	ProcUnavail  AcceptStat = 3
	GarbageArgs  AcceptStat = 4
	SystemErr    AcceptStat = 5
)

// String returns the RFC's name.
func (s AcceptStat) String() string {
	names := [...]string{"SUCCESS", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return "accept_stat " + strconv.Itoa(int(s))
}

// An AuthStat says why a credential was refused (auth_stat, RFC 5531 §9).
type AuthStat uint32

// The reasons that this package gives or that matter to a caller.
const (
	AuthOK           AuthStat = 0
	AuthBadCred      AuthStat = 1
	AuthRejectedCred AuthStat = 2
	AuthBadVerf      AuthStat = 3
	AuthRejectedVerf AuthStat = 4
	AuthTooWeak      AuthStat = 5
)

// The errors of connections and calls.
var (
	// ErrClosed: the connection or the server is closed. A call that was
	// under way may have been executed.
	ErrClosed = errors.New("oncrpc: the connection is closed")
	// ErrTooManyCalls: as many calls as a connection may have wait for a reply.
	ErrTooManyCalls = errors.New("oncrpc: too many calls wait for a reply on this connection")

	errSameXID    = errors.New("oncrpc: a call with this number waits for its reply already: give it another Request.XID")
	errBadRecord  = errors.New("oncrpc: bad record mark")
	errBigRecord  = errors.New("oncrpc: record over the size limit")
	errBadHeader  = errors.New("oncrpc: malformed message header")
	errSlowWrite  = errors.New("oncrpc: the peer does not read")
	errSlowRead   = errors.New("oncrpc: the peer sends a record too slowly")
	errIdle       = errors.New("oncrpc: idle")
	errDrained    = errors.New("oncrpc: shutting down")
	errOverloaded = errors.New("oncrpc: replies that the peer does not read fill the memory kept for them")
)

// A CallError is a reply other than SUCCESS.
type CallError struct {
	Denied    bool       // the call was rejected (MSG_DENIED), not accepted
	Stat      AcceptStat // if not Denied
	Auth      AuthStat   // if Denied for the credential; AuthOK: for the RPC version
	Low, High uint32     // the versions supported, after a mismatch
}

// Error says what the peer answered.
func (e *CallError) Error() string {
	switch {
	case e.Denied && e.Auth == AuthOK:
		return fmt.Sprintf("oncrpc: RPC version refused: %d to %d are supported", e.Low, e.High)
	case e.Denied:
		return fmt.Sprintf("oncrpc: credential refused: auth_stat %d", e.Auth)
	case e.Stat == ProgMismatch:
		return fmt.Sprintf("oncrpc: %v: versions %d to %d are supported", e.Stat, e.Low, e.High)
	}
	return "oncrpc: " + e.Stat.String()
}
