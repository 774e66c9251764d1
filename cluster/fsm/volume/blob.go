package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// A BlobKind says how a blob lies on its replica set.
type BlobKind uint8

// The kinds of blobs. Numbers are stored: append only.
const (
	// Copies is a full copy on every member.
	Copies BlobKind = 1
	// Coded is a shard of the set's code on every member.
	Coded BlobKind = 2
)

// A Blob is a blob that extents refer to.
type Blob struct {
	ID   cluster.BlobID
	Kind BlobKind
	Set  cluster.ReplicaSetID
	Len  uint32
	CRC  uint32 // crc32c of the whole
	Refs uint32 // extents that refer to it: never 0
	// Stored is the id that the set's members know it by: ID itself, unless
	// the blob was recoded since it was made.
	Stored cluster.BlobID
	Queued bool // it is in the list of blobs to be coded
	// Counted says that what follows is known: records of old do not have it.
	Counted bool
	Bytes   uint64      // sum of the lengths of those extents
	Ino     cluster.Ino // the file that they are of, but for those of owner records; 0: none
	Shares  uint8       // owner records; tooShared: and there are files that are not known
}

// Thin reports whether less than half of the blob is referred to.
func (b *Blob) Thin() bool { return b.Counted && b.Bytes*2 < uint64(b.Len) }

func appendBlob(dst []byte, b *Blob) []byte {
	dst = codec.AppendUint32(append(dst, b.head()), uint32(b.Set))
	dst = codec.AppendUint32(codec.AppendUint32(dst, b.Len), b.CRC)
	dst = codec.AppendUint32(dst, b.Refs)
	if b.moved() {
		dst = codec.AppendUint64(dst, uint64(b.Stored))
	}
	if !b.Counted {
		return dst
	}
	dst = codec.AppendUvarint(codec.AppendUvarint(dst, b.Bytes), uint64(b.Ino))
	return append(dst, b.Shares)
}

func decodeBlob(id cluster.BlobID, val []byte) (Blob, bool) {
	if len(val) > 0 && val[0] == uint8(standIn) {
		return decodeStandIn(id, val)
	}
	d := codec.NewDec(val)
	b := Blob{
		ID: id, Kind: BlobKind(d.Uint8()), Set: cluster.ReplicaSetID(d.Uint32()),
		Len: d.Uint32(), CRC: d.Uint32(), Refs: d.Uint32(),
	}
	b.parseHead(&d)
	if d.Len() > 0 {
		b.Counted, b.Bytes, b.Ino, b.Shares = true, d.Uvarint(), cluster.Ino(d.Uvarint()), d.Uint8()
	}
	return b, d.Done() == nil
}

// loadBlob returns the record of a blob, and whether there is one.
func loadBlob(r fsm.Reader, id cluster.BlobID) (Blob, bool) {
	b, ok := loadRaw(r, id)
	return b, ok && b.Kind != standIn
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
	code    cluster.Code // of the file's class, what it refers to should become
	entries []ledgerEntry
	byID    map[cluster.BlobID]int // of entries, once there are many
	first   [8]ledgerEntry
}

type ledgerEntry struct {
	id    cluster.BlobID
	delta int64
	bytes int64       // referred to more than before
	fresh *NewBlob    // made by this command
	ino   cluster.Ino // a file that refers to it now and may not have done so before; 0: none
	more  []cluster.Ino
}

// owned notes that a file refers to the blob.
func (e *ledgerEntry) owned(ino cluster.Ino) {
	switch {
	case e.ino == 0:
		e.ino = ino
	case e.ino != ino && (len(e.more) == 0 || e.more[len(e.more)-1] != ino):
		e.more = append(e.more, ino)
	}
}

// manyEntries is from where on a map is faster than looking through the list.
const manyEntries = 16

