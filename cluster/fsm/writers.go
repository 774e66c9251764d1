package fsm

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// The engine's keys. A writer's record is under its id, its lanes' records
// under id and lane.
const (
	metaPrefix   = '!'
	writerPrefix = 'W'
)

var (
	keyApplied       = []byte("!applied")
	keyConfiguration = []byte("!configuration")
	keyFormat        = []byte("!format")
	keyNextWriter    = []byte("!nextwriter")
)

func appendWriterKey(dst []byte, id cluster.WriterID) []byte {
	return codec.AppendUint32(append(dst, writerPrefix), uint32(id))
}

func appendLaneKey(dst []byte, id cluster.WriterID, lane uint16) []byte {
	return codec.AppendUint16(appendWriterKey(dst, id), lane)
}

func appendWriter(dst []byte, w *Writer) []byte {
	dst = codec.AppendUint8(dst, 2) // format; 1 has no FencedAt
	dst = codec.AppendString(dst, string(w.Node))
	dst = codec.AppendUint64(dst, w.Nonce)
	dst = codec.AppendBool(dst, w.Fenced)
	dst = codec.AppendUvarint(dst, uint64(w.LowWater))
	dst = codec.AppendVarint(dst, int64(w.Opened))
	return codec.AppendVarint(dst, int64(w.FencedAt))
}

func decodeWriter(id cluster.WriterID, value []byte) (Writer, bool) {
	d := codec.NewDec(value)
	format := d.Uint8()
	w := Writer{ID: id, Node: cluster.NodeID(d.String(len(value)))}
	w.Nonce = d.Uint64()
	w.Fenced = d.Bool()
	w.LowWater = d.Uvarint32()
	w.Opened = cluster.Time(d.Varint())
	if format == 2 {
		w.FencedAt = cluster.Time(d.Varint())
	}
	return w, d.Done() == nil && (format == 1 || format == 2)
}

// LoadWriter returns a writer as r has it. Whoever decides by a writer's
// low-water mark and by a core's keys must load the writer first, or use a
// Snapshot: what is below the mark then was decided before the keys are read.
func LoadWriter(r Reader, id cluster.WriterID) (Writer, bool) {
	var key, value [64]byte
	v, ok := r.Get(value[:0], appendWriterKey(key[:0], id))
	if !ok {
		return Writer{}, false
	}
	return decodeWriter(id, v)
}

// LoadWriters calls fn for each writer that r has, by id.
func LoadWriters(r Reader, fn func(Writer) bool) {
	// A writer's lanes lie between its record and the next writer's, and each
	// has a version for every command since the last flush: they are jumped over.
	for id, more := uint64(0), true; more && id <= math.MaxUint32; {
		more = false
		from := appendWriterKey(nil, cluster.WriterID(id))
		r.Ascend(from, []byte{writerPrefix + 1}, func(key, value []byte) bool {
			at := cluster.WriterID(binary.BigEndian.Uint32(key[1:]))
			id, more = uint64(at)+1, true
			if len(key) == len(from) {
				w, ok := decodeWriter(at, value)
				more = !ok || fn(w)
			}
			return false
		})
	}
}

// writerState is a writer as the apply goroutine has it.
type writerState struct {
	Writer
	pos   int      // in writerTable.list
	seqs  []uint64 // last command of each lane, 0 for none
	dirty bool     // changed in this batch
}

func (w *writerState) seq(lane uint16) uint64 {
	if int(lane) < len(w.seqs) {
		return w.seqs[lane]
	}
	return 0
}

func (w *writerState) setSeq(lane uint16, seq uint64) {
	if int(lane) >= len(w.seqs) {
		w.seqs = append(w.seqs, make([]uint64, int(lane)+1-len(w.seqs))...)
	}
	w.seqs[lane] = seq
}

// writerTable is the apply goroutine's copy of the writers, and a published
// one for everybody else.
type writerTable struct {
	byID  map[cluster.WriterID]*writerState
	list  []*writerState // by id
	next  cluster.WriterID
	dirty []*writerState // changed in this batch

	mu        sync.RWMutex
	published []Writer // as list
}

// load reads the table from r.
func (t *writerTable) load(r Reader) error {
	t.byID = make(map[cluster.WriterID]*writerState)
	t.next = 1
	if v, ok := r.Get(nil, keyNextWriter); ok {
		if len(v) != 4 {
			return errCorruptRecord(keyNextWriter)
		}
		t.next = cluster.WriterID(binary.BigEndian.Uint32(v))
	}
	var err error
	r.Ascend([]byte{writerPrefix}, []byte{writerPrefix + 1}, func(key, value []byte) bool {
		d := codec.NewDec(key[1:])
		id := cluster.WriterID(d.Uint32())
		switch {
		case d.Len() == 0:
			w, ok := decodeWriter(id, value)
			if !ok || d.Err() != nil || id >= t.next {
				err = errCorruptRecord(key)
				return false
			}
			t.add(&writerState{Writer: w})
		default:
			lane := d.Uint16()
			w := t.byID[id]
			v := codec.NewDec(value)
			seq := v.Uvarint()
			if d.Done() != nil || v.Err() != nil || w == nil || lane >= MaxLanes {
				err = errCorruptRecord(key)
				return false
			}
			w.setSeq(lane, seq)
		}
		return true
	})
	return err
}

func (t *writerTable) add(w *writerState) {
	w.pos = len(t.list)
	t.byID[w.ID] = w
	t.list = append(t.list, w)
	t.touch(w)
}

// touch notes that w has changed in this batch.
func (t *writerTable) touch(w *writerState) {
	if !w.dirty {
		w.dirty = true
		t.dirty = append(t.dirty, w)
	}
}

// publish makes the batch's changes visible to get and all.
func (t *writerTable) publish() {
	if len(t.dirty) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.dirty { // new ones by id
		if w.pos < len(t.published) {
			t.published[w.pos] = w.Writer
		} else {
			t.published = append(t.published, w.Writer)
		}
		w.dirty = false
	}
	t.dirty = t.dirty[:0]
}

// replace makes the table what loaded is.
func (t *writerTable) replace(loaded *writerTable) {
	t.mu.Lock()
	t.published = nil
	t.mu.Unlock()
	t.byID, t.list, t.next, t.dirty = loaded.byID, loaded.list, loaded.next, loaded.dirty
	t.publish()
}

// get returns the published writer id.
func (t *writerTable) get(id cluster.WriterID) (Writer, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, ok := slices.BinarySearchFunc(t.published, id, func(w Writer, id cluster.WriterID) int { return cmp.Compare(w.ID, id) })
	if !ok {
		return Writer{}, false
	}
	return t.published[i], true
}

func (t *writerTable) all() []Writer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.published)
}
