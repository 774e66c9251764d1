package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// appendStateBound appends what the keys of all states of ino begin with.
func appendStateBound(dst []byte, ino cluster.Ino) []byte {
	return codec.AppendUint64(append(dst, prefixState), uint64(ino))
}

func appendStateKey(dst []byte, ino cluster.Ino, other *StateID) []byte {
	return append(appendStateBound(dst, ino), other[:]...)
}

// The states of inode 0, which is none, are an index of all states by whose
// they are: client ino other.
func appendClientStates(dst []byte, client uint64) []byte {
	return codec.AppendUint64(appendStateBound(dst, 0), client)
}

func appendClientStateKey(dst []byte, client uint64, ino cluster.Ino, other *StateID) []byte {
	dst = codec.AppendUint64(appendClientStates(dst, client), uint64(ino))
	return append(dst, other[:]...)
}

func parseClientStateKey(key []byte) (client uint64, ino cluster.Ino, other StateID, ok bool) {
	d := codec.NewDec(key)
	d.Uint8()
	d.Uint64()
	client, ino = d.Uint64(), cluster.Ino(d.Uint64())
	copy(other[:], d.Fixed(len(other)))
	return client, ino, other, d.Done() == nil
}

// decodeStored decodes a stored state. Its Owner aliases val.
func decodeStored(key, val []byte) (ino cluster.Ino, s State, ok bool) {
	d := codec.NewDec(key)
	d.Uint8()
	ino = cluster.Ino(d.Uint64())
	copy(s.Other[:], d.Fixed(len(s.Other)))
	if d.Done() != nil {
		return ino, s, false
	}
	d = codec.NewDec(val)
	decodeStateBody(&d, &s)
	return ino, s, d.Done() == nil && s.valid()
}

// ascendStates calls fn for the states of ino by Other, until it returns
// false. Their Owner is valid during the call.
func ascendStates(r fsm.Reader, ino cluster.Ino, fn func(s *State) bool) {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	lower := appendStateBound(sc.key[:0], ino)
	upper := appendStateBound(sc.key[len(lower):len(lower)], ino+1)
	r.Ascend(lower, upper, func(key, val []byte) bool {
		_, s, ok := decodeStored(key, val)
		if !ok {
			damaged("a state of inode", uint64(ino))
		}
		return fn(&s)
	})
}

// hasStates reports whether a file has any state.
func hasStates(r fsm.Reader, ino cluster.Ino) (has bool) {
	ascendStates(r, ino, func(*State) bool {
		has = true
		return false
	})
	return has
}

// getState returns a state, without its Owner, and whether it is there.
func getState(r fsm.Reader, ino cluster.Ino, other *StateID) (State, bool) {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	key := appendStateKey(sc.key[:0], ino, other)
	val, ok := r.Get(sc.val[:0], key)
	sc.val = val[:0]
	if !ok {
		return State{}, false
	}
	_, s, ok := decodeStored(key, val)
	if !ok {
		damaged("a state of inode", uint64(ino))
	}
	s.Owner = nil
	return s, true
}

// putState stores a state that is not there, with its index key.
func putState(tx *fsm.Tx, ino cluster.Ino, s *State) {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	sc.val = appendStateBody(sc.val[:0], s)
	tx.Set(appendStateKey(sc.key[:0], ino, &s.Other), sc.val)
	tx.Set(appendClientStateKey(sc.key[:0], s.Client, ino, &s.Other), nil)
	if s.Deny != 0 {
		addDenying(tx, 1)
	}
}

// deleteState deletes a state that is there, and its index key.
func deleteState(tx *fsm.Tx, ino cluster.Ino, s *State) {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	tx.Delete(appendStateKey(sc.key[:0], ino, &s.Other))
	tx.Delete(appendClientStateKey(sc.key[:0], s.Client, ino, &s.Other))
	if s.Deny != 0 {
		addDenying(tx, -1)
	}
}

// loadDenying returns how many states of the volume deny something.
func loadDenying(r fsm.Reader) uint64 {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	val, ok := r.Get(sc.val[:0], appendStateBound(sc.key[:0], 0))
	sc.val = val[:0]
	if !ok {
		return 0
	}
	d := codec.NewDec(val)
	n := d.Uvarint()
	if d.Done() != nil {
		damaged("the number of states that deny something, near", n)
	}
	return n
}

func addDenying(tx *fsm.Tx, delta int64) {
	n := addClamped(loadDenying(tx), delta)
	key := appendStateBound(nil, 0)
	if n == 0 {
		tx.Delete(key)
		return
	}
	tx.Set(key, codec.AppendUvarint(nil, n))
}

// Denying reports whether any state of the volume denies anything.
func (v View) Denying() bool { return loadDenying(v.Reader) != 0 }

// States calls fn for each state of ino by Other, until it returns false.
// Owner is valid during the call.
func (v View) States(ino cluster.Ino, fn func(s *State) bool) { ascendStates(v.Reader, ino, fn) }

// ClientStates calls fn for each state of a client by file and Other, until it
// returns false. Owner is valid during the call.
func (v View) ClientStates(client uint64, fn func(ino cluster.Ino, s *State) bool) {
	lower := appendClientStates(nil, client)
	v.Ascend(lower, codec.AppendUpper(nil, lower), func(key, _ []byte) bool {
		_, ino, other, ok := parseClientStateKey(key)
		if !ok {
			damaged("the state index of client", client)
		}
		k := appendStateKey(nil, ino, &other)
		val, ok := v.Get(nil, k)
		if !ok {
			return true // dropped since
		}
		_, s, ok := decodeStored(k, val)
		if !ok {
			damaged("a state of inode", uint64(ino))
		}
		return fn(ino, &s)
	})
}

// HasClient reports whether a client has a lock or a state.
func (v View) HasClient(client uint64) (has bool) {
	for _, lower := range [...][]byte{appendClientLocks(nil, client), appendClientStates(nil, client)} {
		v.Ascend(lower, codec.AppendUpper(nil, lower), func(_, _ []byte) bool {
			has = true
			return false
		})
	}
	return has
}
