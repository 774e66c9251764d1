package group

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A commit costs the time of one write to a disk, not of two: the leader's own
// write and those of the followers go on side by side. Raft's library writes the
// leader's log first (dispatchLogs) and wakes the replicators when StoreLogs has
// returned. So on a leader StoreLogs returns at once, and a tailLog keeps the
// entries in memory, its tail, until its own goroutine has written them. All that
// are there go to disk in one write.
//
// For the library an entry counts on this member as soon as StoreLogs has
// returned; its commit index may be of entries that the leader's disk does not
// have, and then a majority does not have them. So nobody may see that index.
// What everybody sees is the lesser of it and the last index on the leader's own
// disk (synced): up to there the entries are on the disks of a majority, the
// leader's among them. Where the library's commit index goes:
//
//   - To the followers, with AppendEntries. transport.clamp makes it the lesser.
//   - To the state machine, and by its results to those who proposed. The
//     machine waits in waitSynced. So nothing that is applied, is in a snapshot
//     or is the answer to a read can be lost by this member's crash, and the
//     state on disk never is ahead of the log on disk.
//   - To readers and Stats: Group.commitIndex.
//   - To the library's own rules about changes of members. One change must be
//     committed before the next is begun, or two majorities could exist that
//     share no member. So only commands stay in memory: a configuration is on
//     this member's disk, with all before it, when StoreLogs returns. So are the
//     no-op that begins a term and barriers, on which reads rest.
//   - A leadership transfer, TimeoutNow and InstallSnapshot do not use it: the
//     first two compare logs, the last sends the state machine's own state.
//
// For elections the log is what is in memory. A vote is refused to a candidate
// whose log is shorter than that, which is never wrong, and a candidate that wins
// with a tail begins its term with a no-op that waits for the disk. If this
// member crashes it is one that has been slower: it was leader in that term
// before the crash, so it is not after it, and nobody else has other entries of
// that term. Entries up to the library's commit index are in this member's memory
// and on the disks of others, together a majority, so that as long as this
// process lives no leader is elected without them; therefore an entry that waits
// for its disk on its way to the state machine is never replaced by another.
//
// Acknowledging to another leader is another matter: that leader counts what is
// acknowledged as being on this member's disk. New entries are: if this member
// does not lead, StoreLogs writes the tail and then them. Of entries that are
// there already the library only compares terms. So the transport makes the tail
// durable before it hands on an AppendEntries with entries (transport.forward).
// Entries that the sender has and that are in the tail when the library looks
// were there when the request came, for the sender has them from this member.
//
// If the disk refuses: the entries stay in the tail, for the library and other
// members know them. Everything that waits for them goes on waiting, but Group
// tells those who propose that the outcome is unknown, and makes this member
// step down: as long as the tail cannot be written, a leader's StoreLogs returns
// the error, and what is not a leader must write the tail first. The tail is
// tried again from time to time.

// maxTailBytes bounds the entries in memory that are not on disk; when it is
// reached, StoreLogs waits.
const maxTailBytes = 16 << 20

// pace is how long a batch waits for the one before to be on disk. While it does,
// more commands gather in it: to hand on each as it comes would cost messages and
// writes, on this member and the followers, of one command each. A disk that is
// slower than this is not waited for.
const pace = 2 * time.Millisecond

// tailRetry is the pause before a tail that could not be written is tried again.
const tailRetry = 250 * time.Millisecond

// errTailClosed is returned by a closed tailLog.
var errTailClosed = errors.New("the Raft log is closed")

// A tailLog is a log whose newest entries may be in memory only, while this
// member leads. Raft writes to it from one goroutine, but for cutting its head.
type tailLog struct {
	diskLog
	synced atomic.Uint64                 // entries up to this index are on disk
	leads  atomic.Pointer[func() bool]   // whether this member leads; nil: it does not
	down   atomic.Pointer[chan struct{}] // closed while writing fails

	disk sync.Mutex // held while the disk log is changed; before mu

	mu      sync.Mutex
	changed sync.Cond // synced, room, err or ending have changed
	entries []*raft.Log
	bytes   int
	err     error // why the tail cannot be written
	ending  bool  // nobody may wait for a disk that fails
	closed  bool
	drained chan struct{} // closed when the tail is written; there while there is one

	wake    chan struct{} // there are entries to write
	stop    chan struct{}
	stopped chan struct{}
}