func (l *ledger) begin(tx *fsm.Tx, code cluster.Code) {
	l.tx, l.code = tx, code
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

// enter enters the blobs of a command, before anything refers to them. It
// reports false if one is there twice.
func (l *ledger) enter(blobs []NewBlob) bool {
	for i := range blobs {
		if l.find(blobs[i].ID) >= 0 {
			return false
		}
		l.append(ledgerEntry{id: blobs[i].ID, fresh: &blobs[i]})
	}
	return true
}

// add notes delta references more to a blob, to so many bytes more.
func (l *ledger) add(id cluster.BlobID, delta, bytes int64) {
	l.entry(id, delta, bytes)
}

// share is add of one reference, of a file that may not have had any before.
func (l *ledger) share(id cluster.BlobID, bytes int64, ino cluster.Ino) {
	l.entry(id, 1, bytes).owned(ino)
}

// entry returns the entry of a blob with that added. It is valid until the next.
func (l *ledger) entry(id cluster.BlobID, delta, bytes int64) *ledgerEntry {
	i := l.find(id)
	if i < 0 {
		l.append(ledgerEntry{id: id})
		i = len(l.entries) - 1
	}
	e := &l.entries[i]
	e.delta += delta
	e.bytes += bytes
	return e
}

// settle writes what was noted: a blob without references goes from the blobs
// to the delete queue. A count that does not add up fails the command.
func (l *ledger) settle() cluster.Errno {
	for i := range l.entries {
		e := &l.entries[i]
		var errno cluster.Errno
		switch {
		case e.fresh != nil:
			errno = l.settleFresh(e)
		case e.delta != 0 || e.bytes != 0 || e.ino != 0:
			errno = l.settleOld(e)
		}
		if errno != cluster.OK {
			return errno
		}
	}
	l.entries = l.entries[:0]
	l.byID = nil
	return cluster.OK
}

// settleFresh writes the record of a blob that the command has made.
func (l *ledger) settleFresh(e *ledgerEntry) cluster.Errno {
	if e.delta < 0 || e.delta > maxRefs || e.bytes < 0 {
		return cluster.EINTERNAL
	}
	if e.delta == 0 {
		discard(l.tx, e.fresh.Set, e.id)
		return cluster.OK
	}
	b := Blob{
		ID: e.id, Kind: kindOn(l.tx, e.fresh.Set), Set: e.fresh.Set, Len: e.fresh.Len, CRC: e.fresh.CRC, Refs: uint32(e.delta), Stored: e.id,
		Counted: true, Bytes: uint64(e.bytes), Ino: e.ino,
	}
	if len(e.more) > 0 {
		b.Ino, b.Shares = 0, 1
		storeOwners(l.tx, e.id, append(e.more, e.ino))
	}
	l.wantCoded(&b)
	storeBlob(l.tx, &b)
	setBlob(l.tx, prefixSetBlob, b.Set, e.id, nil)
	l.thin(&b, false)
	return cluster.OK
}

// settleOld adjusts the record of a blob that was there before.
func (l *ledger) settleOld(e *ledgerEntry) cluster.Errno {
	b, ok := loadBlob(l.tx, e.id)
	if !ok {
		return cluster.EINTERNAL
	}
	refs, bytes := int64(b.Refs)+e.delta, int64(b.Bytes)+e.bytes
	switch {
	case refs < 0, b.Counted && (bytes < 0 || (refs == 0) != (bytes == 0)):
		return cluster.EINTERNAL
	case refs > maxRefs:
		return cluster.EMLINK
	case refs == 0:
		s := scratches.Get().(*scratch)
		l.tx.Delete(appendBlobKey(s.key[:0], e.id))
		scratches.Put(s)
		dropStored(l.tx, &b)
		unqueue(l.tx, &b)
		if b.Thin() {
			deleteThin(l.tx, e.id)
		}
		if b.Shares > 0 {
			dropOwners(l.tx, e.id)
		}
		return cluster.OK
	}
	if e.delta > 0 {
		l.wantCoded(&b)
	}
	was := b.Thin()
	b.Refs = uint32(refs)
	if b.Counted {
		b.Bytes = uint64(bytes)
	}
	if e.ino != 0 && b.Counted && b.Ino != e.ino {
		addOwner(l.tx, &b, e.ino)
	}
	storeBlob(l.tx, &b)
	l.thin(&b, was)
	return cluster.OK
}

// thin keeps the list of thin blobs; was says whether b was in it.
func (l *ledger) thin(b *Blob, was bool) {
	switch is := b.Thin(); {
	case is && !was:
		setThin(l.tx, b.ID)
	case was && !is:
		deleteThin(l.tx, b.ID)
	}
}

// maxRefs is the largest number of references to a blob.
const maxRefs = 1<<32 - 1
