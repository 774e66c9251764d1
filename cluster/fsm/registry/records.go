package registry

import (
	"math"

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
}

var keyCluster = []byte{'C'}

func nodeKey(dst []byte, id cluster.NodeID) []byte { return append(append(dst, 'N'), id...) }

func storeKey(dst []byte, id cluster.StoreID) []byte {
	return codec.AppendUint32(append(dst, 'S'), uint32(id))
}

func uuidKey(dst []byte, id *UUID) []byte { return append(append(dst, 'U'), id[:]...) }

func volumeKey(dst []byte, id cluster.VolumeID) []byte {
	return codec.AppendUint32(append(dst, 'V'), uint32(id))
}

func nameKey(dst []byte, name string) []byte { return append(append(dst, 'M'), name...) }

// clientPrefix ends in a byte that a node's name does not have.
func clientPrefix(dst []byte, node cluster.NodeID) []byte {
	return append(append(append(dst, 'K'), node...), 0)
}

func appendHead(dst []byte, h *head) []byte {
	dst = append(dst, recordFormat)
	dst = append(dst, h.UUID[:]...)
	dst = codec.AppendString(dst, h.Name)
	dst = append(dst, h.Key[:]...)
	dst = codec.AppendVarint(dst, int64(h.Created))
	dst = codec.AppendUvarint(dst, uint64(h.nextStore))
	return codec.AppendUvarint(dst, uint64(h.nextVolume))
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
	return codec.AppendUvarint(dst, uint64(n.clients))
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
	n.clients = d.Uvarint32()
	return n, format == recordFormat && d.Done() == nil
}

func appendStore(dst []byte, s *Store) []byte {
	dst = append(dst, recordFormat)
	dst = codec.AppendUvarint(dst, uint64(s.ID))
	dst = append(dst, s.UUID[:]...)
	dst = codec.AppendString(dst, string(s.Node))
	dst = codec.AppendUvarint(dst, s.Capacity)
	dst = codec.AppendUvarint(dst, s.Used)
	return codec.AppendUint8(dst, uint8(s.State))
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
	return codec.AppendUint8(codec.AppendUint8(dst, uint8(c.Consistency)), c.Copies)
}

func readClass(d *codec.Dec) cluster.Class {
	return cluster.Class{Consistency: cluster.Consistency(d.Uint8()), Copies: d.Uint8()}
}

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
