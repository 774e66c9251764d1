package lin

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// A Token names a value that is written once. 0 is what is there at first.
type Token uint64

// A Block is an operation on a block of a file. The output of a read is a Token.
type Block struct {
	File, Block int
	Write       bool
	Token       Token // that is written
}

// Blocks is the model of the blocks of files: a register for each.
var Blocks = porcupine.Model{
	Partition: partition(func(input any) any {
		b := input.(Block)
		return [2]int{b.File, b.Block}
	}),
	Init: func() any { return Token(0) },
	Step: func(state, input, output any) (bool, any) {
		b := input.(Block)
		if b.Write {
			return true, b.Token
		}
		return output.(Token) == state.(Token), state
	},
	DescribeOperation: func(input, output any) string {
		b := input.(Block)
		if b.Write {
			return fmt.Sprintf("write %d (%v)", b.Token, output)
		}
		return fmt.Sprintf("read %v", output)
	},
}

// Names is how many names a directory of the model has.
const Names = 4

// What is done with a name.
const (
	Create = "create" // if there is no such name
	Lookup = "lookup"
	Remove = "remove"
	Rename = "rename"
)

// A Name is an operation in a directory.
type Name struct {
	Dir  int
	Op   string
	Name int   // of Names
	To   int   // Rename's other name, not Name
	New  Token // what Create makes
}

// A Found is the output of an operation on a name: whether it succeeded, and
// what a look-up found.
type Found struct {
	OK    bool
	Token Token
}

type directory [Names]Token

// Directories is the model of directories: what each of their names is.
var Directories = porcupine.Model{
	Partition: partition(func(input any) any { return input.(Name).Dir }),
	Init:      func() any { return directory{} },
	Step: func(state, input, output any) (bool, any) {
		n, dir := input.(Name), state.(directory)
		there := dir[n.Name]
		ok := there != 0
		if n.Op == Create {
			ok = !ok
		}
		// One that is not answered succeeds if it can: that it has no effect
		// is what it comes to if it takes effect at the end of time.
		if f, known := output.(Found); known && (f.OK != ok || n.Op == Lookup && f.Token != there) {
			return false, state
		}
		if !ok {
			return true, state
		}
		switch n.Op {
		case Create:
			dir[n.Name] = n.New
		case Remove:
			dir[n.Name] = 0
		case Rename:
			dir[n.To], dir[n.Name] = there, 0
		}
		return true, dir
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v %+v", input, output) },
}

// partition splits a history by key: what has different keys does not meet.
func partition(key func(input any) any) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[any]int{}
		for _, op := range all {
			k := key(op.Input)
			i, ok := at[k]
			if !ok {
				i = len(parts)
				at[k] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	}
}
