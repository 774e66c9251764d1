package fsm

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/hawserfs/hawser/cluster"
)

// A Tx is what one command reads and writes: the committed state, under what
// the commands before it in the batch and the command itself have written. It
// belongs to the goroutine of Core.Apply and to that call.
//
// Keys of a Core begin with a letter from A to Z other than W, which is
// the engine's. A key or value given to a Tx is copied.
type Tx struct {
	db      *pebble.DB
	overlay overlay
	writers *writerTable
	index   uint64
	env     Envelope
	events  []any
	mark    int // events before the present command
	result  []byte
	keyBuf  []byte
	valBuf  []byte
	slotKey []byte // of the present command's origin
	slotOld []byte // its record before
	slotNew []byte
	live    []Writer
	iters   []*pebble.Iterator // of the present batch
	depth   int                // of them in use: Ascends nest
}

var _ Reader = (*Tx)(nil)

// Index returns the Raft index of the command's entry.
func (tx *Tx) Index() uint64 { return tx.index }

// Time returns when the proposer made the command.
func (tx *Tx) Time() cluster.Time { return tx.env.Time }

// Envelope returns the command's envelope.
func (tx *Tx) Envelope() *Envelope { return &tx.env }

// Emit gives event to the machine's subscribers once the batch is readable,
// unless the command fails.
func (tx *Tx) Emit(event any) { tx.events = append(tx.events, event) }

// Result returns a buffer that begins a result of e. The Core appends the body
// to it and returns it; it need not be kept, and is used again.
func (tx *Tx) Result(e cluster.Errno) []byte {
	return AppendResult(tx.result[:0], e)
}

// Writer returns a writer: fenced or live.
func (tx *Tx) Writer(id cluster.WriterID) (Writer, bool) {
	w := tx.writers.byID[id]
	if w == nil {
		return Writer{}, false
	}
	return w.Writer, true
}

// LiveWriters returns the writers that are not fenced, by id. The slice is
// valid until the next call.
func (tx *Tx) LiveWriters() []Writer {
	tx.live = tx.live[:0]
	for _, w := range tx.writers.list {
		if !w.Fenced {
			tx.live = append(tx.live, w.Writer)
		}
	}
	return tx.live
}

// Get implements Reader.
func (tx *Tx) Get(dst, key []byte) (value []byte, ok bool) {
	v, state := tx.overlay.get(key)
	switch state {
	case ovSet:
		return append(dst, v...), true
	case ovDeleted:
		return dst, false
	}
	return dbGet(tx.db, dst, key)
}

// Set writes value under key.
func (tx *Tx) Set(key, value []byte) {
	checkKey(key)
	tx.overlay.put(key, value, ovSet)
}

// Delete removes key, if it is there.
func (tx *Tx) Delete(key []byte) {
	checkKey(key)
	tx.overlay.put(key, nil, ovDeleted)
}

// DeleteRange removes the keys in [lower, upper), at most limit of them: the
// first ones. It returns how many, and whether there are more.
func (tx *Tx) DeleteRange(lower, upper []byte, limit int) (n int, more bool) {
	tx.Ascend(lower, upper, func(key, _ []byte) bool {
		if n == limit {
			more = true
			return false
		}
		tx.Delete(key)
		n++
		return true
	})
	return n, more
}

// checkKey panics for keys that are not a Core's: a bug in it, which fails the
// command on every replica alike.
func checkKey(key []byte) {
	if len(key) == 0 || key[0] < 'A' || key[0] > 'Z' || key[0] == writerPrefix {
		panic(fmt.Sprintf("fsm: key %q does not belong to the core", key))
	}
}

// Ascend implements Reader. fn may read and write: a key written ahead of the
// walk is met by it, one deleted ahead is not. A nil upper is no bound.
func (tx *Tx) Ascend(lower, upper []byte, fn func(key, value []byte) bool) {
	if upper != nil && bytes.Compare(lower, upper) >= 0 {
		return
	}
	it := tx.acquireIter(lower, upper)
	defer tx.releaseIter()
	o := &tx.overlay
	node, seen := o.seek(lower), o.inserts
	valid := it.First()
	for {
		over := node != 0 && (upper == nil || bytes.Compare(o.key(node), upper) < 0)
		under := valid
		if !over && !under {
			break
		}
		if over && under {
			switch c := bytes.Compare(o.key(node), it.Key()); {
			case c < 0:
				under = false
			case c > 0:
				over = false
			case o.nodes[node].state == ovAbsent:
				over = false
				node = o.nodes[node].next[0]
			}
		}
		var key []byte
		if over {
			key = o.key(node)
			if o.nodes[node].state == ovSet && !fn(key, o.value(node)) {
				return
			}
			node = o.nodes[node].next[0] // after fn: it may have written there
			seen = o.inserts
			if under {
				valid = it.Next()
			}
			continue
		}
		key = it.Key()
		value, err := it.ValueAndErr()
		if err != nil {
			panic(fatalError{err})
		}
		if !fn(key, value) {
			return
		}
		if seen != o.inserts {
			node, seen = o.seekAfter(key), o.inserts
		}
		valid = it.Next()
	}
	if err := it.Error(); err != nil {
		panic(fatalError{err})
	}
}

func (tx *Tx) acquireIter(lower, upper []byte) *pebble.Iterator {
	if tx.depth == len(tx.iters) {
		it, err := tx.db.NewIter(nil)
		if err != nil {
			panic(fatalError{err})
		}
		tx.iters = append(tx.iters, it)
	}
	it := tx.iters[tx.depth]
	tx.depth++
	it.SetBounds(lower, upper)
	return it
}

func (tx *Tx) releaseIter() { tx.depth-- }

// closeIters ends the batch's view of the committed state.
func (tx *Tx) closeIters() error {
	var err error
	for i, it := range tx.iters {
		if e := it.Close(); err == nil {
			err = e
		}
		tx.iters[i] = nil
	}
	tx.iters, tx.depth = tx.iters[:0], 0
	return err
}

// begin makes tx the transaction of a command.
func (tx *Tx) begin(index uint64, env *Envelope) {
	tx.index, tx.env = index, *env
	tx.overlay.savepoint()
	tx.mark = len(tx.events)
	tx.depth = 0
}

// rollback takes back the present command.
func (tx *Tx) rollback() {
	tx.overlay.rollback()
	clear(tx.events[tx.mark:])
	tx.events = tx.events[:tx.mark]
	tx.depth = 0
}
