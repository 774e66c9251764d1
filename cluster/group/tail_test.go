package group

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// openTail opens a log with a tail over a lossy disk, led or not as lead says.
func openTail(t *testing.T, lead *bool) (*tailLog, *lossyDisk) {
	d := newLossyDisk()
	log, _ := d.open()
	tail, err := newTailLog(log)
	if err != nil {
		t.Fatal(err)
	}
	leads := func() bool { return *lead }
	tail.leads.Store(&leads)
	t.Cleanup(func() {
		d.set(false, false)
		_ = tail.Close()
	})
	return tail, d
}

func commands(from, to uint64) (logs []*raft.Log) {
	for i := from; i <= to; i++ {
		logs = append(logs, command(i, 1, []byte("x")))
	}
	return logs
}

// soon waits for something that another goroutine does.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// done reports whether f returns soon, and later what with. If it should not, a
// short time is enough to see it.
func done(should bool, f func() error) (bool, <-chan error) {
	c := make(chan error, 1)
	go func() { c <- f() }()
	patience := 30 * time.Millisecond
	if should {
		patience = 5 * time.Second
	}
	select {
	case err := <-c:
		c <- err
		return true, c
	case <-time.After(patience):
		return false, c
	}
}

func TestLeaderDoesNotWaitForItsDisk(t *testing.T) {
	lead := false
	tail, d := openTail(t, &lead)
	if err := tail.StoreLogs(commands(1, 3)); err != nil || d.last() != 3 {
		t.Fatalf("a follower's entries are not on disk: %v, %d", err, d.last())
	}
	lead = true
	d.set(true, false)
	for i := uint64(4); i <= 9; i++ {
		if ok, _ := done(true, func() error { return tail.StoreLogs(commands(i, i)) }); !ok {
			t.Fatal("a leader waits for its disk")
		}
	}
	var l raft.Log
	for i := uint64(1); i <= 9; i++ {
		if err := tail.GetLog(i, &l); err != nil || l.Index != i {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	first, _ := tail.FirstIndex()
	last, _ := tail.LastIndex()
	if first != 1 || last != 9 || d.last() != 3 || tail.synced.Load() != 3 {
		t.Fatalf("entries %d to %d, on disk to %d, of which it knows %d", first, last, d.last(), tail.synced.Load())
	}
	ok, waited := done(false, func() error { return tail.waitSynced(9) })
	if ok {
		t.Fatal("entries in memory count as being on disk")
	}
	d.set(false, false)
	if err := <-waited; err != nil || d.last() != 9 || tail.pending() {
		t.Fatalf("%v, on disk to %d", err, d.last())
	}
}

// TestOnlyCommandsStayInMemory: members change by configurations that are on the
// leader's disk, and with them all that comes before.
func TestOnlyCommandsStayInMemory(t *testing.T) {
	for _, kind := range []raft.LogType{raft.LogConfiguration, raft.LogBarrier, raft.LogNoop} {
		for _, off := range []rule{0, ruleWait} {
			rulesOff.Store(uint32(off))
			lead := true
			tail, d := openTail(t, &lead)
			d.set(true, false)
			if err := tail.StoreLogs(commands(1, 2)); err != nil {
				t.Fatal(err)
			}
			ok, stored := done(off != 0, func() error {
				return tail.StoreLogs([]*raft.Log{command(3, 1, []byte("x")), {Index: 4, Term: 1, Type: kind}})
			})
			rulesOff.Store(0)
			if ok != (off != 0) {
				t.Fatalf("%v without the rules %b: returned %v before the disk had it", kind, off, ok)
			}
			d.set(false, false)
			if err := <-stored; err != nil || off == 0 && d.last() != 4 {
				t.Fatalf("%v: on disk to %d, %v", kind, d.last(), err)
			}
		}
	}
}

// TestFormerLeaderWritesItsTailFirst: what does not lead appends behind its tail,
// and cuts only what is on disk.
func TestFormerLeaderWritesItsTailFirst(t *testing.T) {
	lead := true
	tail, d := openTail(t, &lead)
	d.set(true, false)
	if err := tail.StoreLogs(commands(1, 5)); err != nil {
		t.Fatal(err)
	}
	lead = false
	ok, cut := done(false, func() error { return tail.DeleteRange(4, 5) })
	if ok {
		t.Fatal("entries that are being written were cut")
	}
	d.set(false, false)
	if err := <-cut; err != nil || d.last() != 3 || tail.synced.Load() != 3 {
		t.Fatalf("%v, on disk to %d", err, d.last())
	}
	if err := tail.StoreLogs([]*raft.Log{command(4, 2, []byte("y"))}); err != nil || d.last() != 4 || tail.synced.Load() != 4 {
		t.Fatalf("%v, on disk to %d", err, d.last())
	}
}

// TestTailIsBounded: a leader waits when too much is in memory only.
func TestTailIsBounded(t *testing.T) {
	lead := true
	tail, d := openTail(t, &lead)
	d.set(true, false)
	big := bytes.Repeat([]byte("x"), 1<<20)
	var n atomic.Uint64
	stored := make(chan error, 1)
	go func() {
		for range 2 * maxTailBytes >> 20 {
			if err := tail.StoreLog(command(n.Load()+1, 1, big)); err != nil {
				stored <- err
				return
			}
			n.Add(1)
		}
		stored <- nil
	}()
	held := func() int {
		tail.mu.Lock()
		defer tail.mu.Unlock()
		return tail.bytes
	}
	soon(t, "the tail does not fill", func() bool { return held() >= maxTailBytes })
	time.Sleep(20 * time.Millisecond)
	if most := maxTailBytes + 2<<20; held() > most || n.Load()<<20 > uint64(most) {
		t.Fatalf("%d bytes in a tail of %d", held(), maxTailBytes)
	}
	d.set(false, false)
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	soon(t, "it is not written", func() bool { return held() == 0 && d.last() == n.Load() })
}

// TestFailingDiskIsNotLedOn: when the tail cannot be written, a leader gets no
// new entry, what is in memory stays, and nobody takes it for durable. It is
// written when the disk has recovered.
func TestFailingDiskIsNotLedOn(t *testing.T) {
	for _, off := range []rule{0, ruleStop} {
		rulesOff.Store(uint32(off))
		defer func() { rulesOff.Store(0) }()
		lead := true
		tail, d := openTail(t, &lead)
		d.set(false, true)
		if err := tail.StoreLogs(commands(1, 3)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-tail.failing():
		case <-time.After(5 * time.Second):
			t.Fatal("nobody is told")
		}
		if err := tail.StoreLogs(commands(4, 4)); errors.Is(err, errDisk) != (off == 0) {
			t.Fatalf("a leader's next entry without the rules %b: %v", off, err)
		}
		rulesOff.Store(0)
		lead = false
		last, _ := tail.LastIndex()
		if err := tail.StoreLogs(commands(last+1, last+1)); !errors.Is(err, errDisk) {
			t.Fatalf("a follower's next entry: %v", err)
		}
		var l raft.Log
		if err := tail.GetLog(3, &l); err != nil || tail.synced.Load() != 0 {
			t.Fatalf("%v, %d on disk", err, tail.synced.Load())
		}
		ok, waited := done(false, func() error { return tail.waitSynced(3) })
		if ok {
			t.Fatal("entries that cannot be written count as being on disk")
		}
		d.set(false, false)
		if err := <-waited; err != nil || d.last() != last {
			t.Fatalf("%v, on disk to %d", err, d.last())
		}
		select {
		case <-tail.failing():
			t.Fatal("it still fails")
		default:
		}
	}
}

// TestNobodyWaitsForAFailingDiskAtTheEnd: a member that is stopped does not apply
// what its disk does not have, and does not wait for it.
func TestNobodyWaitsForAFailingDiskAtTheEnd(t *testing.T) {
	lead := true
	tail, d := openTail(t, &lead)
	d.set(false, true)
	if err := tail.StoreLogs(commands(1, 1)); err != nil {
		t.Fatal(err)
	}
	<-tail.failing()
	_, waited := done(false, func() error { return tail.waitSynced(1) })
	tail.end()
	if err := <-waited; !errors.Is(err, errTailClosed) || !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	m := &machine{log: &logStore{diskLog: tail, tail: tail}}
	if err, _ := m.Apply(command(1, 1, []byte("x"))).(error); !errors.Is(err, errDisk) {
		t.Fatalf("applied: %v", err)
	}
	if _, err := m.Snapshot(); !errors.Is(err, errDisk) {
		t.Fatalf("a snapshot of a state that is behind: %v", err)
	}
	if err := tail.Close(); !errors.Is(err, errDisk) {
		t.Fatalf("closed: %v", err)
	}
}

func TestCloseWritesTheTail(t *testing.T) {
	for _, kind := range []LogStore{LogWAL, LogBoltDB} {
		dir := t.TempDir()
		open := func() *tailLog {
			disk, err := openDiskLog(kind, dir, 1<<20, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			tail, err := newTailLog(disk)
			if err != nil {
				t.Fatal(err)
			}
			return tail
		}
		tail := open()
		leads := func() bool { return true }
		tail.leads.Store(&leads)
		for i := uint64(1); i <= 2000; i++ { // the tail is written meanwhile
			if err := tail.StoreLog(command(i, 1, []byte("x"))); err != nil {
				t.Fatal(err)
			}
		}
		if err := tail.Close(); err != nil {
			t.Fatal(err)
		}
		if err := tail.StoreLog(command(2001, 1, nil)); !errors.Is(err, errTailClosed) {
			t.Fatalf("%s: stored in a closed log: %v", kind, err)
		}
		tail = open()
		last, err := tail.LastIndex()
		if err != nil || last != 2000 || tail.synced.Load() != 2000 {
			t.Fatalf("%s: it ends at %d, %v", kind, last, err)
		}
		if err := tail.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeposedLeaderAcknowledgesWhatIsOnItsDisk sends the entries of a leader's
// tail back to it, as another leader that has them does.
func TestDeposedLeaderAcknowledgesWhatIsOnItsDisk(t *testing.T) {
	for _, off := range []rule{0, ruleSettle} {
		disks := map[string]*lossyDisk{}
		c := newCluster(t, 3, func(cfg *Config) {
			d := newLossyDisk()
			disks[string(cfg.Self)] = d
			cfg.openDisk = d.open
			cfg.HeartbeatTimeout = time.Second
		})
		l := c.leader()
		c.propose(l, "a=1")
		c.settle()
		d := disks[string(l.id)]
		d.set(true, false)
		go func() { _, _, _ = l.group.Propose(t.Context(), []byte("b=1")) }()
		soon(t, "the entry is not in the tail", l.group.log.tail.pending)
		last, _ := l.group.log.LastIndex()
		prev, e := new(raft.Log), new(raft.Log)
		if err := errors.Join(l.group.log.GetLog(last-1, prev), l.group.log.GetLog(last, e)); err != nil {
			t.Fatal(err)
		}
		rulesOff.Store(uint32(off))
		other := c.followers()[0]
		request := &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(other.id), Addr: []byte(other.id)},
			Term:      l.group.raft.CurrentTerm() + 100, PrevLogEntry: prev.Index, PrevLogTerm: prev.Term,
			Entries: []*raft.Log{e},
		}
		response := new(raft.AppendEntriesResponse)
		ok, answered := done(off != 0, func() error {
			return other.group.trans.NetworkTransport.AppendEntries(raft.ServerID(l.id), raft.ServerAddress(l.id), request, response)
		})
		if ok != (off != 0) {
			t.Fatalf("without the rules %b: acknowledged %v before it is on disk", off, ok)
		}
		d.set(false, false)
		if err := <-answered; err != nil || !response.Success {
			t.Fatalf("%v, %+v", err, response)
		}
		rulesOff.Store(0)
		if off == 0 && d.last() < e.Index {
			t.Fatal("acknowledged, but not on disk")
		}
		c.close()
	}
}

// TestFailingLogOfALeader: the node steps down without being asked anything, the
// callers are not told that their commands are done, others lead on, and the
// node catches up when its disk has recovered.
func TestFailingLogOfALeader(t *testing.T) {
	disks := map[string]*lossyDisk{}
	c := newCluster(t, 3, func(cfg *Config) {
		if disks[string(cfg.Self)] == nil {
			disks[string(cfg.Self)] = newLossyDisk()
		}
		cfg.openDisk = disks[string(cfg.Self)].open
	})
	l := c.leader()
	c.propose(l, "a=1")
	disks[string(l.id)].set(false, true)
	ended := make(chan error, 1)
	go func() {
		_, _, err := l.group.proposeHere(t.Context(), []byte("b=1"))
		ended <- err
	}()
	if err := <-ended; err == nil {
		t.Fatal("acknowledged although it is not on the leader's disk")
	}
	soon(t, "it leads on", func() bool { return !l.group.IsLeader() })
	c.propose(c.followers()[0], "c=1")
	if l.machine.value("c") != "" {
		t.Fatal("applied before it was on disk")
	}
	disks[string(l.id)].set(false, false)
	c.settle()
	if l.machine.value("c") == "" || l.machine.value("a") == "" {
		t.Fatal("it has not caught up")
	}
}

// TestOnlyVoterWaitsForItsDisk: where no other disk has it, an entry is nowhere
// but in memory.
func TestOnlyVoterWaitsForItsDisk(t *testing.T) {
	d := newLossyDisk()
	c := newCluster(t, 1, func(cfg *Config) { cfg.openDisk = d.open })
	n := c.leader()
	c.propose(n, "a=1")
	d.set(true, false)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := n.group.Propose(ctx, []byte("b=1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("acknowledged: %v", err)
	}
	// A read is not held up by what is not committed.
	if _, err := n.group.ReadIndex(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := n.group.Stats(); n.machine.value("b") != "" || s.Commit != d.last() {
		t.Fatalf("%q is applied; on disk to %d, %+v", n.machine.value("b"), d.last(), s)
	}
	d.powerOff()
	c.kill(n)
	d.set(false, false)
	c.start(n)
	c.propose(n, "c=1")
	if n.machine.value("a") == "" || n.machine.value("b") != "" {
		t.Fatal("not what its disk has")
	}
}

// TestBatchesArePaced: the next batch waits until the one before is on disk, but
// not for a disk that is slow.
func TestBatchesArePaced(t *testing.T) {
	lead := true
	tail, d := openTail(t, &lead)
	d.set(true, false)
	if err := tail.StoreLogs(commands(1, 1)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := tail.StoreLogs(commands(2, 2)); err != nil || time.Since(began) < pace {
		t.Fatalf("a batch waited %v for a disk that does nothing: %v", time.Since(began), err)
	}
	d.set(false, false)
	soon(t, "it is not written", func() bool { return !tail.pending() })
	if tail.drained != nil {
		t.Fatal("the next batch would wait for nothing")
	}
}
