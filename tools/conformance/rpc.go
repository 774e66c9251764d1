package conformance

import (
	"errors"

	"github.com/hawserfs/hawser/nfsd/oncrpc"
)

// stat ends the case unless a call was accepted and refused with a status.
func stat(t *T, err error, want oncrpc.AcceptStat) *oncrpc.CallError {
	var e *oncrpc.CallError
	if !errors.As(err, &e) || e.Denied {
		t.Fatalf("the call was answered %v, not %v", err, want)
	}
	Equal(t, "accept_stat", e.Stat, want)
	return e
}