// newTailLog begins with an empty tail.
func newTailLog(disk diskLog) (*tailLog, error) {
	last, err := disk.LastIndex()
	if err != nil {
		return nil, err
	}
	t := &tailLog{diskLog: disk, wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	t.changed.L = &t.mu
	t.synced.Store(last)
	up := make(chan struct{})
	t.down.Store(&up)
	go t.write()
	return t, nil
}

func (t *tailLog) leading() bool {
	leads := t.leads.Load()
	return leads != nil && (*leads)()
}

// failing returns a channel that is closed when the tail cannot be written. It
// is another one when it could be written again.
func (t *tailLog) failing() <-chan struct{} { return *t.down.Load() }

func commandsOnly(logs []*raft.Log) bool {
	for _, l := range logs {
		if l.Type != raft.LogCommand {
			return !on(ruleWait)
		}
	}
	return true
}

// StoreLog appends an entry.
func (t *tailLog) StoreLog(l *raft.Log) error { return t.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries: commands of a leader to the tail, all others to the
// disk.
func (t *tailLog) StoreLogs(logs []*raft.Log) error {
	leading := t.leading()
	if leading && on(ruleStop) {
		if err := t.failure(); err != nil {
			return fmt.Errorf("earlier entries could not be written: %w", err)
		}
	}
	if !leading || !commandsOnly(logs) {
		return t.settle(logs)
	}
	t.pace()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.bytes >= maxTailBytes && t.err == nil && !t.closed {
		t.changed.Wait()
	}
	switch {
	case t.closed:
		return errTailClosed
	case t.err != nil && on(ruleStop):
		return fmt.Errorf("earlier entries could not be written: %w", t.err)
	}
	if len(t.entries) == 0 {
		t.drained = make(chan struct{})
	}
	for _, l := range logs {
		t.entries = append(t.entries, l)
		t.bytes += entryBytes(l)
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return nil
}

// pace waits a little while there is a tail.
func (t *tailLog) pace() {
	t.mu.Lock()
	drained := t.drained
	t.mu.Unlock()
	if drained == nil {
		return
	}
	timer := time.NewTimer(pace)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-t.stop:
	}
}

// settle writes the tail, and more entries behind it.
func (t *tailLog) settle(more []*raft.Log) error {
	t.disk.Lock()
	defer t.disk.Unlock()
	return t.settleLocked(more)
}

func (t *tailLog) settleLocked(more []*raft.Log) error {
	t.mu.Lock()
	closed := t.closed
	n := len(t.entries)
	logs := t.entries[:n:n]
	t.mu.Unlock()
	if closed {
		return errTailClosed
	}
	if len(more) > 0 {
		logs = append(logs, more...)
	}
	if len(logs) == 0 {
		return nil
	}
	err := t.diskLog.StoreLogs(logs)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		if n > 0 {
			t.failed(err)
		}
		return err
	}
	t.synced.Store(logs[len(logs)-1].Index)
	for _, l := range t.entries[:n] {
		t.bytes -= entryBytes(l)
	}
	clear(t.entries[:n])
	if t.entries = t.entries[n:]; len(t.entries) == 0 && t.drained != nil {
		close(t.drained)
		t.drained = nil
	}
	if t.err != nil {
		t.err = nil
		up := make(chan struct{})
		t.down.Store(&up)
	}
	t.changed.Broadcast()
	return nil
}

// failed notes that the tail could not be written. The caller holds mu.
func (t *tailLog) failed(err error) {
	if t.err == nil {
		close(*t.down.Load())
	}
	t.err = err
	t.changed.Broadcast()
}

// failure returns why the tail cannot be written; nil if it can.
func (t *tailLog) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// write writes what comes to the tail, until the log is closed.
func (t *tailLog) write() {
	defer close(t.stopped)
	for {
		select {
		case <-t.wake:
		case <-t.stop:
			return
		}
		for t.pending() && t.settle(nil) != nil {
			select {
			case <-time.After(tailRetry):
			case <-t.stop:
				return
			}
		}
	}
}

// pending reports whether there are entries in memory only.
func (t *tailLog) pending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries) > 0
}

// waitSynced waits until the entries up to index are on disk. It fails only when
// the log is closed first.
func (t *tailLog) waitSynced(index uint64) error {
	if t.synced.Load() >= index {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.synced.Load() < index {
		if t.closed || t.ending && t.err != nil {
			return errors.Join(errTailClosed, t.err)
		}
		t.changed.Wait()
	}
	return nil
}

// end lets nobody wait any longer for a disk that fails.
func (t *tailLog) end() {
	t.mu.Lock()
	t.ending = true
	t.changed.Broadcast()
	t.mu.Unlock()
}

// first and last index of the tail; 0 if it is empty.
func (t *tailLog) bounds() (first, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.entries); n > 0 {
		return t.entries[0].Index, t.entries[n-1].Index
	}
	return 0, 0
}

// FirstIndex returns the first entry's index; 0 if there is none.
func (t *tailLog) FirstIndex() (uint64, error) {
	tail, _ := t.bounds() // first, for entries only go from there to the disk
	first, err := t.diskLog.FirstIndex()
	if err == nil && first == 0 {
		first = tail
	}
	return first, err
}

// LastIndex returns the last entry's index; 0 if there is none.
func (t *tailLog) LastIndex() (uint64, error) {
	if _, last := t.bounds(); last > 0 {
		return last, nil
	}
	return t.diskLog.LastIndex()
}

// GetLog reads an entry.
func (t *tailLog) GetLog(index uint64, l *raft.Log) error {
	t.mu.Lock()
	if n := len(t.entries); n > 0 && index >= t.entries[0].Index {
		if i := index - t.entries[0].Index; i < uint64(n) {
			*l = *t.entries[i]
			t.mu.Unlock()
			return nil
		}
	}
	t.mu.Unlock()
	return t.diskLog.GetLog(index, l)
}

// DeleteRange removes entries at the log's head or end.
func (t *tailLog) DeleteRange(low, high uint64) error {
	t.disk.Lock()
	defer t.disk.Unlock()
	if first, _ := t.bounds(); first > 0 && high >= first {
		if err := t.settleLocked(nil); err != nil {
			return err
		}
	}
	if low <= t.synced.Load() && high >= t.synced.Load() {
		// Before it is done, for what is in their place later is not what was
		// there.
		t.synced.Store(low - min(low, 1))
	}
	return t.diskLog.DeleteRange(low, high)
}

// Close writes the tail and closes the log.
func (t *tailLog) Close() error {
	err := t.settle(nil)
	if errors.Is(err, errTailClosed) {
		return nil
	}
	t.mu.Lock()
	t.closed = true
	t.changed.Broadcast()
	t.mu.Unlock()
	close(t.stop)
	<-t.stopped
	return errors.Join(err, t.diskLog.Close())
}
