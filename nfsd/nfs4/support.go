package nfs4

import "github.com/hawserfs/hawser/nfsd/proto"

// Support says what becomes of an operation.
type Support uint8

// What becomes of an operation.
const (
	Illegal      Support = iota // the minor version has none of that number: NFS4ERR_OP_ILLEGAL
	NotSupported                // NFS4ERR_NOTSUPP
	Supported                   // it is executed
)

// OpSupport returns what becomes of an operation in NFSv4.0 (0), 4.1 (1) or 4.2 (2), as
// the tables say by which requests are executed.
func OpSupport(op proto.Op, minor uint32) Support {
	o := lookupOp(op, minor)
	if minor == 0 {
		o = new(handler40).operation(op)
	}
	switch {
	case o == nil:
		return Illegal
	case o.do == nil:
		return NotSupported
	}
	return Supported
}

// AttrSupport returns whether an attribute can be read, and whether it can be set, in
// NFSv4.0 (0), 4.1 (1) or 4.2 (2).
func AttrSupport(attr int, minor uint32) (read, write bool) {
	if attr < 0 || attr >= proto.NumAttrs {
		return false, false
	}
	can, set := supported(minor), settable(minor)
	return can.has(attr) && !writeOnly.has(attr), set.has(attr)
}
