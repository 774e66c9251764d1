package volume

import (
	"bytes"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// checkStates looks at the states of each file: it is there, to stay, and no
// open conflicts with what another denies. A state is under one key, so that
// there can be no two with one Other.
func (c *checker) checkStates() {
	var ino cluster.Ino
	var opens []State // of ino
	var denying uint64
	c.Ascend(appendStateBound(nil, 1), []byte{prefixState + 1}, func(key, val []byte) bool {
		c.States++
		of, s, ok := decodeStored(key, val)
		if !ok {
			c.inodef(of, "the state %x is damaged", key)
			return true
		}
		if of != ino {
			ino, opens = of, opens[:0]
			switch n, ok := c.inode(ino); {
			case !ok || n.Type != cluster.TypeRegular:
				c.inodef(ino, "has states, but is no file")
			case n.Nlink == 0 && !isHeld(c.Reader, ino):
				c.inodef(ino, "has states, but is not kept for them")
			}
		}
		if s.Deny != 0 {
			denying++
			if s.Kind != StateOpen {
				c.inodef(ino, "the lock state %x denies something", s.Other)
			}
		}
		for i := range opens {
			if o := &opens[i]; o.conflicts(&s) {
				c.inodef(ino, "the opens %x and %x exclude each other", o.Other, s.Other)
			}
		}
		if _, ok := c.Get(nil, appendClientStateKey(nil, s.Client, ino, &s.Other)); !ok {
			c.inodef(ino, "the state %x is not in the index of client %x", s.Other, s.Client)
		}
		if s.Kind == StateOpen && len(opens) < maxChecked {
			s.Owner = bytes.Clone(s.Owner)
			opens = append(opens, s)
		}
		return true
	})
	if n := c.denying(); n != denying {
		c.problem(Problem{Text: "the number of states that deny something is counted wrong"})
	}
}

// maxChecked bounds the opens of a file that are compared with each other.
const maxChecked = 1024

func (c *checker) denying() uint64 {
	val, ok := c.Get(nil, appendStateBound(nil, 0))
	if !ok {
		return 0
	}
	d := codec.NewDec(val)
	n := d.Uvarint()
	if d.Done() != nil || n == 0 {
		c.problem(Problem{Text: "the number of states that deny something is damaged"})
	}
	return n
}

func (c *checker) checkStateIndex() {
	c.Ascend(appendClientStates(nil, 0), appendStateBound(nil, 1), func(key, _ []byte) bool {
		client, ino, other, ok := parseClientStateKey(key)
		if !ok {
			c.inodef(ino, "the state index's key %x is damaged", key)
			return true
		}
		k := appendStateKey(nil, ino, &other)
		val, there := c.Get(nil, k)
		if _, s, ok := decodeStored(k, val); !there || !ok || s.Client != client {
			c.inodef(ino, "the index of client %x has a state %x that is not there", client, other)
		}
		return true
	})
}
