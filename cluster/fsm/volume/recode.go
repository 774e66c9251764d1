package volume

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

func init() {
	register(KindRecode, command(applyRecode))
}

// Recode gives a blob another form: shards in place of copies, or the reverse,
// or shards of another code. The new form was put under a blob id of its own,
// so that what stores hold under an id is one content on one set, for ever: the
// rules for committing and deleting it are those of any blob. Extents go on to
// call the blob by its own id, however many there are.
//
// Errors: ERETRY as in CommitExtents, ENOENT if nothing refers to the blob any
// more, ECONFLICT if it was recoded meanwhile, EINVAL if the contents differ.
type Recode struct {
	Blob cluster.BlobID // as extents call it
	From cluster.BlobID // Stored, when its bytes were read
	To   NewBlob        // its new form; ID 0: none, and it is to stay as it is
}

// Kind returns KindRecode.
func (Recode) Kind() fsm.Kind { return KindRecode }

// AppendTo appends the command's encoding to dst.
func (c Recode) AppendTo(dst []byte) []byte {
	dst = codec.AppendUint64(codec.AppendUint64(dst, uint64(c.Blob)), uint64(c.From))
	return appendNewBlob(dst, &c.To)
}

func (c *Recode) decode(d *codec.Dec) {
	c.Blob, c.From = cluster.BlobID(d.Uint64()), cluster.BlobID(d.Uint64())
	c.To = decodeNewBlob(d)
}

func appendNewBlob(dst []byte, b *NewBlob) []byte {
	dst = codec.AppendUint64(dst, uint64(b.ID))
	dst = codec.AppendUvarint(dst, uint64(b.Set))
	dst = codec.AppendUvarint(dst, uint64(b.Epoch))
	dst = codec.AppendUvarint(dst, uint64(b.Len))
	return codec.AppendUint32(dst, b.CRC)
}

func decodeNewBlob(d *codec.Dec) NewBlob {
	return NewBlob{
		ID:    cluster.BlobID(d.Uint64()),
		Set:   cluster.ReplicaSetID(d.Uvarint32()),
		Epoch: d.Uvarint32(),
		Len:   d.Uvarint32(),
		CRC:   d.Uint32(),
	}
}

// applyRecode runs Recode.
func applyRecode(tx *fsm.Tx, env *fsm.Envelope, c *Recode, dst []byte) ([]byte, cluster.Errno) {
	w, ok := tx.Writer(env.Writer)
	if !ok {
		return dst, cluster.EINVAL
	}
	b, ok := loadBlob(tx, c.Blob)
	if !ok {
		return dst, cluster.ENOENT
	}
	if on(ruleRecodeFrom) && b.Stored != c.From {
		return dst, cluster.ECONFLICT
	}
	if c.To.ID == 0 {
		unqueue(tx, &b)
		storeBlob(tx, &b)
		return dst, cluster.OK
	}
	if errno := checkNewBlob(tx, &w, &c.To); errno != cluster.OK {
		return dst, errno
	}
	if on(ruleRecodeSame) && (c.To.Len != b.Len || c.To.CRC != b.CRC) {
		return dst, cluster.EINVAL
	}
	dropStored(tx, &b)
	unqueue(tx, &b)
	b.Kind, b.Set, b.Stored = kindOn(tx, c.To.Set), c.To.Set, c.To.ID
	storeBlob(tx, &b)
	setBlob(tx, prefixSetBlob, b.Set, b.Stored, nil)
	storeStandIn(tx, &b)
	return dst, cluster.OK
}

// blobKind is that of the blobs of the set.
func (s *ReplicaSet) blobKind() BlobKind {
	if s.Code.IsZero() {
		return Copies
	}
	return Coded
}

// kindOn is that of the blobs of a set that is there.
func kindOn(r fsm.Reader, id cluster.ReplicaSetID) BlobKind {
	set, _ := loadSet(r, id)
	return set.blobKind()
}

// standIn is the kind of a record that is no blob's: it says which blob is
// stored under its id. It keeps the id from being used and its bytes from being
// deleted.
const standIn BlobKind = 3

// The flags beside a blob's kind.
const (
	blobKinds  = 0x0f
	blobMoved  = 0x40 // it is stored under another id, which follows
	blobQueued = 0x80 // it is to be coded
)

// moved reports whether the blob is stored under another id than its own.
func (b *Blob) moved() bool { return b.Stored != 0 && b.Stored != b.ID }

// head returns the first byte of the blob's record.
func (b *Blob) head() byte {
	h := byte(b.Kind)
	if b.moved() {
		h |= blobMoved
	}
	if b.Queued {
		h |= blobQueued
	}
	return h
}

