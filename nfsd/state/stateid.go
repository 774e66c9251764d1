package state

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/hawserfs/hawser/nfsd/proto"
	"github.com/hawserfs/hawser/nfsd/xdr"
	"github.com/hawserfs/hawser/vfs"
)

// A Stateid is a stateid4 (RFC 8881 §8.2). Other is made so that whoever serves
// the client next can tell what it stands for:
//
//	kind 4 bits | share access 4 bits | client slot 2 bytes | nonce 3 | owner hash 3 | MAC 3
//
// The nonce is made of the request that it was made for, so that the same request,
// executed again elsewhere, gives the same stateid.
type Stateid struct {
	Seq   uint32
	Other vfs.StateID
}

// A Kind says what a stateid is of.
type Kind uint8

// The kinds, with KindDelegation. 4, and those from 6 on, are not this package's.
const (
	KindOpen Kind = 1
	KindLock Kind = 2
	// KindCreate is an open that was recorded together with the creation of its
	// file, whose number was not known before: the MAC is without the file, so it
	// counts only while its record is there.
	KindCreate Kind = 3
)

// The special stateids (RFC 8881 §8.2.3).
var (
	Anonymous = Stateid{}
	Bypass    = Stateid{Seq: ^uint32(0), Other: allOnes}
	Current   = Stateid{Seq: 1}
	Invalid   = Stateid{Seq: ^uint32(0)}

	allOnes = vfs.StateID{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}
)

// Unknown says that a taken-over client's stateid stands for nothing that is
// known here yet: Learn of the file, and ask again. It is never sent.
const Unknown = proto.Status(1<<32 - 2)

// Special reports whether s stands for no state: Anonymous or Bypass.
func (s Stateid) Special() bool { return s == Anonymous || s == Bypass }

// Kind returns what s is of.
func (s Stateid) Kind() Kind { return Kind(s.Other[0] >> 4) }

// DecodeStateid takes a stateid4.
func DecodeStateid(d *xdr.Decoder) Stateid {
	s := Stateid{Seq: d.Uint32()}
	copy(s.Other[:], d.FixedOpaque(len(s.Other)))
	return s
}

// Encode appends a stateid4.
func (s Stateid) Encode(e *xdr.Encoder) {
	e.Uint32(s.Seq)
	e.FixedOpaque(s.Other[:])
}

const (
	slotAt  = 1
	nonceAt = 3
	ownerAt = 6
	macAt   = 9
)

func otherAccess(o vfs.StateID) uint32 { return uint32(o[0] & 3) }
func otherSlot(o vfs.StateID) uint16   { return binary.BigEndian.Uint16(o[slotAt:]) }

// keyed returns the first three bytes of a hash of b under the key.
func (m *Manager) keyed(domain byte, client uint64, b ...[]byte) (v [3]byte) {
	var room [160]byte
	buf := append(append(room[:0], m.cfg.Key[:]...), domain)
	buf = binary.BigEndian.AppendUint64(buf, client)
	for _, p := range b {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(p)))
		buf = append(buf, p...)
	}
	sum := sha256.Sum256(buf)
	copy(v[:], sum[:])
	return v
}

// mac returns the MAC of an "other" whose first bytes are there.
func (m *Manager) mac(c *Client, o *vfs.StateID, f vfs.File) [3]byte {
	var b [16]byte
	binary.BigEndian.PutUint32(b[:], uint32(f.Volume))
	binary.BigEndian.PutUint64(b[4:], uint64(f.Ino))
	binary.BigEndian.PutUint32(b[12:], f.Gen)
	return m.keyed('m', c.ID, b[:], o[:macAt])
}

// genuine reports whether o was given to c for f by a front-end of this cluster.
func (m *Manager) genuine(c *Client, o vfs.StateID, f vfs.File) bool {
	if Kind(o[0]>>4) == KindCreate {
		f = vfs.File{}
	}
	mac := m.mac(c, &o, f)
	return otherSlot(o) == c.Slot && [3]byte(o[macAt:]) == mac
}

// Genuine reports whether sid was once given to c for f, whatever has become of it.
func (m *Manager) Genuine(c *Client, sid Stateid, f vfs.File) bool {
	return m.genuine(c, sid.Other, f)
}

// NewOther makes the "other" of a new state of c: of kind and access, for an
// owner. salt names the request and the operation. For KindCreate f is not used.
func (m *Manager) NewOther(c *Client, kind Kind, access uint32, owner []byte, f vfs.File, salt []byte) vfs.StateID {
	if kind == KindCreate {
		f = vfs.File{}
	}
	var o vfs.StateID
	o[0] = byte(kind)<<4 | byte(access&proto.ShareAccessBoth)
	binary.BigEndian.PutUint16(o[slotAt:], c.Slot)
	h := m.ownerHash(c, owner, 0)
	copy(o[ownerAt:], h[:])
	for try := byte(0); ; try++ {
		nonce := m.keyed('n', c.ID, salt, owner, []byte{try})
		copy(o[nonceAt:], nonce[:])
		mac := m.mac(c, &o, f)
		copy(o[macAt:], mac[:])
		// Two of 2^48 can be equal. The same request again makes the same.
		if h := m.table.get(o); h == nil || try == 255 || h.client == c && (h.file == f || kind == KindCreate) {
			return o
		}
	}
}

func (m *Manager) ownerHash(c *Client, owner []byte, try byte) [3]byte {
	return m.keyed('o', c.ID, owner, []byte{try})
}
