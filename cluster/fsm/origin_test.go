package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/hawserfs/hawser/cluster"
)

// A replayWorld is a machine to which several front-ends send the same clients'
// requests, each several times.
type replayWorld struct {
	t     *rapid.T
	o     Options
	m     *Machine
	index uint64
	seqs  [3]uint64 // of each writer's lane 0
	log   []cluster.Entry
}

func newReplayWorld(t *rapid.T, off bool) *replayWorld {
	w := &replayWorld{t: t, o: Options{
		Dir: "group", FS: vfs.NewCrashableMem(), Core: scriptCore{}, MemTableBytes: 256 << 10, CacheBytes: 1 << 20, noOrigins: off,
	}}
	w.reopen(w.o.FS)
	for i := range w.seqs {
		w.apply(AppendCommand(nil, Envelope{}, &OpenWriter{Node: cluster.NodeID(fmt.Sprint("n", i)), Nonce: 1}))
	}
	return w
}

func (w *replayWorld) reopen(fs vfs.FS) {
	w.o.FS = fs
	m, err := Open(w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.m = m
	at, _ := m.Applied()
	w.m.Apply(w.log[at:])
}

func (w *replayWorld) close() {
	if err := w.m.Close(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *replayWorld) apply(cmd []byte) []byte {
	w.index++
	e := cluster.Entry{Index: w.index, Term: 1, Command: cmd}
	w.log = append(w.log, e)
	return w.m.Apply([]cluster.Entry{e})[0]
}

// send executes a script with an origin through a front-end.
func (w *replayWorld) send(by int, o Origin, text string) []byte {
	w.seqs[by]++
	return w.apply(command(Envelope{Writer: cluster.WriterID(by + 1), Seq: w.seqs[by], Origin: o}, text))
}

// disturb restarts, crashes or restores the machine: it comes to the same state.
func (w *replayWorld) disturb(what int) {
	switch what {
	case 0:
		w.close()
		w.reopen(w.o.FS)
	case 1:
		if _, _, err := w.m.Flush(); err != nil {
			w.t.Fatal(err)
		}
	case 2:
		fs := w.o.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
		w.close()
		w.reopen(fs)
	case 3:
		dir := fmt.Sprint("cp", w.index)
		if _, err := w.m.Checkpoint(dir); err != nil {
			w.t.Fatal(err)
		}
		if err := w.m.Restore(dir); err != nil {
			w.t.Fatal(err)
		}
	}
}

// onceOnly sends random requests of several clients again and again, through
// several front-ends, in any order, with crashes and snapshots between. It
// returns an error when one is executed twice or has two results.
func onceOnly(t *rapid.T, off bool) error {
	w := newReplayWorld(t, off)
	defer w.close()
	type slotID struct{ session, slot byte }
	current := map[slotID]uint32{}
	first := map[Origin][]byte{}
	executed := 0
	for range rapid.IntRange(5, 60).Draw(t, "steps") {
		if rapid.IntRange(0, 7).Draw(t, "disturb") == 0 {
			w.disturb(rapid.IntRange(0, 3).Draw(t, "how"))
		}
		id := slotID{byte(rapid.IntRange(1, 2).Draw(t, "session")), byte(rapid.IntRange(0, 1).Draw(t, "slot"))}
		o := Origin{Session: [16]byte{id.session}, Slot: uint32(id.slot), Ordered: true}
		old := rapid.IntRange(0, 9).Draw(t, "old") == 0
		if rapid.IntRange(0, 3).Draw(t, "next") == 0 {
			current[id]++
		}
		o.Seq = current[id]
		if old {
			o.Seq--
		}
		o.Op = uint16(rapid.IntRange(0, 2).Draw(t, "op"))
		o.Sub = uint16(rapid.IntRange(0, 1).Draw(t, "sub"))
		text := "add N 1"
		if rapid.Bool().Draw(t, "fails") {
			text = "get N; fail ENOENT"
		}
		by := rapid.IntRange(0, 2).Draw(t, "by")
		_, known := first[o]
		started := false // something of the request's slot was executed
		for k := range first {
			started = started || k.Session == o.Session && k.Slot == o.Slot && k.Seq == o.Seq+1
		}
		got := bytes.Clone(w.send(by, o, text))
		_, err := SplitResult(got)
		switch {
		case old && started:
			if !errors.Is(err, cluster.EREPLAY) {
				return fmt.Errorf("%+v, which is old: %s", o, showResult(got))
			}
			continue
		case known:
			if !bytes.Equal(got, first[o]) {
				return fmt.Errorf("%+v: first %s, then %s", o, showResult(first[o]), showResult(got))
			}
		default:
			first[o] = got
			if err == nil {
				executed++
			}
		}
		if s, ok := LoadResult(w.m.Reader(), &o); !ok || !bytes.Equal(s.Result, got) || s.Kind != kindScript {
			return fmt.Errorf("%+v: stored %v %s, was %s", o, ok, showResult(s.Result), showResult(got))
		}
		want := fmt.Sprint(executed)
		if v, ok := w.m.Reader().Get(nil, []byte("N")); ok != (executed > 0) || ok && string(v) != want {
			return fmt.Errorf("%s executions, want %s", v, want)
		}
	}
	return nil
}

// TestOnce: the same origin is executed once and has one result, whatever
// front-ends it comes through and whatever becomes of the machine meanwhile.
// Without the rule the test fails.
func TestOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := onceOnly(t, false); err != nil {
			t.Fatal(err)
		}
	})
	missed := false
	rapid.Check(t, func(t *rapid.T) {
		if !missed {
			missed = onceOnly(t, true) != nil
		}
	})
	if !missed {
		t.Error("nobody notices that origins are not looked at")
	}
}

// TestDropSessionsBounded: a session with many slots is forgotten in steps.
func TestDropSessionsBounded(t *testing.T) {
	m := openTest(t, vfs.NewMem())
	var entries []cluster.Entry
	const slots = maxDropSlots + 10
	for i := range uint64(slots) {
		o := Origin{Session: [16]byte{1}, Slot: uint32(i), Seq: 1}
		entries = append(entries, cluster.Entry{Index: i + 1, Term: 1, Command: command(Envelope{Origin: o}, "")})
	}
	m.Apply(entries)
	for i, want := range []bool{true, false, false} {
		if has := HasSession(m.Reader(), [16]byte{1}); has != (i < 2) {
			t.Errorf("step %d: %v", i, has)
		}
		r := m.Apply([]cluster.Entry{{Index: slots + 1 + uint64(i), Term: 1, Command: AppendCommand(nil, Envelope{}, &DropSessions{Sessions: [][16]byte{{2}, {1}}})}})
		body, err := SplitResult(r[0])
		more, derr := DecodeDropSessions(body)
		if err != nil || derr != nil || more != want {
			t.Errorf("step %d: %v %v %v", i, more, err, derr)
		}
	}
}
