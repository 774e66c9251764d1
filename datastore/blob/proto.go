package blob

import (
	"encoding/binary"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/datastore/segment"
)

// The operations. Numbers travel: append only.
const (
	opPut byte = iota + 1
	opGet
	opDelete
	opList
	opStat
	opUsage
	opPull
	opDeleteMoved
)

// protoVersion is the first byte of a request's head.
const protoVersion = 1

// Limits of one request.
const (
	MaxList   = 8192              // blobs in a List
	MaxDelete = segment.MaxDelete // blobs in a Delete
)

// A head is the fixed part of each request, big-endian.
type head struct {
	op     byte
	store  cluster.StoreID
	blob   cluster.BlobID
	shard  uint8
	set    cluster.ReplicaSetID // put, pull
	epoch  uint32               // put, pull
	off, n uint32               // get: the range; put: n is the length; list, delete: n is the count; pull: crc32c and length
}

const headLen = 35

func (h *head) append(dst []byte) []byte {
	dst = append(dst, protoVersion, h.op)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.store))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.blob))
	dst = append(dst, h.shard)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.set))
	dst = binary.BigEndian.AppendUint32(dst, h.epoch)
	dst = binary.BigEndian.AppendUint32(dst, h.off)
	dst = binary.BigEndian.AppendUint32(dst, h.n)
	return append(dst, 0, 0, 0, 0)
}

func parseHead(b []byte) (h head, err error) {
	if len(b) != headLen {
		return h, cluster.EINVAL
	}
	if b[0] != protoVersion {
		return h, cluster.EVERSION
	}
	return head{
		op:    b[1],
		store: cluster.StoreID(binary.BigEndian.Uint32(b[2:])),
		blob:  cluster.BlobID(binary.BigEndian.Uint64(b[6:])),
		shard: b[14],
		set:   cluster.ReplicaSetID(binary.BigEndian.Uint32(b[15:])),
		epoch: binary.BigEndian.Uint32(b[19:]),
		off:   binary.BigEndian.Uint32(b[23:]),
		n:     binary.BigEndian.Uint32(b[27:]),
	}, nil
}

// A get's reply has a head of off and length; put's and usage's replies have
// the store's usage; stat's and list's have infos; pull's has a byte that is 1 if
// the blob was copied, and the usage.

func appendUsage(dst []byte, u segment.Usage) []byte {
	dst = binary.BigEndian.AppendUint64(dst, u.Capacity)
	dst = binary.BigEndian.AppendUint64(dst, u.Used)
	dst = binary.BigEndian.AppendUint64(dst, u.Free)
	return binary.BigEndian.AppendUint64(dst, u.Blobs)
}

func parseUsage(b []byte) (u segment.Usage, err error) {
	if len(b) != 32 {
		return u, cluster.EINVAL
	}
	return segment.Usage{
		Capacity: binary.BigEndian.Uint64(b),
		Used:     binary.BigEndian.Uint64(b[8:]),
		Free:     binary.BigEndian.Uint64(b[16:]),
		Blobs:    binary.BigEndian.Uint64(b[24:]),
	}, nil
}

const infoLen = 25

func appendInfo(dst []byte, i *segment.Info) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(i.Key.Blob))
	dst = append(dst, i.Key.Shard)
	dst = binary.BigEndian.AppendUint32(dst, uint32(i.Meta.Set))
	dst = binary.BigEndian.AppendUint32(dst, i.Meta.Epoch)
	dst = binary.BigEndian.AppendUint32(dst, i.Len)
	return binary.BigEndian.AppendUint32(dst, i.CRC)
}

func parseInfo(b []byte, g cluster.GroupID) segment.Info {
	return segment.Info{
		Key: cluster.BlobKey{
			Group: g,
			Blob:  cluster.BlobID(binary.BigEndian.Uint64(b)),
			Shard: b[8],
		},
		Meta: segment.Meta{
			Set:   cluster.ReplicaSetID(binary.BigEndian.Uint32(b[9:])),
			Epoch: binary.BigEndian.Uint32(b[13:]),
		},
		Len: binary.BigEndian.Uint32(b[17:]),
		CRC: binary.BigEndian.Uint32(b[21:]),
	}
}

const keyLen = 9

func appendKey(dst []byte, k cluster.BlobKey) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(k.Blob))
	return append(dst, k.Shard)
}

func parseKey(b []byte, g cluster.GroupID) cluster.BlobKey {
	return cluster.BlobKey{Group: g, Blob: cluster.BlobID(binary.BigEndian.Uint64(b)), Shard: b[8]}
}
