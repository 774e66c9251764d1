package lin

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Link is an operation on a Tree: it gives a file one more name.
const Link = "link"

// The size of a Tree.
const (
	TreeDirs  = 2
	TreeNames = 3
)

// A Spot is a name in a directory of a Tree.
type Spot struct{ Dir, Name int }

// A Step is an operation on a tree of directories of files, which can have
// several names. Its output is a Found; Token is the file that was created or
// looked up.
type Step struct {
	Tree   int
	Op     string
	At, To Spot  // To: Rename's and Link's
	File   Token // Link's
}

// Gone is the output of a Link whose file has no name any more.
type Gone struct{}

type tree [TreeDirs][TreeNames]Token

func (t *tree) has(f Token) bool {
	for _, d := range t {
		for _, x := range d {
			if x == f {
				return true
			}
		}
	}
	return false
}

// Trees is the model of trees. Files are never unknown to it: what creates them says which.
var Trees = porcupine.Model{
	Partition: partition(func(input any) any { return input.(Step).Tree }),
	Init:      func() any { return tree{} },
	Step: func(state, input, output any) (bool, any) {
		s, t := input.(Step), state.(tree)
		if _, gone := output.(Gone); gone {
			return s.Op == Link && !t.has(s.File), state
		}
		f, at, to := output.(Found), &t[s.At.Dir][s.At.Name], &t[s.To.Dir][s.To.Name]
		ok := *at != 0
		switch s.Op {
		case Create:
			ok = !ok
		case Link:
			ok = *to == 0 && t.has(s.File)
			if !f.OK {
				return *to != 0, state
			}
		}
		if f.OK != ok {
			return false, state
		}
		if !ok {
			return true, state
		}
		switch s.Op {
		case Create:
			if t.has(f.Token) {
				return false, state
			}
			*at = f.Token
		case Lookup:
			return f.Token == *at, state
		case Remove:
			*at = 0
		case Link:
			*to = s.File
		case Rename:
			if *at != *to { // two names of a file stay (RFC 8881 §18.26.3)
				*to, *at = *at, 0
			}
		}
		return true, t
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v %+v", input, output) },
}
