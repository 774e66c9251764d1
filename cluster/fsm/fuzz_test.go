package fsm

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hawserfs/hawser/cluster"
)

// FuzzCommand parses any bytes as a command: what is accepted is the same
// command when it is written again.
func FuzzCommand(f *testing.F) {
	env := Envelope{Writer: 1, Lane: 2, Seq: 3, LowWater: 4, Time: 5}
	f.Add(AppendCommand(nil, env, script("set a b")))
	f.Add(AppendCommand(nil, env, &OpenWriter{Node: "n", Nonce: 7}))
	f.Add(AppendCommand(nil, Envelope{Version: CommandVersion + 1}, script("")))
	f.Fuzz(func(t *testing.T, in []byte) {
		env, body, err := ParseCommand(in)
		if err != nil {
			return
		}
		again, rest, err := ParseCommand(AppendCommand(nil, env, rawBody{env.Kind, body}))
		if err != nil || again != env || !bytes.Equal(rest, body) {
			t.Fatalf("%x is %+v, and written again %+v, %v", in, env, again, err)
		}
		_, _ = DecodeOpenWriter(body)
		_, _ = SplitResult(body)
		_, _ = decodeWriter(1, body)
	})
}

type rawBody struct {
	kind Kind
	body []byte
}

func (b rawBody) Kind() Kind                 { return b.kind }
func (b rawBody) AppendTo(dst []byte) []byte { return append(dst, b.body...) }

// FuzzEngine applies two commands of any bytes, the engine's own among them:
// each gets a result, and what they leave can be opened again.
func FuzzEngine(f *testing.F) {
	f.Add(AppendCommand(nil, Envelope{}, &OpenWriter{Node: "n", Nonce: 7}), AppendCommand(nil, Envelope{}, &FenceWriter{Writer: 1}))
	f.Add(AppendCommand(nil, Envelope{Writer: 1, Lane: MaxLanes - 1, Seq: 9, LowWater: 3}, rawBody{FirstCoreKind, nil}), []byte("?"))
	f.Add(AppendCommand(nil, Envelope{Writer: 1, Seq: 1}, &OpenWriter{Node: "other"}), AppendCommand(nil, Envelope{Writer: 1, Seq: 1}, &FenceWriter{Writer: 9}))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		o := Options{Dir: "group", FS: vfs.NewMem(), Core: nullCore{}, MemTableBytes: 256 << 10, CacheBytes: 1 << 20}
		m, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		index := uint64(0)
		apply := func(cmds ...[]byte) {
			var entries []cluster.Entry
			for _, c := range cmds {
				index++
				entries = append(entries, cluster.Entry{Index: index, Term: 1, Command: c})
			}
			for i, r := range m.Apply(entries) {
				if len(r) < 2 {
					t.Fatalf("command %x has the result %x", cmds[i], r)
				}
			}
		}
		apply(AppendCommand(nil, Envelope{}, &OpenWriter{Node: "n", Nonce: 1}))
		apply(one, two)
		apply(two, one, one)
		writers := m.Writers()
		if _, _, err := m.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if m, err = Open(o); err != nil {
			t.Fatalf("what %x and %x left: %v", one, two, err)
		}
		if again := m.Writers(); len(again) != len(writers) {
			t.Errorf("%d writers, %d after opening", len(writers), len(again))
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// nullCore accepts everything.
type nullCore struct{}

func (nullCore) Apply(tx *Tx, _ uint64, _ *Envelope, _ []byte) []byte { return tx.Result(cluster.OK) }
