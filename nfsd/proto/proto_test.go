package proto

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{OpGetattr.String(), "GETATTR"},
		{OpIllegal.String(), "ILLEGAL"},
		{Op(1000).String(), "OP_1000"},
		{Op(0).String(), "OP_0"},
		{ErrNoent.Error(), "NFS4ERR_NOENT"},
		{OK.String(), "NFS4_OK"},
		{Status(99).String(), "NFS4ERR_99"},
		{AttrName(AttrMode), "mode"},
		{AttrName(83), ""},
		{AttrName(-1), ""},
		{AttrName(NumAttrs), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if OK.Err() != nil || ErrPerm.Err() != ErrPerm {
		t.Error("Err must be nil for OK alone")
	}
	// A hole in the operations would make a legal one illegal.
	for op := OpAccess; op <= MaxOp42; op++ {
		if n := opName[op]; n == "" || strings.HasPrefix(n, "OP_") {
			t.Errorf("operation %d is called %q", op, n)
		}
	}
}
