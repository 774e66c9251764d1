package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// Options says how a Machine is opened.
type Options struct {
	Dir           string // its folder; made if it is not there
	FS            vfs.FS // nil: the disk
	Core          Core
	CacheBytes    int64        // block cache; 0: 64 MiB
	MemTableBytes uint64       // of a memtable, of which there are up to 4; 0: 64 MiB
	Logger        *slog.Logger // nil: none

	noOrigins bool // tests switch the rule off: origins are not looked at
}

// A Machine keeps a Core's state in Pebble. It implements
// cluster.StateMachine.
//
// A disk that cannot be read or written stops the program: a replica that
// cannot apply a command has no state that it could go on with, and the others
// have.
type Machine struct {
	opts Options
	log  *slog.Logger

	current atomic.Pointer[state]
	states  sync.WaitGroup // states that are not closed yet

	// Of the apply goroutine.
	tx      Tx
	writers writerTable

	mu            sync.Mutex
	index, term   uint64 // applied and readable
	confIndex     uint64
	configuration []byte

	subMu       sync.Mutex
	subscribers atomic.Pointer[[]*subscriber]
}

var _ cluster.StateMachine = (*Machine)(nil)

type subscriber struct {
	fn func(index uint64, events []any)
}

// A Restored event says that the whole state was replaced: what was remembered
// of it is stale.
type Restored struct{}

// A fatalError is a panic's value that must stop the program.
type fatalError struct{ error }

func (e fatalError) Error() string { return "fsm: the state cannot go on: " + e.error.Error() }
func (e fatalError) Unwrap() error { return e.error }

func errCorruptRecord(key []byte) error {
	return fmt.Errorf("record %q is malformed: remove this node's folder of the group and let it join again: %w",
		key, cluster.ECORRUPT)
}

// Reader returns a reader of what is applied. It is safe for concurrent use
// until Close; after that it finds nothing. Two calls may see different
// indexes: use Snapshot where they must not.
func (m *Machine) Reader() Reader { return (*reader)(m) }

// Writers returns all writers, by id.
func (m *Machine) Writers() []Writer { return m.writers.all() }

// Writer returns a writer.
func (m *Machine) Writer(id cluster.WriterID) (Writer, bool) { return m.writers.get(id) }

// Subscribe makes fn be called after each batch that emitted events, when it
// is readable, and after Restore with a Restored event. It is called in the
// apply goroutine: it must not block, and must not keep the slice. Entries
// that are replayed after a restart emit their events again.
func (m *Machine) Subscribe(fn func(index uint64, events []any)) (cancel func()) {
	s := &subscriber{fn: fn}
	m.subMu.Lock()
	defer m.subMu.Unlock()
	list := append(slices.Clone(*m.subscribers.Load()), s)
	m.subscribers.Store(&list)
	return func() {
		m.subMu.Lock()
		defer m.subMu.Unlock()
		list := slices.DeleteFunc(slices.Clone(*m.subscribers.Load()), func(o *subscriber) bool { return o == s })
		m.subscribers.Store(&list)
	}
}

func (m *Machine) notify(index uint64, events []any) {
	if len(events) == 0 {
		return
	}
	for _, s := range *m.subscribers.Load() {
		s.fn(index, events)
	}
}

// Applied implements cluster.StateMachine.
func (m *Machine) Applied() (index, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index, m.term
}

// Configuration implements cluster.StateMachine.
func (m *Machine) Configuration() (index uint64, configuration []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.confIndex, slices.Clone(m.configuration)
}

// maxBatch is how much a batch may hold before it is committed, in bytes: a
// bound on memory when large commands are applied by the hundred.
const maxBatch = 32 << 20

