package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// Limits of what a command may say and a Core may answer.
const (
	MaxLanes  = 1024     // lanes of a writer: Envelope.Lane is below it
	MaxResult = 64 << 10 // bytes in a result
)

// AppendCommand appends the command made of env and b to dst. The kind is the
// body's; a Version of 0 stands for the lowest that says all that env does.
func AppendCommand(dst []byte, env Envelope, b Body) []byte {
	if env.Version == 0 {
		env.Version = 1
		if !env.Origin.IsZero() {
			env.Version = 2
		}
	}
	dst = codec.AppendUint8(dst, env.Version)
	dst = codec.AppendUint8(dst, uint8(b.Kind()))
	dst = codec.AppendUvarint(dst, uint64(env.Writer))
	dst = codec.AppendUvarint(dst, uint64(env.Lane))
	dst = codec.AppendUvarint(dst, env.Seq)
	dst = codec.AppendUvarint(dst, uint64(env.LowWater))
	dst = codec.AppendVarint(dst, int64(env.Time))
	if env.Version >= 2 {
		dst = appendOrigin(dst, &env.Origin)
	}
	return b.AppendTo(dst)
}

// ParseCommand splits a command into its envelope and its body, which aliases
// cmd. The error is EVERSION (wrapped) for a command of a newer version and
// EINVAL for anything else.
func ParseCommand(cmd []byte) (Envelope, []byte, error) {
	d := codec.NewDec(cmd)
	env := Envelope{Version: d.Uint8()}
	if d.Err() == nil && env.Version > CommandVersion {
		return Envelope{}, nil, fmt.Errorf("fsm: command of version %d, this program knows up to %d: upgrade it: %w",
			env.Version, CommandVersion, cluster.EVERSION)
	}
	env.Kind = Kind(d.Uint8())
	env.Writer = cluster.WriterID(d.Uvarint32())
	env.Lane = d.Uvarint16()
	env.Seq = d.Uvarint()
	env.LowWater = d.Uvarint32()
	env.Time = cluster.Time(d.Varint())
	if env.Version >= 2 {
		decodeOrigin(&d, &env.Origin)
	}
	if d.Err() != nil || env.Version == 0 {
		return Envelope{}, nil, fmt.Errorf("fsm: malformed command of %d bytes: %w", len(cmd), cluster.EINVAL)
	}
	return env, d.Rest(), nil
}

// AppendResult appends a result's head, to which its body is appended: the
// error number in two bytes.
func AppendResult(dst []byte, e cluster.Errno) []byte {
	return binary.BigEndian.AppendUint16(dst, uint16(e))
}

// Result returns a new result of e and the bodies. A Core on a hot path appends
// to Tx.Result instead.
func Result(e cluster.Errno, body ...[]byte) []byte {
	n := 2
	for _, b := range body {
		n += len(b)
	}
	r := AppendResult(make([]byte, 0, n), e)
	for _, b := range body {
		r = append(r, b...)
	}
	return r
}

// SplitResult returns a result's body, which aliases it, and its error: nil or
// a cluster.Errno. An error result may have a body too.
func SplitResult(result []byte) (body []byte, err error) {
	e, body := splitResult(result)
	return body, e.Err()
}

func splitResult(result []byte) (cluster.Errno, []byte) {
	if len(result) < 2 {
		return cluster.EINTERNAL, nil
	}
	return cluster.Errno(binary.BigEndian.Uint16(result)), result[2:]
}
