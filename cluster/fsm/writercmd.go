package fsm

import (
	"github.com/hawserfs/hawser/cluster"
	"github.com/hawserfs/hawser/cluster/fsm/codec"
)

// OpenWriter makes a writer for a front-end of Node, and fences the node's
// earlier ones. The same Node and Nonce again give the same writer. Its result
// is read by DecodeOpenWriter.
type OpenWriter struct {
	Node  cluster.NodeID
	Nonce uint64 // random; differs for each incarnation
}

// Kind implements Body.
func (*OpenWriter) Kind() Kind { return KindOpenWriter }

// AppendTo implements Body.
func (c *OpenWriter) AppendTo(dst []byte) []byte {
	return codec.AppendUint64(codec.AppendString(dst, string(c.Node)), c.Nonce)
}

// DecodeOpenWriter returns the writer's id from the body of OpenWriter's result.
func DecodeOpenWriter(body []byte) (cluster.WriterID, error) {
	d := codec.NewDec(body)
	id := cluster.WriterID(d.Uint32())
	return id, d.Done()
}

// FenceWriter fences a writer: no command of it is executed any more. It may
// be repeated. ENOENT if there never was such a writer.
type FenceWriter struct {
	Writer cluster.WriterID
}

// Kind implements Body.
func (*FenceWriter) Kind() Kind { return KindFenceWriter }

// AppendTo implements Body.
func (c *FenceWriter) AppendTo(dst []byte) []byte {
	return codec.AppendUint32(dst, uint32(c.Writer))
}

// DropSessions forgets the results stored for origins of sessions that are
// gone. It may be repeated; it must be until its result says that it is done,
// as one command forgets a bounded number.
type DropSessions struct {
	Sessions [][16]byte // at most MaxDropSessions
}

// The bounds of one DropSessions.
const (
	MaxDropSessions = 256
	maxDropSlots    = 8192
)

// Kind implements Body.
func (*DropSessions) Kind() Kind { return KindDropSessions }

// AppendTo implements Body.
func (c *DropSessions) AppendTo(dst []byte) []byte {
	dst = codec.AppendUvarint(dst, uint64(len(c.Sessions)))
	for i := range c.Sessions {
		dst = append(dst, c.Sessions[i][:]...)
	}
	return dst
}

// DecodeDropSessions returns from the body of DropSessions' result whether
// there is more to forget.
func DecodeDropSessions(body []byte) (more bool, err error) {
	d := codec.NewDec(body)
	more = d.Bool()
	return more, d.Done()
}

// dropSessions runs DropSessions.
func (m *Machine) dropSessions(d *codec.Dec) []byte {
	tx := &m.tx
	n := d.Count(16)
	if n > MaxDropSessions {
		return tx.Result(cluster.EINVAL)
	}
	left, more := maxDropSlots, false
	for range n {
		session := d.Fixed(16)
		if d.Err() != nil {
			break
		}
		lower := append([]byte{slotPrefix}, session...)
		tx.Ascend(lower, codec.AppendUpper(nil, lower), func(key, _ []byte) bool {
			if left == 0 {
				more = true
				return false
			}
			left--
			tx.overlay.put(key, nil, ovDeleted)
			return true
		})
	}
	if d.Done() != nil {
		tx.rollback()
		return tx.Result(cluster.EINVAL)
	}
	return codec.AppendBool(tx.Result(cluster.OK), more)
}

// HasSession reports whether r has results stored for a session.
func HasSession(r Reader, session [16]byte) (has bool) {
	lower := append([]byte{slotPrefix}, session[:]...)
	r.Ascend(lower, codec.AppendUpper(nil, lower), func(_, _ []byte) bool {
		has = true
		return false
	})
	return has
}

// A WriterOpened event says that a writer is new.
type WriterOpened struct{ Writer Writer }

// A WriterFenced event says that a writer is fenced from now on.
type WriterFenced struct{ Writer Writer }

// maxNode bounds a node's name, in bytes.
const maxNode = 255

// applyEngine runs one of the engine's own commands.
func (m *Machine) applyEngine(kind Kind, body []byte) []byte {
	tx := &m.tx
	d := codec.NewDec(body)
	switch kind {
	case KindOpenWriter:
		node := cluster.NodeID(d.String(maxNode))
		nonce := d.Uint64()
		if d.Done() != nil || node == "" {
			return tx.Result(cluster.EINVAL)
		}
		return codec.AppendUint32(tx.Result(cluster.OK), uint32(m.openWriter(node, nonce)))
	case KindFenceWriter:
		id := cluster.WriterID(d.Uint32())
		if d.Done() != nil {
			return tx.Result(cluster.EINVAL)
		}
		w := m.writers.byID[id]
		if w == nil {
			return tx.Result(cluster.ENOENT)
		}
		m.fence(w)
		return tx.Result(cluster.OK)
	case KindDropSessions:
		return m.dropSessions(&d)
	}
	return tx.Result(cluster.EINVAL)
}

func (m *Machine) openWriter(node cluster.NodeID, nonce uint64) cluster.WriterID {
	var last *writerState
	for _, w := range m.writers.list {
		if w.Node != node {
			continue
		}
		if w.Nonce == nonce {
			return w.ID
		}
		m.fence(w)
		// Lanes outlive their writer by one writer, so that a front-end that
		// was fenced and opens a new one can still ask for the results of
		// commands that were under way.
		if last != nil {
			m.dropLanes(last)
		}
		last = w
	}
	w := &writerState{Writer: Writer{ID: m.writers.next, Node: node, Nonce: nonce, Opened: m.tx.Time()}}
	m.writers.next++
	m.writers.add(w)
	m.storeWriter(w)
	m.tx.overlay.put(keyNextWriter, codec.AppendUint32(m.tx.keyBuf[:0], uint32(m.writers.next)), ovSet)
	m.tx.Emit(WriterOpened{w.Writer})
	return w.ID
}

func (m *Machine) fence(w *writerState) {
	if w.Fenced {
		return
	}
	w.Fenced, w.FencedAt = true, m.tx.Time()
	m.storeWriter(w)
	m.tx.Emit(WriterFenced{w.Writer})
}

func (m *Machine) dropLanes(w *writerState) {
	for lane, seq := range w.seqs {
		if seq != 0 {
			m.tx.keyBuf = appendLaneKey(m.tx.keyBuf[:0], w.ID, uint16(lane))
			m.tx.overlay.put(m.tx.keyBuf, nil, ovDeleted)
		}
	}
	w.seqs = nil
}

func (m *Machine) storeWriter(w *writerState) {
	m.writers.touch(w)
	m.tx.keyBuf = appendWriterKey(m.tx.keyBuf[:0], w.ID)
	m.tx.valBuf = appendWriter(m.tx.valBuf[:0], &w.Writer)
	m.tx.overlay.put(m.tx.keyBuf, m.tx.valBuf, ovSet)
}
