package registry

import (
	"math"
	"net/netip"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// recordFormat is the first byte of every value.
const recordFormat = 1

// head is the value under C.
type head struct {
	Cluster
	nextStore  cluster.StoreID
	nextVolume cluster.VolumeID
	// nextIdentity and lead, the nonce of the last TakeLead, are not in records
	// that were written before there were identities.
	nextIdentity cluster.IdentityID
	lead         uint64
}

var (
	keyCluster   = []byte{'C'}
	keyRebalance = []byte{'B'}
)

func nodeKey(dst []byte, id cluster.NodeID) []byte { return append(append(dst, 'N'), id...) }

func storeKey(dst []byte, id cluster.StoreID) []byte {
	return codec.AppendUint32(append(dst, 'S'), uint32(id))
}

func uuidKey(dst []byte, id *UUID) []byte { return append(append(dst, 'U'), id[:]...) }

func volumeKey(dst []byte, id cluster.VolumeID) []byte {
	return codec.AppendUint32(append(dst, 'V'), uint32(id))
}

func nameKey(dst []byte, name string) []byte { return append(append(dst, 'M'), name...) }

func identityKey(dst []byte, id cluster.IdentityID) []byte {
	return codec.AppendUint16(append(dst, 'I'), uint16(id))
}

// ownKey leads to the identity of a node's own addresses.
func ownKey(dst []byte, node cluster.NodeID) []byte { return append(append(dst, 'O'), node...) }

func clientPrefix(dst []byte, id cluster.IdentityID) []byte {
	return codec.AppendUint16(append(dst, 'T'), uint16(id))
}

func clientKey(dst []byte, id cluster.IdentityID, client uint64) []byte {
	return codec.AppendUint64(clientPrefix(dst, id), client)
}

// countKey is where an identity's client records are counted.
func countKey(dst []byte, id cluster.IdentityID) []byte {
	return codec.AppendUint16(append(dst, 'Q'), uint16(id))
}

func appendHead(dst []byte, h *head) []byte {
	dst = append(dst, recordFormat)
	dst = append(dst, h.UUID[:]...)
	dst = codec.AppendString(dst, h.Name)
	dst = append(dst, h.Key[:]...)
	dst = codec.AppendVarint(dst, int64(h.Created))
	dst = codec.AppendUvarint(dst, uint64(h.nextStore))
	dst = codec.AppendUvarint(dst, uint64(h.nextVolume))
	dst = codec.AppendUint16(dst, uint16(h.nextIdentity))
	return codec.AppendUint64(dst, h.lead)
}

func decodeHead(value []byte) (head, bool) {
	d := codec.NewDec(value)
	format := d.Uint8()
	var h head
	copy(h.UUID[:], d.Fixed(len(h.UUID)))
	h.Name = d.String(MaxAddr)
	copy(h.Key[:], d.Fixed(len(h.Key)))
	h.Created = cluster.Time(d.Varint())
	h.nextStore = cluster.StoreID(d.Uvarint32())
	h.nextVolume = cluster.VolumeID(d.Uvarint32())
	if d.Len() == 0 {
		h.nextIdentity = 1
	} else {
		h.nextIdentity = cluster.IdentityID(d.Uint16())
		h.lead = d.Uint64()
	}
	return h, format == recordFormat && d.Done() == nil
}

func appendNode(dst []byte, n *Node) []byte {
	dst = append(dst, recordFormat)
	dst = codec.AppendString(dst, string(n.ID))
	dst = codec.AppendString(dst, n.PeerAddr)
	dst = codec.AppendString(dst, n.NFSAddr)
	dst = codec.AppendUint8(dst, uint8(n.Roles))
	dst = codec.AppendString(dst, n.Rack)
	dst = codec.AppendUint8(dst, uint8(n.State))
	dst = codec.AppendVarint(dst, int64(n.Since))
	dst = codec.AppendVarint(dst, int64(n.Joined))
	dst = append(dst, n.Incarnation[:]...)
	dst = codec.AppendUint8(dst, 0) // once a number of clients
	return codec.AppendBool(dst, n.Draining)
}

func decodeNode(value []byte) (Node, bool) {
	d := codec.NewDec(value)
	format := d.Uint8()
	n := Node{ID: cluster.NodeID(d.String(MaxNodeName))}
	n.PeerAddr = d.String(MaxAddr)
	n.NFSAddr = d.String(MaxAddr)
	n.Roles = Roles(d.Uint8())
	n.Rack = d.String(MaxAddr)
	n.State = NodeState(d.Uint8())
	n.Since = cluster.Time(d.Varint())
	n.Joined = cluster.Time(d.Varint())
	copy(n.Incarnation[:], d.Fixed(len(n.Incarnation)))
	d.Uvarint32()
	if d.Len() > 0 {
		n.Draining = d.Bool()
	}
	return n, format == recordFormat && d.Done() == nil
}

func appendStore(dst []byte, s *Store) []byte {
	dst = append(dst, recordFormat)
	dst = codec.AppendUvarint(dst, uint64(s.ID))
	dst = append(dst, s.UUID[:]...)
	dst = codec.AppendString(dst, string(s.Node))
	dst = codec.AppendUvarint(dst, s.Capacity)
	dst = codec.AppendUvarint(dst, s.Used)
	dst = codec.AppendUint8(dst, uint8(s.State))
	dst = codec.AppendVarint(dst, int64(s.Since))
	return codec.AppendBool(dst, s.Draining)
}

func decodeStore(value []byte) (Store, bool) {
	d := codec.NewDec(value)
	format := d.Uint8()
	s := Store{ID: cluster.StoreID(d.Uvarint32())}
	copy(s.UUID[:], d.Fixed(len(s.UUID)))
	s.Node = cluster.NodeID(d.String(MaxNodeName))
	s.Capacity = d.Uvarint()
	s.Used = d.Uvarint()
	s.State = StoreState(d.Uint8())
	if d.Len() > 0 {
		s.Since = cluster.Time(d.Varint())
		s.Draining = d.Bool()
	}
	return s, format == recordFormat && d.Done() == nil
}

func appendVolume(dst []byte, v *Volume) []byte {
	dst = append(dst, recordFormat)
	dst = codec.AppendUvarint(dst, uint64(v.ID))
	dst = codec.AppendString(dst, v.Name)
	dst = codec.AppendUint64(dst, v.FSID.Major)
	dst = codec.AppendUint64(dst, v.FSID.Minor)
	dst = appendClass(dst, v.Class)
	dst = codec.AppendVarint(dst, int64(v.Created))
	return appendNodes(dst, v.Voters)
}

func decodeVolume(value []byte) (Volume, bool) {
	d := codec.NewDec(value)
	format := d.Uint8()
	v := Volume{ID: cluster.VolumeID(d.Uvarint32())}
	v.Name = d.String(MaxVolumeName)
	v.FSID.Major = d.Uint64()
	v.FSID.Minor = d.Uint64()
	v.Class = readClass(&d)
	v.Created = cluster.Time(d.Varint())
	v.Voters = readNodes(&d)
	return v, format == recordFormat && d.Done() == nil
}

func appendClass(dst []byte, c cluster.Class) []byte {
	if c.Code.IsZero() {
		return append(dst, uint8(c.Consistency)&^hasCode, c.Copies)
	}
	return append(dst, uint8(c.Consistency)|hasCode, c.Copies, c.Code.K, c.Code.M)
}

func readClass(d *codec.Dec) cluster.Class {
	flags := d.Uint8()
	c := cluster.Class{Consistency: cluster.Consistency(flags &^ hasCode), Copies: d.Uint8()}
	if flags&hasCode != 0 {
		if c.Code = (cluster.Code{K: d.Uint8(), M: d.Uint8()}); c.Code.IsZero() {
			d.Fail()
		}
	}
	return c
}

// hasCode says in the byte of a class's consistency that a code follows.
const hasCode = 0x80

func appendNodes(dst []byte, ids []cluster.NodeID) []byte {
	dst = codec.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = codec.AppendString(dst, string(id))
	}
	return dst
}

