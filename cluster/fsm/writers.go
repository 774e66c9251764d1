package fsm

import (
	"cmp"
	"encoding/binary"
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
	dst = codec.AppendUint8(dst, 1) // format
	dst = codec.AppendString(dst, string(w.Node))
	dst = codec.AppendUint64(dst, w.Nonce)
	dst = codec.AppendBool(dst, w.Fenced)
	dst = codec.AppendUvarint(dst, uint64(w.LowWater))
	return codec.AppendVarint(dst, int64(w.Opened))
}

func decodeWriter(id cluster.WriterID, value []byte) (Writer, bool) {
	d := codec.NewDec(value)
	format := d.Uint8()
	w := Writer{ID: id, Node: cluster.NodeID(d.String(len(value)))}
	w.Nonce = d.Uint64()
	w.Fenced = d.Bool()
	w.LowWater = d.Uvarint32()
	w.Opened = cluster.Time(d.Varint())
	return w, d.Done() == nil && format == 1
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
	r.Ascend([]byte{writerPrefix}, []byte{writerPrefix + 1}, func(key, value []byte) bool {
		if len(key) != 5 {
			return true
		}
		w, ok := decodeWriter(cluster.WriterID(binary.BigEndian.Uint32(key[1:])), value)
		return !ok || fn(w)
	})
}

// writerState is a writer as the apply goroutine has it.
type writerState struct {
	Writer
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
	byID map[cluster.WriterID]*writerState
	list []*writerState // by id
	next cluster.WriterID

	mu        sync.RWMutex
	published []Writer // by id; replaced, never changed
}

// load reads the table from r.
func (t *writerTable) load(r Reader) {
	t.byID = make(map[cluster.WriterID]*writerState)
	t.list = nil
	t.next = 1
	if v, ok := r.Get(nil, keyNextWriter); ok && len(v) == 4 {
		t.next = cluster.WriterID(binary.BigEndian.Uint32(v))
	}
	r.Ascend([]byte{writerPrefix}, []byte{writerPrefix + 1}, func(key, value []byte) bool {
		id := cluster.WriterID(binary.BigEndian.Uint32(key[1:]))
		if len(key) == 5 {
			w, ok := decodeWriter(id, value)
			if !ok {
				panic(fatalError{errCorruptRecord(key)})
			}
			t.add(&writerState{Writer: w})
			return true
		}
		d := codec.NewDec(value)
		seq := d.Uvarint()
		w := t.byID[id]
		if len(key) != 7 || d.Err() != nil || w == nil {
			panic(fatalError{errCorruptRecord(key)})
		}
		w.setSeq(binary.BigEndian.Uint16(key[5:]), seq)
		return true
	})
	t.publish(true)
}

func (t *writerTable) add(w *writerState) {
	t.byID[w.ID] = w
	t.list = append(t.list, w)
}

// publish makes the batch's changes visible to Writers.
func (t *writerTable) publish(all bool) {
	dirty := all
	for _, w := range t.list {
		dirty = dirty || w.dirty
		w.dirty = false
	}
	if !dirty {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.published = t.published[:0]
	for _, w := range t.list {
		t.published = append(t.published, w.Writer)
	}
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
