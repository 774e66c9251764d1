package lin

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// What is done with locks. Test asks whether Lock would succeed.
const (
	Lock   = "lock"
	Unlock = "unlock"
	Test   = "test"
)

// LockBytes is how many bytes of a file are locked.
const LockBytes = 4

// A Range is an operation on the locks of bytes [From, To) of a file. Its
// output is whether it succeeded, or would; Unlock always does.
type Range struct {
	File     int
	Op       string
	Owner    int // of Owners
	Write    bool
	From, To int
}

// locks has for each byte who has locked it, by bits.
type locks [LockBytes]struct{ read, write uint8 }

// Locks is the model of byte-range locks, of which an owner's own never conflict.
var Locks = porcupine.Model{
	Partition: partition(func(input any) any { return input.(Range).File }),
	Init:      func() any { return locks{} },
	Step: func(state, input, output any) (bool, any) {
		r, all, ok := input.(Range), state.(locks), output.(bool)
		me := uint8(1) << r.Owner
		may := true
		for i := r.From; i < r.To; i++ {
			b := &all[i]
			if r.Op != Unlock && (b.write&^me != 0 || r.Write && b.read&^me != 0) {
				may = false
			}
			b.read, b.write = b.read&^me, b.write&^me
			switch {
			case r.Op == Unlock:
			case r.Write:
				b.write |= me
			default:
				b.read |= me
			}
		}
		if may != ok {
			return false, state
		}
		if !ok || r.Op == Test {
			return true, state
		}
		return true, all
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v %v", input, output) },
}