func readNodes(d *codec.Dec) []cluster.NodeID {
	n := d.Count(1)
	if n > math.MaxUint8 {
		d.Fail()
		return nil
	}
	ids := make([]cluster.NodeID, 0, n)
	for range n {
		ids = append(ids, cluster.NodeID(d.String(MaxNodeName)))
	}
	return ids
}

func appendIdentity(dst []byte, i *Identity) []byte {
	dst = append(dst, recordFormat)
	dst = codec.AppendUint16(dst, uint16(i.ID))
	dst = appendPrefix(dst, i.Addr)
	dst = codec.AppendString(dst, i.Group)
	dst = codec.AppendString(dst, string(i.Home))
	dst = codec.AppendString(dst, string(i.Node))
	dst = codec.AppendUint32(dst, i.Epoch)
	dst = appendNodes(dst, i.Fence)
	dst = codec.AppendBool(dst, i.Serving)
	dst = codec.AppendBool(dst, i.Retired)
	return codec.AppendVarint(dst, int64(i.Since))
}

func decodeIdentity(value []byte) (Identity, bool) {
	d := codec.NewDec(value)
	format := d.Uint8()
	i := Identity{ID: cluster.IdentityID(d.Uint16())}
	i.Addr = readPrefix(&d)
	i.Group = d.String(MaxNodeName)
	i.Home = cluster.NodeID(d.String(MaxNodeName))
	i.Node = cluster.NodeID(d.String(MaxNodeName))
	i.Epoch = d.Uint32()
	i.Fence = readNodes(&d)
	i.Serving = d.Bool()
	i.Retired = d.Bool()
	i.Since = cluster.Time(d.Varint())
	return i, format == recordFormat && d.Done() == nil
}

// appendPrefix writes an address and its prefix's length; no bytes for none.
func appendPrefix(dst []byte, p netip.Prefix) []byte {
	if !p.IsValid() {
		return codec.AppendBytes(dst, nil)
	}
	dst = codec.AppendBytes(dst, p.Addr().AsSlice())
	return codec.AppendUint8(dst, uint8(p.Bits()))
}

func readPrefix(d *codec.Dec) netip.Prefix {
	b := d.Bytes(16)
	if len(b) == 0 {
		return netip.Prefix{}
	}
	a, ok := netip.AddrFromSlice(b)
	p := netip.PrefixFrom(a, int(d.Uint8()))
	if !ok || !p.IsValid() {
		d.Fail()
		return netip.Prefix{}
	}
	return p
}

func appendCount(dst []byte, n clientCount) []byte {
	return codec.AppendUint64(codec.AppendUint32(dst, n.records), n.bytes)
}

func decodeCount(value []byte) (clientCount, bool) {
	d := codec.NewDec(value)
	n := clientCount{records: d.Uint32(), bytes: d.Uint64()}
	return n, d.Done() == nil
}
