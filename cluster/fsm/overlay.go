package fsm

import "bytes"

// An overlay holds what the commands of a batch have written so far: a skip
// list over an arena, so that a batch costs no allocation once the arena has
// grown. Nodes are never taken out before reset, so a walk may go on while
// keys are written. Rolling a command back makes the nodes it added absent.
type overlay struct {
	nodes   []ovNode // nodes[0] is the head; index 0 as a link is the end
	buf     []byte   // keys and values; never changed in place
	undo    []ovUndo // of the present command
	inserts uint64   // counts new nodes, so that walks notice them
	height  int
	rnd     uint32
}

const ovMaxHeight = 10

type ovState uint8

const (
	ovAbsent  ovState = iota // says nothing: the committed state counts
	ovSet                    // has a value
	ovDeleted                // has none
)

type ovNode struct {
	keyOff, keyLen uint32
	valOff, valLen uint32
	state          ovState
	next           [ovMaxHeight]uint32
}

type ovUndo struct {
	node           uint32
	valOff, valLen uint32
	state          ovState
}

// keepArena bounds the memory that is kept from one batch to the next.
const keepArena = 8 << 20

func (o *overlay) reset() {
	if cap(o.buf) > keepArena {
		o.buf = nil
	}
	if cap(o.nodes) > keepArena/64 {
		o.nodes, o.undo = nil, nil
	}
	if o.nodes == nil {
		o.nodes = make([]ovNode, 1, 64)
	}
	o.nodes = o.nodes[:1]
	o.nodes[0] = ovNode{}
	o.buf = o.buf[:0]
	o.undo = o.undo[:0]
	o.inserts = 0
	o.height = 1
	o.rnd = 0x9e3779b9
}

func (o *overlay) key(n uint32) []byte {
	p := &o.nodes[n]
	return o.buf[p.keyOff : p.keyOff+p.keyLen : p.keyOff+p.keyLen]
}

func (o *overlay) value(n uint32) []byte {
	p := &o.nodes[n]
	return o.buf[p.valOff : p.valOff+p.valLen : p.valOff+p.valLen]
}

// seek returns the first node whose key is at or after key, or 0.
func (o *overlay) seek(key []byte) uint32 {
	var n uint32
	for h := o.height - 1; h >= 0; h-- {
		for {
			next := o.nodes[n].next[h]
			if next == 0 || bytes.Compare(o.key(next), key) >= 0 {
				break
			}
			n = next
		}
	}
	return o.nodes[n].next[0]
}

// seekAfter returns the first node whose key is after key, or 0.
func (o *overlay) seekAfter(key []byte) uint32 {
	n := o.seek(key)
	if n != 0 && bytes.Equal(o.key(n), key) {
		n = o.nodes[n].next[0]
	}
	return n
}

// get returns what the overlay says of key.
func (o *overlay) get(key []byte) (value []byte, state ovState) {
	if len(o.nodes) == 1 {
		return nil, ovAbsent
	}
	n := o.seek(key)
	if n == 0 || !bytes.Equal(o.key(n), key) {
		return nil, ovAbsent
	}
	return o.value(n), o.nodes[n].state
}

// put writes a value or a deletion. value may alias the arena.
func (o *overlay) put(key, value []byte, state ovState) {
	var prev [ovMaxHeight]uint32
	var n uint32
	for h := o.height - 1; h >= 0; h-- {
		for {
			next := o.nodes[n].next[h]
			if next == 0 || bytes.Compare(o.key(next), key) >= 0 {
				break
			}
			n = next
		}
		prev[h] = n
	}
	n = o.nodes[n].next[0]
	if n == 0 || !bytes.Equal(o.key(n), key) {
		n = o.insert(key, &prev)
	}
	node := &o.nodes[n]
	o.undo = append(o.undo, ovUndo{node: n, valOff: node.valOff, valLen: node.valLen, state: node.state})
	node.valOff, node.valLen = o.store(value)
	node.state = state
}

func (o *overlay) insert(key []byte, prev *[ovMaxHeight]uint32) uint32 {
	h := 1
	// A fixed sequence: heights are a matter of speed only.
	o.rnd ^= o.rnd << 13
	o.rnd ^= o.rnd >> 17
	o.rnd ^= o.rnd << 5
	for r := o.rnd; h < ovMaxHeight && r&3 == 0; r >>= 2 {
		h++
	}
	o.height = max(o.height, h) // prev is the head, 0, for the new levels
	n := uint32(len(o.nodes))
	node := ovNode{state: ovAbsent}
	node.keyOff, node.keyLen = o.store(key)
	for i := range h {
		node.next[i] = o.nodes[prev[i]].next[i]
		o.nodes[prev[i]].next[i] = n
	}
	o.nodes = append(o.nodes, node)
	o.inserts++
	return n
}

func (o *overlay) store(p []byte) (off, n uint32) {
	off = uint32(len(o.buf))
	o.buf = append(o.buf, p...)
	return off, uint32(len(p))
}

// savepoint begins a command: rollback goes back to here.
func (o *overlay) savepoint() { o.undo = o.undo[:0] }

// rollback takes back what was put since the savepoint.
func (o *overlay) rollback() {
	for i := len(o.undo) - 1; i >= 0; i-- {
		u := o.undo[i]
		node := &o.nodes[u.node]
		node.valOff, node.valLen, node.state = u.valOff, u.valLen, u.state
	}
	o.undo = o.undo[:0]
}
