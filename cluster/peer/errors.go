package peer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
)

// Errors of connections. What Call returns wraps one of them, a context's error
// or a cluster.Errno.
var (
	ErrClosed      = errors.New("peer endpoint is closed")
	ErrUnreachable = errors.New("peer cannot be reached")  // the call was not sent
	ErrConnection  = errors.New("connection to peer lost") // the call may have been executed
	ErrStopped     = errors.New("call was stopped")        // by CallUntil's stop channel; it may have been executed
	ErrTooLarge    = errors.New("call is larger than a frame may be")
	errProtocol    = errors.New("peer breaks the protocol")
	errSilent      = errors.New("peer is silent")
)

// A RemoteError is an error of a handler with more to say than a number.
type RemoteError struct {
	Errno cluster.Errno
	Text  string
}

// Error returns the handler's text.
func (e *RemoteError) Error() string { return e.Text }

// Unwrap returns the error's number, so that errors.Is finds it.
func (e *RemoteError) Unwrap() error { return e.Errno }

// maxErrorText bounds the text of an error on the wire, in bytes.
const maxErrorText = 1024

// errorStatus returns how a handler's error travels.
func errorStatus(err error) (status cluster.Errno, text string) {
	if err == nil {
		return cluster.OK, ""
	}
	if errno, ok := err.(cluster.Errno); ok {
		return errno, ""
	}
	status = cluster.EINTERNAL
	var errno cluster.Errno
	switch {
	case errors.As(err, &errno) && errno != cluster.OK:
		status = errno
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		status = cluster.EAGAIN
	}
	text = err.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return status, text
}

// statusError is the inverse of errorStatus.
func statusError(status cluster.Errno, text []byte) error {
	switch {
	case status == cluster.OK:
		return nil
	case len(text) == 0:
		return status
	}
	return &RemoteError{Errno: status, Text: string(text)}
}

// lost describes why a connection ended.
func lost(addr string, why error) error {
	if errors.Is(why, ErrClosed) {
		return why
	}
	return fmt.Errorf("%w: %s: %w", ErrConnection, addr, why)
}
