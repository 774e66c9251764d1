package registry

import (
	"bytes"
	"encoding/binary"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A View reads the registry through a Reader. Each call decodes records: who
// asks for every request keeps what it needs and follows the events.
type View struct{ fsm.Reader }

// Cluster returns the cluster's identity, once InitCluster has been applied.
func (v View) Cluster() (Cluster, bool) {
	h, ok := loadHead(v.Reader)
	return h.Cluster, ok
}

// Node returns a node, also one that was removed.
func (v View) Node(id cluster.NodeID) (Node, bool) {
	value, ok := v.Get(nil, nodeKey(nil, id))
	if !ok {
		return Node{}, false
	}
	return decodeNode(value)
}

// Nodes returns all nodes by name, those too that were removed.
func (v View) Nodes() []Node {
	return list(v, 'N', decodeNode)
}

// Store returns a store.
func (v View) Store(id cluster.StoreID) (Store, bool) {
	value, ok := v.Get(nil, storeKey(nil, id))
	if !ok {
		return Store{}, false
	}
	return decodeStore(value)
}

// StoreByUUID returns the store that has the UUID.
func (v View) StoreByUUID(id UUID) (Store, bool) {
	value, ok := v.Get(nil, uuidKey(nil, &id))
	if !ok || len(value) != 4 {
		return Store{}, false
	}
	return v.Store(cluster.StoreID(binary.BigEndian.Uint32(value)))
}

// Stores returns all stores by number.
func (v View) Stores() []Store {
	return list(v, 'S', decodeStore)
}

// Volume returns a volume.
func (v View) Volume(id cluster.VolumeID) (Volume, bool) {
	value, ok := v.Get(nil, volumeKey(nil, id))
	if !ok {
		return Volume{}, false
	}
	return decodeVolume(value)
}

// VolumeByName returns the volume that has the name.
func (v View) VolumeByName(name string) (Volume, bool) {
	value, ok := v.Get(nil, nameKey(nil, name))
	if !ok || len(value) != 4 {
		return Volume{}, false
	}
	return v.Volume(cluster.VolumeID(binary.BigEndian.Uint32(value)))
}

// Volumes returns all volumes by number.
func (v View) Volumes() []Volume {
	return list(v, 'V', decodeVolume)
}

// Identity returns an identity.
func (v View) Identity(id cluster.IdentityID) (Identity, bool) {
	value, ok := v.Get(nil, identityKey(nil, id))
	if !ok {
		return Identity{}, false
	}
	return decodeIdentity(value)
}

// OwnIdentity returns the identity of a node's own addresses.
func (v View) OwnIdentity(node cluster.NodeID) (Identity, bool) {
	value, ok := v.Get(nil, ownKey(nil, node))
	if !ok || len(value) != 2 {
		return Identity{}, false
	}
	return v.Identity(cluster.IdentityID(binary.BigEndian.Uint16(value)))
}

// Identities returns all identities by number.
func (v View) Identities() []Identity {
	return list(v, 'I', decodeIdentity)
}

// Clients returns the client records of an identity, by id.
func (v View) Clients(id cluster.IdentityID) []ClientRecord {
	var records []ClientRecord
	prefix := clientPrefix(nil, id)
	v.Ascend(prefix, codec.AppendUpper(nil, prefix), func(key, value []byte) bool {
		if len(key) == len(prefix)+8 && len(value) > 0 {
			records = append(records, ClientRecord{ID: binary.BigEndian.Uint64(key[len(prefix):]), Record: bytes.Clone(value[1:])})
		}
		return true
	})
	return records
}

// HasClients reports whether an identity has client records.
func (v View) HasClients(id cluster.IdentityID) bool { return v.ClientCount(id) > 0 }

// ClientCount returns how many client records an identity has.
func (v View) ClientCount(id cluster.IdentityID) int { return int(loadCount(v.Reader, id).records) }

func list[T any](v View, prefix byte, decode func([]byte) (T, bool)) []T {
	var all []T
	v.Ascend([]byte{prefix}, []byte{prefix + 1}, func(_, value []byte) bool {
		if t, ok := decode(value); ok {
			all = append(all, t)
		}
		return true
	})
	return all
}
