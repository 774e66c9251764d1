package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A BlobKind says how a blob lies on its replica set.
type BlobKind uint8

// Copies is a full copy on every member. Numbers are stored: append only.
const Copies BlobKind = 1

// A Blob is a blob that extents refer to.
type Blob struct {
	ID   cluster.BlobID
	Kind BlobKind
	Set  cluster.ReplicaSetID
	Len  uint32
	CRC  uint32 // crc32c of the whole
	Refs uint32 // extents that refer to it: never 0
}

func appendBlob(dst []byte, b *Blob) []byte {
	dst = codec.AppendUint32(append(dst, uint8(b.Kind)), uint32(b.Set))
	dst = codec.AppendUint32(codec.AppendUint32(dst, b.Len), b.CRC)
	return codec.AppendUint32(dst, b.Refs)
}

func decodeBlob(id cluster.BlobID, val []byte) (Blob, bool) {
	d := codec.NewDec(val)
	b := Blob{
		ID: id, Kind: BlobKind(d.Uint8()), Set: cluster.ReplicaSetID(d.Uint32()),
		Len: d.Uint32(), CRC: d.Uint32(), Refs: d.Uint32(),
	}
	return b, d.Done() == nil
}

// loadBlob returns the record of a blob, and whether there is one.
func loadBlob(r fsm.Reader, id cluster.BlobID) (Blob, bool) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendBlobKey(s.key[:0], id))
	if !ok {
		return Blob{}, false
	}
	s.val = val[:0]
	b, ok := decodeBlob(id, val)
	if !ok {
		damaged("blob", uint64(id))
	}
	return b, true
}

func storeBlob(tx *fsm.Tx, b *Blob) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = appendBlob(s.val[:0], b)
	tx.Set(appendBlobKey(s.key[:0], b.ID), s.val)
}

// A garbage record: when a blob's last reference went.
type garbage struct {
	Index uint64
	Time  cluster.Time
}

func appendGarbage(dst []byte, g garbage) []byte {
	return codec.AppendVarint(codec.AppendUvarint(dst, g.Index), int64(g.Time))
}

func decodeGarbage(val []byte) (garbage, bool) {
	d := codec.NewDec(val)
	g := garbage{Index: d.Uvarint(), Time: cluster.Time(d.Varint())}
	return g, d.Done() == nil
}

// has reports whether there is a key of a set's blob.
func hasSetBlob(r fsm.Reader, prefix byte, set cluster.ReplicaSetID, id cluster.BlobID) bool {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	val, ok := r.Get(s.val[:0], appendSetBlobKey(s.key[:0], prefix, set, id))
	s.val = val[:0]
	return ok
}

// setBlob and deleteSetBlob write a key of a set's blob.
func setBlob(tx *fsm.Tx, prefix byte, set cluster.ReplicaSetID, id cluster.BlobID, val []byte) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Set(appendSetBlobKey(s.key[:0], prefix, set, id), val)
}

func deleteSetBlob(tx *fsm.Tx, prefix byte, set cluster.ReplicaSetID, id cluster.BlobID) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Delete(appendSetBlobKey(s.key[:0], prefix, set, id))
}

// discard puts a blob into the delete queue of its set.
func discard(tx *fsm.Tx, set cluster.ReplicaSetID, id cluster.BlobID) {
	var buf [20]byte
	setBlob(tx, prefixGarbage, set, id, appendGarbage(buf[:0], garbage{tx.Index(), tx.Time()}))
}

// A ledger collects what a command does to the references of blobs, so that
// each blob's record is read and written once, and a reference that moves
// from one extent to another is never taken for the last one.
type ledger struct {
	tx      *fsm.Tx
	entries []ledgerEntry
	byID    map[cluster.BlobID]int // of entries, once there are many
	first   [8]ledgerEntry
}

type ledgerEntry struct {
	id    cluster.BlobID
	delta int64
	fresh *NewBlob // made by this command
}

// manyEntries is from where on a map is faster than looking through the list.
const manyEntries = 16

func (l *ledger) begin(tx *fsm.Tx) {
	l.tx = tx
	l.entries = l.first[:0]
}

// find returns the entry of a blob, or -1.
func (l *ledger) find(id cluster.BlobID) int {
	if l.byID != nil {
		if i, ok := l.byID[id]; ok {
			return i
		}
		return -1
	}
	for i := range l.entries {
		if l.entries[i].id == id {
			return i
		}
	}
	return -1
}

func (l *ledger) append(e ledgerEntry) {
	l.entries = append(l.entries, e)
	if n := len(l.entries); l.byID != nil {
		l.byID[e.id] = n - 1
	} else if n == manyEntries {
		l.byID = make(map[cluster.BlobID]int, 4*manyEntries)
		for i := range l.entries {
			l.byID[l.entries[i].id] = i
		}
	}
}

// add notes delta references more to a blob.
func (l *ledger) add(id cluster.BlobID, delta int64) {
	if delta == 0 {
		return
	}
	if i := l.find(id); i >= 0 {
		l.entries[i].delta += delta
		return
	}
	l.append(ledgerEntry{id: id, delta: delta})
}

// settle writes what was noted: a blob without references goes from the blobs
// to the delete queue. A count that does not add up fails the command.
func (l *ledger) settle() cluster.Errno {
	for i := range l.entries {
		e := &l.entries[i]
		if e.fresh != nil {
			if e.delta < 0 || e.delta > maxRefs {
				return cluster.EINTERNAL
			}
			if e.delta == 0 {
				discard(l.tx, e.fresh.Set, e.id)
				continue
			}
			storeBlob(l.tx, &Blob{
				ID: e.id, Kind: Copies, Set: e.fresh.Set, Len: e.fresh.Len, CRC: e.fresh.CRC, Refs: uint32(e.delta),
			})
			setBlob(l.tx, prefixSetBlob, e.fresh.Set, e.id, nil)
			continue
		}
		if e.delta == 0 {
			continue
		}
		b, ok := loadBlob(l.tx, e.id)
		if !ok {
			return cluster.EINTERNAL
		}
		refs := int64(b.Refs) + e.delta
		switch {
		case refs < 0:
			return cluster.EINTERNAL
		case refs > maxRefs:
			return cluster.EMLINK
		case refs == 0:
			s := scratches.Get().(*scratch)
			l.tx.Delete(appendBlobKey(s.key[:0], e.id))
			scratches.Put(s)
			deleteSetBlob(l.tx, prefixSetBlob, b.Set, e.id)
			discard(l.tx, b.Set, e.id)
		default:
			b.Refs = uint32(refs)
			storeBlob(l.tx, &b)
		}
	}
	l.entries = l.entries[:0]
	l.byID = nil
	return cluster.OK
}

// maxRefs is the largest number of references to a blob.
const maxRefs = 1<<32 - 1
