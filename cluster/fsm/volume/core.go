package volume

import (
	"encoding/binary"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A handler runs one kind of command. It appends the encoded result to dst,
// which begins with room for the Errno, and returns it with OK; or with an
// error, to which a result may be appended too.
// The engine takes back what a command that fails has written.
type handler func(tx *fsm.Tx, env *fsm.Envelope, body, dst []byte) ([]byte, cluster.Errno)

// handlers has each kind's handler. It is filled by register at start.
var handlers [256]handler

// register makes h the handler of kind, before main.
func register(kind fsm.Kind, h handler) {
	if handlers[kind] != nil {
		panic("volume: two handlers for one kind of command")
	}
	handlers[kind] = h
}

// A decoder is a command that reads itself from d.
type decoder[C any] interface {
	*C
	decode(d *codec.Dec)
}

// command makes a handler of a function that gets the decoded command. A body
// that cannot be decoded is refused with EINVAL.
func command[C any, P decoder[C]](apply func(tx *fsm.Tx, env *fsm.Envelope, c P, dst []byte) ([]byte, cluster.Errno)) handler {
	return func(tx *fsm.Tx, env *fsm.Envelope, body, dst []byte) ([]byte, cluster.Errno) {
		c := P(new(C))
		d := codec.NewDec(body)
		c.decode(&d)
		if d.Done() != nil {
			return dst, cluster.EINVAL
		}
		return apply(tx, env, c, dst)
	}
}

// core implements fsm.Core.
type core struct{}

// New returns the core of a volume's state machine.
func New() fsm.Core { return core{} }

// Apply runs one command.
func (core) Apply(tx *fsm.Tx, _ uint64, env *fsm.Envelope, body []byte) []byte {
	dst := tx.Result(cluster.OK)
	h := handlers[env.Kind]
	if h == nil {
		// The envelope's version is known, so this is no newer command.
		return tx.Result(cluster.EINVAL)
	}
	out, errno := h(tx, env, body, dst)
	binary.BigEndian.PutUint16(out, uint16(errno))
	return out
}