// parseHead takes the first byte of a record, which is in b.Kind, apart, and
// decodes what it says to follow.
func (b *Blob) parseHead(d *codec.Dec) {
	h := byte(b.Kind)
	b.Kind, b.Queued, b.Stored = BlobKind(h&blobKinds), h&blobQueued != 0, b.ID
	if h&blobMoved != 0 {
		b.Stored = cluster.BlobID(d.Uint64())
	}
	if h&^(blobKinds|blobMoved|blobQueued) != 0 {
		d.Fail()
	}
}

// decodeStandIn returns the record under id of the blob that is stored there:
// its Stored is that blob's own id.
func decodeStandIn(id cluster.BlobID, val []byte) (Blob, bool) {
	d := codec.NewDec(val)
	b := Blob{ID: id, Kind: BlobKind(d.Uint8()), Stored: cluster.BlobID(d.Uint64())}
	return b, d.Done() == nil
}

// storeStandIn writes the stand-in of b.
func storeStandIn(tx *fsm.Tx, b *Blob) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = codec.AppendUint64(append(s.val[:0], uint8(standIn)), uint64(b.ID))
	tx.Set(appendBlobKey(s.key[:0], b.Stored), s.val)
}

// dropStored puts what stores have of the blob into the delete queue, where
// nothing is to refer to it from now on.
func dropStored(tx *fsm.Tx, b *Blob) {
	deleteSetBlob(tx, prefixSetBlob, b.Set, b.Stored)
	discard(tx, b.Set, b.Stored)
	if b.moved() {
		s := scratches.Get().(*scratch)
		defer scratches.Put(s)
		tx.Delete(appendBlobKey(s.key[:0], b.Stored))
	}
}

// loadRaw returns the record under id, a blob's or a stand-in.
func loadRaw(r fsm.Reader, id cluster.BlobID) (Blob, bool) {
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

// loadStored returns the blob that is stored under id, and whether there is one.
func loadStored(r fsm.Reader, id cluster.BlobID) (Blob, bool) {
	b, ok := loadRaw(r, id)
	if ok && b.Kind == standIn {
		// A reader of a state that changes may meet it between two commands.
		b, ok = loadRaw(r, b.Stored)
	}
	return b, ok && b.Kind != standIn && b.Stored == id
}

// isStored reports whether a blob is stored under id.
func isStored(r fsm.Reader, id cluster.BlobID) bool {
	b, ok := loadRaw(r, id)
	return ok && b.Stored == id || ok && b.Kind == standIn
}

// wasBlob reports whether id was used: extents or stores know a blob by it.
func wasBlob(r fsm.Reader, id cluster.BlobID) bool {
	_, ok := loadRaw(r, id)
	return ok
}

func appendToCodeKey(dst []byte, id cluster.BlobID) []byte {
	return codec.AppendUint64(append(dst, prefixToCode), uint64(id))
}

// wantCoded puts a blob that is to get a reference into the list of blobs to be
// coded, if its file's class has a code.
func (l *ledger) wantCoded(b *Blob) {
	if l.code.IsZero() || b.Kind != Copies || b.Queued || b.Len < cluster.MinCoded {
		return
	}
	b.Queued = true
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.val = append(codec.AppendVarint(s.val[:0], int64(l.tx.Time())), l.code.K, l.code.M)
	l.tx.Set(appendToCodeKey(s.key[:0], b.ID), s.val)
}

// unqueue takes a blob off that list.
func unqueue(tx *fsm.Tx, b *Blob) {
	if !b.Queued {
		return
	}
	b.Queued = false
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tx.Delete(appendToCodeKey(s.key[:0], b.ID))
}

// A ToCode is a blob that is to be coded when it is cold.
type ToCode struct {
	Blob  cluster.BlobID // as extents call it
	Since cluster.Time   // when a file with such a class got it
	Code  cluster.Code
}

func decodeToCode(key, val []byte) (ToCode, bool) {
	dk, dv := codec.NewDec(key), codec.NewDec(val)
	dk.Uint8()
	x := ToCode{Blob: cluster.BlobID(dk.Uint64()), Since: cluster.Time(dv.Varint()), Code: decodeCode(&dv)}
	return x, dk.Done() == nil && dv.Done() == nil
}

// ToCode calls fn for each blob above after that is to be coded, by id, until
// it returns false.
func (v View) ToCode(after cluster.BlobID, fn func(x ToCode) bool) {
	if after == ^cluster.BlobID(0) {
		return
	}
	v.Ascend(appendToCodeKey(nil, after+1), []byte{prefixToCode + 1}, func(key, val []byte) bool {
		x, ok := decodeToCode(key, val)
		if !ok {
			damaged("a blob to be coded", uint64(x.Blob))
		}
		return fn(x)
	})
}

// Codes returns the codes that classes of the volume have or had: there are to
// be replica sets for them.
func (v View) Codes() []cluster.Code {
	rec, _ := loadRecord(v.Reader)
	return rec.Codes
}
