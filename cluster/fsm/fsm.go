// Package fsm is the engine of Hawser's replicated state machines: it keeps a
// state machine's keys in Pebble, applies commands exactly once and whole or
// not at all, and makes checkpoints. What the commands mean is said by a Core:
// package registry for the cluster's group, package volume for a volume's.
//
// A Core is deterministic: no clock, random source, configuration or map order
// may reach a result or a key. Times and random numbers come in the command.
package fsm

import "github.com/hawserfs/hawser/cluster"

// A Kind says what a command does. Kinds below FirstCoreKind are the engine's.
// Numbers are stored in logs and are never reused.
type Kind uint8

// The engine's own commands. They carry no writer and may be applied twice.
const (
	KindOpenWriter   Kind = 1 // makes a writer and fences the node's earlier ones
	KindFenceWriter  Kind = 2 // fences a writer
	KindDropSessions Kind = 3 // forgets the results stored for sessions
	FirstCoreKind    Kind = 16
)

// CommandVersion is the newest command format that this program knows. A
// command with a higher version is refused with EVERSION by every replica.
// Version 2 has an Origin; commands without one are written as version 1.
const CommandVersion = 2

// An Envelope is the head of every command.
type Envelope struct {
	Version uint8
	Kind    Kind
	// Writer, Lane and Seq make the command exactly-once: a lane has one
	// command under way at a time, with a Seq one above the last; the same Seq
	// again gets the first result. Writer 0 is not de-duplicated.
	Writer cluster.WriterID
	Lane   uint16
	Seq    uint64
	// LowWater says that each of the writer's blob counters below it is
	// final: committed, or abandoned for ever.
	LowWater uint32
	// Time is when the proposer made the command.
	Time cluster.Time
	// Origin makes the command exactly-once for the client: it is of a
	// request that may have been executed by another writer. Zero: none.
	Origin Origin
}

// A Body is a command without its envelope.
type Body interface {
	Kind() Kind
	// AppendTo appends the body's encoding to dst.
	AppendTo(dst []byte) []byte
}

// A Writer is one incarnation of a front-end in this group.
type Writer struct {
	ID       cluster.WriterID
	Node     cluster.NodeID
	Nonce    uint64 // chosen by the front-end, so that OpenWriter may be repeated
	Fenced   bool
	LowWater uint32
	Opened   cluster.Time
	FencedAt cluster.Time // 0: not fenced, or before this was recorded
}

// A Reader reads a state machine's keys. Tx reads what the commands before it
// in the same batch have written, a Machine's reader what is applied.
type Reader interface {
	// Get appends the value of key to dst, and reports whether there is one.
	Get(dst, key []byte) (value []byte, ok bool)
	// Ascend calls fn for each key in [lower, upper) in order until it returns
	// false. key and value are valid during the call only.
	Ascend(lower, upper []byte, fn func(key, value []byte) bool)
}

// A Core gives commands their meaning.
type Core interface {
	// Apply runs one command of entry index in tx and returns its result, the
	// first two bytes of which are a big-endian Errno. If that is not OK, the
	// engine takes back what the command wrote. The result is the engine's.
	Apply(tx *Tx, index uint64, env *Envelope, body []byte) (result []byte)
}