// Apply implements cluster.StateMachine.
func (m *Machine) Apply(entries []cluster.Entry) [][]byte {
	results := make([][]byte, len(entries))
	// Results outlive the batch, so they share one new piece of memory.
	arena := make([]byte, 0, 160*len(entries))
	index, term := m.Applied()
	pending := false
	for i := range entries {
		e := &entries[i]
		if e.Index <= index {
			continue
		}
		result := m.applyOne(e)
		index, term, pending = e.Index, e.Term, true
		arena = append(arena, result...)
		results[i] = arena[len(arena)-len(result) : len(arena) : len(arena)]
		if len(m.tx.overlay.buf) > maxBatch {
			m.commit(index, term)
			pending = false
		}
	}
	if pending {
		m.commit(index, term)
	}
	return results
}

// applyOne runs the command of an entry and returns its result, which is valid
// until the next one.
func (m *Machine) applyOne(e *cluster.Entry) []byte {
	tx := &m.tx
	if len(e.Command) > cluster.MaxCommand {
		return tx.Result(cluster.EINVAL)
	}
	env, body, err := ParseCommand(e.Command)
	if err != nil {
		m.log.Error("command refused", "index", e.Index, "error", err)
		if errors.Is(err, cluster.EVERSION) {
			return tx.Result(cluster.EVERSION)
		}
		return tx.Result(cluster.EINVAL)
	}
	tx.begin(e.Index, &env)
	if env.Kind < FirstCoreKind {
		return m.applyEngine(env.Kind, body)
	}
	if env.Writer == 0 {
		return m.runOnce(body)
	}

	w := m.writers.byID[env.Writer]
	switch {
	case w == nil:
		return tx.Result(cluster.EFENCED)
	case env.Lane >= MaxLanes || env.Seq == 0:
		return tx.Result(cluster.EINVAL)
	}
	// The result of a command that was executed is told even to a writer that
	// was fenced since: it would execute it again through a new one.
	switch last := w.seq(env.Lane); {
	case env.Seq == last:
		return m.laneResult(&env)
	case env.Seq < last:
		return tx.Result(cluster.EINVAL)
	case w.Fenced:
		return tx.Result(cluster.EFENCED)
	}
	result := m.runOnce(body)
	w.setSeq(env.Lane, env.Seq)
	tx.keyBuf = appendLaneKey(tx.keyBuf[:0], env.Writer, env.Lane)
	tx.valBuf = append(codec.AppendUvarint(tx.valBuf[:0], env.Seq), result...)
	tx.overlay.put(tx.keyBuf, tx.valBuf, ovSet)
	if env.LowWater > w.LowWater {
		w.LowWater = env.LowWater
		m.storeWriter(w)
	}
	return result
}

// laneResult returns the result of a lane's last command.
func (m *Machine) laneResult(env *Envelope) []byte {
	tx := &m.tx
	tx.keyBuf = appendLaneKey(tx.keyBuf[:0], env.Writer, env.Lane)
	value, ok := tx.Get(tx.valBuf[:0], tx.keyBuf)
	tx.valBuf = value
	d := codec.NewDec(value)
	if seq := d.Uvarint(); !ok || d.Err() != nil || seq != env.Seq {
		panic(fatalError{errCorruptRecord(tx.keyBuf)})
	}
	return d.Rest()
}

// runOnce is runCore, but for a command whose origin has a result already.
func (m *Machine) runOnce(body []byte) (result []byte) {
	tx := &m.tx
	o := &tx.env.Origin
	if o.IsZero() {
		return m.runCore(body)
	}
	tx.slotKey = appendSlotKey(tx.slotKey[:0], &o.Session, o.Slot)
	record, ok := tx.Get(tx.slotOld[:0], tx.slotKey)
	tx.slotOld = record
	same := false
	if ok && !m.opts.noOrigins {
		s, state, found := findStored(record, o)
		switch {
		case state == slotOlder:
			return tx.Result(cluster.EREPLAY)
		case found && s.Step == o.Step && s.Kind == tx.env.Kind:
			return s.Result // of slotOld, which stays as it is until the next command
		case found && s.Step >= o.Step:
			return tx.Result(cluster.EREPLAY)
		}
		same = state == slotSame
	}
	result = m.runCore(body)
	e, _ := splitResult(result)
	if e == cluster.ERETRY {
		return result // nothing was done, and the writer tries otherwise
	}
	m.storeResult(o, result, same)
	return result
}

