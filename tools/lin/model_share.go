package lin

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// What is done with an open file, besides Open.
const (
	Open      = "open" // by an owner that has it open already: an upgrade
	Downgrade = "downgrade"
	Close     = "close"
	Peek      = "peek" // a read without an open
)

// Read and Write are the bits of what a Share accesses and denies.
const (
	Read  = 1
	Write = 2
)

// Owners is how many owners of opens and locks a file of the models has.
const Owners = 8

// A Share is an operation on a file of a share reservation. Its output is
// whether it succeeded; of Downgrade and Close it always is.
type Share struct {
	File         int
	Op           string
	Owner        int // of Owners
	Access, Deny uint8
}

type mode struct{ access, deny uint8 }

func (m mode) conflicts(s *Share) bool { return m.deny&s.Access|m.access&s.Deny != 0 }

type shares [Owners]mode

// Shares is the model of share reservations (RFC 8881 §9.7). An owner's own
// open is in the way of its next one like any other (§18.16.3), unless that asks for
// nothing new. Opens for
// reading alone that deny nothing are not in it: a front-end keeps them for itself. One that
// denied nothing may linger after its close, for its record is deleted later: it
// keeps out for a while who denies something, and nobody else.
var Shares = porcupine.Model{
	Partition: partition(func(input any) any { return input.(Share).File }),
	Init:      func() any { return shares{} },
	Step: func(state, input, output any) (bool, any) {
		s, all, ok := input.(Share), state.(shares), output.(bool)
		mine := &all[s.Owner]
		switch s.Op {
		case Open, Peek:
			may, own := true, mine.conflicts(&s)
			for i, m := range all {
				may = may && (i == s.Owner || !m.conflicts(&s))
			}
			// An owner that has all that it asks for may have it granted again: after a
			// take-over that can't be told from the OPEN that it has it by, repeated.
			again := own && may && ok && s.Op == Open && s.Access&^mine.access == 0 && s.Deny&^mine.deny == 0
			may = may && (!own || again)
			// Who denies something may meet an open that is closed already.
			late := s.Op == Open && s.Deny != 0 && !ok
			if may != ok && !late {
				return false, state
			}
			if ok && s.Op == Open {
				mine.access |= s.Access
				mine.deny |= s.Deny
			}
		case Downgrade:
			*mine = mode{s.Access, s.Deny}
		case Close:
			*mine = mode{}
		}
		return ok || s.Op == Open || s.Op == Peek, all
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v %v", input, output) },
}

// Excused leaves out of a history of Shares what was refused while an open that
// is in its way was under way: a front-end records an open before it says the
// last word on it, and may take it back, or another front-end may do it again.
// What is left says that nothing is granted against what is held, and nothing is
// refused for good without a reason.
func Excused(all []porcupine.Operation) (rest []porcupine.Operation) {
	for _, o := range all {
		s := o.Input.(Share)
		excused := false
		for _, x := range all {
			by := x.Input.(Share)
			if o.Output == false && by.File == s.File && by.Op == Open && by.Owner != s.Owner &&
				x.Call < o.Return && o.Call < x.Return && (mode{by.Access, by.Deny}).conflicts(&s) {
				excused = true
				break
			}
		}
		if !excused {
			rest = append(rest, o)
		}
	}
	return rest
}
