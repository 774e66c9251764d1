package group

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestOldSnapshotIsRefused: a snapshot that is not newer than the state, or ends
// within the log, is not installed, neither when it comes nor, if the state has
// gone on meanwhile, when it is restored.
func TestOldSnapshotIsRefused(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	at := c.propose(n, "a=1")
	if _, err := n.group.ReadIndex(c.ctx()); err != nil { // the barrier has its place in the log
		t.Fatal(err)
	}
	last := n.group.raft.LastIndex()
	conf := n.group.raft.GetConfiguration().Configuration()
	n.machine.StoreConfiguration(at, 1, raft.EncodeConfiguration(conf))
	snaps, err := newSnapshotStore(t.TempDir()+"/tmp", n.machine, n.group.log, &n.group.applied)
	if err != nil {
		t.Fatal(err)
	}
	_, r, err := snaps.Open(liveID)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(r)
	_ = r.Close()
	if err != nil {
		t.Fatal(err)
	}
	receive := func(index uint64) (string, error) {
		sink, _ := snaps.Create(1, index, 1, conf, 1, nil)
		if _, err := sink.Write(archive); err != nil {
			return "", errors.Join(err, sink.Cancel())
		}
		return sink.ID(), sink.Close()
	}
	for _, index := range []uint64{1, at, last} {
		if _, err := receive(index); err == nil {
			t.Fatalf("a snapshot at index %d is accepted at %d", index, at)
		}
	}
	id, err := receive(last + 1)
	if err != nil {
		t.Fatal(err)
	}
	c.propose(n, "b=1") // the state and the log reach the snapshot's index
	m := &machine{sm: n.machine, log: n.group.log, snaps: snaps, applied: &n.group.applied}
	_, r, err = snaps.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(r); err == nil || n.machine.value("b") == "" {
		t.Fatalf("the state was taken back: %v", err)
	}
	if _, _, err := snaps.Open(id); err == nil {
		t.Fatal("a refused snapshot is still there")
	}
}

// TestFailedCheckpointLeavesNothing is about a disk that is full on the leader.
func TestFailedCheckpointLeavesNothing(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	c.propose(n, "a=1")
	n.machine.mu.Lock()
	n.machine.failSnap = errors.New("disk full")
	n.machine.mu.Unlock()
	snaps, err := newSnapshotStore(t.TempDir()+"/tmp", n.machine, n.group.log, &n.group.applied)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := snaps.Open(liveID); err == nil {
		t.Fatal("no error")
	}
}

func TestWaitersWakeInOrder(t *testing.T) {
	var a applied
	a.init(10)
	woken := make(chan uint64, 5)
	for _, i := range []uint64{14, 11, 13, 12, 15} {
		go func() {
			if a.wait(t.Context(), i) == nil {
				woken <- i
			}
		}()
	}
	for a.next.Load() != 11 || func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.waiters) < 5 }() {
		time.Sleep(time.Millisecond)
	}
	for i := uint64(11); i <= 15; i++ {
		a.set(i)
		if got := <-woken; got != i {
			t.Fatalf("%d woken at %d", got, i)
		}
	}
	if err := a.wait(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
}