// storeResult stores the result of a command in the record of its origin's
// slot. same: the record in tx.slotOld is of the same request.
func (m *Machine) storeResult(o *Origin, result []byte, same bool) {
	tx := &m.tx
	if len(result) > MaxStoredResult {
		// No command that has an origin answers so much. Its replay is refused
		// rather than executed.
		result = Result(cluster.EREPLAY)
	}
	head := slotHead{o.Seq, o.Sum}
	tx.slotNew = head.appendTo(tx.slotNew[:0])
	if same {
		d := codec.NewDec(tx.slotOld)
		_, _ = decodeSlotHead(&d)
		for d.Len() > 0 {
			if e, _ := decodeSlotEntry(&d); e.op != o.Op || e.sub != o.Sub {
				tx.slotNew = appendSlotEntry(tx.slotNew, &e)
			}
		}
	}
	tx.slotNew = appendSlotEntry(tx.slotNew, &slotEntry{
		StoredResult: StoredResult{Kind: tx.env.Kind, Step: o.Step, Result: result}, op: o.Op, sub: o.Sub,
	})
	tx.overlay.put(tx.slotKey, tx.slotNew, ovSet)
}

// runCore runs the present command in the Core: whole, or not at all.
func (m *Machine) runCore(body []byte) (result []byte) {
	tx := &m.tx
	defer func() {
		// A bug in the Core shows on every replica alike: the command fails,
		// the group goes on.
		if p := recover(); p != nil {
			if f, ok := p.(fatalError); ok {
				panic(f)
			}
			m.log.Error("command failed by a bug", "index", tx.index, "kind", tx.env.Kind, "panic", p, "stack", string(debug.Stack()))
			tx.rollback()
			result = tx.Result(cluster.EINTERNAL)
		}
	}()
	result = m.opts.Core.Apply(tx, tx.index, &tx.env, body)
	if len(result) < 2 || len(result) > MaxResult {
		panic(fmt.Sprintf("fsm: the core returned a result of %d bytes", len(result)))
	}
	if e, _ := splitResult(result); e != cluster.OK {
		tx.rollback()
	}
	return result
}

// StoreConfiguration implements cluster.StateMachine.
func (m *Machine) StoreConfiguration(index, term uint64, configuration []byte) {
	if applied, _ := m.Applied(); index <= applied {
		return
	}
	m.tx.overlay.put(keyConfiguration, append(codec.AppendUint64(nil, index), configuration...), ovSet)
	m.mu.Lock()
	m.confIndex, m.configuration = index, slices.Clone(configuration)
	m.mu.Unlock()
	m.commit(index, term)
}

// commit writes what was applied and the index that it makes, in one batch, and
// makes it readable.
func (m *Machine) commit(index, term uint64) {
	tx := &m.tx
	if err := tx.closeIters(); err != nil {
		panic(fatalError{err})
	}
	o := &tx.overlay
	b := tx.db.NewBatchWithSize(len(o.buf) + 16*len(o.nodes) + 64)
	for n := o.nodes[0].next[0]; n != 0; n = o.nodes[n].next[0] {
		var err error
		switch o.nodes[n].state {
		case ovSet:
			err = b.Set(o.key(n), o.value(n), nil)
		case ovDeleted:
			err = b.Delete(o.key(n), nil)
		}
		if err != nil {
			panic(fatalError{err})
		}
	}
	var applied [16]byte
	binary.BigEndian.PutUint64(applied[:8], index)
	binary.BigEndian.PutUint64(applied[8:], term)
	if err := b.Set(keyApplied, applied[:], nil); err != nil {
		panic(fatalError{err})
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		panic(fatalError{err})
	}
	if err := b.Close(); err != nil {
		panic(fatalError{err})
	}
	o.reset()
	m.writers.publish()
	m.mu.Lock()
	m.index, m.term = index, term
	m.mu.Unlock()
	m.notify(index, tx.events)
	clear(tx.events)
	tx.events = tx.events[:0]
}
