package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// maxOwner is the most bytes that State.Owner has (NFS4_OPAQUE_LIMIT).
const maxOwner = 1024

func appendState(dst []byte, s *State) []byte {
	dst = append(dst, s.Other[:]...)
	return appendStateBody(dst, s)
}

// appendStateBody appends all but what a stored state has in its key.
func appendStateBody(dst []byte, s *State) []byte {
	dst = append(dst, s.Kind, s.Access, s.Deny)
	dst = codec.AppendUint64(dst, s.Client)
	dst = codec.AppendBytes(dst, s.Owner)
	if s.Kind == StateLock {
		dst = append(dst, s.Digest[:]...)
	}
	return dst
}

// decodeState leaves Owner aliasing the command.
func decodeState(d *codec.Dec, s *State) {
	copy(s.Other[:], d.Fixed(len(s.Other)))
	decodeStateBody(d, s)
}

func decodeStateBody(d *codec.Dec, s *State) {
	s.Kind, s.Access, s.Deny = d.Uint8(), d.Uint8(), d.Uint8()
	s.Client = d.Uint64()
	s.Owner = d.Bytes(maxOwner)
	if s.Kind == StateLock {
		copy(s.Digest[:], d.Fixed(len(s.Digest)))
	}
}

// valid reports whether s can be meant.
func (s *State) valid() bool {
	return s.Kind <= StateCopy && s.Access&^3 == 0 && s.Deny&^3 == 0 && len(s.Owner) <= maxOwner
}

// Kind returns KindPutState.
func (PutState) Kind() fsm.Kind { return KindPutState }

// AppendTo appends the command's encoding to dst.
func (c PutState) AppendTo(dst []byte) []byte {
	return appendState(codec.AppendUvarint(dst, uint64(c.Ino)), &c.State)
}

func (c *PutState) decode(d *codec.Dec) {
	c.Ino = cluster.Ino(d.Uvarint())
	decodeState(d, &c.State)
}

// Kind returns KindPutStates.
func (PutStates) Kind() fsm.Kind { return KindPutStates }

// AppendTo appends the command's encoding to dst.
func (c PutStates) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(len(c.Files)))
	for i := range c.Files {
		f := &c.Files[i]
		dst = codec.AppendUvarint(dst, uint64(f.Ino))
		dst = codec.AppendUvarint(dst, uint64(len(f.States)))
		for j := range f.States {
			dst = appendState(dst, &f.States[j])
		}
	}
	return dst
}

func (c *PutStates) decode(d *codec.Dec) {
	c.Files = make([]FileStates, d.Count(2))
	for i := range c.Files {
		f := &c.Files[i]
		f.Ino = cluster.Ino(d.Uvarint())
		f.States = make([]State, d.Count(len(StateID{})))
		for j := range f.States {
			decodeState(d, &f.States[j])
		}
	}
}

// Kind returns KindDropStates.
func (DropStates) Kind() fsm.Kind { return KindDropStates }

// AppendTo appends the command's encoding to dst.
func (c DropStates) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(len(c.Refs)))
	for i := range c.Refs {
		dst = codec.AppendUvarint(dst, uint64(c.Refs[i].Ino))
		dst = append(dst, c.Refs[i].Other[:]...)
	}
	return dst
}

func (c *DropStates) decode(d *codec.Dec) {
	c.Refs = make([]StateRef, d.Count(1+len(StateID{})))
	for i := range c.Refs {
		c.Refs[i].Ino = cluster.Ino(d.Uvarint())
		copy(c.Refs[i].Other[:], d.Fixed(len(StateID{})))
	}
}

// AppendTo appends the result's encoding to dst.
func (r ReleaseClientResult) AppendTo(dst []byte) []byte { return codec.AppendBool(dst, r.More) }

// DecodeReleaseClientResult decodes the result of a ReleaseClient that did not fail.
func DecodeReleaseClientResult(body []byte) (ReleaseClientResult, error) {
	d := codec.NewDec(body)
	r := ReleaseClientResult{More: d.Bool()}
	return r, d.Done()
}
