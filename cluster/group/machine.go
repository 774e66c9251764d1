package group

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
	"github.com/hawserfs/hawser/cluster"
)

// A machine puts the state machine under Raft. Raft calls it from one
// goroutine.
type machine struct {
	sm      cluster.StateMachine
	log     *logStore
	snaps   *snapshotStore
	applied *applied
	last    uint64          // index of the last entry that was seen
	entries []cluster.Entry // reused
	refused error           // why nothing is applied any more
}

var _ raft.BatchingFSM = (*machine)(nil)

// Apply applies one entry.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies commands and configurations and returns the commands'
// results. Raft leaves out entries that are not for the state machine, so
// indexes rise, but not by one.
//
// Entries are applied when they are on this member's disk (see tail.go). If the
// disk fails until the member stops, they never are: the results are errors.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	results := make([]any, len(logs))
	if m.refused == nil && on(ruleGate) {
		m.refused = m.log.tail.waitSynced(logs[len(logs)-1].Index)
	}
	if m.refused != nil {
		for i := range results {
			results[i] = m.refused
		}
		return results
	}
	begin := 0
	for i, l := range logs {
		if l.Index <= m.last {
			panic(fmt.Sprintf("bug: Raft applies index %d after %d", l.Index, m.last))
		}
		m.last = l.Index
		switch l.Type {
		case raft.LogCommand:
			m.entries = append(m.entries, cluster.Entry{Index: l.Index, Term: l.Term, Command: l.Data})
		case raft.LogConfiguration:
			m.run(results[begin:i])
			m.sm.StoreConfiguration(l.Index, l.Term, l.Data)
			begin = i + 1
		default:
			panic(fmt.Sprintf("bug: Raft applies an entry of type %v", l.Type))
		}
	}
	m.run(results[begin:])
	m.applied.set(m.last)
	return results
}

// run applies the gathered entries.
func (m *machine) run(results []any) {
	if len(m.entries) == 0 {
		return
	}
	last := m.entries[len(m.entries)-1].Index
	for i, r := range m.sm.Apply(m.entries) {
		results[i] = r
	}
	if at, _ := m.sm.Applied(); at < last {
		panic(fmt.Sprintf("bug: the state machine is at index %d after applying %d", at, last))
	}
	clear(m.entries)
	m.entries = m.entries[:0]
}

// Snapshot begins a snapshot, which is the state machine itself.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.refused != nil { // Raft's index is ahead of the state
		return nil, m.refused
	}
	return flush{m}, nil
}

// A flush is a snapshot to be persisted.
type flush struct{ m *machine }

// Persist makes the state durable. Raft cuts the log after it returns.
func (f flush) Persist(sink raft.SnapshotSink) error {
	index, _, err := f.m.sm.Flush()
	if err != nil {
		return err
	}
	f.m.log.durable.Store(index)
	return sink.Close()
}

// Release ends the snapshot.
func (flush) Release() {}

// Restore replaces the state by the received snapshot that snapshotStore.Open
// was called for just before. One that is not newer than the state is refused:
// the leader may have sent it long ago, and to go back would lose what has been
// acknowledged since.
func (m *machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	in := m.snaps.takeOpened()
	if in == nil {
		return fmt.Errorf("bug: no received snapshot to restore")
	}
	defer in.remove()
	if m.refused != nil {
		return m.refused
	}
	if err := m.snaps.acceptable(in.meta.Index); err != nil {
		return err
	}
	if err := m.sm.Restore(in.dir); err != nil {
		return fmt.Errorf("cannot restore the snapshot at index %d: %w", in.meta.Index, err)
	}
	index, _ := m.sm.Applied()
	if index != in.meta.Index {
		panic(fmt.Sprintf("bug: the state machine is at index %d after restoring a snapshot at %d", index, in.meta.Index))
	}
	m.log.durable.Store(index)
	m.last = index
	m.applied.set(index)
	return nil
}
