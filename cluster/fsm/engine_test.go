package fsm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// TestEngine runs the scripts of testdata. Their commands:
//
//	apply [from=INDEX]  one entry a line, all in one batch; a line is
//	                    [w=WRITER] [lane=N] [seq=N] [lwm=N] [v=N] [t=N]: OPERATIONS
//	open node=N nonce=N, fence w=N
//	conf TEXT           a configuration entry
//	dump, writers, state, events
//	restart             closes and opens
//	crash               opens what a crash leaves, nothing unsynced surviving
//	flush, checkpoint dir=D, restore dir=D
func TestEngine(t *testing.T) {
	datadriven.Walk(t, "testdata/engine", func(t *testing.T, path string) {
		e := &engineTest{fs: vfs.NewCrashableMem(), next: 1}
		e.open(t)
		defer func() {
			if err := e.m.Close(); err != nil {
				t.Error(err)
			}
		}()
		datadriven.RunTest(t, path, e.run)
	})
}

type engineTest struct {
	fs     *vfs.MemFS
	m      *Machine
	next   uint64
	events strings.Builder
}

func (e *engineTest) open(t *testing.T) {
	m, err := Open(Options{Dir: "group", FS: e.fs, Core: scriptCore{}, MemTableBytes: 256 << 10, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	e.m = m
	m.Subscribe(func(index uint64, events []any) {
		fmt.Fprintf(&e.events, "%d:", index)
		for _, ev := range events {
			fmt.Fprintf(&e.events, " %+v", ev)
		}
		e.events.WriteByte('\n')
	})
}

func (e *engineTest) run(t *testing.T, d *datadriven.TestData) string {
	num := func(name string) uint64 {
		var n uint64
		d.MaybeScanArgs(t, name, &n)
		return n
	}
	word := func(name string) string {
		var s string
		d.MaybeScanArgs(t, name, &s)
		return s
	}
	switch d.Cmd {
	case "apply":
		if d.HasArg("from") {
			e.next = num("from")
		}
		var cmds [][]byte
		for line := range strings.Lines(d.Input) {
			cmds = append(cmds, parseCommandLine(t, strings.TrimSpace(line)))
		}
		return e.apply(cmds)
	case "open":
		return e.apply([][]byte{AppendCommand(nil, Envelope{Time: cluster.Time(num("t"))},
			&OpenWriter{Node: cluster.NodeID(word("node")), Nonce: num("nonce")})})
	case "fence":
		return e.apply([][]byte{AppendCommand(nil, Envelope{}, &FenceWriter{Writer: cluster.WriterID(num("w"))})})
	case "drop":
		return e.apply([][]byte{AppendCommand(nil, Envelope{}, &DropSessions{Sessions: [][16]byte{{15: byte(num("session"))}}})})
	case "conf":
		e.m.StoreConfiguration(e.next, 1, []byte(d.CmdArgs[0].Key))
		e.next++
		return ""
	case "dump":
		var b strings.Builder
		e.m.Reader().Ascend(nil, nil, func(k, v []byte) bool {
			fmt.Fprintf(&b, "%q = %q\n", k, v)
			return true
		})
		return b.String()
	case "writers":
		var b strings.Builder
		for _, w := range e.m.Writers() {
			if got, ok := LoadWriter(e.m.Reader(), w.ID); !ok || got != w {
				t.Errorf("writer %d is stored as %+v, want %+v", w.ID, got, w)
			}
			if got, ok := e.m.Writer(w.ID); !ok || got != w {
				t.Errorf("Writer(%d) = %+v", w.ID, got)
			}
			fmt.Fprintf(&b, "%d %s nonce=%d fenced=%v lwm=%d opened=%d\n", w.ID, w.Node, w.Nonce, w.Fenced, w.LowWater, w.Opened)
		}
		return b.String()
	case "state":
		index, term := e.m.Applied()
		ci, conf := e.m.Configuration()
		return fmt.Sprintf("applied %d term %d configuration %d %s\n", index, term, ci, conf)
	case "events":
		s := e.events.String()
		e.events.Reset()
		return s
	case "restart":
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
		e.open(t)
		return ""
	case "crash":
		after := e.fs.CrashClone(vfs.CrashCloneCfg{})
		if err := e.m.Close(); err != nil {
			t.Fatal(err)
		}
		e.fs = after
		e.open(t)
		return ""
	case "flush":
		index, term, err := e.m.Flush()
		return fmt.Sprintf("%d %d %v\n", index, term, err)
	case "checkpoint":
		c, err := e.m.Checkpoint(word("dir"))
		return fmt.Sprintf("index %d term %d configuration %d %s %v\n", c.Index, c.Term, c.ConfigurationIndex, c.Configuration, err)
	case "restore":
		err := e.m.Restore(word("dir"))
		names, _ := e.fs.List("group")
		return fmt.Sprintf("%v %v\n", err, names)
	}
	t.Fatalf("no command %s", d.Cmd)
	return ""
}

func (e *engineTest) apply(cmds [][]byte) string {
	entries := make([]cluster.Entry, len(cmds))
	for i, c := range cmds {
		entries[i] = cluster.Entry{Index: e.next, Term: 1, Command: c}
		e.next++
	}
	var b strings.Builder
	for i, r := range e.m.Apply(entries) {
		if entries[i].Command[1] == byte(KindOpenWriter) && r != nil {
			body, err := SplitResult(r)
			id, derr := DecodeOpenWriter(body)
			if err == nil && derr == nil {
				fmt.Fprintf(&b, "%d: writer %d\n", entries[i].Index, id)
				continue
			}
		}
		fmt.Fprintf(&b, "%d: %s\n", entries[i].Index, showResult(r))
	}
	return b.String()
}

func parseCommandLine(t *testing.T, line string) []byte {
	head, ops, ok := strings.Cut(line, ":")
	if !ok {
		t.Fatalf("no colon in %q", line)
	}
	var env Envelope
	for _, f := range strings.Fields(head) {
		name, v, _ := strings.Cut(f, "=")
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "w":
			env.Writer = cluster.WriterID(n)
		case "lane":
			env.Lane = uint16(n)
		case "seq":
			env.Seq = n
		case "lwm":
			env.LowWater = uint32(n)
		case "v":
			env.Version = uint8(n)
		case "t":
			env.Time = cluster.Time(n)
		case "session":
			env.Origin.Session[15], env.Origin.Ordered = byte(n), true
		case "xid":
			env.Origin.Session[15] = 0xff
			env.Origin.Slot, env.Origin.Seq = uint32(n)%4, uint32(n)
		case "slot":
			env.Origin.Slot = uint32(n)
		case "s":
			env.Origin.Seq = uint32(n)
		case "sum":
			env.Origin.Sum = uint32(n)
		case "op":
			env.Origin.Op = uint16(n)
		case "sub":
			env.Origin.Sub = uint16(n)
		case "step":
			env.Origin.Step = uint32(n)
		default:
			t.Fatalf("no field %s", name)
		}
	}
	return command(env, strings.TrimSpace(ops))
}
